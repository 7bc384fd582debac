"""Options in messages: named by their fields in backticks, and printed as flags by a command line."""

import ast
import contextlib
import importlib
import re
from collections.abc import Iterator

import pytest

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.flags import NAME, command_line, register
from clearspan.cli.parser import Parser
from clearspan.common.options import DefinitionError, Options, keywords
from clearspan.common.terminal import as_printed
from tests.conftest import ROOT

PACKAGES = (
    "adapt",
    "clearspan",
    "cli",
    "common",
    "eval",
    "pipelines",
    "plugins",
    "retrieval",
    "serve",
    "shards",
    "train",
)
OPTION = re.compile(r"(?<![\w/=.-])--(?!help\b|version\b|list\b|runner\b)[a-z][\w-]*")
"""An option in a sentence. The first three have no keyword argument, and Beam's options are words in Python too."""
COMMAND = re.compile(r"`[^`]*`")
"""A command line in a sentence, which stays a command line for a reader in Python."""
OF_OTHERS = {"tar's": "pack it without --sparse", "zstd's": "e.g. zstd without --long"}
HELP = {"Flag", "add_argument", "add_argument_group", "continue_with"}
"""Functions whose texts are read on a command line only."""
HELP_TEXTS = re.compile(r"example|_?EXAMPLES?|EPILOG|OWN|notes|_?NOTES?|usage|LAUNCHER")
"""Names of texts of the help."""


def is_sentence(text: str) -> bool:
    """Return whether a text names an option within a sentence; an option, or an option and its value, is none."""
    is_data = re.fullmatch(r"--[\w-]+ \S+", text)
    return not is_data and " " in text.strip() and bool(OPTION.search(COMMAND.sub("", text)))


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each literal that is neither a docstring nor a text of the help."""
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    helping = [node for node in called if getattr(node.func, "id", getattr(node.func, "attr", "")) in HELP]
    in_help = {id(node) for call in helping for node in ast.walk(call)}
    named = {node.id for call in helping for node in ast.walk(call) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            in_help.add(id(node.value))  # a docstring
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name for target in targets if isinstance(name := getattr(target, "id", ""), str)}
            if names & named or any(HELP_TEXTS.fullmatch(name) for name in names):
                in_help |= {id(each) for each in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "x" for each in node.values]
            in_help |= {id(each) for each in node.values if isinstance(each, ast.Constant)}
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in in_help:
            yield node.lineno, text


def all_messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each message of the packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for line, text in messages(ast.parse(path.read_text(encoding="utf-8"))):
                yield f"{path.relative_to(ROOT)}:{line}", text


def known_options() -> set[str]:
    """Return the names of the options of all commands."""
    for command in COMMANDS.values():
        importlib.import_module(command.module)
    classes, names = [Options], set()
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        with contextlib.suppress(DefinitionError):  # a class of options that no command has
            names |= keywords(cls)
    return names


def test_no_message_names_an_option_by_its_flag() -> None:
    found = [f"{place}: {text}" for place, text in all_messages() if is_sentence(text)]
    assert [each for each in found if not any(other in each for other in OF_OTHERS.values())] == []


def test_a_word_in_backticks_is_an_option_of_a_command() -> None:
    known = known_options()
    found = [(place, name) for place, text in all_messages() for name in NAME.findall(text.replace("`x`", ""))]
    assert len(found) > 200
    assert [(place, name) for place, name in found if name not in known] == []


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('raise ValueError("--eggs must be at least 1")', 1),
        ('raise ValueError(f"{option} has no effect without --butter")', 1),
        ('MEND = "lower --min-tokens"', 1),
        ('raise ValueError("`eggs` must be at least 1")', 0),
        ('raise ValueError("make it with `clearspan documents --eggs 2`; --help lists more")', 0),
        ('class Bake:\n    eggs = 2\n    """As --butter."""', 0),
        ('OPTION = "--group-field"', 0),
    ],
)
def test_the_rule_finds_options_in_messages_only(source: str, number: int) -> None:
    assert sum(is_sentence(text) for _, text in messages(ast.parse(source))) == number


def test_a_command_line_prints_options_as_flags_and_python_their_names() -> None:
    message = "`no_dedup` has no effect without `text_per` line; the keys `a.b`, `Some Words` and 'top' are no options"
    assert as_printed(message) == message
    with command_line():
        printed = (
            "--no-dedup has no effect without --text-per line; the keys `a.b`, `Some Words` and 'top' are no options"
        )
        assert as_printed(message) == printed
    assert as_printed(message) == message


def test_a_flag_is_printed_as_the_command_spells_it_until_the_command_ends() -> None:
    parser = Parser(prog="bake")
    parser.add_argument("--num_eggs")
    with command_line():
        with command_line():
            parser.parse_args([])
            assert as_printed("`num_eggs`, `max_eggs`") == "--num_eggs, --max-eggs"
        assert as_printed("`num_eggs`") == "--num-eggs"
    register(["--num_eggs"])
    assert as_printed("`num_eggs`") == "`num_eggs`"
