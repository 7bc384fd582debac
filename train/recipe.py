"""Recipes: everything that decides a run, as typed dataclasses over YAML and `key=value` overrides.

    train/recipes/NAME.yaml (or a file) + overrides -> Recipe, every value checked once, unknown keys refused

Each objective brings its own dataclass of options (`train.objectives`), and so does a dataset that is not text
(`train.modalities`); a recipe names the datasets and the objectives that it wants.
"""

import dataclasses
import hashlib
import math
import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from train import modalities, objectives
from train.schedules import SCHEDULES, OptimizerConfig

FOLDER = Path(__file__).parent / "recipes"
MAX_BYTES = 1 << 20
ALL = "all"
"""The one turn of `optimization: sum`."""
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
class DatasetConfig:
    """Which shards, and how they are read.

    Args:
        batch_size: examples of a step, over all ranks and micro-batches.
        shuffle_shards: so many are held in memory and shuffled together.
        short_documents: those too short for the spans: error | skip | shrink.
        modality: for what is not text, the options of its file in `train.modalities`.
    """

    path: str = MISSING
    batch_size: int = 16
    shuffle_shards: int = 2
    short_documents: str = "error"
    modality: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class TrainingConfig:
    """The loop. `max_steps` 0 means `epochs` of the first dataset.

    A step's examples go through the encoder in `gradient_accumulation_steps` micro-batches. Its gradient is the mean of
    theirs: a contrastive loss sees the negatives of one micro-batch, on all ranks, and a masked-LM loss is a mean of
    means.
    """

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
    """A whole run; `output` is the run's folder.

    Args:
        data: datasets by name. objectives: options by name, `type`, `data`, `weight` and `turn` among them.
        optimization: `sum`, one update a step of all objectives' weighted sum, or `alternate`, an update of each turn.
        turns: with `alternate`, a turn's optimizer where it has other options than `optimizer`, by turn.
    """

    output: str = MISSING
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: dict[str, DatasetConfig] = dataclasses.field(default_factory=dict)
    objectives: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimization: str = "sum"
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    turns: dict[str, Any] = dataclasses.field(default_factory=dict)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    def turn_of(self, objective: str) -> str:
        """The update that an objective belongs to."""
        return (self.objectives[objective].turn or objective) if self.optimization == "alternate" else ALL

    def optimizers(self) -> dict[str, OptimizerConfig]:
        """The optimizer's options of every turn, in the order of the turns."""
        turns = list(dict.fromkeys(self.turn_of(name) for name in self.objectives))
        return {turn: self.turns.get(turn, self.optimizer) for turn in turns}


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


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
    wanted = _mapping(plain.pop("objectives", None), f"{where}: objectives")
    if isinstance(plain.get("model"), dict):
        plain["model"] = _without_nulls(plain["model"])
    plain["data"] = _mapping(plain.get("data"), f"{where}: data", "data.text.path=DIR, where text is a name of yours")
    turns = _mapping(plain.pop("turns", None), f"{where}: turns")
    try:
        recipe = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Recipe), plain))
        assert isinstance(recipe, Recipe)
        for name, options in wanted.items():
            type_ = options.get("type") or name
            if type_ not in objectives.types():
                known = ", ".join(objectives.types())
                raise RecipeError(f"{where}: objectives.{name}: no type {type_!r}; there are {known}")
            recipe.objectives[name] = _over_defaults(objectives.config_class(type_), options, f"objectives.{name}.")
            recipe.objectives[name].data = recipe.objectives[name].data or _only(recipe.data, name)
        for name, options in turns.items():
            over = {**dataclasses.asdict(recipe.optimizer), **options}
            recipe.turns[name] = _over_defaults(OptimizerConfig, over, f"turns.{name}.")
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{where}: {_key_error(error)}") from None
    _check(recipe)
    return recipe


def _mapping(content: Any, key: str, example: str = "") -> dict[str, Any]:
    """A mapping of names to options; a name that is null is left out."""
    found = _without_nulls(content or {})
    if not isinstance(found, dict) or not all(isinstance(options, dict) for options in found.values()):
        raise RecipeError(f"{key}: expected a mapping of names to options{f', e.g. {example}' if example else ''}")
    return found


def _only(data: dict[str, DatasetConfig], objective: str) -> str:
    if len(data) != 1:
        known = ", ".join(data) or "none"
        raise RecipeError(f"objectives.{objective}.data is not set; name the dataset that it reads: {known}")
    return next(iter(data))


def _over_defaults(config_class: Any, options: dict[str, Any], within: str) -> Any:
    """Options over the defaults of their dataclass; `within` goes before a key that is wrong."""
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config_class), options))
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise RecipeError(_key_error(error, within)) from None


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
    training = recipe.training
    _refuse(
        ("\0" in recipe.output, "output: no name of a folder holds a null character"),
        (not recipe.objectives, "objectives: a recipe needs at least one"),
        (bool(recipe.model.path) == bool(recipe.model.config), "model: give either model.path or model.config"),
        (not recipe.model.path and "model_type" not in recipe.model.config, "model.config needs model_type"),
        (recipe.model.pooling not in ("", "mean", "cls"), f"model.pooling {recipe.model.pooling!r} is not mean or cls"),
        (recipe.model.head not in ("", "tanh"), f"model.head {recipe.model.head!r} is not tanh"),
        (training.gradient_accumulation_steps < 1, "training.gradient_accumulation_steps must be at least 1"),
        (training.max_steps < 0 or not _positive(training.epochs), "training.max_steps and epochs must be positive"),
        (min(training.logging_steps, training.save_steps) < 1, "training.logging_steps and save_steps must be >= 1"),
        (training.eval_steps < 0, "training.eval_steps must be 0 or more"),
        (not 0 <= training.seed < 1 << 63, "training.seed must lie between 0 and 2**63"),
        (training.zero_stage not in (0, 1), "training.zero_stage must be 0 or 1: an encoder's state fits one device"),
        (training.eval_steps > 0 and not training.eval_data, "training.eval_steps needs training.eval_data"),
    )
    for name, data in recipe.data.items():
        _refuse(
            (not re.fullmatch(r"\w[\w-]*", name), f"data.{name}: a name is of letters, digits, _ and -"),
            (data.batch_size < 1, f"data.{name}.batch_size must be at least 1"),
            (data.shuffle_shards < 1, f"data.{name}.shuffle_shards must be at least 1"),
            (
                data.short_documents not in ("error", "skip", "shrink"),
                f"data.{name}.short_documents {data.short_documents!r} is not error, skip or shrink",
            ),
            (
                all(options.data != name for options in recipe.objectives.values()),
                f"data.{name}: no objective reads it: leave it out with data.{name}=null, or name it in one",
            ),
        )
    for name, options in recipe.objectives.items():
        _refuse(
            (not re.fullmatch(r"\w[\w-]*", name), f"objectives.{name}: a name is of letters, digits, _ and -"),
            (
                not _positive(options.weight),
                f"objectives.{name}.weight {options.weight} must be positive; null leaves it out",
            ),
            (
                options.data not in recipe.data,
                f"objectives.{name}.data {options.data!r} is not one of {', '.join(recipe.data)}",
            ),
        )
        try:
            options.check()
        except ValueError as error:
            raise RecipeError(f"objectives.{name}: {error}") from None
    _check_turns(recipe)


def _check_turns(recipe: Recipe) -> None:
    given = [f"turns.{name}" for name in recipe.turns]
    given += [f"objectives.{name}.turn" for name, options in recipe.objectives.items() if options.turn]
    alternate = recipe.optimization == "alternate"
    turns = {recipe.turn_of(name) for name in recipe.objectives}
    _refuse(
        (
            recipe.optimization not in ("sum", "alternate"),
            f"optimization {recipe.optimization!r} is not sum or alternate",
        ),
        (not alternate and bool(given), f"{given[0] if given else ''} has no effect with optimization: sum"),
        (
            alternate and recipe.training.zero_stage > 0,
            "optimization: alternate needs training.zero_stage=0: ZeRO shares out the state of one optimizer, and each "
            "turn has its own",
        ),
        (
            alternate and len(turns) < 2,
            f"optimization: alternate: all objectives are of the turn {', '.join(turns)}: take optimization=sum",
        ),
        *((name not in turns, f"turns.{name}: no objective is of that turn") for name in recipe.turns),
    )
    _check_optimizer("optimizer", recipe.optimizer)
    for name, optimizer in recipe.turns.items():
        _check_optimizer(f"turns.{name}", optimizer)


def _check_optimizer(key: str, optimizer: OptimizerConfig) -> None:
    _refuse(
        (not _positive(optimizer.learning_rate), f"{key}.learning_rate must be positive"),
        (not 0 <= optimizer.max_grad_norm < math.inf, f"{key}.max_grad_norm must be 0 (no clipping) or more"),
        (optimizer.warmup_steps < 0, f"{key}.warmup_steps must be 0 or more"),
        (
            optimizer.warmup_steps > 0 and optimizer.schedule != "linear",
            f"{key}.warmup_steps has no effect with schedule {optimizer.schedule}: set it to 0, or schedule=linear",
        ),
        (not _positive(optimizer.eps), f"{key}.eps must be positive"),
        (not 0 <= optimizer.weight_decay < math.inf, f"{key}.weight_decay must be 0 or more"),
        (not 0 < optimizer.cut_fraction < 1, f"{key}.cut_fraction must lie between 0 and 1"),
        (not 1 <= optimizer.ratio < math.inf, f"{key}.ratio must be at least 1"),
        (
            len(optimizer.betas) != 2 or not all(0 <= beta < 1 for beta in optimizer.betas),
            f"{key}.betas must be two numbers from 0 up to 1",
        ),
        (
            optimizer.schedule not in SCHEDULES,
            f"{key}.schedule {optimizer.schedule!r} is not one of {', '.join(SCHEDULES)}",
        ),
    )


def _refuse(*problems: tuple[bool, str]) -> None:
    """Raises RecipeError with the message of the first that is so."""
    for wrong, message in problems:
        if wrong:
            raise RecipeError(message)


def _positive(value: float) -> bool:
    """Above 0, finite, a number."""
    return 0 < value < math.inf


def modality(name: str, config: DatasetConfig, kind: str) -> modalities.Modality | None:
    """What makes patches of a dataset of that kind; None: it is text.

    Raises:
        RecipeError: an option of its modality is unknown or cannot work.
    """
    key = f"data.{name}.modality"
    if kind not in modalities.names():
        _refuse((bool(config.modality), f"{key} has no effect: {config.path} holds {kind}"))
        return None
    options: modalities.Modality = _over_defaults(modalities.config_class(kind), config.modality, f"{key}.")
    try:
        options.check()
    except ValueError as error:
        raise RecipeError(f"{key}: {error}") from None
    return options


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
