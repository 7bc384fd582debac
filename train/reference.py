"""Every recipe and every key, as a page: `python -m train.reference`; the recipes as a list for `--list`.

    train/recipes, train/sweeps (what their first lines say) + the options' dataclasses -> docs/recipes.md

A key's meaning is its entry under "Args:" or "Attributes:" in its dataclass's docstring, or the comment behind it; its
type and default are the dataclass's. So the page says nothing that the code does not.
"""

import argparse
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from clearspan.train.engine.signals import ending_at_once

EXAMPLE = """examples:
  python -m train.reference > docs/recipes.md
  python -m train.reference --check docs/recipes.md
"""
SECTION = re.compile(r"(?:Args|Attributes):")
ENTRY = re.compile(r"(\w+(?:, \w+)*): (.+)")
COMMENTED = re.compile(r" {4}(\w+): .*?  # (.+)")
GIVEN = "must be given"
CITATION = re.compile(r" \([^()]*\b(?:19|20)\d\d[^()]*\)")
GROUPS = {
    "DeCLUTR": ("declutr", "contrastive-only", "mlm-only"),
    "CLEAR": ("clear",),
    "SimCSE": ("simcse",),
    "VisualCSE": ("visualcse",),
    "AudioCSE": ("audiocse",),
    "Others": ("",),
}
"""Headings of `catalog`, and how the names of their recipes begin; a recipe stands under the first that matches."""
INTRODUCTION = """# Recipes and their keys

For everyone who chooses or writes a recipe: the recipes, and every key with its type, default and meaning.

Written by `python -m train.reference`: change the recipes or the options' docstrings, not this page.

A run is a recipe and what the command line changes of it:
`deepspeed train/run.py --recipe NAME-or-FILE key=value ...`. Any key below can be given; one that is unknown is an
error that names the nearest. `objectives.NAME=null` and `data.NAME=null` leave one out, `model.config=null` empties it.
A file may begin with `extends: NAME` (or a file beside it) and then states only what it changes. `--dry-run` prints the
whole recipe that results. How to train: [training.md](training.md); where recipes depart from their papers:
[papers.md](papers.md).
"""


def parser() -> argparse.ArgumentParser:
    from clearspan.common import terminal

    root = terminal.Parser(prog="python -m train.reference", description=__doc__, epilog=EXAMPLE)
    root.add_argument("--check", metavar="FILE", type=Path, help="write nothing; 1 where the file says otherwise")
    return root


class UnsaidError(ValueError):
    """A key or a recipe that says nothing of itself, or a page that is not as they say."""


def meanings(section: type) -> dict[str, str]:
    """What a dataclass and those that it builds on say of their fields, by name."""
    found: dict[str, str] = {}
    for one in reversed(section.__mro__[:-1]):
        if dataclasses.is_dataclass(one):
            found |= dict(_commented(one))
            found |= dict(_entries(inspect.getdoc(one) or ""))
    return found


def _commented(section: type) -> Iterator[tuple[str, str]]:
    """Fields with the comments behind them."""
    for line in inspect.getsource(section).splitlines():
        if match := COMMENTED.fullmatch(line):
            yield match[1], match[2]


def _entries(docstring: str) -> Iterator[tuple[str, str]]:
    """The names under "Args:" with what is said of them, continued lines joined."""
    inside, names, text = False, "", ""
    for line in [*docstring.splitlines(), ""]:
        match = ENTRY.fullmatch(line[4:]) if line.startswith("    ") and not line[4:].startswith(" ") else None
        if match or not line.startswith("     "):
            yield from ((name, text) for name in names.split(", ") if text)
            names, text = (match[1], match[2]) if match and inside else ("", "")
            inside = bool(match and inside) or bool(SECTION.fullmatch(line.strip()))
        elif text:
            text += f" {line.strip()}"


def _first(documented: Any) -> str:
    """A docstring's first paragraph, in one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def type_name(hint: Any) -> str:
    """A field's type in a word or two."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(part) for part in inner)
    if hint is type(None):
        return "null"
    if origin is list:
        return f"list of {type_name(inner[0])}"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "mapping"
    return str(hint.__name__)


def default_of(field: dataclasses.Field[Any]) -> str:
    """A field's default as YAML has it; "" for a section's own, whose keys have theirs."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is MISSING:
        return GIVEN
    if dataclasses.is_dataclass(value):
        return ""
    if value is None or isinstance(value, bool):
        return f"`{str(value).lower()}`" if value is not None else "`null`"
    return f"`{value}`" if value != "" else '`""`'


def keys(section: type, but: type | None = None) -> list[list[str]]:
    """A row a key: its name, type, default and meaning; without those of another dataclass.

    Raises:
        UnsaidError: nothing is said of one.
    """
    said, hints = meanings(section), typing.get_type_hints(section)
    left_out = {field.name for field in dataclasses.fields(but)} if but else set()
    rows = []
    for field in dataclasses.fields(section):
        if field.name in left_out:
            continue
        if field.name not in said:
            raise UnsaidError(
                f'{section.__module__}.{section.__name__}: its docstring says nothing of {field.name}: add "Args:"'
            )
        meaning = said[field.name].removesuffix(".")
        rows.append([f"`{field.name}`", type_name(hints[field.name]), default_of(field), meaning])
    return rows


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(title: str, text: str, kind: type, but: type | None = None) -> str:
    """A heading, what it is for, and its keys."""
    rows = keys(kind, but)
    return f"## {title}\n\n{text}\n\n{table(['key', 'type', 'default', 'meaning'], rows)}"


def purpose(path: Path) -> str:
    """What a YAML file's first comment says.

    Raises:
        UnsaidError: it has none.
    """
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    if not lines:
        raise UnsaidError(f"{path}: its first line does not say what it is for: begin it with a comment")
    return " ".join(lines)


def catalog() -> str:
    """Return the recipes by paper, a line each: the name, and the first sentence of its comment without citations."""
    from clearspan.train.config import recipe

    left, lines = recipe.names(), []
    width = max(map(len, left))
    for heading, prefixes in GROUPS.items():
        group = [name for name in left if name.startswith(prefixes)]
        left = [name for name in left if name not in group]
        lines.append(f"{heading}:")
        for name in group:
            sentence = re.split(r"\.(?=\s+[A-Z]|$)", purpose(recipe.FOLDER / f"{name}.yaml"), maxsplit=1)[0]
            lines.append(f"  {name:<{width}}  {CITATION.sub('', sentence)}")
        lines.append("")
    return "\n".join([*lines, "What each needs and every key: docs/recipes.md. `--dry-run` prints a recipe in full."])


def page() -> str:
    """The whole page, in Markdown."""
    from clearspan.train import modalities, objectives, options, schedules
    from clearspan.train.config import recipe
    from clearspan.train.span_sampler import SpanConfig
    from clearspan.train.sweeps import grid

    recipes = [
        [f"`{name}`", f"`{parent}`" if (parent := recipe.read_yaml(path).get("extends")) else "", purpose(path)]
        for name in recipe.names()
        for path in [recipe.FOLDER / f"{name}.yaml"]
    ]
    sweeps = [[f"`{path.stem}`", purpose(path)] for path in sorted(grid.FOLDER.glob("*.yaml"))]
    parts = [
        INTRODUCTION,
        f"## Recipes\n\n{table(['recipe', 'extends', 'what it is, and what to give'], recipes)}",
        "## Sweeps\n\n`python -m train.sweep NAME --output DIR key=value ...`\n\n"
        + table(["sweep", "what it is, and what to give"], sweeps),
        section("The whole", "At the top of a recipe.", options.Recipe),
        section("`model`", "The encoder.", options.ModelConfig),
        section("`data.NAME`", "A dataset, by a name of its own.", options.DatasetConfig),
    ]
    for name in modalities.names():
        said = f"Where the shards of `data.NAME` hold {name}."
        parts.append(section(f"`data.NAME.modality` of {name}", said, modalities.config_class(name)))
    said = "What every objective has, by a name of its own; what its type has besides stands below."
    parts.append(section("`objectives.NAME`", said, objectives.ObjectiveConfig))
    for name in objectives.types():
        kind = objectives.config_class(name)
        said = f"{_first(inspect.getmodule(kind))} Defaults: {_first(kind)}"
        parts.append(section(f"`objectives.NAME` of type `{name}`", said, kind, objectives.ObjectiveConfig))
    parts += [
        section("`objectives.NAME.sampler`", "Spans; lengths and distances in tokens.", SpanConfig),
        section("`optimizer`", "And `turns.TURN`, where a turn has other options.", schedules.OptimizerConfig),
        section("`training`", "The loop.", options.TrainingConfig),
    ]
    return "\n".join(parts)


def check(path: Path) -> None:
    """Raises UnsaidError where a file is not the page as it would be written now."""
    there = path.read_text(encoding="utf-8").splitlines()
    now = page().splitlines()
    if there != now:
        pairs = enumerate(zip(there, now, strict=False), 1)
        line = next((number for number, (old, new) in pairs if old != new), min(len(there), len(now)) + 1)
        raise UnsaidError(
            f"{path}: line {line} is not what recipes and docstrings say: write it anew with "
            f"`python -m train.reference > {path}`"
        )


def main(argv: list[str] | None = None) -> int:
    with ending_at_once("train.reference", "run it again"):
        from clearspan.common import terminal

        root = parser()
        root.add_argument("--version", action="version", version=terminal.version())
        options = root.parse_args(argv)
        return terminal.run("train.reference", lambda: work(options), (UnsaidError, OSError))


def work(options: argparse.Namespace) -> int:
    from clearspan.common.terminal import say

    if options.check:
        check(options.check)
        say(f"{options.check}: as recipes and docstrings say")
    else:
        say(page().rstrip("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
