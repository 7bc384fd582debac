"""A recipe's sections as typed dataclasses, and the checks of their values.

A field's annotation states its type and its range, which `train.config.keys` enforces when a recipe is loaded; `check`
refuses values that cannot work together. The docstrings are the users' reference: `train.reference` makes
docs/recipes.md from them.
"""

import dataclasses
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from clearspan.common import plugins
from clearspan.common.encoder.pooling_names import TrainedPooling
from clearspan.common.options import NO_PATH
from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import UsageError
from clearspan.train.config.optimizer import ADAMW, NotNegative, OptimizerConfig, Positive

METRICS = ("epoch", "examples_per_s", "grad_norm", "learning_rate", "validation")
"""Prefixes of logged metrics, `METRIC/NAME`, with the name of a dataset, a turn or a held-out metric."""
DEV = "dev_score"
"""The metric of the score on `training.eval_data`."""
GIVEN = "given/"
"""Prefix of the metrics of the model as given, which are measured if the run pools in another way than its folder."""
HELD_OUT = "heldout"
"""The value of `training.eval_data` for the texts of `data.NAME.validation`."""
STATIC = "static"
"""The `model_type` of a table of token vectors (`train.model.static`)."""
DISTILL = "distill"
"""The value of `model.init` for vectors from an encoder."""
LORA = "lora"
"""The value of `model.train` for an adapter."""
TRAINED_PARTS = re.compile(r"all|last-([1-9]\d{0,3})|embeddings|heads|lora")
"""Values of `model.train`."""
ALL = "all"
"""The only turn of `optimization: sum`."""


Count = Annotated[int, Ge(0)]
"""The type of an option that is an integer of 0 or more."""
Fraction = Annotated[float, Ge(0), Le(1)]
"""The type of an option that is a probability or a share."""


class RecipeError(UsageError):
    """A recipe that cannot run. The message names the key and says what to do."""


@dataclasses.dataclass
class LoraConfig:
    """The low-rank adapter of `model.train: lora`, by peft.

    Args:
        rank: the number of rows of A and of columns of B. Raise it if the adapter learns too little; its size grows in
            proportion.
        alpha: the adapter's output is multiplied by alpha / rank.
        dropout: the dropout rate of the adapter's input.
        targets: the names of the linear layers that get an adapter, e.g. [q_proj, k_proj, v_proj, o_proj];
            [all-linear] for all of them. []: peft's choice for the architecture, for most the queries and the values of
            attention; all linear layers for an architecture that peft has no choice for, such as MPNet and ModernBERT.
    """

    rank: Annotated[int, Ge(1)] = 16
    alpha: Positive = 32.0
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    targets: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class ModelConfig:
    """The encoder: a folder of pretrained weights, or a Hugging Face configuration with fresh weights.

    Args:
        path: a local folder in the format of transformers or sentence-transformers, with or without a masked-LM head;
            or hf:ORG/NAME[@REVISION], a model that is fetched from the Hugging Face hub, and whose commit the run's
            recipe names. Set this or `config`; with both, the model of `config` starts with this folder's token
            embeddings.
        config: options of the transformers configuration, with `model_type`. The vocabulary size and the ids of special
            tokens come from the shards' tokenizer. Set it to train from scratch. `model_type: static` is a table of
            token vectors, which are averaged, without layers; its options are `hidden_size` (default 512), `weights`
            (default false; true: learn a weight for each token) and `dropout` (default 0; the dropout of the vectors).
        pooling: mean: the mean of all token vectors; cls: the first token's vector; lasttoken: the last token's vector,
            for decoders, where only this token sees the whole text; weighted: the mean of the token vectors, each
            multiplied by a fixed weight of its token. The weights are those of the model of `path`, if it has any and
            `config` is not set; otherwise they are the tokens' inverse document frequencies in the run's shards. The
            export stores them as sentence-transformers' WordWeights. "": the pooling of the folder of `path`, else
            mean.
        head: tanh: a linear layer and tanh after the pooling, in training and at inference (SimCSE). "": the layers
            after the pooling in the folder of `path`, if any.
        init: the initial vectors of `model_type: static`. random: random vectors, of unit length on average; idf: the
            same, multiplied by each token's inverse document frequency in the run's shards; distill: the vectors that
            the encoder of `distill` computes for each token by itself, concatenated with random ones, and multiplied by
            that frequency.
        distill: with `init: distill`, the folder, or hf:ORG/NAME[@REVISION], of an encoder with the same tokenizer as
            the shards. It is not trained. The default of `hidden_size` is then the encoder's size plus `random_dims`.
        random_dims: with `init: distill`, the minimum number of the `hidden_size` dimensions that are random; the
            others are the first principal components of the encoder's vectors.
        train: the part of the encoder of `path` that trains; the rest is frozen. all: everything; last-N: the last N
            layers; embeddings: the table of token embeddings; heads: nothing of the encoder; lora: a low-rank adapter
            of its linear layers (`lora`), for decoders and large encoders, which the export adds to the weights.
            Everything outside of the encoder's base model always trains: layers after the pooling, the masked-LM head,
            heads of objectives, patch embeddings.
        lora: with `train: lora`, the adapter.
        dropout: the rate of all dropouts in the encoder, attention dropout included; the exported configuration has it
            too. null: the rates of the model's configuration.
        attention_dropout: the dropout rate of attention weights, if it differs from the other rates. With 0, an H100 or
            H200 can use FlashAttention 3, which has no dropout; the published codes that the recipes follow leave it at
            the model's 0.1. null: the rate of `dropout`, else of the model's configuration.
    """

    path: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    pooling: Literal["", TrainedPooling] = ""
    head: Literal["", "tanh"] = ""
    init: Literal["random", "idf", "distill"] = "random"
    distill: str = ""
    random_dims: Annotated[int, Ge(0)] = 0
    train: str = "all"
    lora: LoraConfig = dataclasses.field(default_factory=LoraConfig)
    dropout: Annotated[float, Ge(0), Lt(1)] | None = None
    attention_dropout: Annotated[float, Ge(0), Lt(1)] | None = None


@dataclasses.dataclass
class DatasetConfig:
    """A dataset of shards and how to read it.

    Args:
        path: the shards' folder: local, `gs://` or `s3://`.
        batch_size: examples in one step, over all ranks and micro-batches. The number of ranks times
            `training.gradient_accumulation_steps` must divide it.
        share: the fraction of the examples that is used; the choice does not depend on the seed, and a larger share
            contains a smaller one. An epoch is one pass over the chosen examples. Lower it to measure how much data a
            model needs.
        shuffle_shards: the number of shards that are held in memory and shuffled together. Increase it if neighboring
            shards are alike; memory grows with it.
        short_documents: the treatment of documents that are too short for the spans. error: stop; skip: drop these
            documents; shrink: shorten the spans. The run reports the number of such documents.
        modality: for a dataset of images, audio or a modality of your own, the options of the modality: see the section
            of each modality, or give `type: module:Class` and the options of that class.
        validation: a folder of held-out shards, as `--holdout-fraction` makes it. Every `training.eval_steps` steps the
            losses on it are computed without dropout, with the same random draws each time, in batches of the size of a
            micro-batch over all ranks. If `training.eval_data` is not set, these losses choose the best checkpoint,
            except losses that are meaningless without dropout, such as SimCSE's on sentences without pairs. With
            `training.eval_data: heldout` the folder's texts are scored; if they are fewer than a micro-batch, no losses
            are computed. "": no held-out shards.
    """

    path: str
    batch_size: Annotated[int, Ge(1)] = 16
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    shuffle_shards: Annotated[int, Ge(1)] = 2
    short_documents: Literal["error", "skip", "shrink"] = "error"
    modality: dict[str, Any] = dataclasses.field(default_factory=dict)
    validation: str = ""


@dataclasses.dataclass
class ObjectiveConfig:
    """The options of every objective.

    Args:
        type: the kind of objective: a built-in type, or `module:Class` for a class of your own (an installed package,
            or a file in the working folder). "": the type that has the objective's name.
        data: the dataset that the objective reads. "": the recipe's only dataset.
        weight: the factor of the objective's loss in the sum. Change it to balance several losses.
        turn: with `optimization: alternate`, the name of the update that the objective belongs to; the losses of one
            turn are summed. "": a separate turn, named after the objective.
    """

    type: str = ""
    data: str = ""
    weight: Positive = 1.0
    turn: str = ""

    def check(self) -> None:
        """Raise ValueError for an option that cannot work; the message begins with the option's name."""

    def needs(self) -> dict[str, str]:
        """Return the columns that these options require: name of the column -> the option that requires it.

        The option is written as in a recipe, e.g. `positives: pairs`, for the error message. Shards that lack such a
        column are refused, even if the objective could train without it.
        """
        return {}


@dataclasses.dataclass
class TrainingConfig:
    """The training loop. A run's length is `max_steps`, or `epochs` passes over the dataset `primary`; the other
    datasets start over as often as they end. A file or command line that sets both must set one of them to 0.

    Each step's examples pass through the encoder in `gradient_accumulation_steps` micro-batches, and the gradients are
    averaged. The in-batch negatives of a contrastive loss are therefore those of one micro-batch, over all ranks,
    unless `gradient_caching` is set.

    A run can resume on any number of ranks that divides its batches: examples, spans, views and masks stay the same,
    and losses differ by rounding only. Dropout is drawn on each rank, so a different number of ranks changes it as a
    different seed would; on the same number of ranks it repeats exactly.

    Args:
        gradient_accumulation_steps: micro-batches in a step. Increase it if a step does not fit in memory.
        gradient_caching: contrast all examples of a step with each other in the memory of one micro-batch (GradCache,
            Gao et al. 2021). Costs one more forward pass. Set it to true if contrastive losses need more negatives
            than a micro-batch holds.
        activation_checkpointing: store only the input of each layer and recompute the layer in the backward pass. The
            numbers are the same; it takes less memory and one more forward pass. Set it to true if a micro-batch does
            not fit in memory.
        epochs: the run's length in passes over the dataset `primary`; 0.5 is half a pass.
        primary: the dataset whose epochs count. "": the first one.
        max_steps: the run's length in steps. 0: `epochs` decides.
        seed: the seed of every random draw: order, spans, views, masks, dropout and fresh weights.
        bf16: true: compute in bfloat16 by autocast; weights, gradients and AdamW's state stay fp32. auto: true if the
            device multiplies bfloat16 in hardware, otherwise false. The run prints the resolved value, saves it with
            its recipe and keeps it when it resumes; `--resume` with another value continues with that one. On a CPU
            without such hardware true is about 5 to 30 times slower than false; on a GPU without it, true is an error.
            Ranks for which auto gives different values stop with an error.
        compile: compile the encoder into one graph at the first step; only on CUDA with bf16. Set it to false if
            compilation fails.
        zero_stage: DeepSpeed's ZeRO stage. 0: off; 1: partition AdamW's state over the ranks; 2: the gradients too. Set
            it if the optimizer's state does not fit in a GPU's memory. A run can resume with another stage.
            `optimization: alternate` needs 0.
        logging_steps: log metrics every this many steps.
        save_steps: save a checkpoint every this many steps. The best and the last checkpoint are always saved.
        eval_steps: evaluate on `eval_data` and held-out examples before the first step and every this many steps. 0:
            never.
        eval_data: the data whose score chooses the best checkpoint. heldout: the mean reciprocal rank, in percent, of
            the relevant document among `eval_texts` texts; the query is the text's title, or if there are no titles
            another crop of the text. It needs `data.NAME.validation` but no labels. It uses half of the held-out texts,
            and `clearspan eval --tasks heldout` the other half, so that the choice does not favor the trained model.
            The path of SentEval's folder: the Spearman correlation on STS-B dev. The path of a csv or tsv file of
            sentence pairs with scores: the Spearman correlation on it. "": the losses on `data.NAME.validation` choose;
            without held-out examples, the last checkpoint is exported.
        eval_texts: with `eval_data: heldout`, the number of texts that an evaluation ranks: the relevant documents of
            the queries, and distractors, which are the texts that BM25 ranks nearest to the queries. The number of
            queries is at most `eval_texts` / 2. More texts distinguish checkpoints better, and each costs an embedding
            at every
            evaluation: a static encoder can afford 20,000.
        max_hours: save and stop, as on SIGTERM, this many hours after the start, e.g. below a batch system's limit;
            leave time for the save. 0: no limit.
        loss_limit: abort when the loss exceeds this multiple of chance level, or of its first value if that is higher.
            0: never abort.
        loggers: loggers of your own beside metrics.jsonl and TensorBoard, each `module:name` (docs/training.md).
        gradient_norms: log the norm of each objective's gradient. Costs one more forward and backward pass of each
            objective at every logged step.
    """

    gradient_accumulation_steps: Annotated[int, Ge(1)] = 1
    gradient_caching: bool = False
    activation_checkpointing: bool = False
    epochs: Positive = 1.0
    primary: str = ""
    max_steps: Annotated[int, Ge(0)] = 0
    seed: Annotated[int, Ge(0), Lt(1 << 63)] = 42
    bf16: Literal["auto", True, False] = "auto"
    compile: bool = True
    zero_stage: Literal[0, 1, 2] = 0
    logging_steps: Annotated[int, Ge(1)] = 10
    save_steps: Annotated[int, Ge(1)] = 1000
    eval_steps: Annotated[int, Ge(0)] = 0
    eval_data: str = ""
    eval_texts: Annotated[int, Ge(20)] = 2000
    max_hours: NotNegative = 0.0
    loss_limit: NotNegative = 10.0
    loggers: list[str] = dataclasses.field(default_factory=list)
    gradient_norms: bool = False


@dataclasses.dataclass
class Recipe:
    """A whole run.

    Args:
        output: the folder that the run makes for its checkpoints, its metrics and the exported model.
        model: the encoder.
        data: the datasets, by names of your own.
        objectives: the losses, by names of your own, each with its options.
        optimization: sum: one update a step, of the weighted sum of all losses; alternate: one update for each turn,
            each with its own optimizer's state and schedule.
        optimizer: the optimizer and its schedule.
        turns: with `optimization: alternate`, the options of each turn that differ from `optimizer`.
        training: the training loop.
    """

    output: str
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: dict[str, DatasetConfig] = dataclasses.field(default_factory=dict)
    objectives: dict[str, ObjectiveConfig] = dataclasses.field(default_factory=dict)
    optimization: Literal["sum", "alternate"] = "sum"
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    turns: dict[str, OptimizerConfig] = dataclasses.field(default_factory=dict)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    def turn_of(self, objective: str) -> str:
        """Return the name of the turn that an objective belongs to; with `optimization: sum` it is always `all`."""
        return (self.objectives[objective].turn or objective) if self.optimization == "alternate" else ALL

    def contrasted(self, data: str) -> int:
        """Return the number of examples that a contrastive loss contrasts with each other.

        They are the examples of one micro-batch over all ranks or, with gradient caching, of a whole step.

        Args:
            data: the name of the loss's dataset.
        """
        training = self.training
        return self.data[data].batch_size // (1 if training.gradient_caching else training.gradient_accumulation_steps)

    def optimizers(self) -> dict[str, OptimizerConfig]:
        """Return name of a turn -> the options of its optimizer, for all turns in the order of their first objectives.

        With `optimization: sum` there is one turn, `all`.
        """
        turns = list(dict.fromkeys(self.turn_of(name) for name in self.objectives))
        return {turn: self.turns.get(turn, self.optimizer) for turn in turns}


def check(recipe: Recipe) -> None:
    """Raise RecipeError for values that cannot work together, before anything is loaded."""
    refuse(
        (not recipe.output, f"output: {NO_PATH}"),
        ("\0" in recipe.output, "output: a folder's name cannot hold a null character"),
        (not recipe.objectives, "objectives: a recipe needs at least one"),
    )
    check_model(recipe.model)
    _check_training(recipe)
    _check_optimizers(recipe)
    _check_loggers(recipe)
    for name, data in recipe.data.items():
        refuse(
            _misnamed(f"data.{name}", name),
            (not data.path, f"data.{name}.path: {NO_PATH}"),
            (
                bool(data.validation) and not recipe.training.eval_steps,
                f"data.{name}.validation has no effect with training.eval_steps 0: set how often, or leave it out",
            ),
            (
                all(options.data != name for options in recipe.objectives.values()),
                f"data.{name}: no objective reads it{did_you_mean(name, set(recipe.data) - {name})}; leave it out with "
                f"data.{name}=null, or give it to one with objectives.NAME.data={name}",
            ),
        )
    for name, options in recipe.objectives.items():
        refuse(
            _misnamed(f"objectives.{name}", name),
            (name in METRICS, f"objectives.{name}: metrics begin with that name already: choose another"),
            _misnamed(f"objectives.{name}.turn {options.turn}", options.turn or name),
            (options.data not in recipe.data, f"objectives.{name}.data {not_one_of(options.data, recipe.data)}"),
        )
        try:
            options.check()
        except ValueError as error:
            raise RecipeError(f"objectives.{name}: {error}") from None
    _check_turns(recipe)


def check_model(model: ModelConfig) -> None:
    """Raise RecipeError for options of the model that cannot work together."""
    distills = model.init == DISTILL
    refuse(
        (not model.path and not model.config, "model: give model.path or model.config"),
        (bool(model.config) and "model_type" not in model.config, "model.config needs model_type"),
        (
            not TRAINED_PARTS.fullmatch(model.train),
            f"model.train {model.train!r} is not one of all, last-N with N of 1 or more, embeddings, heads, lora",
        ),
        (
            model.lora != LoraConfig() and model.train != LORA,
            f"model.lora has no effect with model.train {model.train}: leave it out, or set model.train=lora",
        ),
        (
            bool(model.config) and model.train != "all",
            f"model.train {model.train} freezes a part of the encoder, whose weights model.config draws at "
            "random: give model.path alone, or train all",
        ),
        (
            model.init != "random" and model.config.get("model_type") != STATIC,
            f"model.init {model.init} has no effect without model.config.model_type={STATIC}: leave it out",
        ),
        (
            model.init != "random" and bool(model.path),
            f"model.init {model.init} has no effect with model.path, whose token vectors are the start: leave out one",
        ),
        (distills and not model.distill, "model.init distill: set model.distill to the folder of an encoder"),
        *(
            (bool(value) and not distills, f"model.{key} {value} has no effect with model.init {model.init}")
            for key, value in (("distill", model.distill), ("random_dims", model.random_dims))
        ),
    )


def _check_training(recipe: Recipe) -> None:
    training = recipe.training
    refuse(
        (
            0 < training.loss_limit <= 1,
            f"training.loss_limit {training.loss_limit:g} must be more than 1, or 0 for none",
        ),
        (
            training.gradient_caching and training.gradient_accumulation_steps == 1,
            "training.gradient_caching has no effect with training.gradient_accumulation_steps 1: all examples of a "
            "step are contrasted already; set the number of micro-batches, or leave caching out",
        ),
        (
            training.gradient_caching and training.gradient_norms,
            "training.gradient_norms measures one micro-batch, which has no loss of its own with "
            "training.gradient_caching: leave the norms out, or measure them in a short run without caching",
        ),
        (
            training.eval_data == HELD_OUT and not any(data.validation for data in recipe.data.values()),
            "training.eval_data heldout: no dataset has held-out examples: set data.NAME.validation to the folder "
            "validation that `holdout_fraction` made",
        ),
        (
            bool(training.eval_data) and not training.eval_steps,
            "training.eval_data has no effect with training.eval_steps 0: set how often, or leave it out",
        ),
        (
            bool(training.primary) and training.primary not in recipe.data,
            f"training.primary {not_one_of(training.primary, recipe.data)}",
        ),
    )


def _check_optimizers(recipe: Recipe) -> None:
    sections = {"optimizer": recipe.optimizer, **{f"turns.{name}": options for name, options in recipe.turns.items()}}
    for key, options in sections.items():
        try:
            options.check()
        except ValueError as error:
            raise RecipeError(f"{key}.{error}") from None
        refuse(
            (
                options.type != ADAMW and recipe.training.zero_stage > 0,
                f"{key}.type {options.type} needs training.zero_stage=0: ZeRO partitions AdamW's state over the ranks, "
                "and how another optimizer's is divided is not known",
            )
        )


def _check_loggers(recipe: Recipe) -> None:
    specs = recipe.training.loggers
    refuse((len(set(specs)) < len(specs), f"training.loggers {', '.join(specs)}: name each logger once"))
    for spec in specs:
        try:
            plugins.load_function(spec, "a logger")
        except plugins.PluginError as error:
            raise RecipeError(f"training.loggers: {error}") from None


def _check_turns(recipe: Recipe) -> None:
    keys = [f"turns.{name}" for name in recipe.turns]
    keys += [f"objectives.{name}.turn" for name, options in recipe.objectives.items() if options.turn]
    alternate = recipe.optimization == "alternate"
    turns = {recipe.turn_of(name) for name in recipe.objectives}
    refuse(
        (not alternate and bool(keys), f"{keys[0] if keys else ''} has no effect with optimization: sum"),
        (
            alternate and recipe.training.zero_stage > 0,
            "optimization: alternate needs training.zero_stage=0: ZeRO partitions the state of one optimizer, and each "
            "turn has its own",
        ),
        (
            alternate and len(turns) < 2,
            f"optimization: alternate: all objectives belong to the turn {', '.join(turns)}: set optimization=sum",
        ),
        *(
            (name not in turns, f"turns.{name}: no objective belongs to that turn: {one_of(name, sorted(turns))}")
            for name in recipe.turns
        ),
    )


def one_of(value: str, known: Collection[str]) -> str:
    """Return the end of an error message about an unknown value: all known values, and a similar one if there is one.

    Args:
        value: the unknown value.
        known: the known values.
    """
    return f"{', '.join(known)}{did_you_mean(value, known)}"


def not_one_of(value: str, known: Collection[str]) -> str:
    """Return an error message for a value that is not one of the known values."""
    return f"{value!r} is not one of {one_of(value, known)}"


def refuse(*problems: tuple[bool, str]) -> None:
    """Raise RecipeError for the first problem, (condition, message), whose condition is true."""
    for wrong, message in problems:
        if wrong:
            raise RecipeError(message)


def _misnamed(key: str, name: str) -> tuple[bool, str]:
    """Return a problem for `refuse`: (true if a name is invalid, an error message).

    A valid name consists of letters, digits, _ and -, and does not begin with -. It becomes a part of keys.

    Args:
        key: the key that the message begins with.
        name: the name that the user gave to a dataset, an objective or a turn.
    """
    return not re.fullmatch(r"\w[\w-]*", name), f"{key}: a name consists of letters, digits, _ and -"
