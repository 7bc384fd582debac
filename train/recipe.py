"""Recipes: everything that decides a run, as typed dataclasses that are read from YAML and `key=value` arguments.

    train/recipes/NAME.yaml (or a file) + arguments -> merged -> every key and value checked -> Recipe

A recipe names the datasets and the objectives that it uses. Each type of objective has a dataclass of options
(`train.objectives`), and so has each modality, which makes patches of a dataset that is not text (`train.modalities`).
"""

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearspan.common.hub import model_folder, reference
from clearspan.common.parsing import closest
from clearspan.shards import Dataset
from clearspan.train.config.keys import naming, nearest_key, typed
from clearspan.train.config.layers import (
    dump,
    find,
    merge,
    merge_layers,
    no_recipe,
    read_argument,
    read_layers,
    without_replaced,
)
from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.options import DatasetConfig, Recipe, RecipeError, check, refuse
from clearspan.train.config.resume_policy import dotted

if TYPE_CHECKING:  # torch takes seconds to import, and --help needs none
    from clearspan.train.modalities import Modality

MISSING = "???"
"""The value that marks, in a recipe's file, a key that the user must set."""
WRITTEN = "# Written by Clearspan; sha256 of the lines below: "
"""The start of a run's recipe.yaml, up to its hash. A run replaces such a file only if the hash shows that a run wrote
it and nobody changed it.
"""


def load_recipe(name_or_file: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe by its name or from a file, with `key=value` overrides such as `data.text.batch_size=32`.

    Another process hands a recipe over as JSON, the mapping that its file would state, in place of the name.

    A file with `extends: OTHER` (the name of a recipe, or a file beside it) states only what it changes. A
    `model.config` with another `model_type` replaces the whole `model.config` of OTHER. Overrides are applied in their
    order; together they act like a file that extends the recipe. `objectives.NAME=null` leaves an objective out;
    `model.config=null` empties that section. `training.epochs` and `training.max_steps` exclude each other: an override
    takes precedence over the file, and the file over OTHER.

    Raises:
        RecipeError: there is no such recipe, it is not YAML, a key is unknown, or a value cannot work.
    """
    is_mapping = name_or_file.startswith("{")
    path = Path("the recipe") if is_mapping else find(name_or_file)
    if not is_mapping and not path.is_file():
        raise RecipeError(no_recipe(name_or_file))
    try:
        words = [read_argument(argument) for argument in overrides]
        files = json.loads(name_or_file) if is_mapping else merge_layers(read_layers(path))
        arguments: dict[str, Any] = functools.reduce(merge, words, {})
        # One by one: model.config=null empties it, and the overrides behind it fill it again.
        merged = functools.reduce(merge, words, without_replaced(files, arguments))
        _check_misspelled(files, arguments, merged)
        recipe = _typed(merged)
        for key, value in dotted(merged).items():
            refuse((value == MISSING, f"{key} is not set; give it as {key}=VALUE"))
            with naming(key):
                f"{key} {value}".encode()  # recipe.yaml is UTF-8, which half of a surrogate pair is not
        check(recipe)
        _resolve(recipe)
        return recipe
    except RecursionError:
        raise RecipeError(f"{path}: nested too deeply, with its overrides") from None


def load_saved(path: Path, recipe: Recipe) -> Recipe:
    """Load the recipe that a run saved in its folder, to compare it with `recipe`, the recipe of the current command.

    The user's own classes (`module:Class`) are imported only if `recipe` names them too, so that a folder cannot choose
    which code runs.

    Raises:
        RecipeError: the file is not a recipe, or names a user's own class that `recipe` does not name.
    """
    named = list(dotted(dataclasses.asdict(recipe)).values())
    for key, value in dotted(merge_layers(read_layers(path))).items():
        if key.endswith(".type") and ":" in str(value) and value not in named:
            raise RecipeError(f"{path}: the run has {key} {value}, which this recipe does not name: start a new run")
    with naming(str(path)):
        return load_recipe(str(path))


def _check_misspelled(files: Mapping[str, Any], arguments: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise RecipeError if an argument seems to misspell the name of a dataset or an objective.

    A name seems misspelled if it is not in the recipe's files, but similar to a name there, and has no effect. It has
    no effect in two cases: its value is null (null leaves out an entry, and there is no entry of this name), or it is
    the name of a dataset that no objective reads.

    Args:
        files: the content of the recipe's files, merged, without the arguments.
        arguments: the keys and values that the arguments set, merged into one nested mapping.
        merged: the content of the files with the arguments merged into it.
    """
    for section in ("data", "objectives"):
        existing: Any = files.get(section)
        changes: Any = arguments.get(section)
        for name, value in changes.items() if isinstance(changes, dict) and isinstance(existing, dict) else ():
            near = closest(name, map(str, existing))
            unnamed = section == "data" and name not in dotted(merged).values()
            if name not in existing and near is not None and (value is None or unnamed):
                what = f"no such entry{' to leave out' if value is None else ''}"
                raise RecipeError(f"{section}.{name}: the recipe has {what}; did you mean {section}.{near}?")


def _typed(content: dict[Any, Any]) -> Recipe:
    """Return a recipe as dataclasses; raise RecipeError if a key is unknown or missing, or a value has a wrong type.

    Args:
        content: the recipe as a nested mapping, into which its files and the arguments have been merged.
    """
    from clearspan.train import objectives  # here: torch and transformers take seconds, and --help needs neither

    sections = {name: _mapping(name, content.get(name)) for name in ("data", "objectives", "turns")}
    plain = {name: _without_nulls(content.get(name) or {}) for name in ("model", "optimizer", "training")}
    training = plain["training"]
    if isinstance(training, dict) and training.get("max_steps") and (epochs := training.pop("epochs", 0)):
        raise RecipeError(
            f"training.epochs {epochs} and training.max_steps {training['max_steps']}: a run has one length: set one "
            "of the two, and the other to 0"
        )
    recipe = typed(Recipe, {**content, **plain, "data": sections["data"], "objectives": {}, "turns": {}})
    for name, options in sections["objectives"].items():
        key, type_ = f"objectives.{name}", str(options.get("type") or name)
        if not objectives.is_type(type_):
            others = [other for other in sections["objectives"] if other != name]
            near = nearest_key(
                f"objectives.{type_}", [f"objectives.{other}" for other in (*others, *objectives.types())]
            )
            mend = near or f"the types are {', '.join(objectives.types())}, and module:Class"
            raise RecipeError(
                f"{key}: no type {type_!r}, and the recipe has {', '.join(others) or 'no others'}; {mend}"
            )
        with naming(f"{key}.type"):
            config = objectives.config_class(type_)
        recipe.objectives[name] = typed(config, options, f"{key}.")
        recipe.objectives[name].data = recipe.objectives[name].data or _only_dataset(recipe.data, name)
    for name, options in sections["turns"].items():
        options = merge(dataclasses.asdict(recipe.optimizer), options)
        recipe.turns[name] = typed(OptimizerConfig, options, f"turns.{name}.")
    return recipe


def _without_nulls(content: Any) -> Any:
    """Return a mapping without keys whose value is null, in nested mappings too; return other values as they are."""
    if not isinstance(content, dict):
        return content
    return {key: _without_nulls(value) for key, value in content.items() if value is not None}


def _mapping(section: str, content: Any) -> dict[str, Any]:
    """Return a section of a recipe that maps names to mappings of options, without keys whose value is null.

    Args:
        section: the name of the section, such as `objectives`, for error messages.
        content: the content of the section; None for an empty section.

    Raises:
        RecipeError: the section or an entry is not a mapping, or a name is not a string.
    """
    if not isinstance(content, dict | None):
        raise RecipeError(f"{section}: expected a mapping of names to options")
    entries: dict[str, Any] = _without_nulls(content or {})
    for name, value in entries.items():
        if not isinstance(value, dict):
            is_option = section == "data" and name in DatasetConfig.__dataclass_fields__
            mend = f"say data.NAME.{name}" if is_option else "expected a mapping of options"
            raise RecipeError(f"{section}.{name}: {mend}")
        if not isinstance(name, str):
            raise RecipeError(f"{section}.{name}: a name is text: put {name} in quotes")
    return entries


def _only_dataset(data: dict[str, DatasetConfig], objective: str) -> str:
    """Return the name of a recipe's only dataset, which an objective reads if its key `data` is not set.

    Args:
        data: name -> the options of the dataset.
        objective: the name of the objective, for the error message.

    Raises:
        RecipeError: the recipe has no dataset, or several.
    """
    if len(data) != 1:
        known = ", ".join(data) or "none"
        raise RecipeError(f"objectives.{objective}.data is not set; name the dataset that the objective reads: {known}")
    return next(iter(data))


def modality(name: str, config: DatasetConfig, dataset: Dataset) -> "Modality | None":
    """Return the `train.modalities.Modality` that makes patches of a dataset's examples; None for a dataset of text.

    Default options are added to `config.modality`, so that the run's recipe states every option.

    Args:
        name: the dataset's name in the recipe.
        config: the dataset's options in the recipe, which are changed.
        dataset: the dataset.

    Raises:
        RecipeError: the modality or an option is unknown, cannot work, or has no effect on this kind of dataset.
    """
    from clearspan.train import modalities

    kind, key = dataset.manifest.kind, f"data.{name}.modality"
    stated_options = dict(config.modality)
    type_ = str(stated_options.pop("type", "") or kind)
    if type_ == kind and kind not in modalities.names():
        refuse((bool(config.modality), f"{key} has no effect: {config.path} holds {kind}"))
        return None
    with naming(f"{key}.type"):
        options_class = modalities.config_class(type_)
    if config.short_documents != "error":
        raise RecipeError(
            f"data.{name}.short_documents has no effect: {config.path} holds {kind}, of which none is too short"
        )
    options = typed(options_class, stated_options, f"{key}.")
    config.modality = ({"type": type_} if type_ != kind else {}) | dataclasses.asdict(options)
    with naming(key):
        options.check()
        return modalities.build(type_, options, dataset)


def _models(recipe: Recipe) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the keys of a recipe whose values name a model: key -> (the mapping that holds the value, its name there).

    Keys without a value are left out.
    """
    options = vars(recipe.model)
    places = {f"model.{name}": (options, name) for name in ("path", "distill")}
    places |= {f"data.{name}.modality.path": (data.modality, "path") for name, data in recipe.data.items()}
    values = {key: holder.get(name) for key, (holder, name) in places.items()}
    return {key: place for key, place in places.items() if isinstance(values[key], str) and values[key]}


def _resolve(recipe: Recipe) -> None:
    """Replace each model of the hub in a recipe by its folder in the hub's cache; fetch it if it is not there.

    Raises:
        RecipeError: there is no such model, or it cannot be fetched.
    """
    for key, (options, name) in _models(recipe).items():
        with naming(key):
            options[name] = model_folder(options[name])


def pinned(recipe: Recipe) -> list[str]:
    """Return the models of the hub that a recipe names, each as `key=hf:ORG/NAME@COMMIT`, for another process.

    That process then needs no network, and has the same commit even if the branch has moved meanwhile.
    """
    named = {key: (options[name], reference(options[name])) for key, (options, name) in _models(recipe).items()}
    return [f"{key}={known}" for key, (folder, known) in named.items() if known != folder]


def stated(recipe: Recipe) -> dict[str, Any]:
    """Return all keys and values of a recipe as a nested mapping, as its file states them.

    `training.epochs` is left out if `training.max_steps` decides the length of the run. A model of the hub is stated as
    `hf:ORG/NAME@COMMIT`.
    """
    recipe = copy.deepcopy(recipe)
    for options, name in _models(recipe).values():
        options[name] = reference(options[name])
    content = dataclasses.asdict(recipe)
    if recipe.training.max_steps:
        content["training"].pop("epochs")
    return content


def to_yaml(recipe: Recipe) -> str:
    """Return a recipe with all its values (`stated`) as YAML, from which `load_recipe` loads an equal recipe."""
    return dump(stated(recipe))


def to_file(recipe: Recipe) -> bytes:
    """Return the content of a run's recipe.yaml: the recipe as YAML, after a comment line with the YAML's SHA-256."""
    content = to_yaml(recipe)
    return f"{WRITTEN}{hashlib.sha256(content.encode()).hexdigest()}\n{content}".encode()


def is_written(path: Path) -> bool:
    """Return whether a recipe.yaml is unchanged since a run wrote it, by the hash in its first line."""
    with path.open("rb") as stream:
        first, _, rest = stream.read().partition(b"\n")
    return first == f"{WRITTEN}{hashlib.sha256(rest).hexdigest()}".encode()
