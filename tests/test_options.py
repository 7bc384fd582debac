"""An option's name has one meaning: docs/options.md lists those that depend on the command, and is true."""

import argparse
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from annotated_types import Ge, Gt, Lt

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.flags import command_line
from clearspan.cli.parser import Parser, parse
from clearspan.cli.words import words
from clearspan.common import plugins
from clearspan.common.options import Flag, Options, fields_of, from_keywords
from clearspan.common.terminal import UsageError
from clearspan.pipelines.registry import BUILDERS
from clearspan.train.__main__ import LauncherOptions
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
GROUPS = {"datasets": [*BUILDERS], "texts": ["vocabulary", "documents", "sentences", "pairs", "triplets", "embed"]}
PLACEHOLDERS = {
    "DIR",
    "FILE",
    "FILE.csv",
    "GLOB",
    "MODEL",
    "NAME-or-FILE",
    "OUT",
    "OUT_DIR",
    "PAIRS",
    "PATH",
    "RUN_DIR",
}
"""Placeholders of the options of built-in commands whose values are paths."""
LAUNCHER_PATHS = {"--hostfile", "--venv_script", "--enable_each_rank_log"}
"""Options of DeepSpeed's launcher whose values are paths; their placeholder is VALUE."""
Option = tuple[str, str]
"""A command and its option."""


TINS = ["--tin=a", "--tin=b"]


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
        plugins.resolve(COMMANDS[command].command).main([], command)
    return found[0]


def commands() -> Iterator[tuple[str, Parser]]:
    for name in ["documents", *(name for name, command in COMMANDS.items() if not command.is_of_group)]:
        root = parser_of(name)
        below = [action.choices for action in root._actions if isinstance(action, argparse._SubParsersAction)]
        prefix = "" if name == "documents" else f"{name} "  # its parser is that of all pipelines
        yield from ((f"{prefix}{word}", parser) for word, parser in below[0].items()) if below else [(name, root)]


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


def values(action: argparse.Action) -> tuple[Any, ...]:
    """What an option takes, and its default."""
    return action.metavar, action.nargs, tuple(action.choices or ()), action.default or None


def test_an_option_that_depends_on_the_command_is_in_the_table_with_all_commands_that_have_it(
    options: dict[Option, argparse.Action], rows: list[tuple[str, list[str], str]]
) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, option in options:
        found[option].append(name)
    differing = {
        option for option, names in found.items() if len({values(options[name, option]) for name in names}) > 1
    }
    listed: dict[str, list[str]] = defaultdict(list)
    for option, names, _ in rows:
        listed[option] += names
    assert differing <= listed.keys()
    assert {option: sorted(names) for option, names in listed.items()} == {name: sorted(found[name]) for name in listed}


def test_the_commands_of_a_row_take_the_same_values_and_have_its_default(
    options: dict[Option, argparse.Action], rows: list[tuple[str, list[str], str]]
) -> None:
    for option, names, default in rows:
        actions = [options[name, option] for name in names]
        assert len({values(action) for action in actions}) == 1, option
        value = actions[0].default
        if value and not isinstance(value, bool):
            assert default in (str(value), f"{value:,}" if isinstance(value, int) else f"`{value}`"), option
        if isinstance(value, bool):
            assert default == ("on" if value and "--dedup" in actions[0].option_strings else "off"), option


def test_no_class_declares_an_inherited_option_again_to_remove_it() -> None:
    for command in COMMANDS.values():
        importlib.import_module(command.module)
    waiting, classes = [Options], set[type[Options]]()
    while waiting:
        waiting += (below := waiting.pop().__subclasses__())
        classes |= {*below}
    assert len(classes) > 40
    for cls in classes:
        own = {field.name for field in fields_of(cls)}
        inherited = {field.name for base in cls.__mro__[1:] if issubclass(base, Options) for field in fields_of(base)}
        assert inherited <= own, cls


def test_an_option_that_names_a_file_or_a_folder_cannot_be_empty() -> None:
    paths = {
        (name, (action.option_strings or [action.dest])[0]): action
        for name, parser in commands()
        for action in parser._actions
        if action.metavar in PLACEHOLDERS or LAUNCHER_PATHS.intersection(action.option_strings)
    }
    some = {("documents", "--input"), ("mine", "folder"), ("adapt", "--queries"), ("train", "--hostfile")}
    assert some < paths.keys()
    for option, action in paths.items():
        if action.required or action.default != "":
            with pytest.raises(argparse.ArgumentTypeError, match=r"an empty text names no|names no folder"):
                action.type("")  # type: ignore[misc, operator]
                pytest.fail(f"{option} may be empty")


@dataclass(frozen=True, kw_only=True)
class Bake(Options):
    """Options of every form."""

    recipe: Annotated[Path, Flag("FILE", positional=True)]
    """The recipe."""
    eggs: Annotated[int, Flag("N"), Ge(1)] = 2
    """How many (default %(default)s)."""
    share: Annotated[float | None, Flag("P"), Gt(0), Lt(1)] = None
    """Of sugar."""
    fruits: Annotated[tuple[str, ...], Flag("A,B", commas=True, parse=str.title)] = ()
    """Names."""
    tins: Annotated[tuple[Path, ...], Flag("DIR", name="--tin")] = ()
    """May be repeated."""
    oven: Annotated[str, Flag(choices=("gas", "wood"))] = "gas"
    """Which."""
    butter: Annotated[bool, Flag()] = True
    """None of it."""
    salt: Annotated[bool, Flag(negatable=True)] = True
    """A pinch."""
    glaze: Annotated[str | None, Flag("NAME", const="sugar")] = None
    """Of sugar, if no other is named."""
    pantry: Annotated[tuple[str, ...], Flag("SHELVES", path=True)] = ()
    """Where the rest is."""
    notes: Annotated[str, Flag("BOOK", path=True)] = ""
    """Where to read more; none by default."""
    hidden: str = "not an option"

    def validate(self) -> None:
        super().validate()
        if self.eggs > 2 and not self.butter:
            raise ValueError("`eggs` is too much for `no_butter`")


def baked(*words: str) -> Bake:
    with command_line():
        return parse(Bake, words, prog="bake", raises=True)


def test_fields_are_flags() -> None:
    assert baked("cake.txt") == Bake(recipe=Path("cake.txt"))
    words = ["--eggs=3", "--fruits", "plum,fig", "cake.txt", "--tin", "a", "--tin=b", "--fruits=pear", "--share", ".5"]
    fruits, tins = ("Plum", "Fig", "Pear"), (Path("a"), Path("b"))
    assert baked(*words) == Bake(recipe=Path("cake.txt"), eggs=3, share=0.5, fruits=fruits, tins=tins)
    assert baked("cake.txt", "--no-butter").butter is False
    assert baked("cake.txt", "--notes=") == Bake(recipe=Path("cake.txt"), notes="")  # as without the option


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: FILE"),
        ([""], "FILE: an empty text"),
        (["c", "--tin="], "--tin: an empty text"),
        (["c", "--pantry=a", "--pantry="], "--pantry: an empty text"),
        (["c", "--eggs=0"], "`eggs` must be at least 1"),
        (["c", f"--eggs={'9' * 400}"], "`eggs` must be at most 9,223,372,036,854,775,807"),
        (["c", "--share=1"], "`share` must be below 1"),
        (["c", "--eggs=3", "--no-butter"], "`eggs` is too much for `no_butter`"),
        (["c", "--oven=good"], "did you mean 'wood'?"),
        (["c", "--fruits= ,"], "names nothing"),
        (["c", "--fruits=fig", "--fruits=fig"], "`fruits`: Fig is named twice"),
        (["c", "--hidden=x"], "no such option: --hidden"),
    ],
)
def test_a_value_that_cannot_be_is_a_usage_error(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        baked(*words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eggs": "two"}, "`eggs` must be"),
        ({"oven": "solar"}, "`oven` solar: choose gas, wood"),
        ({"pantry": ["a", ""]}, "`pantry`: an empty text"),
    ],
)
def test_options_of_python_are_checked_by_the_same_limits(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bake(recipe=Path("cake.txt"), **options)


@dataclass(frozen=True, kw_only=True)
class Serve(Options):
    guests: Annotated[tuple[str, ...], Flag("NAME", name="--guest", many=True)]
    """Who comes."""


def test_an_option_that_is_required_names_at_least_one() -> None:
    """A command line cannot leave it empty, and Python could."""
    with pytest.raises(UsageError, match=r"^`guest` is empty: name at least one$"):
        from_keywords(Serve, {"guest": []})
    assert from_keywords(Serve, {"guest": "Ada"}).guests == ("Ada",)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"eggs": 1, "share": 0.5, "oven": None}, ["--eggs", "1", "--share", "0.5"]),
        ({"eggs": "1", "fruits": "plum, fig"}, ["--eggs", "1", "--fruits", "plum,fig"]),
        ({"fruits": ["plum", "fig,date"], "tin": "a"}, ["--fruits", "plum,fig,date", "--tin", "a"]),
        ({"tin": [Path("a"), "b"], "no_butter": True}, ["--tin", "a", "--tin", "b", "--no-butter"]),
        ({"no_butter": False, "salt": False}, ["--no-salt"]),
        ({"no_salt": True}, ["--no-salt"]),
    ],
)
def test_keywords_are_read_as_the_words_of_a_command_line(keywords: dict[str, Any], words: list[str]) -> None:
    assert from_keywords(Bake, {"recipe": "cake.txt", **keywords}) == baked("cake.txt", *words)


@pytest.mark.parametrize(
    ("keywords", "line"),
    [
        ({"recipe": Path("c"), "eggs": np.int64(3), "share": np.float32(0.5)}, ["c", "--eggs=3", "--share=0.5"]),
        ({"fruits": ["plum", "fig,date"], "tin": ["a", Path("b")]}, ["--fruits=plum", "--fruits=fig,date", *TINS]),
        ({"oven": None, "no_butter": True, "salt": False}, ["--no-butter", "--no-salt"]),
        ({"butter_": 1}, None),
        ({"no_butter": False, "salt": True}, ["--salt"]),
        ({"no_salt": True}, ["--no-salt"]),
        ({"glaze": True}, ["--glaze"]),
        ({"glaze": "honey"}, ["--glaze=honey"]),
        ({"num_gpus": 2, "no_ssh": True}, ["--num_gpus=2", "--no_ssh"]),
    ],
)
def test_keywords_are_written_as_the_words_that_set_them(keywords: dict[str, Any], line: list[str] | None) -> None:
    cls = LauncherOptions if "num_gpus" in keywords else Bake
    if line is None:
        with pytest.raises(UsageError, match="no such option: butter_"):
            words(cls, keywords)
        return
    assert words(cls, keywords) == line
    if cls is Bake:
        given = {"recipe": "c", **keywords}
        assert from_keywords(Bake, given) == baked(*words(Bake, given))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"egs": 3}, "no such option: egs; did you mean 'eggs'?"),
        ({"recipe": None}, "required: recipe"),
        ({"recipe": ""}, "`recipe`: an empty text"),
        ({"tin": ["a", ""]}, "`tin`: an empty text"),
        ({"pantry": ["a", ""]}, "`pantry`: an empty text"),
        ({"eggs": 0}, "`eggs` must be at least 1"),
        ({"eggs": "1_0"}, "`eggs`: not an integer: '1_0'"),
        ({"eggs": True}, "`eggs` must be an integer"),
        ({"no_butter": "yes"}, "`no_butter` must be True or False"),
        ({"eggs": 3, "no_butter": True}, "`eggs` is too much for `no_butter`"),
        ({"fruits": ""}, "`fruits`: names nothing"),
        ({"hidden": "x"}, "no such option: hidden"),
    ],
)
def test_keywords_that_cannot_be_are_a_usage_error(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        from_keywords(Bake, {"recipe": "cake.txt", **keywords})
