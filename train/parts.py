"""Find the parts that a recipe names: objectives and modalities, built in or the user's own (`module:Class`).

    name -> `part_class` -> the class -> `options_class` -> the dataclass of its options

The class names this dataclass as the type of its attribute `config`. A built-in part has the name of its file: each
file in `train/objectives/` and `train/modalities/` defines one class, except for files whose names begin with an
underscore.
"""

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from clearspan.common import plugins

Part = TypeVar("Part")


def part_names(package: str) -> list[str]:
    """Return the names of the built-in objectives or modalities, the files in a package's folder, sorted.

    Args:
        package: `clearspan.train.objectives` or `clearspan.train.modalities`.
    """
    file = importlib.import_module(package).__file__
    assert file is not None
    return sorted(path.stem for path in Path(file).parent.glob("[!_]*.py"))


def part_class(package: str, name: str, base: Callable[..., Part], noun: str) -> type[Part]:
    """Return the class of an objective or modality that a recipe names: a built-in one, or the user's own.

    Args:
        package: the package that holds the built-in ones, `clearspan.train.objectives` or `clearspan.train.modalities`.
        name: the name in the recipe: of a file in this package, or `module:Class`.
        base: the abstract class from which the class must derive.
        noun: the noun for such a class in error messages, with its article, such as "an objective".

    Raises:
        PluginError: there is no such file and no such class, or the class does not derive from `base` or lacks a method
            or an attribute that `base` requires.
    """
    if name not in part_names(package):
        return plugins.load_class(name, base, noun)
    module = importlib.import_module(f"{package}.{name}")
    classes = (
        value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__
    )
    return next(class_ for class_ in classes if issubclass(class_, base))  # type: ignore[arg-type, return-value]  # a class


def options_class(name: str, part: type, base: type) -> type[Any]:
    """Return the dataclass that holds the options of an objective or modality: the annotation of `config` in its class.

    If the class does not annotate its attribute `config`, the nearest base class that does is used.

    Args:
        name: the name of the objective or modality, for error messages.
        part: the class of the objective or modality.
        base: the class from which the dataclass must derive.

    Raises:
        PluginError: the annotation is not a dataclass that derives from `base`.
    """
    owner = next(class_ for class_ in part.__mro__ if "config" in vars(class_).get("__annotations__", {}))
    options = typing.get_type_hints(owner)["config"]
    if not (inspect.isclass(options) and issubclass(options, base) and dataclasses.is_dataclass(options)):
        annotation = getattr(options, "__qualname__", options)
        raise plugins.PluginError(
            f"{name}: {owner.__qualname__} annotates config as {annotation}: it must be a dataclass that derives from "
            f"{base.__module__}.{base.__qualname__}"
        )
    return options
