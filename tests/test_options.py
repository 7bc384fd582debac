"""An option's name has one meaning: docs/options.md lists every option that several commands share, and is true."""

import argparse
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from clearspan.__main__ import COMMANDS
from clearspan.common.commands import RaisingParser, as_keywords, keywords, renamed, words
from clearspan.common.terminal import Parser
from clearspan.pipelines.__main__ import KINDS, parsers
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
GROUPS = {"datasets": [*KINDS], "texts": ["vocabulary", "documents", "sentences", "pairs", "triplets", "embed"]}
Option = tuple[str, str]
"""A command and its option."""


class FoundError(Exception):
    """Carries the parser that a command made."""


def parser_of(command: str) -> Parser:
    """The parser that a command makes of its options, or of its subcommands."""
    found: list[Parser] = []

    def parse(parser: Parser, *_: Any) -> None:
        found.append(parser)
        raise FoundError

    with pytest.MonkeyPatch.context() as patched, pytest.raises(FoundError):
        patched.setattr(Parser, "parse_known_args", parse)
        importlib.import_module(COMMANDS[command].module).main([], command)
    return found[0]


def commands() -> Iterator[tuple[str, Parser]]:
    yield from parsers().items()
    for name in (name for name, command in COMMANDS.items() if not command.kept):
        root = parser_of(name)
        below = [action.choices for action in root._actions if isinstance(action, argparse._SubParsersAction)]
        yield from ((f"{name} {word}", parser) for word, parser in below[0].items()) if below else [(name, root)]


@pytest.fixture(scope="module")
def options() -> dict[Option, argparse.Action]:
    """Every option with the name that help shows first."""
    return {
        (name, action.option_strings[0]): action
        for name, parser in commands()
        for action in parser._actions
        if action.option_strings and action.option_strings[0] not in ("-h", "--help", "--version")
    }


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, list[str], str]]:
    """The table's rows: option, commands, default."""
    made = []
    for option, named, _, default in re.findall(r"^\| `(--[\w-]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M):
        made.append((option, [name for word in named.split(", ") for name in GROUPS.get(word, [word])], default))
    return made


def test_every_option_that_commands_share_is_in_the_table_with_all_of_them(
    options: dict[Option, argparse.Action], rows: list[tuple[str, list[str], str]]
) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, option in options:
        found[option].append(name)
    shared = {option: sorted(names) for option, names in found.items() if len(names) > 1}
    listed: dict[str, list[str]] = defaultdict(list)
    for option, names, _ in rows:
        listed[option] += names
    assert {option: sorted(names) for option, names in listed.items()} == shared


def test_the_commands_of_a_row_take_the_same_values_and_have_its_default(
    options: dict[Option, argparse.Action], rows: list[tuple[str, list[str], str]]
) -> None:
    for option, names, default in rows:
        actions = [options[name, option] for name in names]
        kinds = {(a.metavar, a.nargs, tuple(a.choices or ()), a.default or None) for a in actions}
        assert len(kinds) == 1, (option, kinds)
        value = actions[0].default
        if value and not isinstance(value, bool):
            assert default in (str(value), f"{value:,}" if isinstance(value, int) else f"`{value}`"), option
        if isinstance(value, bool):  # --no-header stores False
            assert default == ("on" if value and "--dedup" in actions[0].option_strings else "off"), option


def halves(words: list[str]) -> tuple[list[str], list[str]]:
    """The former names of a row, and the names."""
    names = [word for word in words if word.startswith("--")]
    return names[: len(names) // 2], names[len(names) // 2 :]


def test_a_former_name_is_in_the_page_and_says_what_it_is_called_now(capsys: pytest.CaptureFixture[str]) -> None:
    parser = parser_of("eval")
    given = ["--model", "tfidf", "--output", "out", "--dtype=bf16"]
    assert parser.parse_args(given).precision == "bf16"
    assert capsys.readouterr().err == (
        "deprecated: --dtype is now called --precision: the next version does not know --dtype here\n"
    )
    former = {(name, old, new) for name, each in commands() for old, new in each.old_names.items()}
    cells = [re.findall(r"`([^`]+)`", line) for line in PAGE.partition("## Former names")[2].splitlines()]
    told = {(row[0], old, new) for row in cells for old, new in zip(*halves(row), strict=True)}
    assert former == told


def test_a_value_that_looks_like_a_former_name_stays() -> None:
    parser = Parser(prog="p")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--new")
    parser.renamed("--old", "--new")
    assert parser.parse_args(["--new", "old", "--", "--old"]) == argparse.Namespace(texts=["--old"], new="old")


def test_a_former_name_is_replaced_before_python_parses_intermixed_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12.8 and later do not call `parse_known_args` for them."""
    parser, given = Parser(prog="p"), []
    parser.renamed("--old", "--new")
    monkeypatch.setattr(parser, "parse_known_intermixed_args", lambda words, _: (given.extend(words), []))
    parser.parse_intermixed_args(["--old=1", "key=2"])
    assert given == ["--new=1", "key=2"]


def test_a_former_keyword_argument_works_with_a_warning() -> None:
    @renamed(dtype="precision")
    def load(model: str, precision: str = "fp32") -> tuple[str, str]:
        return model, precision

    with pytest.warns(FutureWarning, match="dtype is now called precision"):
        assert load("m", dtype="bf16") == ("m", "bf16")


def test_a_former_option_given_in_python_is_named_as_a_keyword() -> None:
    parser = RaisingParser(prog="p")
    parser.add_argument("--new-name")
    parser.renamed("--old-name", "--new-name")
    with pytest.warns(FutureWarning, match="^old_name is now called new_name"):
        assert parser.parse_args(words({"old_name": 3})).new_name == "3"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("--min-tokens must be at least 1", "min_tokens must be at least 1"),
        ("leave out --dedup, or add --no-dedup", "leave out dedup=True, or add no_dedup=True"),
        (
            "no such option: --min-token; did you mean '--min-tokens'?",
            "no such option: min_token; did you mean 'min_tokens'?",
        ),
        ("--input a.txt is among the inputs", "inputs a.txt is among the inputs"),
        ("argument --text-per: invalid choice: '--min-tokens'", "argument text_per: invalid choice: '--min-tokens'"),
        ("a runner named with --runner; /data/--min-tokens/x", "a runner named with --runner; /data/--min-tokens/x"),
        ("run `clearspan documents --min-tokens 16`", "run `clearspan documents --min-tokens 16`"),
        ("the model's --min-tokens, not the texts' --dedup", "the model's min_tokens, not the texts' dedup=True"),
    ],
)
def test_an_error_from_python_names_keyword_arguments(message: str, said: str) -> None:
    names = keywords(parsers()["documents"], given=["min_token"], input="inputs")
    assert as_keywords(message, names) == said
