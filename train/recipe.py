"""Recipes: everything that decides a run, as typed dataclasses over YAML and `key=value` overrides.

    train/recipes/NAME.yaml (or a file) + overrides -> Recipe, every value checked once, unknown keys refused

Each objective brings its own dataclass of options (`train.objectives`); a recipe lists the objectives that it wants.
"""

import dataclasses
import hashlib
import importlib
import math
import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from train.engine.optimization import SCHEDULES, OptimizerConfig
from train.span_sampler import SpanConfig

FOLDER = Path(__file__).parent / "recipes"
MAX_BYTES = 1 << 20
WRITTEN = "# Written by Clearspan; sha256 of the lines below: "
"""The first line of a run's recipe.yaml, with that hash: a run may only replace what a run wrote."""


class RecipeError(ValueError):
    """A recipe that cannot run. The message names the key and the mend."""


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


@dataclasses.dataclass
class ModelConfig:
    """Where the encoder comes from: a local folder of pretrained weights, or an HF configuration with fresh weights.

    `config` needs `model_type`; the vocabulary size and special ids come from the shards' tokenizer.
    """

    path: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    pooling: str = ""  # mean | cls; "": as the folder of `path` says, or mean
    head: str = ""  # tanh: a linear layer and tanh after the pooling; "": none but what the folder of `path` has


@dataclasses.dataclass
class DataConfig:
    """Which shards, and how they are read. `shuffle_shards` shards are held in memory and shuffled together."""

    path: str = MISSING
    shuffle_shards: int = 2
    short_documents: str = "error"  # documents too short for the spans: error | skip | shrink


@dataclasses.dataclass
class TrainingConfig:
    """The loop. `batch_size` counts examples over all ranks; `max_steps` 0 means `epochs`.

    A step's examples go through the encoder in `gradient_accumulation_steps` forwards. Its gradient is the mean of
    theirs: a contrastive loss sees the negatives of one forward, on all ranks, and a masked-LM loss is a mean of means.
    """

    batch_size: int = 16
    gradient_accumulation_steps: int = 1
    epochs: float = 1.0
    max_steps: int = 0
    seed: int = 42
    bf16: bool = True
    zero_stage: int = 0
    logging_steps: int = 10
    save_steps: int = 1000
    eval_steps: int = 0  # 0: no evaluation while training
    eval_data: str = ""  # SentEval's folder; STS-B dev picks the best checkpoint


@dataclasses.dataclass
class Recipe:
    """A whole run; `output` is the run's folder. `objectives` maps a name to its options, `weight` among them."""

    output: str = MISSING
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    objectives: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def objective_names() -> list[str]:
    folder = Path(__file__).parent / "objectives"
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def load(name_or_file: str, overrides: list[str] | None = None) -> Recipe:
    """The recipe of that name or file, with `key=value` overrides such as `training.batch_size=32`.

    A file that says `extends: OTHER` (a recipe's name, or a file beside it) states only what it changes of that one.
    Overrides apply in order. `objectives.NAME=null` leaves an objective out, `model.config=null` empties that.

    Raises:
        RecipeError: no such recipe, not YAML, an unknown key, or a value that cannot work.
    """
    path = _find(name_or_file)
    if not path.is_file():
        raise RecipeError(f"no recipe {name_or_file!r}: give a .yaml file or one of {', '.join(names())}")
    for override in overrides or []:
        if not re.fullmatch(r"[\w.-]+=.*", override, re.DOTALL):
            raise RecipeError(f"{override!r} is not key=value")
    try:
        merged = OmegaConf.merge(*(OmegaConf.create(content) for content in _ancestry(path)))
        for override in overrides or []:  # one by one, so that model.config=null empties what the next ones fill
            merged = OmegaConf.merge(merged, _parsed(override))
        plain = OmegaConf.to_container(merged)
        assert isinstance(plain, dict)
        return _typed(plain, str(path))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise RecipeError(f"{path}: {_key_error(error)}") from None
    except RecursionError:
        raise RecipeError(f"{path}: nested too deeply, with its overrides") from None


def _parsed(override: str) -> Any:
    try:
        return OmegaConf.from_dotlist([override])
    except (yaml.YAMLError, ValueError) as error:
        raise RecipeError(f"{override[:80]!r}: {_key_error(error)}") from None


def _find(name_or_file: str, beside: Path = Path()) -> Path:
    """A recipe's file; a relative one lies in that folder."""
    return beside / name_or_file if name_or_file.endswith((".yaml", ".yml")) else FOLDER / f"{name_or_file}.yaml"


def _read(path: Path) -> Any:
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes: not a recipe")
    return yaml.load(data.decode("utf-8"), _Loader) or {}


def _ancestry(path: Path) -> list[dict[Any, Any]]:
    """The contents of a file and of what it extends, the most distant first.

    Raises:
        RecipeError: one of them is not there, not YAML, not a mapping, or extends one that extends it.
    """
    chain: list[dict[Any, Any]] = []
    seen = [path]
    while True:
        try:
            content = _read(path)
        except (yaml.YAMLError, ValueError) as error:
            raise RecipeError(f"{path}: {_key_error(error)}") from None
        if not isinstance(content, dict):
            raise RecipeError(f"{path}: expected a mapping of keys, found a {type(content).__name__}")
        parent = content.pop("extends", None)
        chain.insert(0, content)
        if parent is None:
            return chain
        child, path = path, _find(str(parent), path.parent)
        if not path.is_file():
            raise RecipeError(
                f"{child}: extends: no recipe {parent!r}: name a .yaml file or one of {', '.join(names())}"
            )
        if path.resolve() in [one.resolve() for one in seen]:
            raise RecipeError(f"{child}: extends: {parent!r} comes back to itself")
        seen.append(path)


def _without_nulls(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {key: _without_nulls(value) for key, value in content.items() if value is not None}


def _typed(plain: dict[Any, Any], where: str) -> Recipe:
    objectives = _without_nulls(plain.pop("objectives", None) or {})
    if isinstance(plain.get("model"), dict):
        plain["model"] = _without_nulls(plain["model"])
    if not isinstance(objectives, dict) or not all(isinstance(options, dict) for options in objectives.values()):
        raise RecipeError(f"{where}: objectives: expected a mapping of names to options")
    try:
        recipe = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Recipe), plain))
        assert isinstance(recipe, Recipe)
        for name, options in objectives.items():
            if name not in objective_names():
                raise RecipeError(f"{where}: no objective {name!r}; there are {', '.join(objective_names())}")
            recipe.objectives[name] = _objective(name, options)
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{where}: {_key_error(error)}") from None
    _check(recipe)
    return recipe


def _objective(name: str, options: dict[str, Any]) -> Any:
    """An objective's options over its defaults."""
    defaults = OmegaConf.structured(importlib.import_module(f"train.objectives.{name}").Config)
    try:
        return OmegaConf.to_object(OmegaConf.merge(defaults, options))
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise RecipeError(_key_error(error, f"objectives.{name}.")) from None


def _key_error(error: Exception, within: str = "") -> str:
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
        return f"unknown key {within + key!r}; `--dry-run` prints the keys there are"
    return f"{within}{key}: {lines[0]}" if key else lines[0]


def _check(recipe: Recipe) -> None:
    """Values that could not work, found before anything is loaded."""
    training, optimizer = recipe.training, recipe.optimizer
    problems = [
        ("\0" in recipe.output, "output: no name of a folder holds a null character"),
        (not recipe.objectives, "objectives: a recipe needs at least one"),
        (bool(recipe.model.path) == bool(recipe.model.config), "model: give either model.path or model.config"),
        (not recipe.model.path and "model_type" not in recipe.model.config, "model.config needs model_type"),
        (recipe.model.pooling not in ("", "mean", "cls"), f"model.pooling {recipe.model.pooling!r} is not mean or cls"),
        (recipe.model.head not in ("", "tanh"), f"model.head {recipe.model.head!r} is not tanh"),
        (training.batch_size < 1, "training.batch_size must be at least 1"),
        (training.gradient_accumulation_steps < 1, "training.gradient_accumulation_steps must be at least 1"),
        (training.max_steps < 0 or not _positive(training.epochs), "training.max_steps and epochs must be positive"),
        (min(training.logging_steps, training.save_steps) < 1, "training.logging_steps and save_steps must be >= 1"),
        (training.eval_steps < 0, "training.eval_steps must be 0 or more"),
        (not 0 <= training.seed < 1 << 63, "training.seed must lie between 0 and 2**63"),
        (training.zero_stage not in (0, 1), "training.zero_stage must be 0 or 1: an encoder's state fits one device"),
        (training.eval_steps > 0 and not training.eval_data, "training.eval_steps needs training.eval_data"),
        (not _positive(optimizer.learning_rate), "optimizer.learning_rate must be positive"),
        (not 0 <= optimizer.max_grad_norm < math.inf, "optimizer.max_grad_norm must be 0 (no clipping) or more"),
        (optimizer.warmup_steps < 0, "optimizer.warmup_steps must be 0 or more"),
        (
            optimizer.warmup_steps > 0 and optimizer.schedule != "linear",
            f"optimizer.warmup_steps has no effect with schedule {optimizer.schedule}: set it to 0, or schedule=linear",
        ),
        (not _positive(optimizer.eps), "optimizer.eps must be positive"),
        (not 0 <= optimizer.weight_decay < math.inf, "optimizer.weight_decay must be 0 or more"),
        (not 0 < optimizer.cut_fraction < 1, "optimizer.cut_fraction must lie between 0 and 1"),
        (not 1 <= optimizer.ratio < math.inf, "optimizer.ratio must be at least 1"),
        (
            len(optimizer.betas) != 2 or not all(0 <= beta < 1 for beta in optimizer.betas),
            "optimizer.betas must be two numbers from 0 up to 1",
        ),
        (
            optimizer.schedule not in SCHEDULES,
            f"optimizer.schedule {optimizer.schedule!r} is not one of {', '.join(SCHEDULES)}",
        ),
        (recipe.data.shuffle_shards < 1, "data.shuffle_shards must be at least 1"),
        (
            recipe.data.short_documents not in ("error", "skip", "shrink"),
            f"data.short_documents {recipe.data.short_documents!r} is not error, skip or shrink",
        ),
    ]
    for wrong, message in problems:
        if wrong:
            raise RecipeError(message)
    for name, options in recipe.objectives.items():
        if not _positive(options.weight):
            raise RecipeError(f"objectives.{name}.weight {options.weight} must be positive; null leaves it out")
        try:
            options.check()
        except ValueError as error:
            raise RecipeError(f"objectives.{name}: {error}") from None
    reads = {name: options.kind for name, options in recipe.objectives.items()}
    if len(set(reads.values())) > 1:
        found = ", ".join(f"{name} reads {kind}" for name, kind in reads.items())
        hint = "; with input: sentence, mlm reads sentences" if reads.get("mlm") == "documents" else ""
        raise RecipeError(f"objectives: {found}: a run reads one kind of shards{hint}")


def _positive(value: float) -> bool:
    """Above 0, finite, a number."""
    return 0 < value < math.inf


def kind(recipe: Recipe) -> str:
    """The kind of shards that the objectives read."""
    return str(next(iter(recipe.objectives.values())).kind)


def span_configs(recipe: Recipe) -> list[SpanConfig]:
    """The span settings of all objectives that sample spans."""
    return [o.spans for o in recipe.objectives.values() if getattr(o, "spans", None) is not None]


def to_yaml(recipe: Recipe) -> str:
    """The resolved recipe, which `load` reads back to the same recipe."""
    return yaml.safe_dump(dataclasses.asdict(recipe), sort_keys=False)


def to_file(recipe: Recipe) -> bytes:
    """A run's recipe.yaml."""
    content = to_yaml(recipe)
    return f"{WRITTEN}{hashlib.sha256(content.encode()).hexdigest()}\n{content}".encode()


def is_written(path: Path) -> bool:
    """Whether a recipe.yaml is as a run wrote it."""
    with path.open("rb") as stream:
        first, _, rest = stream.read(MAX_BYTES).partition(b"\n")
    return first == f"{WRITTEN}{hashlib.sha256(rest).hexdigest()}".encode()
