"""Print docs/recipes.md, the reference of recipes and their keys; `clearspan train --list` takes its list from here.

    comments at the top of train/recipes/*.yaml and train/sweeps/*.yaml ─┐
    dataclasses of options ──────────────────────────────────────────────┼─> docs/recipes.md
    reference_page.md, the text around them ─────────────────────────────┘

The meaning of a key is its entry under "Args:" in the docstring of its dataclass; its type, range and default are read
from the dataclass's field.
"""

import dataclasses
import inspect
import itertools
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

from clearspan.cli.command import Command, Printed, Result

ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n {5,}.+)*)", re.MULTILINE)
"""An entry under "Args:", with its continuation lines."""
GIVEN = "must be given"
CITATION = re.compile(r" \([^()]*\b(?:19|20)\d\d[^()]*\)")
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
"""Attribute of a limit from annotated_types -> the limit in words."""
TEMPLATE = Path(__file__).with_name("reference_page.md")


def meanings(section: type) -> dict[str, str]:
    """Return the description of each field of a dataclass and its bases, by name, from the docstrings' "Args:"."""
    by_name: dict[str, str] = {}
    for base in reversed(section.__mro__[:-1]):
        entries = re.split(r"^Args:", inspect.getdoc(base) or "", flags=re.MULTILINE)[1:]
        for names, text in ENTRY.findall(entries[0].partition("\n\n")[0] if entries else ""):
            by_name |= dict.fromkeys(names.split(", "), " ".join(text.split()).removesuffix("."))
    return by_name


def paragraphs(documented: Any) -> list[str]:
    """Return the paragraphs of an object's docstring that precede "Args:", each as one line."""
    text = (inspect.getdoc(documented) or "").split("\n\nArgs:")[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def type_name(hint: Any) -> str:
    """Return a type hint of a field in words, with its range or choices, e.g. "int, at least 0"."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        limits = [(words, getattr(each, name, None)) for each in inner[1:] for name, words in LIMITS.items()]
        ranges = [f"{words} {limit:g}" for words, limit in limits if limit is not None and abs(limit) < 1 << 62]
        return f"{type_name(inner[0])}, {', '.join(ranges)}" if ranges else type_name(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(part) for part in inner)
    if hint is type(None):
        return "null"
    if origin is typing.Literal:
        return " or ".join(_as_yaml(choice) for choice in inner)
    if origin is list:
        return f"list of {type_name(inner[0])}"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "mapping"
    return str(hint.__name__)


def default_of(field: dataclasses.Field[Any]) -> str:
    """Return a field's default as Markdown; GIVEN ("must be given") if it has none.

    Return "" if the default is a dataclass, that is, a section of the recipe, whose keys have their own defaults.
    """
    value: Any = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is dataclasses.MISSING:
        return GIVEN
    return "" if dataclasses.is_dataclass(value) else _as_yaml(value)


def _as_yaml(value: Any) -> str:
    """Return a value in YAML's notation, as inline code in Markdown."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if text else '`""`'


def keys(section: type, base: type | None = None) -> list[list[str]]:
    """Return a row of Markdown cells for each field of a dataclass: name, type, default and meaning.

    A field is a key of a recipe.

    Args:
        base: a base class whose fields are left out; None to leave out no field.
    """
    described, hints = meanings(section), typing.get_type_hints(section, include_extras=True)
    left_out = {field.name for field in dataclasses.fields(base)} if base else set()
    return [
        [f"`{field.name}`", *map(_cell, (type_name(hints[field.name]), default_of(field), described[field.name]))]
        for field in dataclasses.fields(section)
        if field.name not in left_out
    ]


def top_comment(path: Path) -> str:
    """Return the comment at the top of a YAML file, joined into one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.removeprefix("#").strip() for line in comment)


def catalog() -> str:
    """Return a list of the recipes for the terminal: a line each, with the name and a sentence about the recipe.

    The sentence is the first one of the comment at the top of the recipe's file, without citations.
    """
    from clearspan.train.config import layers

    names, lines = layers.names(), []
    for name in names:
        sentence = re.split(r"\.(?=\s+[A-Z]|$)", top_comment(layers.FOLDER / f"{name}.yaml"), maxsplit=1)[0]
        lines.append(f"  {name:<{max(map(len, names))}}  {CITATION.sub('', sentence)}")
    more = "docs/recipes.md explains what each recipe needs, and every key. `--dry-run` prints a recipe in full."
    return "\n".join([*lines, "", more])


def page() -> str:
    """Return the content of docs/recipes.md."""
    from jinja2 import Template

    from clearspan.train import modalities, objectives
    from clearspan.train.config import layers, optimizer, options
    from clearspan.train.data.span_sampler import SpanConfig
    from clearspan.train.sweeps import grid

    files = {name: layers.FOLDER / f"{name}.yaml" for name in layers.names()}
    recipes = [(name, layers.read_yaml(path).get("extends"), _cell(top_comment(path))) for name, path in files.items()]
    sweeps = [(path.stem, _cell(top_comment(path))) for path in sorted(grid.FOLDER.glob("*.yaml"))]
    names = {"keys": keys, "text": paragraphs, "module": inspect.getmodule, "SpanConfig": SpanConfig}
    names |= {"modalities": modalities, "objectives": objectives, "options": options, "optimizer": optimizer}
    template = Template(TEMPLATE.read_text(encoding="utf-8"), trim_blocks=True)
    text: str = template.render(recipes=recipes, sweeps=sweeps, **names)
    return text


def _cell(text: str) -> str:
    """Return a text with "|" escaped, so that it can be a cell of a Markdown table."""
    return text.replace("|", r"\|")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference(Command):
    """Command that prints docs/recipes.md."""

    def run(self) -> Result:
        return Printed(page())


main = Reference.main


if __name__ == "__main__":
    sys.exit(main())
