"""A recipe's sections as typed dataclasses, and which of their values cannot work."""

import dataclasses
import math
import re
from collections.abc import Collection
from typing import Any

from omegaconf import MISSING

from clearspan.common.parsing import did_you_mean
from clearspan.train.schedules import SCHEDULES, WARMED, OptimizerConfig

METRICS = ("epoch", "examples_per_s", "grad_norm", "learning_rate", "validation")
"""What is logged by dataset, by turn or by held-out metric, as `METRIC/NAME`."""
ALL = "all"
"""The one turn of `optimization: sum`."""


POOLINGS, SHORT, OPTIMIZATIONS = ("mean", "cls"), ("error", "skip", "shrink"), ("sum", "alternate")
"""The values of `model.pooling`, `data.NAME.short_documents` and `optimization`."""


class RecipeError(ValueError):
    """A recipe that cannot run. The message names the key and the mend."""


@dataclasses.dataclass
class ModelConfig:
    """Where the encoder comes from: a local folder of pretrained weights, or an HF configuration with fresh weights.

    Args:
        path: a folder of Hugging Face's or of sentence-transformers', with or without a masked-LM head.
        config: options of transformers' configuration, `model_type` among them; the vocabulary size and special ids
            come from the shards' tokenizer.
    """

    path: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    pooling: str = ""  # mean | cls; "": as the folder of `path` says, or mean
    head: str = ""  # tanh: a linear layer and tanh after the pooling; "": none but what the folder of `path` has


@dataclasses.dataclass
class DatasetConfig:
    """Which shards, and how they are read.

    Args:
        path: the shards' folder, local, `gs://` or `s3://`.
        batch_size: examples of a step, over all ranks and micro-batches.
        share: of the examples that are read, the same whatever the seed; what 0.4 reads, 0.7 reads too. Epochs are of
            these.
        shuffle_shards: so many are held in memory and shuffled together.
        short_documents: those too short for the spans: error | skip | shrink.
        modality: of a dataset other than text, the options of its modality: those of its kind below, or those of a
            modality of your own and `type: module:Class`.
        validation: shards of examples held out (`--holdout-fraction` makes them): every `training.eval_steps` steps the
            losses on all of them, in batches as large as a micro-batch over all ranks, without dropout and with the
            same draws each time. They pick the best checkpoint where `training.eval_data` is not set, except for losses
            that tell nothing without dropout, such as SimCSE's on sentences without pairs. "": none.
    """

    path: str = MISSING
    batch_size: int = 16
    share: float = 1.0
    shuffle_shards: int = 2
    short_documents: str = "error"
    modality: dict[str, Any] = dataclasses.field(default_factory=dict)
    validation: str = ""


@dataclasses.dataclass
class TrainingConfig:
    """The loop. `max_steps` 0 means `epochs` of the dataset `primary`; the others begin anew as often as they end. Who
    gives both in one place must set one of them to 0.

    A step's examples go through the encoder in `gradient_accumulation_steps` micro-batches. Its gradient is the mean of
    theirs: a contrastive loss sees the negatives of one micro-batch, on all ranks, and a masked-LM loss is a mean of
    means.

    A run goes on with any number of ranks that divides its batches: the examples, spans, views and masks stay the same,
    and so do losses but for rounding. Dropout does not: it is drawn by rank, so that other ranks drop other values, as
    another seed would. On as many ranks as before it is repeated.

    Args:
        gradient_accumulation_steps: micro-batches of a step.
        gradient_caching: the gradient is that of one batch of all the step's examples, contrasted with each other (Gao
            et al. 2021): in the memory of one micro-batch, for one more forward of each.
        activation_checkpointing: keeps of each layer its input alone, and computes the layer again in the backward: the
            same numbers in less memory, for one more forward.
        epochs: the run's length, in passes over the dataset `primary`, 0.5 being half of one.
        max_steps: the run's length in steps; 0: that of `epochs`.
        seed: of every draw: order, spans, views, masks, dropout, fresh weights.
        bf16: matrix products in bfloat16, by torch's autocast; weights, gradients and AdamW stay fp32.
        compile: on CUDA with bf16, the encoder runs as one graph, which is compiled at the first step.
        zero_stage: DeepSpeed's ZeRO: 0, 1 to share AdamW's state out to the ranks, or 2 its gradients too. A run may
            go on with another.
        logging_steps: metrics are logged, and looked at, every so many steps.
        save_steps: a checkpoint is saved every so many steps, besides the best and the last.
    """

    gradient_accumulation_steps: int = 1
    gradient_caching: bool = False
    activation_checkpointing: bool = False
    epochs: float = 1.0
    primary: str = ""  # the dataset whose epochs are the run's; "": the first
    max_steps: int = 0
    seed: int = 42
    bf16: bool = True
    compile: bool = True
    zero_stage: int = 0
    logging_steps: int = 10
    save_steps: int = 1000
    eval_steps: int = 0  # 0: no evaluation while training; else before the first step and every so many
    eval_data: str = ""  # SentEval's folder, or a csv or tsv of pairs; STS-B dev picks the best checkpoint
    max_hours: float = 0.0  # ends as on SIGTERM, saved, so long after its start; leave room for the save; 0: no limit
    loss_limit: float = 10.0  # ends where the loss is so many times chance, or where it began, if higher; 0: never
    gradient_norms: bool = False  # logs each objective's own; at a logged step a forward and a backward of each more
    wandb: str = ""  # the project to log to with the package wandb, which is not installed with this one; "": none


@dataclasses.dataclass
class Recipe:
    """A whole run.

    Args:
        output: the run's folder.
        model: the encoder.
        data: datasets by name.
        objectives: options by name, `type`, `data`, `weight` and `turn` among them.
        optimization: `sum`, one update a step of all objectives' weighted sum, or `alternate`, an update of each turn.
        optimizer: AdamW's options and its schedule.
        turns: with `alternate`, a turn's optimizer where it has other options than `optimizer`, by turn.
        training: the loop.
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

    def contrasted(self, data: str) -> int:
        """Return the number of examples of a dataset that are contrasted with each other: those of a micro-batch, or
        with gradient caching those of a step.
        """
        training = self.training
        return self.data[data].batch_size // (1 if training.gradient_caching else training.gradient_accumulation_steps)

    def optimizers(self) -> dict[str, OptimizerConfig]:
        """The optimizer's options of every turn, in the order of the turns."""
        turns = list(dict.fromkeys(self.turn_of(name) for name in self.objectives))
        return {turn: self.turns.get(turn, self.optimizer) for turn in turns}


def check(recipe: Recipe) -> None:
    """Values that could not work, found before anything is loaded."""
    training = recipe.training
    refuse(
        ("\0" in recipe.output, "output: no name of a folder holds a null character"),
        (not recipe.objectives, "objectives: a recipe needs at least one"),
        (bool(recipe.model.path) == bool(recipe.model.config), "model: give either model.path or model.config"),
        (not recipe.model.path and "model_type" not in recipe.model.config, "model.config needs model_type"),
        (recipe.model.pooling not in ("", *POOLINGS), f"model.pooling {not_one_of(recipe.model.pooling, POOLINGS)}"),
        (recipe.model.head not in ("", "tanh"), f"model.head {recipe.model.head!r} is not tanh"),
        (training.gradient_accumulation_steps < 1, "training.gradient_accumulation_steps must be at least 1"),
        (training.max_steps < 0 or not _positive(training.epochs), "training.max_steps and epochs must be positive"),
        (not 0 <= training.max_hours < math.inf, "training.max_hours must be 0 (no limit) or more"),
        (
            training.loss_limit != 0 and not 1 < training.loss_limit < math.inf,
            f"training.loss_limit {training.loss_limit:g} must be more than 1, or 0 for none",
        ),
        (min(training.logging_steps, training.save_steps) < 1, "training.logging_steps and save_steps must be >= 1"),
        (training.eval_steps < 0, "training.eval_steps must be 0 or more"),
        (not 0 <= training.seed < 1 << 63, "training.seed must lie between 0 and 2**63"),
        (
            training.zero_stage not in (0, 1, 2),
            f"training.zero_stage {training.zero_stage} must be 0, 1, which shares out AdamW's state over ranks, or 2, "
            "which shares out gradients too: an encoder's weights fit one device",
        ),
        (
            training.gradient_caching and training.gradient_accumulation_steps == 1,
            "training.gradient_caching has no effect with training.gradient_accumulation_steps 1: all examples of a "
            "step are contrasted already; say in how many micro-batches, or leave it out",
        ),
        (
            training.gradient_caching and training.gradient_norms,
            "training.gradient_norms looks at one micro-batch, which has no contrast of its own with "
            "training.gradient_caching: leave the norms out, or look at them in a short run without caching",
        ),
        (
            training.eval_steps > 0 and not training.eval_data and not any(d.validation for d in recipe.data.values()),
            "training.eval_data is not set: give SentEval's folder, or set training.eval_steps=0 to do without "
            "(examples held out, as data.NAME.validation, do too)",
        ),
        (
            bool(training.eval_data) and not training.eval_steps,
            "training.eval_data has no effect with training.eval_steps 0: say how often, or leave it out",
        ),
        (
            bool(training.primary) and training.primary not in recipe.data,
            f"training.primary {not_one_of(training.primary, recipe.data)}",
        ),
    )
    for name, data in recipe.data.items():
        refuse(
            _misnamed(f"data.{name}", name),
            (data.batch_size < 1, f"data.{name}.batch_size must be at least 1"),
            (not 0 < data.share <= 1, f"data.{name}.share {data.share} must be above 0, and at most 1 for all"),
            (data.shuffle_shards < 1, f"data.{name}.shuffle_shards must be at least 1"),
            (
                bool(data.validation) and not training.eval_steps,
                f"data.{name}.validation has no effect with training.eval_steps 0: say how often, or leave it out",
            ),
            (
                data.short_documents not in SHORT,
                f"data.{name}.short_documents {not_one_of(data.short_documents, SHORT)}",
            ),
            (
                all(options.data != name for options in recipe.objectives.values()),
                f"data.{name}: no objective reads it: leave it out with data.{name}=null, or name it in one",
            ),
        )
    for name, options in recipe.objectives.items():
        refuse(
            _misnamed(f"objectives.{name}", name),
            (name in METRICS, f"objectives.{name}: metrics begin with that name already: take another"),
            _misnamed(f"objectives.{name}.turn {options.turn}", options.turn or name),
            (
                not _positive(options.weight),
                f"objectives.{name}.weight {options.weight} must be positive; null leaves it out",
            ),
            (
                options.data not in recipe.data,
                f"objectives.{name}.data {not_one_of(options.data, recipe.data)}",
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
    refuse(
        (
            recipe.optimization not in OPTIMIZATIONS,
            f"optimization {not_one_of(recipe.optimization, OPTIMIZATIONS)}",
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
        *(
            (name not in turns, f"turns.{name}: no objective is of that turn: {one_of(name, sorted(turns))}")
            for name in recipe.turns
        ),
    )
    _check_optimizer("optimizer", recipe.optimizer)
    for name, optimizer in recipe.turns.items():
        _check_optimizer(f"turns.{name}", optimizer)


def _check_optimizer(key: str, optimizer: OptimizerConfig) -> None:
    refuse(
        (not _positive(optimizer.learning_rate), f"{key}.learning_rate must be positive"),
        (not 0 <= optimizer.max_grad_norm < math.inf, f"{key}.max_grad_norm must be 0 (no clipping) or more"),
        (optimizer.warmup_steps < 0, f"{key}.warmup_steps must be 0 or more"),
        (
            optimizer.warmup_steps > 0 and optimizer.schedule not in WARMED,
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
            f"{key}.schedule {not_one_of(optimizer.schedule, SCHEDULES)}",
        ),
    )


def one_of(value: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown value: all known values, and the nearest of them."""
    return f"{', '.join(known)}{did_you_mean(value, known)}"


def not_one_of(value: str, known: Collection[str]) -> str:
    """Return an error about a value that is not one of the known ones."""
    return f"{value!r} is not one of {one_of(value, known)}"


def refuse(*problems: tuple[bool, str]) -> None:
    """Raises RecipeError with the message of the first that is so."""
    for wrong, message in problems:
        if wrong:
            raise RecipeError(message)


def _misnamed(key: str, name: str) -> tuple[bool, str]:
    """A problem, for `refuse`: a name is a part of keys and of the names of metrics."""
    return not re.fullmatch(r"\w[\w-]*", name), f"{key}: a name is of letters, digits, _ and -"


def _positive(value: float) -> bool:
    """Above 0, finite, a number."""
    return 0 < value < math.inf
