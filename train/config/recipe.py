"""Recipes: everything that decides a run, as typed dataclasses over YAML and `key=value` overrides.

    train/recipes/NAME.yaml (or a file) + overrides -> Recipe, every value checked once, unknown keys refused

Each objective brings its own dataclass of options (`train.objectives`), and so does a dataset that is not text
(`train.modalities`); a recipe names the datasets and the objectives that it wants.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from clearspan.common.parsing import did_you_mean
from clearspan.common.plugins import PluginError
from clearspan.shards import Dataset
from clearspan.train.config.keys import KeyedError, answer_to, check_names, known_keys, one_length, stated
from clearspan.train.options import DatasetConfig, Recipe, RecipeError, check, one_of, refuse
from clearspan.train.schedules import OptimizerConfig

if TYPE_CHECKING:  # torch takes seconds to import, and --help needs none
    from clearspan.train.modalities import Modality

FOLDER = Path(__file__).parents[1] / "recipes"
MAX_BYTES = 1 << 20
MODEL_TYPE = "model.config.model_type"
WRITTEN = "# Written by Clearspan; sha256 of the lines below: "
"""The first line of a run's recipe.yaml, with that hash: a run may only replace what a run wrote."""


class _Loader(yaml.SafeLoader):
    """YAML in which every key stands once and says its own value: no aliases, a few of which make up any size."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()
            message = f"the alias *{alias.anchor} is not read here: write out what it stands for"
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
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name_or_file: str, overrides: list[str] | None = None) -> Recipe:
    """The recipe of that name or file, with `key=value` overrides such as `training.batch_size=32`.

    A file that says `extends: OTHER` (a recipe's name, or a file beside it) states only what it changes of that one; a
    `model.config` of another `model_type` replaces the other's whole. Overrides apply in order, and all together as a
    file that extends the recipe. `objectives.NAME=null` leaves an objective out, `model.config=null` empties that.
    Of `training.epochs` and `training.max_steps` that counts which is said last: on the command line, or else in the
    file rather than in one that it extends.

    Raises:
        RecipeError: no such recipe, not YAML, an unknown key, or a value that cannot work. It names the argument that
            is wrong, or else the file.
    """
    path, overrides = _find(name_or_file), overrides or []
    if not path.is_file():
        raise RecipeError(f"no recipe {name_or_file!r}: give a .yaml file or one of {one_of(name_or_file, names())}")
    for override in overrides:
        if not re.fullmatch(r"[\w.-]+=.*", override, re.DOTALL):
            raise RecipeError(f"{override!r} is not key=value")
    try:
        layers = _ancestry(path)
        merged = OmegaConf.create({})
        for layer in layers:
            merged = OmegaConf.merge(_without_other_config(merged, layer), layer)
        before = OmegaConf.to_container(merged)
        merged = _without_other_config(merged, stated(overrides))
        for override in overrides:  # one by one, so that model.config=null empties what the next ones fill
            merged = _merged(merged, override)
        plain = OmegaConf.to_container(merged)
        assert isinstance(plain, dict) and isinstance(before, dict)
        check_names(plain, before, overrides)
        own = is_written(path)  # which may say both, as runs once wrote it
        said = [(str(path), layer) for layer in ([] if own else layers)]
        one_length(plain, [*said, ("the command line", stated(overrides))])
        return _typed(plain, str(path))
    except KeyedError as error:
        raise RecipeError(f"{error.blamed(overrides) or path}: {error}") from None
    except (yaml.YAMLError, OmegaConfBaseException, TypeError) as error:
        raise RecipeError(f"{path}: {_key_error(error)}") from None
    except RecursionError:
        raise RecipeError(f"{path}: nested too deeply, with its overrides") from None


def superseded(name_or_file: str, overrides: list[str]) -> str | None:
    """What to say where the command line's `training.epochs` stands in place of a recipe's `max_steps`."""
    length = stated(overrides).get("training")
    for layer in reversed(_ancestry(_find(name_or_file))):
        own = layer.get("training")
        if isinstance(own, dict) and isinstance(length, dict) and own.get("max_steps"):
            if length.get("epochs") and "max_steps" not in length:
                return (
                    f"training.epochs={length['epochs']} stands in place of the recipe's max_steps {own['max_steps']}"
                )
            break
    return None


def _without_other_config(recipe: Any, layer: Mapping[Any, Any]) -> Any:
    """Return a merged recipe, without its `model.config` where the next layer names another `model_type`: options of
    one architecture mean nothing, or something else, to another.
    """
    wanted = OmegaConf.select(OmegaConf.create(dict(layer)), MODEL_TYPE, throw_on_resolution_failure=False)
    found = OmegaConf.select(recipe, MODEL_TYPE, throw_on_resolution_failure=False)
    if wanted is None or found is None or wanted == found:
        return recipe
    return OmegaConf.merge(recipe, {"model": {"config": None}})


def _merged(recipe: Any, override: str) -> Any:
    try:
        return OmegaConf.merge(recipe, OmegaConf.from_dotlist([override]))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        if isinstance(error, OmegaConfBaseException):
            raise
        raise RecipeError(f"{override[:80]!r}: {_key_error(error)}") from None


def _find(name_or_file: str, beside: Path = Path()) -> Path:
    """A recipe's file; a relative one lies in that folder."""
    return beside / name_or_file if name_or_file.endswith((".yaml", ".yml")) else FOLDER / f"{name_or_file}.yaml"


def read_yaml(path: Path) -> dict[Any, Any]:
    """A file's mapping.

    Raises:
        RecipeError: it is not YAML, or not a mapping.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes: not a recipe")
        content = yaml.load(data.decode("utf-8"), _Loader) or {}
    except (yaml.YAMLError, ValueError) as error:
        raise RecipeError(f"{path}: {_key_error(error)}") from None
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: expected a mapping of keys, found a {type(content).__name__}")
    return content


def _ancestry(path: Path) -> list[dict[Any, Any]]:
    """The contents of a file and of what it extends, the most distant first.

    Raises:
        RecipeError: one of them is not there, not YAML, not a mapping, or extends one that extends it.
    """
    chain: list[dict[Any, Any]] = []
    seen = [path]
    while True:
        content = read_yaml(path)
        parent = content.pop("extends", None)
        chain.insert(0, content)
        if parent is None:
            return chain
        child, path = path, _find(str(parent), path.parent)
        if not path.is_file():
            raise RecipeError(
                f"{child}: extends: no recipe {parent!r}: name a .yaml file or one of {one_of(str(parent), names())}"
            )
        if path.resolve() in [one.resolve() for one in seen]:
            raise RecipeError(f"{child}: extends: {parent!r} comes back to itself")
        seen.append(path)


def _without_nulls(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {key: _without_nulls(value) for key, value in content.items() if value is not None}


def _typed(plain: dict[Any, Any], where: str) -> Recipe:
    from clearspan.train import objectives  # here: torch and transformers take seconds, and --help needs neither

    wanted = _mapping(plain.pop("objectives", None), f"{where}: objectives")
    if isinstance(plain.get("model"), dict):
        plain["model"] = _without_nulls(plain["model"])
    plain["data"] = _mapping(
        plain.get("data"), f"{where}: data", [option.name for option in dataclasses.fields(DatasetConfig)]
    )
    turns = _mapping(plain.pop("turns", None), f"{where}: turns")
    try:
        known = known_keys(plain, wanted)
        try:
            recipe = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Recipe), plain))
        except (OmegaConfBaseException, TypeError, ValueError) as error:
            raise _keyed(error, "", known) from None
        assert isinstance(recipe, Recipe)
        for name, options in wanted.items():
            type_ = options.get("type") or name
            if not objectives.is_type(str(type_)):
                types, key = ", ".join(objectives.types()), f"objectives.{name}"
                near = (
                    did_you_mean(type_, objectives.types()).removeprefix("; ")
                    if options.get("type")
                    else answer_to(
                        key, [f"objectives.{other}" for other in (*wanted, *objectives.types()) if other != name]
                    )
                )
                has = ", ".join(other for other in wanted if other != name)
                said = f"no type {type_!r}{f', and the recipe has {has}' if has else ''}"
                raise KeyedError(f"{key}: {said}; {near or f'there are the types {types}, and module:Class'}", key)
            recipe.objectives[name] = _over_defaults(
                objectives.config_class(type_), options, f"objectives.{name}.", known
            )
            recipe.objectives[name].data = recipe.objectives[name].data or _only(recipe.data, name)
        for name, options in turns.items():
            over = {**dataclasses.asdict(recipe.optimizer), **options}
            recipe.turns[name] = _over_defaults(OptimizerConfig, over, f"turns.{name}.", known)
    except RecipeError:
        raise
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise RecipeError(f"{where}: {_key_error(error)}") from None
    check(recipe)
    return recipe


def _mapping(content: Any, key: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """A mapping of names to options, of which some are called so; a name that is null is left out."""
    found = _without_nulls(content or {})
    if not isinstance(found, dict):
        raise RecipeError(f"{key}: expected a mapping of names to options")
    for name, value in found.items():
        if not isinstance(value, dict):
            mend = f"say {key.split()[-1]}.NAME.{name}" if name in options else "expected a mapping of options"
            raise RecipeError(f"{key}.{name}: {mend}")
        if not isinstance(name, str):
            raise RecipeError(f"{key}.{name}: a name is text: put {name} in quotes")
    return found


def _only(data: dict[str, DatasetConfig], objective: str) -> str:
    if len(data) != 1:
        known = ", ".join(data) or "none"
        raise RecipeError(f"objectives.{objective}.data is not set; name the dataset that it reads: {known}")
    return next(iter(data))


def _over_defaults(config_class: Any, options: dict[str, Any], within: str, known: Sequence[str] = ()) -> Any:
    """Options over the defaults of their dataclass; `within` goes before a key that is wrong, and one of those that are
    `known` may be meant.
    """
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config_class), options))
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise _keyed(error, within, known) from None


def _keyed(error: Exception, within: str, known: Sequence[str]) -> KeyedError:
    """The error as one of its key; "" where it does not tell it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key")), "")
    return KeyedError(_key_error(error, within, known), within + key if key else "")


def _key_error(error: Exception, within: str = "", known: Sequence[str] = ()) -> str:
    """What is wrong, by its line or its key; `within` goes before a key, for its name in the whole recipe."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        broken = isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError)
        return f"line {error.problem_mark.line + 1}: {'not YAML: ' if broken else ''}{error.problem}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key")), "")
    if "missing mandatory value" in lines[0].lower():
        key = within + (key or re.findall(r"[\w.]+", lines[0])[-1])
        return f"{key} is not set; give it as {key}=VALUE"
    if "not in" in lines[0] and key:
        answer = answer_to(within + key, known) or "`--dry-run` prints the keys there are"
        return f"unknown key {within + key!r}; {answer}"
    return f"{within}{key}: {lines[0]}" if key else lines[0]


def modality(name: str, config: DatasetConfig, dataset: Dataset) -> "Modality | None":
    """Return what makes patches of a dataset's examples; None if they are text. Fill in the options that the recipe
    leaves out, so that a run's recipe states them all.

    Raises:
        RecipeError: an option of its modality is unknown or cannot work.
    """
    from clearspan.train import modalities

    kind, key = dataset.manifest.kind, f"data.{name}.modality"
    stated_options = dict(config.modality)
    type_ = str(stated_options.pop("type", "") or kind)
    if type_ == kind and kind not in modalities.names():
        refuse((bool(config.modality), f"{key} has no effect: {config.path} holds {kind}"))
        return None
    try:
        options_class = modalities.config_class(type_)
    except PluginError as error:
        raise RecipeError(f"{key}.type {error}") from None
    known = [option.name for option in dataclasses.fields(options_class)]
    refuse(
        *(
            (
                option not in known,
                f"unknown key '{key}.{option}': {config.path} holds {kind}: {one_of(option, known)}",
            )
            for option in stated_options
        ),
        (
            config.short_documents != "error",
            f"data.{name}.short_documents has no effect: {config.path} holds {kind}, of which none is too short",
        ),
    )
    options = _over_defaults(options_class, stated_options, f"{key}.")
    config.modality = ({"type": type_} if type_ != kind else {}) | dataclasses.asdict(options)
    try:
        options.check()
        return modalities.build(type_, options, dataset)
    except ValueError as error:
        raise RecipeError(f"{key}: {error}") from None


def to_yaml(recipe: Recipe) -> str:
    """The resolved recipe, which `load` reads back to the same recipe; without epochs where steps are what counts."""
    content = dataclasses.asdict(recipe)
    if recipe.training.max_steps:
        content["training"].pop("epochs")
    return yaml.safe_dump(content, sort_keys=False)


def to_file(recipe: Recipe) -> bytes:
    """A run's recipe.yaml."""
    content = to_yaml(recipe)
    return f"{WRITTEN}{hashlib.sha256(content.encode()).hexdigest()}\n{content}".encode()


def is_written(path: Path) -> bool:
    """Whether a recipe.yaml is as a run wrote it."""
    with path.open("rb") as stream:
        first, _, rest = stream.read(MAX_BYTES).partition(b"\n")
    return first == f"{WRITTEN}{hashlib.sha256(rest).hexdigest()}".encode()
