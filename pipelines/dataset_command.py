"""The command `clearspan KIND`, for each kind of dataset: it makes one from a corpus."""

import contextlib
import dataclasses
from typing import ClassVar

from clearspan.common.command import Command, Errors, Printed, Result
from clearspan.pipelines.errors import EXPECTED
from clearspan.pipelines.execution.quiet import quiet_beam
from clearspan.pipelines.kinds import Kind
from clearspan.pipelines.run import RunOptions, run


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeDataset(Command):
    """Command that makes a dataset of one kind from a corpus.

    Attributes:
        kind: the kind, with its own options.
        options: the options that all kinds share.
    """

    expected: ClassVar[Errors] = EXPECTED

    kind: Kind
    options: RunOptions

    @property
    def json(self) -> bool:
        return self.options.json

    def run(self) -> Result:
        """Run the pipeline, without Beam's log on this machine."""
        with contextlib.nullcontext() if self.options.runner_named else quiet_beam():
            summary = run(self.kind, self.options)
        if summary is None:
            return Printed(f"{self.options.output}: planned; the job was only described, not run")
        return summary
