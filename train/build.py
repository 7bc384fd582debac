"""From a recipe and its datasets to the module that DeepSpeed trains: encoder, objectives, what a forward costs."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from clearspan.common.pretrained import load_model, quiet_transformers, some
from clearspan.common.terminal import one_line
from clearspan.eval.models.sentence_encoder import MOST_SAID, EncoderError
from clearspan.eval.models.settings import check_tokenizer
from clearspan.shards import Dataset, ShardError
from clearspan.train.config.keys import did_you_mean
from clearspan.train.config.recipe import modality
from clearspan.train.data.feed import Feed
from clearspan.train.data.stream import ExampleStream
from clearspan.train.draws import Purpose, integer_seed, name_key, seeded
from clearspan.train.learner import Learner
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.packing import Budget, SpecialTokens, plan_budget
from clearspan.train.model.source import Source, read_source
from clearspan.train.model.tokenizer import load_shards_tokenizer, load_tokenizer, num_ids, special_tokens
from clearspan.train.objectives import Objective, Setting
from clearspan.train.objectives import build as build_objective
from clearspan.train.options import Recipe, RecipeError
from clearspan.train.selection.validation import HeldOut


def extends(tokenizer: Any, base: Any) -> bool:
    """Whether a tokenizer is another one, but for special tokens that were added after all of its ids."""
    ours, theirs = tokenizer.get_vocab(), base.get_vocab()
    added = {token: id_ for token, id_ in ours.items() if token not in theirs}
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    kept = all(ours.get(token) == id_ for token, id_ in theirs.items())
    return kept and added.keys() <= special and all(id_ > max(theirs.values()) for id_ in added.values())


def add_embeddings(model: PreTrainedModel, vocab_size: int, seed: int) -> None:
    """Grows a model's embeddings and its head in place; new rows are drawn as the model draws fresh ones."""
    with seeded(seed), quiet_transformers():
        model.resize_token_embeddings(vocab_size, mean_resizing=False)


def _tanh_head(dim: int, seed: int) -> nn.Module:
    """A linear layer, drawn as torch draws it, and tanh."""
    from sentence_transformers.sentence_transformer.modules import Dense

    with seeded(seed):
        return Dense(dim, dim)


def build_encoder(recipe: Recipe, tokenizer: Any) -> Encoder:
    """The recipe's encoder: pretrained weights of a local folder, or a fresh one seeded by `training.seed`.

    Special tokens that the shards' tokenizer has beyond the pretrained model's own, such as [DEL], get new embeddings.

    Raises:
        RecipeError: the folder or configuration gives no encoder, or the tokenizer is not the shards'.
    """
    new_weights: list[str] = []
    source, vocab_size = Source(), num_ids(tokenizer)
    try:
        if recipe.model.path:
            source = read_source(Path(recipe.model.path))
            folder = source.weights
            if not (folder / "config.json").is_file():
                raise RecipeError(f"model.path {folder}: no config.json here; give a local folder with a model")
            models_own = load_tokenizer(folder)
            if not extends(tokenizer, models_own):
                raise RecipeError(
                    f"model.path {folder}: its tokenizer is not the one the shards were made with: run the pipeline "
                    f"with --tokenizer {folder}"
                )
            with seeded(recipe.training.seed):  # a head that starts anew is drawn
                model, new_weights = load_model(folder, AutoModelForMaskedLM, attn_implementation=PACKED_ATTENTION)
            check_tokenizer(folder, models_own.get_vocab(), model.get_input_embeddings().num_embeddings)
            if model.config.vocab_size < vocab_size:
                add_embeddings(model, vocab_size, recipe.training.seed)
        else:
            known = AutoConfig.for_model(recipe.model.config["model_type"])
            ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep")}
            options = {key: value for key, value in ids.items() if hasattr(known, key)}
            options |= {"vocab_size": vocab_size, "pad_token_id": tokenizer.pad_token_id or 0}
            unknown = [key for key in recipe.model.config if not hasattr(known, key)]
            if unknown:
                near = did_you_mean(unknown[0], list(vars(known)))
                raise RecipeError(
                    f"model.config: {recipe.model.config['model_type']} has no option {unknown[0]!r}"
                    + (f"; {near}" if near else "")
                )
            config = AutoConfig.for_model(**{**options, **recipe.model.config})
            with seeded(recipe.training.seed):
                model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
        if model.config.vocab_size < vocab_size:
            sizes = f"{model.config.vocab_size:,} embeddings for a tokenizer of {vocab_size:,} ids"
            raise RecipeError(f"model: {sizes}: they must be at least as many")
        if recipe.model.head and not source.head:
            source.head = [_tanh_head(int(model.config.hidden_size), recipe.training.seed)]
        pooling = recipe.model.pooling or source.pooling or "mean"
        encoder = Encoder(model, pooling, new_weights, source.head, source.inference)
        if recipe.training.activation_checkpointing:
            encoder.checkpoint_activations()
        if source.pooling and source.pooling != pooling:
            encoder.notes.append(f"model.path {recipe.model.path}: pools {source.pooling}, from here on {pooling}")
        return encoder
    except RecipeError:
        raise
    except Exception as error:  # what transformers and torch raise for a user's values is of any type
        reason = one_line(error, MOST_SAID)
        if "Padding_idx" in reason:
            reason = (
                f"its positions count from the tokenizer's padding id, {tokenizer.pad_token_id}, which is more than it "
                "has: take a tokenizer with a padding token of its own and a low id, or another model_type"
            )
        raise RecipeError(
            f"model: {reason if isinstance(error, EncoderError) else f'{type(error).__name__}: {reason}'}"
        ) from None


@dataclasses.dataclass
class ForwardSize:
    """What a forward asks of one rank, for budgets and the dry run. Tokens include special tokens, and not the rows of
    patches; `budget` is None where there are patches only.
    """

    sequences: int
    mean_tokens: float
    patches: int
    budget: Budget | None

    @property
    def rows(self) -> int:
        """The packed batch's rows, at most."""
        return self.patches + (self.budget.tokens if self.budget else 0)


def forward_size(
    objectives: list[Objective], examples: Mapping[str, int], special: SpecialTokens, capacity: int, shrinks: bool
) -> ForwardSize:
    """Sequences and tokens of one rank's forward; spans that shrink can be of one token.

    The sequences of one example are taken to be long and short together, as a sentence and its views are.

    Args:
        examples: of a rank's micro-batch, by dataset.
    """
    asked = [(examples[one.data], one.data, one.workload()) for one in objectives]
    patch_sequences = sum(count * work.patch_sequences for count, _, work in asked)
    patches = sum(count * work.patches for count, _, work in asked)
    texts = [(count, data, work) for count, data, work in asked if work.sequences]
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
    recipe: Recipe, datasets: Mapping[str, Dataset], encoder: Encoder, tokenizer: Any, special: SpecialTokens
) -> tuple[list[Objective], dict[str, nn.Module]]:
    """(objectives in the recipe's order, the patch embeddings of the datasets that are not text).

    Raises:
        RecipeError: an objective lacks what it needs.
    """
    modalities = {name: modality(name, recipe.data[name], dataset) for name, dataset in datasets.items()}
    capacity = encoder.max_tokens - special.count
    embeddings: dict[str, nn.Module] = {}
    built: list[Objective] = []
    try:
        for name, found in modalities.items():
            if found is None:
                continue
            try:
                encoder.check_patches(found.patches)
                with seeded(integer_seed(recipe.training.seed, name_key(name), Purpose.EMBEDDING)):
                    embeddings[name] = found.embedding(encoder.dim)
            except (ValueError, EncoderError, RuntimeError, MemoryError) as error:  # torch lacks memory with the third
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
            )
            built.append(build_objective(config, setting, built))
    except ShardError:
        raise
    except (ValueError, EncoderError) as error:
        raise RecipeError(str(error)) from None
    for objective in built:
        together = recipe.contrasted(objective.data)
        if together < objective.min_examples:
            raise RecipeError(
                f"objectives.{objective.name} contrasts the examples of one micro-batch with each other and needs "
                f"{objective.min_examples} or more: data.{objective.data}.batch_size "
                f"{recipe.data[objective.data].batch_size} over training.gradient_accumulation_steps "
                f"{recipe.training.gradient_accumulation_steps} is {together}"
            )
        for other in objective.uses:
            if recipe.turn_of(other) != recipe.turn_of(objective.name):
                raise RecipeError(
                    f"objectives.{objective.name} works on what objectives.{other} encodes: give both one turn, or "
                    "another input"
                )
    if recipe.training.gradient_caching and not any(objective.contrasts for objective in built):
        raise RecipeError(
            "training.gradient_caching: no objective contrasts examples with each other, so that a step needs no more "
            "memory than a micro-batch: leave it out"
        )
    return built, embeddings


def shards_tokenizer(datasets: Mapping[str, Dataset]) -> Any:
    """The tokenizer that all datasets of text were made with.

    Raises:
        RecipeError: two datasets have different ones, or none has one.
    """
    texts = {name: dataset for name, dataset in datasets.items() if dataset.manifest.tokenizer is not None}
    if not texts:
        raise RecipeError("data: no dataset is of text, whose tokenizer the model needs")
    first = next(iter(texts))
    for name, dataset in texts.items():
        if dataset.manifest.tokenizer != texts[first].manifest.tokenizer:
            raise RecipeError(f"data.{name}: was made with another tokenizer than data.{first}: one run has one")
    return load_shards_tokenizer(texts[first].local_tokenizer())


def build_learner(
    recipe: Recipe, datasets: Mapping[str, Dataset], ranks: int, static: bool
) -> tuple[Learner, Any, dict[str, ForwardSize]]:
    """(learner, tokenizer, size of a rank's forward by turn). `static` gives every forward the same shape.

    Raises:
        RecipeError: the recipe, the shards and the model do not go together.
    """
    tokenizer = shards_tokenizer(datasets)
    special = special_tokens(tokenizer)
    encoder = build_encoder(recipe, tokenizer)
    objectives, embeddings = build_objectives(recipe, datasets, encoder, tokenizer, special)
    if not any(objective.uses_mlm_head for objective in objectives):
        encoder.drop_mlm_head()
    elif encoder.mlm_head is None:
        raise RecipeError(f"model: {encoder.config.model_type} has no masked-LM head that this version knows")
    elif encoder.new_weights and not encoder.mlm_head_parameters() <= set(encoder.new_weights):
        raise RecipeError(
            f"model.path {recipe.model.path}: lacks {len(encoder.new_weights):,} weights of its masked-LM head: "
            f"{some(encoder.new_weights)}: take the whole folder from its source again"
        )
    if recipe.model.head and not any(objective.pools for objective in objectives):
        raise RecipeError("model.head: no objective uses the pooled vectors that it makes: leave it out")
    micro_batches = ranks * recipe.training.gradient_accumulation_steps
    examples = {name: math.ceil(data.batch_size / micro_batches) for name, data in recipe.data.items()}
    shrinks = any(data.short_documents == "shrink" for data in recipe.data.values())
    turns = {turn: [one for one in objectives if recipe.turn_of(one.name) == turn] for turn in recipe.optimizers()}
    sizes = {
        turn: forward_size(own, examples, special, encoder.max_tokens - special.count, shrinks)
        for turn, own in turns.items()
    }
    names = {turn: [one.name for one in own] for turn, own in turns.items()}
    budgets = {turn: size.budget if static else None for turn, size in sizes.items()}
    return Learner(encoder, objectives, special, embeddings, names, budgets), tokenizer, sizes


def build_feed(recipe: Recipe, datasets: Mapping[str, Dataset], learner: Learner, rank: int, ranks: int) -> Feed:
    """The datasets' streams. How long examples must be is asked of their objectives, what is done with shorter ones is
    said of the dataset.

    Raises:
        StreamError: a dataset has too few examples, or a batch size does not suit the ranks.
    """
    micro_batches = recipe.training.gradient_accumulation_steps
    streams = {
        name: _stream(recipe, name, datasets[name], learner, data.batch_size, micro_batches, rank, ranks, data.share)
        for name, data in recipe.data.items()
    }
    return Feed(streams, recipe.training.primary)


def build_held_out(
    recipe: Recipe, datasets: Mapping[str, Dataset], learner: Learner, rank: int, ranks: int
) -> HeldOut | None:
    """Streams over the examples held out of the datasets, a micro-batch each step; None: there are none.

    Raises:
        RecipeError: they are not as the dataset is, or too few.
        ManifestError, StreamError: they cannot be read.
    """
    streams, training = {}, recipe.training
    together, mend = "micro-batch", ", or raise training.gradient_accumulation_steps"
    if training.gradient_caching:
        together, mend = "step", ""
    for name, data in recipe.data.items():
        if not data.validation:
            continue
        key, held, own = f"data.{name}.validation {data.validation}", Dataset(data.validation), datasets[name]
        for what in ("kind", "resources"):
            if getattr(held.manifest, what) != getattr(own.manifest, what):
                shown = f"{held.manifest.kind}, not {own.manifest.kind}" if what == "kind" else "made with other files"
                raise RecipeError(
                    f"{key}: its examples are {shown}: name what `--holdout-fraction` held out of data.{name}.path"
                )
        size = recipe.contrasted(name)
        if held.num_examples < size:
            raise RecipeError(
                f"{key}: {held.num_examples} {held.manifest.kind} are fewer than the {size} of a {together}, one of "
                f"which is contrasted with the others: hold out more, lower data.{name}.batch_size{mend}"
            )
        micro_batches = training.gradient_accumulation_steps if training.gradient_caching else 1
        streams[name] = _stream(recipe, name, held, learner, size, micro_batches, rank, ranks)
    return HeldOut(streams, learner) if streams else None


def _stream(
    recipe: Recipe,
    name: str,
    dataset: Dataset,
    learner: Learner,
    batch_size: int,
    micro_batches: int,
    rank: int,
    ranks: int,
    share: float = 1.0,
) -> ExampleStream:
    data = recipe.data[name]
    shrinks = data.short_documents == "shrink"
    needs = [one.min_tokens(shrinks) for turn in learner.turns for one in learner.of_turn(turn) if one.data == name]
    return ExampleStream(
        name,
        dataset,
        batch_size,
        recipe.training.seed,
        data.shuffle_shards,
        min_tokens=max(needs),
        skip_short=max(needs) > 0 and data.short_documents != "error",
        micro_batches=micro_batches,
        rank=rank,
        ranks=ranks,
        share=share,
        whole=recipe.training.gradient_caching,
    )
