"""Read the layers of a recipe, which are YAML files and `key=value` arguments, and merge them into one mapping.

    a recipe that is extended <- the file that extends it <- arguments, in their order -> one mapping of plain values

In the diagram, each layer overrides the layers to the left of it. This module accepts any keys and values:
`train.config.keys` checks which keys exist, and `train.config.options` which values can work.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from clearspan.common.parsing import did_you_mean
from clearspan.train.config.keys import convert, finite, naming
from clearspan.train.config.options import RecipeError

FOLDER = Path(__file__).parents[1] / "recipes"
FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$")
"""Numbers with a fraction or an exponent. By YAML 1.1 alone, 5e-5 would be a string."""
LENGTHS = ("epochs", "max_steps")
MAX_VALUES = 100_000
"""Most values in a YAML text, each counted as often as aliases repeat it. Recipes have hundreds."""


class _Dumper(yaml.SafeDumper):
    """YAML writer that quotes strings which `_Loader`, or another reader of YAML, would take for numbers."""


class _Loader(yaml.SafeLoader):
    """YAML reader for recipes: a key that is given twice is an error, and 5e-5 is a number.

    A text of a thousand characters whose aliases repeat each other can stand for billions of values: it is refused.
    """

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _num_values(node, {}) > MAX_VALUES:
            message = f"its aliases (*NAME) stand for more than {MAX_VALUES:,} values: write out those that you need"
            raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                message = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else key)
        return super().construct_mapping(node, deep)


def _num_values(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Return the number of values in a YAML node, in which an alias counts as much as the node that it names.

    Args:
        known: id of a node -> its number of values; None while its values are counted. It is added to.

    Raises:
        ConstructorError: a node holds an alias of itself.
    """
    if id(node) not in known:
        known[id(node)] = None
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        nodes = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_num_values(each, known) for each in nodes)
    number = known[id(node)]
    if number is None:
        raise yaml.constructor.ConstructorError(None, None, "an alias names what it stands in", node.start_mark)
    return number


for reader in (_Dumper, _Loader):
    reader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(name_or_file: str, folder: Path = Path()) -> Path:
    """Return the path of a recipe's file, which need not exist.

    Args:
        name_or_file: the path of a file, which ends with `.yaml` or `.yml`; or the name of a recipe that comes with the
            package.
        folder: the folder from which a relative path is resolved.
    """
    return folder / name_or_file if name_or_file.endswith((".yaml", ".yml")) else FOLDER / f"{name_or_file}.yaml"


def no_recipe(name_or_file: str) -> str:
    """Return an error message about an unknown recipe, which names a similar one or else the way to list all names."""
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


def dump(content: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, which `parse` reads as the same mapping."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False)
    return text


def read_yaml(path: Path) -> dict[Any, Any]:
    """Return the mapping in a YAML file.

    Raises:
        RecipeError: the file is not YAML, or not a mapping.
    """
    with naming(str(path)):
        content = parse(path.read_text(encoding="utf-8")) or {}
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: expected a mapping of keys, found a {type(content).__name__}")
    return content


def read_layers(path: Path) -> list[dict[Any, Any]]:
    """Return the contents of a recipe's file and of all files that it extends, directly or through other files.

    The first is the file that extends no other one, and the last is the file at `path`. The key `extends` is removed.

    Raises:
        RecipeError: a file that is extended does not exist, a file is not a mapping in YAML, or a file extends itself,
            directly or through other files.
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


def read_argument(argument: str) -> dict[str, Any]:
    """Return the nested mapping of a `key=value` argument, whose value is YAML.

    Raises:
        RecipeError: the argument has another form; or its value is not YAML, holds a comment, or holds a number that
            is NaN or infinite.
    """
    if not re.fullmatch(r"[\w.-]+=.*", argument, re.DOTALL):
        raise RecipeError(f"{argument!r} is not key=value")
    key, _, text = argument.partition("=")
    with naming(f"the argument {argument[:80]!r}"):
        if " #" in text and text[0] not in "'\"":
            raise ValueError("' #' begins a comment of YAML: put the value in quotes")
        value = parse(text)
    value = convert(key, value, finite)
    first, *others = key.split(".")
    for part in reversed(others):
        value = {part: value}
    return {first: value}


def merge(base: Mapping[Any, Any], layer: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the mapping `base`, with the values of the mapping `layer` in place of its own.

    If both have a mapping under the same key, these two mappings are merged in the same way.
    """
    merged = dict(base)
    for key, value in layer.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def without_replaced(base: dict[Any, Any], layer: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the recipe `base` without the values that must not remain when `layer` is merged over it.

    If `layer` sets a different `model.config.model_type`, the whole `model.config` of `base` is removed, because its
    options may mean something else to the new type. If `layer` sets `training.epochs` or `training.max_steps` to a
    value other than 0, both are removed from `base`, because a run's length is given by only one of them.

    Args:
        base: the contents of a recipe.
        layer: the contents of a file that extends the recipe, or of an argument.
    """
    old, new = _model_type(base), _model_type(layer)
    if None not in (old, new) and old != new:
        base = merge(base, {"model": {"config": None}})
    before, training = base.get("training"), layer.get("training")
    if isinstance(before, dict) and isinstance(training, dict) and any(training.get(key) for key in LENGTHS):
        base = {**base, "training": {key: value for key, value in before.items() if key not in LENGTHS}}
    return base


def merge_layers(layers: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """Return the contents of several files as one mapping; a file overrides the files before it in `layers`."""
    merged: dict[Any, Any] = {}
    for layer in layers:
        merged = merge(without_replaced(merged, layer), layer)
    return merged


def _model_type(recipe: Any) -> Any:
    for part in ("model", "config", "model_type"):
        recipe = recipe.get(part) if isinstance(recipe, Mapping) else None
    return recipe
