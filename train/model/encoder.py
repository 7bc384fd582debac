"""Any HF encoder on a packed batch: no padding anywhere, the same numbers as padded.

    ids (T,) -> the model's embeddings and layers, attention within each sequence -> hidden (T, h) -> pooled (N, h)

Every model is tried on two sequences when it is wrapped, against its own unpacked attention: one that does not honour
the packing (`train.model.attention`) is refused, not silently wrong.
`TextEncoder` is the inference side: a folder of weights in, embeddings of texts out.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from tqdm import tqdm
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, PreTrainedModel

from shards.terminal import one_line
from train.model.attention import PACKED_ATTENTION
from train.model.folder import MOST_SAID, EncoderError, read_json, read_settings, some
from train.model.packing import Packed, pack_ids
from train.model.tokenizer import load_tokenizer

POOLINGS = ("mean", "cls")
MLM_HEADS = (
    ("lm_head",),  # RoBERTa and its kin
    ("cls",),  # BERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("head", "decoder"),  # ModernBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA
)
"""The modules that make each architecture's masked-LM head, in order."""


class Encoder(nn.Module):
    """An HF encoder that takes packed batches, with pooling and, where the model has one, its masked-LM head.

    Args:
        model: a base model or one with a masked-LM head, loaded with `attn_implementation=PACKED_ATTENTION`.
        pooling: `mean` over all tokens of a sequence, special tokens included (DeCLUTR), or `cls`, its first token.
        new_weights: the names of the head's weights that its folder did not hold (see `load_model`).

    Raises:
        EncoderError: the architecture cannot run packed, or the pooling is unknown.
    """

    def __init__(self, model: PreTrainedModel, pooling: str = "mean", new_weights: Sequence[str] = ()) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise EncoderError(f"pooling {pooling!r} is not one of {', '.join(POOLINGS)}")
        self.model, self.pooling, self.new_weights = model, pooling, list(new_weights)
        self.first_position = _first_position(model)
        self._check_packing()

    @property
    def base(self) -> Any:
        return self.model.base_model

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def dim(self) -> int:
        return int(self.config.hidden_size)

    @property
    def max_tokens(self) -> int:
        """The longest sequence, special tokens included."""
        return int(self.config.max_position_embeddings) - self.first_position

    def forward(self, packed: Packed, patches: Tensor | None = None) -> Tensor:
        """Hidden states (T, h) of a packed batch; each sequence attends to itself only.

        Args:
            patches: (packed.patch_rows, h), what the first rows are instead of the embeddings of their ids.
        """
        positions = packed.positions[None] + self.first_position
        with self._written(patches) if patches is not None else contextlib.nullcontext():
            return self.base(input_ids=packed.ids[None], position_ids=positions, packed=packed).last_hidden_state[0]

    @contextlib.contextmanager
    def _written(self, patches: Tensor) -> Iterator[None]:
        """Within it, the first rows of what the embedding module gives are the patches."""

        def write(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            return torch.cat([patches.to(output.dtype), output[0, len(patches) :]])[None]

        hook = self.base.embeddings.register_forward_hook(write)
        try:
            yield
        finally:
            hook.remove()

    def check_patches(self) -> None:
        """Raises EncoderError where the architecture has no embedding module that patches could stand in for."""
        embeddings = getattr(self.base, "embeddings", None)
        if not isinstance(embeddings, nn.Module) or isinstance(embeddings, nn.Embedding):
            raise EncoderError(f"model type {self.config.model_type!r} has no embedding module to write patches over")
        if getattr(self.config, "embedding_size", self.dim) != self.dim:
            raise EncoderError(f"model type {self.config.model_type!r}: its embeddings are not as wide as its layers")

    def embedding_parameters(self) -> set[str]:
        """The names of the parameters that only tokens reach."""
        inside = {id(parameter) for parameter in self.base.embeddings.parameters()}
        return {name for name, parameter in self.named_parameters() if id(parameter) in inside}

    def pool(self, hidden: Tensor, packed: Packed) -> Tensor:
        """One fp32 vector a sequence: hidden (T, h) -> (num_sequences, h)."""
        if self.pooling == "cls":
            return self.first_states(hidden, packed)
        n, lengths = packed.num_sequences, packed.cu_seqlens.diff().long()
        summed = torch.segment_reduce(hidden.float(), "sum", lengths=lengths, axis=0, unsafe=True)
        return (summed / lengths.clamp(min=1)[:, None])[:n]

    @staticmethod
    def first_states(hidden: Tensor, packed: Packed) -> Tensor:
        """The fp32 state of each sequence's first token: hidden (T, h) -> (num_sequences, h); 0 for an empty one."""
        n = packed.num_sequences
        first = hidden[packed.cu_seqlens[:n].long().clamp(max=len(hidden) - 1)].float()
        return first * (packed.cu_seqlens.diff()[:n, None] > 0)

    @property
    def mlm_head(self) -> tuple[str, ...] | None:
        """The names of the modules that make the model's masked-LM head; None if it has none that is known."""
        return next((names for names in MLM_HEADS if all(hasattr(self.model, name) for name in names)), None)

    def mlm_logits(self, hidden: Tensor) -> Tensor:
        """The masked-LM head on selected tokens only: (k, h) -> (k, vocabulary)."""
        for name in self.mlm_head or ():
            hidden = getattr(self.model, name)(hidden)
        return hidden

    def head_parameters(self) -> set[str]:
        """The names of the model's parameters outside its base; one tied to the base's is not among them."""
        if self.model is self.base:
            return set()
        prefix = f"{self.model.base_model_prefix}."
        return {name for name, _ in self.model.named_parameters() if not name.startswith(prefix)}

    def drop_mlm_head(self) -> None:
        """Keeps the base model only, where no objective trains the head."""
        self.model, self.new_weights = self.base, []

    @torch.no_grad()
    def _check_packing(self) -> None:
        """Runs two sequences, the first longer than any local attention window, packed and alone; they must agree."""
        training = self.training
        self.eval()
        window = getattr(self.config, "sliding_window", None) or 0
        lengths = [min(window + 24, self.max_tokens), 9]
        ids = torch.arange(sum(lengths), device=self.base.device) * 7 % (self.config.vocab_size - 8) + 8
        sequences = [ids[: lengths[0]].tolist(), ids[lengths[0] :].tolist()]
        problem = ""
        try:
            packed = self(pack_ids(sequences, self.base.device))
            self.base.set_attn_implementation("eager")
            alone = [self.base(input_ids=x[None]).last_hidden_state[0] for x in ids.split(lengths)]
            if not torch.allclose(packed, torch.cat(alone), atol=1e-3 * float(packed.abs().max())):
                problem = "a packed sequence does not get the states that it gets alone"
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        self.base.set_attn_implementation(PACKED_ATTENTION)
        self.train(training)
        if problem:
            raise EncoderError(f"model type {self.config.model_type!r} cannot run packed: {problem}")


def _first_position(model: PreTrainedModel) -> int:
    """Where a model's position ids start: RoBERTa and its kin count from the padding id + 1."""
    embeddings = getattr(model.base_model, "embeddings", None)
    if hasattr(embeddings, "create_position_ids_from_input_ids"):
        return int(model.config.pad_token_id) + 1
    return 0


class TextEncoder:
    """Texts to embeddings, with an exported folder, an HF folder or a sentence-transformers folder.

    A plain HF folder is mean-pooled; a sentence-transformers folder's pooling, normalising, length limit, lower-casing
    and default prompt are honoured. Attributes: `name` (the folder's), `dim`.
    """

    def __init__(self, encoder: Encoder | PreTrainedModel, tokenizer: Any, pooling: str, max_tokens: int) -> None:
        self.encoder, self.tokenizer, self.pooling, self.max_tokens = encoder, tokenizer, pooling, max_tokens
        self.normalize = self.lower = False
        self.name = self.prefix = ""

    @property
    def dim(self) -> int:
        return int(self.encoder.config.hidden_size)

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "TextEncoder":
        """Loads a local folder; nothing is downloaded and no code of the folder is run.

        Raises:
            EncoderError: the folder is missing, holds no whole model, or asks for what is not supported.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise EncoderError(f"{folder}: no such folder; give a local folder with a model (config.json and weights)")
        settings = read_settings(folder)
        weights = settings.weights
        if not (weights / "config.json").is_file():
            raise EncoderError(f"{weights}: no config.json here, so no model; give the folder that holds it")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            encoder, capacity = _load_encoder(weights, settings.pooling)
            encoder.eval().to(device)
        except EncoderError:
            raise
        except Exception as error:  # what transformers and torch raise for odd files is of any type
            raise EncoderError(f"{weights}: no usable model ({one_line(error, MOST_SAID)})") from None
        tokenizer = load_tokenizer(weights)
        limit, special = min(settings.limit or capacity, capacity), tokenizer.num_special_tokens_to_add()
        if limit <= special:
            raise EncoderError(f"{weights}: takes {limit} tokens, {special} of them special: none is left for text")
        text_encoder = cls(encoder, tokenizer, settings.pooling, limit)
        text_encoder.normalize, text_encoder.name = settings.normalize, folder.resolve().name
        text_encoder.lower, text_encoder.prefix = settings.lower, settings.prefix
        return text_encoder

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], batch_tokens: int = 16384, progress: bool = False) -> np.ndarray:
        """Embeddings in the order of the texts: (len(texts), dim) float32.

        Batches hold texts of like length, `batch_tokens` tokens at most (one longer text makes a batch of its own).
        Texts longer than the model takes are cut at its limit.

        Raises:
            EncoderError: the tokenizer cannot encode a text, or gives an id that the model has no embedding for.
        """
        if not len(texts):
            return np.zeros((0, self.dim), dtype=np.float32)
        training = self.encoder.training
        self.encoder.eval()
        texts = [self.prefix + (text.lower() if self.lower else text) for text in texts]
        ids = self._ids(texts)
        out = np.empty((len(ids), self.dim), dtype=np.float32)
        with tqdm(total=len(ids), unit="text", desc="encode", disable=None if progress else True) as bar:
            for rows in _batches_by_length([len(row) for row in ids], batch_tokens):
                out[rows] = self._encode([ids[row] for row in rows]).float().cpu().numpy()
                bar.update(len(rows))
        self.encoder.train(training)
        return out

    def _ids(self, texts: list[str]) -> list[list[int]]:
        try:
            ids = self.tokenizer(texts, truncation=True, max_length=self.max_tokens)["input_ids"]
        except Exception as error:  # tokenizers raises plain Exception
            raise EncoderError(
                f"{self.name}: its tokenizer cannot encode every text ({one_line(error, MOST_SAID)})"
            ) from None
        ids = [row or [self._filler] for row in ids]
        largest, rows = max(map(max, ids)), self.encoder.config.vocab_size
        if largest >= rows:
            raise EncoderError(
                f"{self.name}: its tokenizer gives id {largest:,}, but its model has {rows:,} embeddings: the two do "
                "not belong together"
            )
        return ids

    @property
    def _filler(self) -> int:
        return self.tokenizer.pad_token_id or 0

    def _encode(self, ids: list[list[int]]) -> Tensor:
        if isinstance(self.encoder, Encoder):
            packed = pack_ids(ids, self.encoder.base.device)
            pooled = self.encoder.pool(self.encoder(packed), packed)
        else:
            hidden, mask = _padded_states(self.encoder, ids, self._filler)
            pooled = hidden[:, 0] if self.pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
        return F.normalize(pooled, dim=1) if self.normalize else pooled


def _load_encoder(folder: Path, pooling: str) -> tuple[Encoder | PreTrainedModel, int]:
    """(encoder, the most tokens it takes): packed, or as it is where its architecture cannot run so."""
    model, _ = load_model(folder, AutoModel)
    try:
        encoder = Encoder(model, pooling)
        return encoder, encoder.max_tokens
    except EncoderError:
        padded, _ = load_model(folder, AutoModel, attention=None)
    _padded_states(padded, [[0, 0], [0]], 0)  # one that takes no texts, such as an encoder-decoder, fails here
    return padded, int(getattr(padded.config, "max_position_embeddings", 512)) - _first_position(padded)


@torch.inference_mode()
def _padded_states(model: PreTrainedModel, ids: list[list[int]], filler: int) -> tuple[Tensor, Tensor]:
    """Hidden states (N, L, h) in fp32 and the mask (N, L, 1) of a batch padded on the right, whatever the tokenizer's
    own side: the first state is then the first token's.
    """
    rows = [torch.tensor(row) for row in ids]
    batch = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filler).to(model.device)
    lengths = torch.tensor([len(row) for row in ids], device=model.device)
    mask = (torch.arange(batch.shape[1], device=model.device) < lengths[:, None]).long()
    return model(input_ids=batch, attention_mask=mask).last_hidden_state.float(), mask[..., None]


def load_model(
    folder: Path, auto_class: Any, attention: str | None = PACKED_ATTENTION
) -> tuple[PreTrainedModel, list[str]]:
    """(model, names of new weights): an HF model of a local folder, in fp32 and evaluation mode.

    Weights are safetensors or read with `weights_only`; code of the folder is never run. Only weights outside the base
    model can be new, freshly drawn: those of a masked-LM head that the folder does not have.

    Raises:
        EncoderError: the folder's weights are not those that its configuration asks for, or not finite.
    """
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"{folder}: an adapter's weights are not supported: merge them into the model's")
    kind = read_json(folder / "config.json").get("model_type")
    if kind is not None and (not isinstance(kind, str) or kind not in CONFIG_MAPPING):
        raise EncoderError(
            f"{folder / 'config.json'}: model_type {kind!r} is unknown to transformers {transformers.__version__}, and "
            "code that comes with a model is never run"
        )
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    options: dict[str, Any] = {"attn_implementation": attention} if attention else {}
    if auto_class is AutoModel and config.model_type in ("bert", "roberta", "xlm-roberta", "camembert", "mpnet"):
        options["add_pooling_layer"] = False
    with quiet_transformers():
        model, found = auto_class.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # which are named below
            **options,
        )
    return model, _check_weights(folder, model, found)


def _check_weights(folder: Path, model: PreTrainedModel, found: dict[str, Any]) -> list[str]:
    """The weights outside the base model that are new; transformers itself starts with whatever it finds."""
    prefix, base = f"{model.base_model_prefix}.", model.base_model
    parts = {name.split(".")[0] for name in base.state_dict()} - {"pooler"}  # unused here, and often absent

    def of_base(name: str) -> bool:
        return name.removeprefix(prefix).split(".")[0] in parts

    mend = "take the whole folder from its source again"
    if shapes := sorted(found["mismatched_keys"]):
        name, there, wanted = shapes[0]
        more = f", and {len(shapes) - 1:,} more differ" if len(shapes) > 1 else ""
        raise EncoderError(
            f"{folder}: {name} has shape {list(there)} where its config.json asks for {list(wanted)}{more}: {mend}"
        )
    inside = [name for name in found["missing_keys"] if (model is base or name.startswith(prefix)) and of_base(name)]
    if inside:
        raise EncoderError(f"{folder}: lacks {len(inside):,} of its weights: {some(sorted(inside))}: {mend}")
    # Positions that count up were saved as if they were weights, and are not any more.
    left = [name for name in found["unexpected_keys"] if of_base(name) and not name.endswith(".position_ids")]
    if left:
        raise EncoderError(
            f"{folder}: its config.json has no place for {len(left):,} of its weights: {some(sorted(left))}: {mend}"
        )
    new = sorted(name for name in found["missing_keys"] if not name.removeprefix(prefix).startswith("pooler."))
    for name in new:
        if name.endswith("bias"):  # transformers leaves those of some heads as they lie in memory
            nn.init.zeros_(model.get_parameter(name))
    for name, weight in model.named_parameters():
        # A sum is finite only if all is, and takes a tenth of the time.
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise EncoderError(f"{folder}: {name} holds a NaN or an infinity: {mend}")
    return new


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No loading bars and no report of heads left out on purpose."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def _batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers, longest first, in batches of at most `batch_tokens` tokens."""
    rows: list[int] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if rows and tokens + lengths[row] > batch_tokens:
            yield rows
            rows, tokens = [], 0
        rows.append(row)
        tokens += lengths[row]
    yield rows
