"""Training objectives. An objective requests sequences to encode, and computes a loss from their encoded states.

`Objective` is the interface (`train.step.contract`). Contrastive objectives share the code in `train.step.contrast`.
Each built-in type is a file in this folder that defines one subclass of `Objective`; the type has the name of the file.
A recipe refers to a class of your own as `module:Class`.
"""

import functools
from collections.abc import Mapping, Sequence

from clearspan.common.plugins import PluginError
from clearspan.shards import ShardError
from clearspan.train import parts
from clearspan.train.config.options import ObjectiveConfig
from clearspan.train.model.encoded import Encoded
from clearspan.train.step.contract import (
    ExampleObjective,
    Objective,
    Setting,
    TokenObjective,
    Workload,
)
from clearspan.train.step.contrast import ContrastiveConfig, ContrastiveObjective, NTXentConfig
from clearspan.train.step.requests import Metrics, Request

__all__ = [
    "ContrastiveConfig",
    "ContrastiveObjective",
    "Encoded",
    "ExampleObjective",
    "Metrics",
    "NTXentConfig",
    "Objective",
    "ObjectiveConfig",
    "Request",
    "Setting",
    "TokenObjective",
    "Workload",
    "build",
    "config_class",
    "is_type",
    "types",
]

BASES = (ContrastiveObjective, TokenObjective, ExampleObjective)


def types() -> list[str]:
    """Return the names of the built-in types of objectives."""
    return parts.part_names(__name__)


def is_type(name: str) -> bool:
    """Return whether a name is a built-in type or has the form `module:Class`."""
    return ":" in name or name in types()


@functools.cache
def objective_class(type_: str) -> type[Objective]:
    """Return the class of a type of objective.

    Args:
        type_: the name of a built-in type, or `module:Class`.

    Raises:
        PluginError: there is no such class, or it does not implement the interface.
    """
    class_ = parts.part_class(__name__, type_, Objective, "an objective")
    if not issubclass(class_, BASES):
        bases = ", ".join(base.__name__ for base in BASES)
        raise PluginError(f"{type_}: derives from Objective itself: derive from one of {bases}")
    return class_


def config_class(type_: str) -> type[ObjectiveConfig]:
    """Return the dataclass that holds the options of a type of objective.

    Args:
        type_: the name of a built-in type, or `module:Class`.

    Raises:
        PluginError: there is no such class, or it does not implement the interface.
    """
    return parts.options_class(type_, objective_class(type_), ObjectiveConfig)


def build(config: ObjectiveConfig, setting: Setting, earlier: Sequence[Objective]) -> Objective:
    """Create an objective of a recipe.

    Args:
        config: the options of the objective.
        setting: what the objective may know of the run: its name, its dataset, and properties of the encoder.
        earlier: the objectives that precede it in the recipe.

    Raises:
        ValueError: something that the objective needs is missing, such as a mask token, a column of the shards, or
            another objective. The message begins with the name of the objective.
        ShardError: a shard is damaged.
        PluginError: there is no class of the objective's type.
    """
    type_ = config.type or setting.name
    try:
        _check_columns(setting, config.needs())
        objective = objective_class(type_).build(config, setting, earlier)
        _check_columns(setting, dict.fromkeys(objective.columns, f"type {type_}"))
        return objective
    except ShardError:
        raise
    except ValueError as error:
        raise ValueError(f"objectives.{setting.name}: {error}") from None


def _check_columns(setting: Setting, needed: Mapping[str, str]) -> None:
    """Check that the shards have the columns that an objective needs.

    Args:
        setting: the objective's dataset.
        needed: column -> the option that needs the column, for the message.

    Raises:
        ValueError: a column is missing.
    """
    columns = setting.sample.schema.names if setting.sample is not None else needed
    for column, option in needed.items():
        if column not in columns:
            raise ValueError(
                f"{option} needs the column {column!r}, and data.{setting.data}.path "
                f"{setting.dataset.folder} holds {setting.dataset.manifest.kind} without it: name another dataset with "
                f"objectives.{setting.name}.data, make the shards again, or change {option}"
            )
