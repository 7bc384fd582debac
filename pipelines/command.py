"""Base classes of the commands of `pipelines`: how they report errors, and how they take options of Beam.

    clearspan documents --input a.jsonl --output data --runner=FlinkRunner
                        └── options of the command ─┘ └─ option of Beam ─┘

An option that the command does not have is taken for an option of Beam. If Beam does not have the option either, it is
an error.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

from clearspan.common.command import Command, Errors
from clearspan.common.options import Flag, Options
from clearspan.pipelines.errors import EXPECTED, PREFIX
from clearspan.pipelines.execution.quiet import quiet_beam
from clearspan.shards import storage


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions(Options):
    """Options of Beam, each as a word of the command line, e.g. "--runner=FlinkRunner"."""

    beam: Annotated[tuple[str, ...], Flag("options of Beam", rest=True)] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineCommand(Command):
    """A command of `pipelines`. A user who stops it is told to run it again: it continues where it stopped."""

    error_prefix: ClassVar[str] = PREFIX
    expected: ClassVar[Errors] = EXPECTED
    remedy: ClassVar[str] = "run the same command again to continue"  # worker processes end with this one


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreCommand(BeamOptions, PipelineCommand):
    """A command that uses Beam only to access object stores; on this machine's files it takes no options of Beam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam:
            check_beam(type(self), self.beam, is_allowed=any(map(storage.is_remote, self.paths())))

    @abstractmethod
    def paths(self) -> Sequence[str]:
        """Return the paths that the command reads or writes, perhaps on an object store."""

    def use_store(self) -> None:
        """Access object stores with the options of Beam, from now on."""
        if self.beam:
            storage.use_options(self.beam)


def check_beam(cls: type[Command], words: Sequence[str], is_allowed: bool = True) -> None:
    """Check words of a command line that are no options of the command.

    Args:
        is_allowed: whether the command takes options of Beam.

    Raises:
        ValueError: a word is no option of Beam either, such as a mistyped option, or the runner cannot be imported.
    """
    parser = cls.parser()
    if not words[0].startswith("--") or not is_allowed:
        raise ValueError(parser.unknown(words))
    with quiet_beam():
        from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
        from apache_beam.runners import create_runner

        if runner := PipelineOptions(list(words)).view_as(StandardOptions).runner:
            try:
                create_runner(runner)  # imports the runner's module, which adds options
            except (ImportError, AttributeError) as error:
                raise ValueError(f"--runner {runner}: {error}") from None
        mistyped, known = storage.unknown_options(words)
    if mistyped:
        raise ValueError(parser.unknown(mistyped, known))
