"""The module that DeepSpeed trains: all objectives over one shared encoder, one packed forward, one summed loss.

    batch -> each objective's sequences -> pack -> corrupt -> encoder -> each objective's loss -> sum of weight x loss

Losses are computed inside this forward, in fp32, whatever autocast does to the encoder.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerFast

from shards import Dataset
from train.attention import PACKED_ATTENTION
from train.encoder import Encoder, EncoderError, load_model
from train.objectives import Encoded, Objective, Setting, build_all
from train.packing import Budget, Sequences, SpecialTokens, pack, plan_budget
from train.recipe import Recipe, RecipeError
from train.stream import Batch


class Learner(nn.Module):
    """Encoder and objectives.

    Args:
        budget: the fixed shape of a step on one rank; None lets every step have its own number of tokens.
    """

    def __init__(
        self, encoder: Encoder, objectives: list[Objective], special: SpecialTokens, budget: Budget | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.objectives = encoder, nn.ModuleList(objectives)
        self.special, self.budget = special, budget

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """(loss, figures): the weighted sum, scalar fp32, and detached scalars such as `spans/loss`, `tokens`."""
        objectives: list[Objective] = list(self.objectives)  # type: ignore[arg-type]
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


def load_tokenizer(folder: Path) -> Any:
    """The transformers tokenizer of a folder; one with a bare tokenizer.json gets its special tokens by usual names."""
    if (folder / "tokenizer_config.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if tokenizer.pad_token is None:  # GPT-2's: nothing here pads, but who loads the export does
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        return tokenizer
    if not (folder / "tokenizer.json").is_file():
        raise EncoderError(f"{folder}: no tokenizer.json here")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    usual = {
        "pad_token": ("<pad>", "[PAD]"),
        "mask_token": ("<mask>", "[MASK]"),
        "cls_token": ("<s>", "[CLS]"),
        "sep_token": ("</s>", "[SEP]"),
        "unk_token": ("<unk>", "[UNK]"),
    }
    found = {key: next((n for n in names if backend.token_to_id(n) is not None), None) for key, names in usual.items()}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{k: v for k, v in found.items() if v})


def special_tokens(tokenizer: Any) -> SpecialTokens:
    """What the tokenizer puts around one sequence, found by letting it do so."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    before = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    pad = tokenizer.pad_token_id
    return SpecialTokens(
        whole[:before], whole[before + len(bare) :], 0 if pad is None else pad, tokenizer.mask_token_id
    )


def build_encoder(recipe: Recipe, tokenizer: Any) -> Encoder:
    """The recipe's encoder: pretrained weights of a local folder, or a fresh one seeded by `training.seed`.

    Raises:
        RecipeError: the folder or configuration gives no encoder, or the tokenizer is not the shards'.
    """
    try:
        if recipe.model.path:
            folder = Path(recipe.model.path)
            if not (folder / "config.json").is_file():
                raise RecipeError(f"model.path {folder}: no config.json here; give a local folder with a model")
            if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
                raise RecipeError(
                    f"model.path {folder}: its tokenizer is not the one the shards were made with: run the pipeline "
                    f"with --tokenizer {folder}"
                )
            model = load_model(folder, AutoModelForMaskedLM)
        else:
            known = AutoConfig.for_model(recipe.model.config["model_type"])
            ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep")}
            options = {key: value for key, value in ids.items() if hasattr(known, key)}
            options |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id or 0}
            unknown = [key for key in recipe.model.config if not hasattr(known, key)]
            if unknown:
                raise RecipeError(f"model.config: {recipe.model.config['model_type']} has no option {unknown[0]!r}")
            config = AutoConfig.for_model(**{**options, **recipe.model.config})
            with torch.random.fork_rng():
                torch.manual_seed(recipe.training.seed)
                model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
        if model.config.vocab_size < len(tokenizer):
            sizes = f"{model.config.vocab_size:,} embeddings for a tokenizer of {len(tokenizer):,} ids"
            raise RecipeError(f"model: {sizes}: they must be at least as many")
        return Encoder(model, recipe.model.pooling)
    except RecipeError:
        raise
    except Exception as error:  # what transformers and torch raise for a user's values is of any type
        reason = (str(error).strip().splitlines() or [""])[0]
        raise RecipeError(
            f"model: {reason if isinstance(error, EncoderError) else f'{type(error).__name__}: {reason}'}"
        ) from None


@dataclasses.dataclass
class Size:
    """What a step asks of one rank, for budgets and the dry run. Tokens include special tokens."""

    sequences: int
    mean_tokens: float
    budget: Budget


def step_size(
    objectives: list[Objective], documents: int, special: SpecialTokens, capacity: int, shrinks: bool
) -> Size:
    """Sequences and tokens of one rank's step with that many documents; spans that shrink can be of one token."""
    loads = [load for load in (objective.load() for objective in objectives) if load.sequences]
    sequences = documents * sum(load.sequences for load in loads)
    mean = documents * sum(load.mean_tokens for load in loads) + sequences * special.count
    variance = documents * sum(load.variance for load in loads)
    shortest = (1 if shrinks else min(load.shortest for load in loads)) + special.count
    longest = min(max(load.longest for load in loads), capacity) + special.count
    return Size(sequences, mean, plan_budget(mean, variance, sequences, shortest, longest))


def build_learner(recipe: Recipe, dataset: Dataset, ranks: int, static: bool) -> tuple[Learner, Any, Size]:
    """(learner, tokenizer, size of a rank's step). `static` gives every step the same shape.

    Raises:
        RecipeError: the recipe, the shards and the model do not go together.
    """
    tokenizer = load_tokenizer(dataset.local_tokenizer())
    special = special_tokens(tokenizer)
    encoder = build_encoder(recipe, tokenizer)
    setting = Setting(recipe.training.seed, encoder.max_tokens - special.count, len(tokenizer), special)
    try:
        objectives = build_all(recipe.objectives, setting)
    except ValueError as error:
        raise RecipeError(str(error)) from None
    if not any(objective.uses_token_head for objective in objectives):
        encoder.drop_token_head()
    elif encoder.token_head is None:
        raise RecipeError(f"model: {encoder.config.model_type} has no masked-LM head that this version knows")
    documents, shrinks = math.ceil(recipe.training.batch_size / ranks), recipe.data.short_documents == "shrink"
    size = step_size(objectives, documents, special, setting.capacity, shrinks)
    return Learner(encoder, objectives, special, size.budget if static else None), tokenizer, size
