"""The commands `clearspan KIND ...`: make verified shards or a tokenizer from a raw corpus; search vectors."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Mapping, Sequence

from clearspan.common import plugins, terminal
from clearspan.common.command import Command
from clearspan.common.flags import flag
from clearspan.common.options import add_fields, checked
from clearspan.pipelines import kinds
from clearspan.pipelines.dataset_command import MakeDataset
from clearspan.pipelines.errors import EXPECTED
from clearspan.pipelines.execution.quiet import quiet_beam
from clearspan.pipelines.kinds import Kind
from clearspan.pipelines.mining.mine_command import Mine
from clearspan.pipelines.run import RunOptions
from clearspan.pipelines.search.search_command import Search
from clearspan.pipelines.serve.serve_command import Serve
from clearspan.pipelines.vocabulary_command import Vocabulary
from clearspan.shards import schema as schemas
from clearspan.shards import storage


def find_kinds() -> dict[str, type[Kind]]:
    """Return the kinds of dataset that the modules of `pipelines.kinds` define: name of the command -> class."""
    names = [module.name for module in pkgutil.iter_modules(kinds.__path__, f"{kinds.__name__}.")]
    modules = map(importlib.import_module, names)
    classes = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    concrete = [cls for cls in classes if issubclass(cls, Kind) and not inspect.isabstract(cls)]
    named = {kind.command or kind.name: kind for kind in concrete}
    return dict(sorted(named.items()))


KINDS = find_kinds()
OTHERS: dict[str, type[Vocabulary | Search | Serve | Mine]] = {
    each.name: each for each in (Vocabulary, Mine, Search, Serve)
}
"""The commands that make no dataset of a corpus."""
PROG = "python -m pipelines"
OWN = "For a kind of your own pass `module:Class` as KIND (docs/data.md); --help after it lists its options."
AFTER = "The same command continues a stopped run. Options not listed here go to Beam (e.g. --runner)."


def load_kind(spec: str) -> type[Kind]:
    """Return the class of a kind of dataset from outside this package, which `spec` names as `module:name`.

    Raises:
        PluginError: there is no such class, or it does not implement `Kind`.
    """
    kind = plugins.load_class(spec, Kind, "a kind of dataset")
    if kind.name not in schemas.KINDS:
        raise plugins.PluginError(f"{spec}: {kind.name!r} has no columns: call clearspan.shards.schema.register")
    return kind


def parser(known: Mapping[str, type[Kind]] = KINDS, prog: str = PROG) -> terminal.Parser:
    """Return the argument parser of the command, with a subcommand for each kind."""
    commands: dict[str, type[Kind] | type[Vocabulary | Search | Serve | Mine]] = {**known, **OTHERS}
    examples = [commands[name].example for name in (*KINDS, *OTHERS)]
    epilog = "\n  ".join(["examples:", *examples]) + f"\n\n{OWN}\n{AFTER}\n"
    root = terminal.Parser(prog=prog, description=__doc__, epilog=epilog)
    below = root.add_subparsers(dest="kind", required=True)
    for name, cls in commands.items():
        after = f"\n{AFTER}\n" if name in known else ""
        epilog = f"example:\n  {cls.example}\n{after}"
        command = below.add_parser(name, help=cls.summary, description=cls.description or cls.summary, epilog=epilog)
        add_fields(command, cls, *([RunOptions] if name in known else []))
        command.set_defaults(parser=command)
    return root


def check_beam(command: terminal.Parser, arguments: Sequence[str], is_allowed: bool = True) -> None:
    """Refuse, by `command.error`, an option that neither the command nor Beam has, such as a mistyped option."""
    if not arguments[0].startswith("--") or not is_allowed:
        command.error(command.unknown(arguments))
    with quiet_beam():
        from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
        from apache_beam.runners import create_runner

        if runner := PipelineOptions(list(arguments)).view_as(StandardOptions).runner:
            try:
                create_runner(runner)  # imports the runner's module, which adds options
            except (ImportError, AttributeError) as error:
                command.error(f"--runner {runner}: {error}")
        mistyped, known = storage.unknown_options(arguments)
    if mistyped:
        command.error(command.unknown(mistyped, known))


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command line; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    remedy = "run the same command again to continue"  # worker processes end with this one
    return terminal.run("pipelines", lambda: prepare(words, prog).tell("pipelines"), EXPECTED, remedy=remedy)


def prepare(words: Sequence[str], prog: str = PROG) -> Command:
    """Return the command that a command line asks for, with its options checked."""
    known = KINDS
    if words and ":" in words[0]:
        try:
            known = {**KINDS, words[0]: load_kind(words[0])}
        except plugins.PluginError as error:
            parser(prog=prog).error(str(error))
    arguments, rest = parser(known, prog).parse_known_args(words)
    name, command = arguments.kind, arguments.parser
    if name in OTHERS:
        arguments, rest = command.parse_known_intermixed_args(words[1:])  # words without a flag may stand anywhere
        other = checked(command, OTHERS[name], arguments)
        is_remote = any(map(storage.is_remote, other.inputs))
        if rest:
            check_beam(command, rest, is_allowed=is_remote)
        if is_remote:
            storage.use_options(rest)
        return other
    options = checked(command, RunOptions, arguments, beam=rest)
    kind = checked(command, known[name], arguments)
    if kind.group_field is not None and not options.holdout_fraction:
        command.error(
            f"{flag('--group-field')} has no effect without {flag('--holdout-fraction')}: leave it out, or add that"
        )
    if rest:
        check_beam(command, rest)
    return MakeDataset(kind=kind, options=options)


if __name__ == "__main__":
    sys.exit(main())
