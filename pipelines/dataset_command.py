"""The commands that make a dataset from a corpus, one for each kind of dataset: `clearspan documents` and others."""

import contextlib
import dataclasses
from typing import Any, ClassVar

from clearspan.cli.command import Printed, Result
from clearspan.common.terminal import UsageError
from clearspan.pipelines.builders import Builder
from clearspan.pipelines.run import RunOptions, run
from clearspan.shards.command import PipelineCommand, check_beam
from clearspan.shards.quiet import quiet_beam


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeDataset(PipelineCommand):
    """Command that makes a dataset of one kind from a corpus.

    Attributes:
        builder: the builder of the dataset, with its own options.
        options: the options that the commands of all kinds share.
    """

    notes: ClassVar[str] = (
        "The same command continues a stopped run. Options that are not listed here go to Beam, e.g. --runner."
    )

    builder: Builder
    options: RunOptions

    def validate(self) -> None:
        super().validate()
        if self.builder.group_field is not None and not self.options.holdout_fraction:
            raise ValueError(
                "`group_field` has no effect without `holdout_fraction`: leave it out, or add `holdout_fraction`"
            )
        if self.options.beam:
            check_beam(type(self), self.options.beam)

    @property
    def json(self) -> bool:
        return self.options.json

    def request(self, beam: tuple[str, ...] = ()) -> tuple[Any, ...]:
        options = dataclasses.replace(self.options, beam=beam)
        return "clearspan.pipelines.dataset_command:make", self.builder, options

    def run(self) -> Result:
        """Make the dataset, and return the summary of the run.

        If Beam's options request only a description of the job (a dry run or a template), no dataset is made, and the
        result is a line that says so.

        Beam's log is suppressed, unless the user names a runner.
        """
        with contextlib.nullcontext() if self.options.runner_named else quiet_beam():
            summary = run(self.builder, self.options)
        if summary is None:
            return Printed(f"{self.options.output}: planned; the job was only described, not run")
        return summary


def making(builder: type[Builder]) -> type[MakeDataset]:
    """Return the command of a builder. It has the options of the builder and of `RunOptions`."""
    texts = {"summary": builder.summary, "description": builder.description, "example": builder.example}
    return dataclasses.make_dataclass(
        f"Make{builder.__name__}",
        [("builder", builder)],
        bases=(MakeDataset,),
        namespace={"__doc__": f"The command `{builder.command or builder.name}`.", **texts},
        frozen=True,
        kw_only=True,
    )


def make(builder: Builder, options: RunOptions) -> MakeDataset:
    """Return the command that makes a dataset, with options that another process has sent.

    Raises:
        UsageError: an option of Beam, which that process has not checked, is none.
    """
    try:
        return making(type(builder))(builder=builder, options=options)
    except ValueError as error:
        raise UsageError(str(error)) from None
