"""The module that DeepSpeed trains: all objectives over one shared encoder, one packed forward, one summed loss.

    batch -> each objective's sequences -> pack -> corrupt -> encoder -> each objective's loss -> sum of weight x loss

Losses are computed inside this forward, in fp32, whatever autocast does to the encoder.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from eval.folder import MOST_SAID, EncoderError, load_model, quiet_transformers, some
from shards import Dataset, ShardError
from shards.terminal import one_line
from train.data.stream import Batch, Columns
from train.model.attention import PACKED_ATTENTION
from train.model.encoder import Encoder
from train.model.folder import Source, read_source
from train.model.packing import Budget, Sequences, SpecialTokens, pack, plan_budget
from train.model.tokenizer import load_shards_tokenizer, load_tokenizer, num_ids, special_tokens
from train.objectives import Encoded, Objective, Setting, build_all
from train.recipe import Recipe, RecipeError


class Learner(nn.Module):
    """Encoder and objectives.

    Args:
        budget: the fixed shape of a forward on one rank; None lets every one have its own number of tokens.
    """

    def __init__(
        self, encoder: Encoder, objectives: list[Objective], special: SpecialTokens, budget: Budget | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.objectives = encoder, nn.ModuleList(objectives)
        self.special, self.budget = special, budget

    @property
    def columns(self) -> list[str]:
        """The shards' token columns that the objectives read."""
        return list(dict.fromkeys(name for objective in self._objectives for name in objective.columns))

    def fingerprints(self) -> dict[str, str]:
        """By objective, the hash of what decides its batches besides recipe and shards, where there is such a thing."""
        found = {objective.name: objective.fingerprint() for objective in self._objectives}
        return {name: fingerprint for name, fingerprint in found.items() if fingerprint}

    def prepare(self, columns: Columns, ids: np.ndarray, epoch: int) -> Columns:
        """What all objectives want of a rank's rows on the device; the stream calls it on the host.

        Raises:
            ValueError: two objectives make different columns of one name.
        """
        prepared: Columns = {}
        for objective in self._objectives:
            for name, column in objective.prepare(columns, ids, epoch).items():
                if prepared.setdefault(name, column) is not column:
                    raise ValueError(f"objectives.{objective.name}: another objective has a column {name!r} of its own")
        return prepared

    @property
    def _objectives(self) -> list[Objective]:
        return list(self.objectives)  # type: ignore[arg-type]

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """(loss, figures): the weighted sum, scalar fp32, and detached scalars such as `spans/loss`, `tokens`."""
        objectives = self._objectives
        with torch.no_grad():
            requests: list[Sequences] = []
            rows: dict[str, slice] = {}
            first = 0
            for objective in objectives:
                request = objective.sequences(batch)
                if request is not None:
                    requests.append(request)
                    rows[objective.name] = slice(first, first + len(request.lengths))
                    first += len(request.lengths)
            packed = pack(requests, self.special, self.budget)
            for objective in objectives:
                objective.corrupt(packed, rows)
        hidden = self.encoder(packed)
        total = torch.zeros((), device=hidden.device)
        figures: dict[str, Tensor] = {}
        for objective in objectives:
            loss = objective.loss(Encoded(self.encoder, packed, hidden, rows.get(objective.name, slice(0, 0))))
            total = total + objective.weight * loss
            figures[f"{objective.name}/loss"] = loss.detach()
            figures.update({f"{objective.name}/{key}": value for key, value in objective.metrics.items()})
        figures["loss"] = total.detach()
        figures["tokens"] = packed.cu_seqlens[packed.num_sequences].detach()
        return total, figures


def extends(tokenizer: Any, base: Any) -> bool:
    """Whether a tokenizer is another one, but for special tokens that were added after all of its ids."""
    ours, theirs = tokenizer.get_vocab(), base.get_vocab()
    added = {token: id_ for token, id_ in ours.items() if token not in theirs}
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    kept = all(ours.get(token) == id_ for token, id_ in theirs.items())
    return kept and added.keys() <= special and all(id_ > max(theirs.values()) for id_ in added.values())


def add_embeddings(model: PreTrainedModel, vocab_size: int, seed: int) -> None:
    """Grows a model's embeddings and its head in place; new rows are drawn as the model draws fresh ones."""
    with torch.random.fork_rng(), quiet_transformers():
        torch.manual_seed(seed)
        model.resize_token_embeddings(vocab_size, mean_resizing=False)


def _tanh_head(dim: int, seed: int) -> nn.Module:
    """A linear layer, drawn as torch draws it, and tanh."""
    from sentence_transformers.sentence_transformer.modules import Dense

    with torch.random.fork_rng():
        torch.manual_seed(seed)
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
            if not extends(tokenizer, load_tokenizer(folder)):
                raise RecipeError(
                    f"model.path {folder}: its tokenizer is not the one the shards were made with: run the pipeline "
                    f"with --tokenizer {folder}"
                )
            with torch.random.fork_rng():  # a head that starts anew is drawn
                torch.manual_seed(recipe.training.seed)
                model, new_weights = load_model(folder, AutoModelForMaskedLM, attn_implementation=PACKED_ATTENTION)
            if model.config.vocab_size < vocab_size:
                add_embeddings(model, vocab_size, recipe.training.seed)
        else:
            known = AutoConfig.for_model(recipe.model.config["model_type"])
            ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep")}
            options = {key: value for key, value in ids.items() if hasattr(known, key)}
            options |= {"vocab_size": vocab_size, "pad_token_id": tokenizer.pad_token_id or 0}
            unknown = [key for key in recipe.model.config if not hasattr(known, key)]
            if unknown:
                raise RecipeError(f"model.config: {recipe.model.config['model_type']} has no option {unknown[0]!r}")
            config = AutoConfig.for_model(**{**options, **recipe.model.config})
            with torch.random.fork_rng():
                torch.manual_seed(recipe.training.seed)
                model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
        if model.config.vocab_size < vocab_size:
            sizes = f"{model.config.vocab_size:,} embeddings for a tokenizer of {vocab_size:,} ids"
            raise RecipeError(f"model: {sizes}: they must be at least as many")
        if recipe.model.head and not source.head:
            source.head = [_tanh_head(int(model.config.hidden_size), recipe.training.seed)]
        pooling = recipe.model.pooling or source.pooling or "mean"
        encoder = Encoder(model, pooling, new_weights, source.head, source.inference)
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
class Size:
    """What a forward asks of one rank, for budgets and the dry run. Tokens include special tokens."""

    sequences: int
    mean_tokens: float
    budget: Budget


def forward_size(
    objectives: list[Objective], examples: int, special: SpecialTokens, capacity: int, shrinks: bool
) -> Size:
    """Sequences and tokens of one rank's forward with that many examples; spans that shrink can be of one token.

    The sequences of one example are taken to be long and short together, as a sentence and its views are.
    """
    loads = [load for load in (objective.load() for objective in objectives) if load.sequences]
    sequences = examples * sum(load.sequences for load in loads)
    mean = examples * sum(load.mean_tokens for load in loads) + sequences * special.count
    variance = examples * sum(math.sqrt(load.variance) for load in loads) ** 2
    shortest = (1 if shrinks else min(load.shortest for load in loads)) + special.count
    longest = min(max(load.longest for load in loads), capacity) + special.count
    return Size(sequences, mean, plan_budget(mean, variance, sequences, shortest, longest))


def build_learner(recipe: Recipe, dataset: Dataset, ranks: int, static: bool) -> tuple[Learner, Any, Size]:
    """(learner, tokenizer, size of a rank's forward). `static` gives every forward the same shape.

    Raises:
        RecipeError: the recipe, the shards and the model do not go together.
    """
    tokenizer = load_shards_tokenizer(dataset.local_tokenizer())
    special = special_tokens(tokenizer)
    encoder = build_encoder(recipe, tokenizer)
    setting = Setting(
        seed=recipe.training.seed,
        capacity=encoder.max_tokens - special.count,
        vocab_size=len(tokenizer),
        dim=encoder.dim,
        special=special,
        dataset=dataset,
    )
    try:
        objectives = build_all(recipe.objectives, setting)
    except ShardError:
        raise
    except ValueError as error:
        raise RecipeError(str(error)) from None
    together = recipe.training.batch_size // recipe.training.gradient_accumulation_steps
    for objective in objectives:
        if together < objective.min_examples:
            raise RecipeError(
                f"objectives.{objective.name} contrasts the examples of one forward with each other and needs "
                f"{objective.min_examples} or more: training.batch_size {recipe.training.batch_size} over "
                f"training.gradient_accumulation_steps {recipe.training.gradient_accumulation_steps} is {together}"
            )
    if not any(objective.uses_token_head for objective in objectives):
        encoder.drop_token_head()
    elif encoder.token_head is None:
        raise RecipeError(f"model: {encoder.config.model_type} has no masked-LM head that this version knows")
    elif encoder.new_weights and not encoder.head_parameters() <= set(encoder.new_weights):
        raise RecipeError(
            f"model.path {recipe.model.path}: lacks {len(encoder.new_weights):,} weights of its masked-LM head: "
            f"{some(encoder.new_weights)}: take the whole folder from its source again"
        )
    examples = math.ceil(recipe.training.batch_size / (ranks * recipe.training.gradient_accumulation_steps))
    shrinks = recipe.data.short_documents == "shrink"
    size = forward_size(objectives, examples, special, setting.capacity, shrinks)
    return Learner(encoder, objectives, special, size.budget if static else None), tokenizer, size
