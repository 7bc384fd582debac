"""Build a run from its recipe and datasets: objectives, the module that DeepSpeed trains, data streams."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from clearspan.common.model_folder import EncoderError, some
from clearspan.common.terminal import MOST_SAID, one_line
from clearspan.shards import Dataset, ShardError
from clearspan.shards.held_out import FOLDER
from clearspan.train.build_encoder import build_encoder
from clearspan.train.config.keys import naming
from clearspan.train.config.optimizer import PARTS
from clearspan.train.config.options import HELD_OUT, Recipe, RecipeError
from clearspan.train.data.feed import Feed
from clearspan.train.data.stream import ExampleStream
from clearspan.train.draws import Purpose, integer_seed, name_key, seeded
from clearspan.train.learner import Learner
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import Budget, SpecialTokens, plan_budget
from clearspan.train.model.tokenizer import load_shards_tokenizer
from clearspan.train.objectives import ContrastiveObjective, Objective, Setting, TokenObjective
from clearspan.train.objectives import build as build_objective
from clearspan.train.prompts import prompt_tokens, trained_prompts
from clearspan.train.recipe import modality
from clearspan.train.run_folder import with_tokenizer
from clearspan.train.selection.validation import HeldOutExamples


def check_parts(recipe: Recipe, learner: Learner) -> None:
    """Raise RecipeError for an objective that trains nothing of the exported model, and for options of a part that does
    not train, or beside which nothing trains.
    """
    train, encoder, parts = recipe.model.train, learner.encoder, learner.parts()
    exported = {*encoder.base.parameters(), *encoder.head.parameters()}
    turns = {turn: {parts[parameter] for parameter in learner.parameters_of(turn)} for turn in learner.turns}
    for objective in (each for turn in turns for each in learner.of_turn(turn)):
        if exported.isdisjoint(learner.trained_by([objective])):
            raise RecipeError(
                f"objectives.{objective.name}: model.train {train} freezes all that it could train of the exported "
                "model: train all or more layers, or leave the objective out"
            )
    for turn, options in recipe.optimizers().items():
        own = [part for part in PARTS if part in options.parts()]
        for part in own:
            shared = getattr(options, part) == getattr(recipe.optimizer, part)
            if part not in (set[str]().union(*turns.values()) if shared else turns[turn]):
                frozen = part == "embeddings" and train not in ("all", "embeddings")
                reason = f"model.train {train} freezes them" if frozen else "no such part trains"
                section = "optimizer" if shared else f"turns.{turn}"
                raise RecipeError(f"{section}.{part} has no effect: {reason}: leave it out")
        if turns[turn] <= set(own):
            section = f"turns.{turn}" if turn in recipe.turns else "optimizer"
            raise RecipeError(
                f"{section}.{next(part for part in own if part in turns[turn])}: without it, all that trains has "
                f"{section}.learning_rate and {section}.weight_decay already, and with it these have no effect: set "
                "those instead"
            )


@dataclasses.dataclass
class ForwardSize:
    """The size of one rank's forward, for budgets and the dry run.

    Tokens include special tokens, but not the rows of patches; `budget` is None if there are patches only.
    """

    sequences: int
    mean_tokens: float
    patches: int
    budget: Budget | None

    @property
    def rows(self) -> int:
        """The largest number of rows of the packed batch."""
        return self.patches + (self.budget.tokens if self.budget else 0)


def forward_size(
    objectives: list[Objective], examples: Mapping[str, int], special: SpecialTokens, capacity: int, shrinks: bool
) -> ForwardSize:
    """Return the size of one rank's forward.

    The variance assumes that the sequences of one example are all long or all short, as a sentence and its views are.

    Args:
        examples: the number of examples in a rank's micro-batch, by dataset.
        shrinks: whether spans shrink to fit short documents, down to one token.
    """
    loads = [(examples[objective.data], objective.data, objective.workload()) for objective in objectives]
    patch_sequences = sum(count * work.patch_sequences for count, _, work in loads)
    patches = sum(count * work.patches for count, _, work in loads)
    texts = [(count, data, work) for count, data, work in loads if work.sequences]
    if not texts:
        return ForwardSize(patch_sequences, 0.0, patches, None)
    sequences = sum(count * work.sequences for count, _, work in texts)
    mean = sum(count * work.mean_tokens for count, _, work in texts) + sequences * special.count
    variance = 0.0
    for name in dict.fromkeys(data for _, data, _ in texts):
        variance += examples[name] * sum(math.sqrt(work.variance) for _, data, work in texts if data == name) ** 2
    shortest = (1 if shrinks else min(work.shortest for _, _, work in texts)) + special.count
    longest = min(max(work.longest for _, _, work in texts), capacity) + special.count
    mean = min(mean, sequences * longest)
    budget = plan_budget(mean, variance, sequences, shortest, longest)
    return ForwardSize(sequences + patch_sequences, mean, patches, budget)


def build_objectives(
    recipe: Recipe, datasets: Mapping[str, Dataset], encoder: TrainableEncoder, tokenizer: Any, special: SpecialTokens
) -> tuple[list[Objective], dict[str, nn.Module]]:
    """Return the objectives in the recipe's order, and the patch embeddings of the datasets that are not text.

    Raises:
        RecipeError: an objective or a modality lacks what it needs.
    """
    modalities = {name: modality(name, recipe.data[name], dataset) for name, dataset in datasets.items()}
    capacity = encoder.max_tokens - special.count
    embeddings: dict[str, nn.Module] = {}
    built: list[Objective] = []
    try:
        for name, maker in modalities.items():
            if maker is None:
                continue
            try:
                encoder.check_patches(maker.patches)
                with seeded(integer_seed(recipe.training.seed, name_key(name), Purpose.EMBEDDING)):
                    embeddings[name] = maker.embedding(encoder.dim)
            except (ValueError, EncoderError, RuntimeError, MemoryError) as error:  # torch out of memory: RuntimeError
                raise RecipeError(f"data.{name}.modality: {one_line(error, MOST_SAID)}") from None
        for name, config in recipe.objectives.items():
            setting = Setting(
                name=name,
                data=config.data,
                seed=recipe.training.seed,
                capacity=capacity,
                vocab_size=len(tokenizer),
                dim=encoder.dim,
                special=special,
                dataset=datasets[config.data],
                modality=modalities[config.data],
                has_dropout=encoder.has_dropout,
                attends=encoder.attends,
                pooling=encoder.pooling,
                shrinks=recipe.data[config.data].short_documents == "shrink",
                prompt_tokens=prompt_tokens(datasets[config.data]),
            )
            built.append(build_objective(config, setting, built))
    except ShardError:
        raise
    except (ValueError, EncoderError) as error:
        raise RecipeError(str(error)) from None
    _check_built(recipe, built)
    return built, embeddings


def _check_built(recipe: Recipe, built: Sequence[Objective]) -> None:
    for objective in built:
        together = recipe.contrasted(objective.data)
        if together < objective.min_examples:
            raise RecipeError(
                f"objectives.{objective.name} contrasts the examples of one micro-batch with each other and needs "
                f"{objective.min_examples} or more: data.{objective.data}.batch_size "
                f"{recipe.data[objective.data].batch_size} over training.gradient_accumulation_steps "
                f"{recipe.training.gradient_accumulation_steps} is {together}"
            )
        for other in objective.uses if isinstance(objective, TokenObjective) else ():
            if recipe.turn_of(other) != recipe.turn_of(objective.name):
                raise RecipeError(
                    f"objectives.{objective.name} masks a block of objectives.{other}: set one turn for both, or "
                    "another input"
                )
    if recipe.training.gradient_caching and not any(isinstance(objective, ContrastiveObjective) for objective in built):
        raise RecipeError(
            "training.gradient_caching: no objective contrasts examples with each other, so that a step needs no more "
            "memory than a micro-batch: leave it out"
        )


def build_learner(
    recipe: Recipe, datasets: Mapping[str, Dataset], ranks: int, static: bool
) -> tuple[Learner, Any, dict[str, ForwardSize]]:
    """Return the learner, the tokenizer, and the size of a rank's forward by turn.

    Args:
        static: whether to give every forward the same shape.

    Raises:
        RecipeError: recipe, shards and model do not fit together.
    """
    tokenizer = load_shards_tokenizer(with_tokenizer(datasets).local_tokenizer())
    texts = {name: dataset for name, dataset in datasets.items() if dataset.manifest.tokenizer is not None}
    encoder = build_encoder(recipe, tokenizer, texts.values())
    encoder.inference, notes = trained_prompts(encoder.inference, texts)
    encoder.notes += notes
    special = encoder.special_tokens(tokenizer)
    with naming(f"model.train {recipe.model.train}"):
        encoder.freeze(recipe.model.train)
    objectives, embeddings = build_objectives(recipe, datasets, encoder, tokenizer, special)
    predicting = next((objective.name for objective in objectives if isinstance(objective, TokenObjective)), "")
    if not predicting:
        encoder.drop_mlm_head()
    elif encoder.mlm_head is None:
        raise RecipeError(
            f"model: {encoder.config.model_type} has no masked-LM head that this version supports, which "
            f"objectives.{predicting} needs: leave it out with objectives.{predicting}=null, or take another model"
        )
    elif encoder.new_weights and not encoder.mlm_head_parameters() <= set(encoder.new_weights):
        raise RecipeError(
            f"model.path {recipe.model.path}: lacks {len(encoder.new_weights):,} weights of its masked-LM head: "
            f"{some(encoder.new_weights)}: get the whole folder from its source again"
        )
    if recipe.model.head and not any(objective.pools for objective in objectives):
        raise RecipeError("model.head: no objective uses pooled vectors, its output: leave it out")
    micro_batches = ranks * recipe.training.gradient_accumulation_steps
    examples = {name: math.ceil(data.batch_size / micro_batches) for name, data in recipe.data.items()}
    shrinks = any(data.short_documents == "shrink" for data in recipe.data.values())
    turns = {
        turn: [objective for objective in objectives if recipe.turn_of(objective.name) == turn]
        for turn in recipe.optimizers()
    }
    sizes = {
        turn: forward_size(members, examples, special, encoder.max_tokens - special.count, shrinks)
        for turn, members in turns.items()
    }
    names = {turn: [objective.name for objective in members] for turn, members in turns.items()}
    budgets = {turn: size.budget if static else None for turn, size in sizes.items()}
    learner = Learner(encoder, objectives, special, embeddings, names, budgets)
    check_parts(recipe, learner)
    return learner, tokenizer, sizes


def build_feed(recipe: Recipe, datasets: Mapping[str, Dataset], learner: Learner, rank: int, ranks: int) -> Feed:
    """Return the datasets' streams. Objectives set the minimum length of an example; `short_documents` of the recipe
    decides what happens to shorter ones.

    Raises:
        StreamError: a dataset has too few examples, or a batch size is not a multiple of the ranks.
    """
    streams = {name: _stream(recipe, name, datasets[name], learner, rank, ranks) for name in recipe.data}
    return Feed(streams, recipe.training.primary)


def build_held_out(
    recipe: Recipe, datasets: Mapping[str, Dataset], learner: Learner, rank: int, ranks: int
) -> HeldOutExamples | None:
    """Return streams over the held-out examples of the datasets, a micro-batch each step; None if there are none.

    Raises:
        RecipeError: held-out examples are of another kind than the dataset, or too few.
        ManifestError, StreamError: they cannot be read.
    """
    streams, training = {}, recipe.training
    unit, mend = "micro-batch", ", or raise training.gradient_accumulation_steps"
    if training.gradient_caching:
        unit, mend = "step", ""
    for name, data in recipe.data.items():
        if not data.validation:
            continue
        key, held_out = f"data.{name}.validation {data.validation}", Dataset(data.validation)
        manifest = datasets[name].manifest
        for field in ("kind", "resources"):
            if getattr(held_out.manifest, field) != getattr(manifest, field):
                difference = "made with other files"
                if field == "kind":
                    difference = f"{held_out.manifest.kind}, not {manifest.kind}"
                raise RecipeError(
                    f"{key}: its examples are {difference}: name the folder `{FOLDER}` that "
                    f"`--holdout-fraction` wrote for data.{name}.path"
                )
        size = recipe.contrasted(name)
        if held_out.num_examples < size:
            if recipe.training.eval_data == HELD_OUT:
                continue
            raise RecipeError(
                f"{key}: {held_out.num_examples} {held_out.manifest.kind} are fewer than the {size} of a {unit}, which "
                f"are contrasted with each other: hold out more, lower data.{name}.batch_size{mend}"
            )
        streams[name] = _stream(recipe, name, held_out, learner, rank, ranks, held_out=True)
    return HeldOutExamples(streams, learner) if streams else None


def _stream(
    recipe: Recipe, name: str, dataset: Dataset, learner: Learner, rank: int, ranks: int, held_out: bool = False
) -> ExampleStream:
    """Return the stream of a dataset. A held-out stream covers all examples, and its step is what is contrasted
    with each other.
    """
    data, training = recipe.data[name], recipe.training
    shrinks = data.short_documents == "shrink"
    objectives = [objective for turn in learner.turns for objective in learner.of_turn(turn)]
    needs: dict[str, list[int]] = {}
    for objective in objectives:
        if objective.data == name and (shortest := objective.min_tokens(shrinks)):
            needs.setdefault(objective.measured, []).append(shortest)
    if len(needs) > 1:
        raise RecipeError(
            f"data.{name}: objectives draw spans in its columns {' and '.join(needs)}, and an example is long enough "
            "by one of them only: leave one of these objectives out, or give it a dataset of its own"
        )
    measured, shortest = next(((column, max(lengths)) for column, lengths in needs.items()), ("tokens", 0))
    return ExampleStream(
        name,
        dataset,
        recipe.contrasted(name) if held_out else data.batch_size,
        training.seed,
        data.shuffle_shards,
        min_tokens=shortest,
        measured=measured,
        skip_short=shortest > 0 and data.short_documents != "error",
        micro_batches=1 if held_out and not training.gradient_caching else training.gradient_accumulation_steps,
        rank=rank,
        ranks=ranks,
        share=1.0 if held_out else data.share,
        whole=training.gradient_caching,
    )
