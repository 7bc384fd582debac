"""YAML files and `key=value` arguments as nested mappings, and how they override each other.

    a recipe that is extended <- the file that extends it <- arguments, in their order -> one mapping of plain values

This module reads form only. `train.config.keys` knows which keys exist; `train.options` knows which values can work.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from clearspan.common.parsing import did_you_mean
from clearspan.train.options import RecipeError

FOLDER = Path(__file__).parents[1] / "recipes"
MAX_BYTES = 1 << 20


NUMBERS = {
    "int": re.compile(r"(?:0|-?[1-9]\d*)$"),
    "float": re.compile(
        r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
}
"""The forms of numbers. Others of YAML 1.1 are text: 007, 1_000, 0x1F and 12:30 may be the name of a folder."""

FIRST_OF_NUMBERS = "-+.0123456789"


def _with_numbers(resolvers: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return pyyaml's rules for the types of plain values, with these forms of numbers and without dates."""
    others = {f"tag:yaml.org,2002:{name}" for name in (*NUMBERS, "timestamp")}
    kept = {first: [rule for rule in rules if rule[0] not in others] for first, rules in resolvers.items()}
    for name, pattern in NUMBERS.items():
        for first in FIRST_OF_NUMBERS:
            kept[first] = [*kept.get(first, []), (f"tag:yaml.org,2002:{name}", pattern)]
    return kept


class _Dumper(yaml.SafeDumper):
    """Puts texts in quotes that `_Loader`, or another reader of YAML, would take for something else."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", NUMBERS["float"], list(FIRST_OF_NUMBERS))


class _Loader(yaml.SafeLoader):
    """YAML as recipes use it: each key once, no aliases (a few of them expand to any size), 5e-5 a number, no dates."""

    yaml_implicit_resolvers = _with_numbers(yaml.SafeLoader.yaml_implicit_resolvers)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = cast(Any, self).peek_event()
            message = f"the alias *{alias.anchor} is not supported: write out the value that it stands for"
            raise yaml.composer.ComposerError(None, None, message, alias.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                message = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(name_or_file: str, beside: Path = Path()) -> Path:
    """Return the path of a recipe's file; a relative one is taken from the folder `beside`."""
    return beside / name_or_file if name_or_file.endswith((".yaml", ".yml")) else FOLDER / f"{name_or_file}.yaml"


def no_recipe(name_or_file: str) -> str:
    """Return an error about a recipe that does not exist: the name that is most similar, or where to find all."""
    near = did_you_mean(name_or_file, names()) or ": give a .yaml file, or a name that `clearspan train --list` prints"
    return f"no recipe {name_or_file!r}{near}"


def parse(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        ValueError: the text is not YAML, or a value in it cannot be read. The message is one line.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        broken = isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError)
        raise ValueError(f"{line}{'not YAML: ' if broken else ''}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_value(text: str) -> Any:
    """Return the value of an argument.

    Raises:
        ValueError: the text is not YAML, or a part of it would be a comment.
    """
    value = parse(text)
    node = yaml.compose(text, _Loader)
    if comment := text[node.end_mark.index if node else 0 :].strip():
        raise ValueError(f"{comment!r} would be a comment: put the value in quotes")
    return value


def dump(content: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, which `parse` reads as the same mapping."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False)
    return text


def read_yaml(path: Path) -> dict[Any, Any]:
    """Return the mapping in a YAML file.

    Raises:
        RecipeError: the file is not YAML, or not a mapping.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes: not a recipe")
        content = parse(data.decode("utf-8")) or {}
    except ValueError as error:
        raise RecipeError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: expected a mapping of keys, found a {type(content).__name__}")
    return content


def read_layers(path: Path) -> list[dict[Any, Any]]:
    """Return the contents of a file and of the files that it extends, the most distant one first.

    Raises:
        RecipeError: one of them does not exist, is not a mapping in YAML, or extends a file that extends it.
    """
    layers: list[dict[Any, Any]] = []
    seen: list[Path] = []
    while True:
        seen.append(path.resolve())
        content = read_yaml(path)
        parent = content.pop("extends", None)
        layers.insert(0, content)
        if parent is None:
            return layers
        child, path = path, find(str(parent), path.parent)
        if not path.is_file():
            raise RecipeError(f"{child}: extends: {no_recipe(str(parent))}")
        if path.resolve() in seen:
            raise RecipeError(f"{child}: extends: {parent!r} extends itself, directly or through other recipes")


def read_override(override: str) -> dict[str, Any]:
    """Return the nested mapping of a `key=value` argument, whose value is YAML.

    Raises:
        RecipeError: the argument has another form, or its value is not YAML.
    """
    if not re.fullmatch(r"[\w.-]+=.*", override, re.DOTALL):
        raise RecipeError(f"{override!r} is not key=value")
    key, _, text = override.partition("=")
    try:
        value = read_value(text)
    except ValueError as error:
        raise RecipeError(f"the argument {override[:80]!r}: {error}") from None
    first, *others = key.split(".")
    for part in reversed(others):
        value = {part: value}
    return {first: value}


def merge(below: dict[Any, Any], above: dict[Any, Any]) -> dict[Any, Any]:
    """Return a mapping overridden by another one: mappings merge key by key, any other value replaces."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def drop_other_config(below: dict[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping without its `model.config` if the one above it names another `model.config.model_type`: an
    option of one architecture means nothing, or something else, to another.
    """
    old, new = _model_type(below), _model_type(above)
    return below if None in (old, new) or old == new else merge(below, {"model": {"config": None}})


def merge_layers(layers: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    """Return the mapping that files make together, the most distant one first."""
    merged: dict[Any, Any] = {}
    for layer in layers:
        merged = merge(drop_other_config(merged, layer), layer)
    return merged


def _model_type(recipe: Any) -> Any:
    for part in ("model", "config", "model_type"):
        recipe = recipe.get(part) if isinstance(recipe, Mapping) else None
    return recipe
