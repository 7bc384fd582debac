"""The commands `clearspan KIND ...`: make verified shards or a tokenizer from a raw corpus; search vectors."""

import argparse
import contextlib
import importlib
import inspect
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

from clearspan.common import plugins, terminal
from clearspan.pipelines import kinds, search, vocabulary
from clearspan.pipelines.errors import EXPECTED
from clearspan.pipelines.execution.quiet import quiet_beam
from clearspan.pipelines.kinds import Kind, add_common_arguments, check_positive
from clearspan.pipelines.run import Options, Summary, run
from clearspan.shards import schema as schemas
from clearspan.shards import storage


def find_kinds() -> dict[str, type[Kind]]:
    """Return the kinds of dataset that the modules of `pipelines.kinds` define, by the name of their command."""
    names = [module.name for module in pkgutil.iter_modules(kinds.__path__, f"{kinds.__name__}.")]
    modules = map(importlib.import_module, names)
    classes = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    concrete = [cls for cls in classes if issubclass(cls, Kind) and not inspect.isabstract(cls)]
    named = {kind.command or kind.name: kind for kind in concrete}
    return dict(sorted(named.items()))


KINDS = find_kinds()
OTHERS: dict[str, tuple[ModuleType, Any]] = {
    vocabulary.NAME: (vocabulary, vocabulary.Vocabulary),
    search.NAME: (search, search.Search),
}
"""The commands that make no dataset: the module, and the class of its options."""
Report = Summary | vocabulary.Summary | search.Results
"""The result of a command, as text and as JSON."""
PROG = "python -m pipelines"
OWN = "For a kind of your own pass `module:Class` as KIND (docs/data.md); --help after it lists its options."
AFTER = "The same command continues a stopped run. Options not listed here go to Beam (e.g. --runner)."


def load_kind(spec: str) -> type[Kind]:
    """Return the kind of dataset that a class outside this package defines, named as `module:name`.

    Raises:
        PluginError: there is no such class, or it does not implement `Kind`.
    """
    kind = plugins.load(spec, Kind, "a kind of dataset")
    if kind.name not in schemas.KINDS:
        raise plugins.PluginError(
            f"{spec}: its module registers no columns for {kind.name!r}: call clearspan.shards.schema.register"
        )
    return kind


def parser(
    known: Mapping[str, type[Kind]] = KINDS, parser_class: type[terminal.Parser] = terminal.Parser, prog: str = PROG
) -> terminal.Parser:
    """Return the argument parser of the command, with a subcommand for each kind."""
    examples = [*(kind.example for kind in KINDS.values()), vocabulary.EXAMPLE, search.EXAMPLE]
    root = parser_class(
        prog=prog,
        description=__doc__,
        epilog="\n  ".join(["examples:", *examples]) + f"\n\n{OWN}\n{AFTER}\n",
    )
    root.add_argument("--version", action="version", version=terminal.version())
    commands = root.add_subparsers(dest="kind", required=True)
    for name, kind in known.items():
        command = commands.add_parser(
            name, help=kind.summary, description=kind.summary, epilog=f"example:\n  {kind.example}\n\n{AFTER}\n"
        )
        add = command.add_argument
        add("--input", nargs="+", action="extend", required=True, metavar="GLOB", help="files, folders or quoted globs")
        add("--output", required=True, metavar="DIR", help="new or empty folder, or that of a run to continue")
        kind.add_arguments(command)
        command.set_defaults(parser=command)
        add("--limit", type=int, metavar="N", help=f"keep the first N {kind.name}")
        holdout_fraction_help = "fraction to hold out in OUTPUT/validation, by id (default 0)"
        add("--holdout-fraction", type=float, default=0.0, metavar="F", help=holdout_fraction_help)
        add("--workers", type=int, metavar="N", help="processes (default: the fewest that finish soonest)")
        of_unit = "input bytes of a work unit (default: by kind and size of the input)"
        add("--unit-bytes", type=int, metavar="N", help=of_unit)
        longest = f"count longer records as bad (default {kind.max_bytes // 1_000_000} MB)"
        add("--max-document-bytes", type=int, metavar="N", help=longest)
        add_common_arguments(command)
    for module, options in OTHERS.values():
        command = commands.add_parser(
            module.NAME,
            help=module.SUMMARY,
            description=module.SUMMARY,
            epilog=f"example:\n  {module.EXAMPLE}\n",
        )
        options.add_arguments(command)
        command.set_defaults(parser=command)
    return root


def parsers() -> dict[str, terminal.Parser]:
    """Return the parser of each command's options, by its name."""
    (commands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


def check(arguments: argparse.Namespace) -> None:
    """Raise ValueError for a value out of range."""
    check_positive(arguments, "workers", "unit_bytes", "max_document_bytes", "limit")
    if not 0 <= arguments.holdout_fraction < 1:
        raise ValueError("--holdout-fraction must be at least 0 and below 1")
    if not 0 <= arguments.max_bad_fraction <= 1:
        raise ValueError("--max-bad-fraction must be between 0 and 1")


def check_beam(command: terminal.Parser, arguments: Sequence[str]) -> None:
    """Raise ValueError for an option that is neither the command's nor Beam's, such as a mistyped one."""
    if not arguments[0].startswith("--"):
        raise ValueError(command.unknown(arguments))
    with quiet_beam():
        from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
        from apache_beam.runners import create_runner

        if runner := PipelineOptions(list(arguments)).view_as(StandardOptions).runner:
            try:
                create_runner(runner)  # imports the runner's module, which adds options
            except (ImportError, AttributeError) as error:
                raise ValueError(f"--runner {runner}: {error}") from None
        mistyped, known = storage.unknown_options(arguments)
    if mistyped:
        raise ValueError(command.unknown(mistyped, known))


def interrupted(signum: int, frame: FrameType | None) -> None:
    """Exit at once: the next run repeats unfinished units, and worker processes end with this process."""
    end_of_bar = "\n" if sys.stderr.isatty() else ""
    print(f"{end_of_bar}pipelines: stopped: run the same command again to continue", file=sys.stderr, flush=True)
    os._exit(1)


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command line; return the exit code."""
    arguments, make = prepare(sys.argv[1:] if argv is None else argv, prog=prog)
    return finish(lambda: report(arguments, make()))


def prepare(
    argv: Sequence[str], parser_class: type[terminal.Parser] = terminal.Parser, prog: str = PROG
) -> tuple[argparse.Namespace, Callable[[], Report | None]]:
    """Parse and check a command line; return its arguments, and the function that does the work.

    That function returns None where Beam's options only ask for a description of the job. An error in the arguments
    ends the process, or does what the `error` of `parser_class` does.
    """
    words = list(argv)
    known = KINDS
    if words and ":" in words[0]:
        try:
            known = {**KINDS, words[0]: load_kind(words[0])}
        except plugins.PluginError as error:
            parser(parser_class=parser_class, prog=prog).error(str(error))
    root = parser(known, parser_class, prog)
    arguments, rest = root.parse_known_args(words)
    if arguments.kind in OTHERS:
        return arguments, prepare_other(arguments, rest)
    try:
        check(arguments)
        kind = known[arguments.kind].from_arguments(arguments)
        if rest:
            check_beam(arguments.parser, rest)
    except ValueError as error:
        arguments.parser.error(str(error))
    options = Options(
        inputs=arguments.input,
        output=arguments.output,
        unit_bytes=arguments.unit_bytes,
        max_document_bytes=arguments.max_document_bytes,
        max_bad_fraction=arguments.max_bad_fraction,
        limit=arguments.limit,
        holdout_fraction=arguments.holdout_fraction,
        workers=arguments.workers,
        quiet=arguments.quiet,
        skip_unknown=arguments.skip_unknown,
        beam=rest,
    )
    if options.runner_named and options.workers:
        arguments.parser.error(
            "--workers is for this machine: for a runner named with --runner, use that runner's options"
        )
    if options.on_dataflow and not all(map(storage.is_remote, [*arguments.input, arguments.output])):
        arguments.parser.error(
            "Dataflow's workers do not see this machine's files: --input and --output must be in a bucket"
        )
    return arguments, lambda: make_dataset(kind, options)


def finish(work: Callable[[], int]) -> int:
    """Run a command's work, which SIGINT or SIGTERM ends; return its exit code."""
    handlers = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return terminal.run("pipelines", work, EXPECTED)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def prepare_other(arguments: argparse.Namespace, rest: list[str]) -> Callable[[], Report]:
    """Check the options of a command that makes no dataset; return the function that does its work."""
    module, options_class = OTHERS[arguments.kind]
    try:
        options: Any = options_class.from_arguments(arguments)
        is_remote = any(map(storage.is_remote, options.inputs))
        if rest:
            if not is_remote:
                raise ValueError(arguments.parser.unknown(rest))
            check_beam(arguments.parser, rest)
    except ValueError as error:
        arguments.parser.error(str(error))

    def work() -> Report:
        if is_remote:
            storage.use_options(rest)
        result: Report = module.run(options)
        return result

    return work


def make_dataset(kind: Kind, options: Options) -> Summary | None:
    """Run the pipeline, without Beam's log on this machine."""
    with contextlib.nullcontext() if options.runner_named else quiet_beam():
        return run(kind, options)


def report(arguments: argparse.Namespace, summary: Report | None) -> int:
    """Print the summary of what was made, or what was found."""
    if summary is None:
        terminal.say(f"{arguments.output}: planned; the job was only described, not run")
    else:
        terminal.say(summary.to_json() if arguments.json else str(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
