"""Base classes of the commands that make or search datasets: how they report errors, and take options of Beam.

    clearspan documents --input a.jsonl --output data --runner=FlinkRunner
                        └── options of the command ─┘ └─ option of Beam ─┘

An option that the command does not have is taken for an option of Beam. If Beam does not have the option either, it is
an error.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from clearspan.cli.command import Command, Errors
from clearspan.common.errors import PipelineError
from clearspan.common.options import Flag, Options, from_keywords
from clearspan.common.spawned import CommandError, call
from clearspan.common.terminal import UsageError
from clearspan.shards import storage
from clearspan.shards.manifest import ManifestError
from clearspan.shards.quiet import quiet_beam
from clearspan.shards.reader import ShardError

PREFIX = "pipelines"
"""The beginning of error lines, whichever command of `pipelines` runs."""
EXPECTED = (PipelineError, ManifestError, ShardError, OSError)
"""Errors that a user or a disk can cause, shown as one line. A different exception is a bug and keeps its traceback."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions(Options):
    """Options of Beam, as words of a command line, e.g. ("--runner=FlinkRunner", "--parallelism=4")."""

    beam: Annotated[tuple[str, ...], Flag(rest=True)] = ()
    """Options of Beam."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineCommand(Command):
    """Base class of the commands of `pipelines`. If a command was stopped, the same command continues its work.

    Attributes:
        error_prefix: the beginning of error lines.
        expected: types of exceptions that the user sees as one line; any other exception is a bug.
        remedy: advice for a user who stops the command.
    """

    error_prefix: ClassVar[str] = PREFIX
    expected: ClassVar[Errors] = EXPECTED
    remedy: ClassVar[str] = "run the same command again to continue"  # worker processes end with this one

    def request(self, beam: tuple[str, ...] = ()) -> tuple[Any, ...]:
        """Return a function, `module:function`, and its arguments, for a process of its own (`common.spawned`).

        The function returns the command, which that process then runs.

        Args:
            beam: options of Beam, which only that process checks.
        """
        return f"{__name__}:with_beam", self, beam


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreCommand(BeamOptions, PipelineCommand):
    """Base class of the commands that run no Beam pipeline, and use Beam only to access object stores.

    If all paths of the command are on this machine, options of Beam would have no effect, and the command refuses them.
    """

    def validate(self) -> None:
        super().validate()
        if self.beam:
            check_beam(type(self), self.beam, is_allowed=any(map(storage.is_remote, self.paths())))

    @abstractmethod
    def paths(self) -> Sequence[str]:
        """Return the paths that the command reads or writes, on this machine or in an object store."""

    def use_store(self) -> None:
        """Use the command's options of Beam for all access to object stores from now on, in the whole process."""
        if self.beam:
            storage.use_options(self.beam)


def with_beam(command: StoreCommand, beam: tuple[str, ...]) -> StoreCommand:
    """Return a command with options of Beam, which the process that sent the command has not checked.

    Raises:
        UsageError: an option is not one of Beam, or would have no effect.
    """
    try:
        return dataclasses.replace(command, beam=beam)
    except ValueError as error:
        raise UsageError(str(error)) from None


def call_command(
    cls: type[PipelineCommand], arguments: Mapping[str, Any], options: Mapping[str, Any], quiet: bool
) -> None:
    """Check a user's keyword arguments, then run the command in a process of its own.

    Only that process checks the options of Beam (`BeamOptions`), since it has to import Beam for this.

    Args:
        cls: the command.
        arguments: the named arguments of the user's call: name of an option, with underscores -> value.
        options: the further options of the user's call.
        quiet: if true, nothing is printed.

    Raises:
        UsageError: an option is unknown, given twice, or cannot work.
        PipelineError: the work failed.
    """
    if twice := sorted(arguments.keys() & options.keys()):
        raise UsageError(f"{twice[0]}: already given by an argument of this call: leave it out")
    given = {**arguments, **options}
    beam = from_keywords(BeamOptions, {"beam": given.pop("beam", ())}).beam
    try:
        request = from_keywords(cls, given).request(beam)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        call(*request, expected=EXPECTED, quiet=quiet)
    except PipelineError:
        raise
    except UsageError:
        raise
    except (*EXPECTED, CommandError) as error:
        raise PipelineError(str(error)) from None


def check_beam(cls: type[Command], words: Sequence[str], is_allowed: bool = True) -> None:
    """Check that words of a command line are options of Beam.

    Args:
        cls: the command.
        words: the words that are not options of the command, at least one, e.g. "--runner=FlinkRunner".
        is_allowed: False if options of Beam would have no effect. They are then refused.

    Raises:
        ValueError: a word is not an option of Beam (it may be a mistyped option of the command), the runner that
            `--runner` names cannot be imported, or `is_allowed` is False.
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
