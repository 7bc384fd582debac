"""Any HF encoder on a packed batch: no padding anywhere, the same numbers as padded.

    ids (T,) -> the model's embeddings and layers, attention within each sequence -> hidden (T, h) -> pooled (N, h)

Every model is tried on two sequences when it is wrapped, against its own unpacked attention: one that does not honour
the packing (`train.attention`) is refused, not silently wrong.
`TextEncoder` is the inference side: a folder of weights in, embeddings of texts out.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from train.attention import PACKED_ATTENTION
from train.packing import Packed, pack_ids

POOLINGS = ("mean", "cls")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
TOKEN_HEADS = (
    ("lm_head",),  # RoBERTa and its kin
    ("cls",),  # BERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("head", "decoder"),  # ModernBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA
)
"""The modules that make each architecture's masked-LM head, in order."""


class EncoderError(ValueError):
    """A folder or configuration that gives no usable encoder. The message says why and what to do."""


class Encoder(nn.Module):
    """An HF encoder that takes packed batches, with pooling and, where the model has one, its masked-LM head.

    Args:
        model: a base model or one with a masked-LM head, loaded with `attn_implementation=PACKED_ATTENTION`.
        pooling: `mean` over all tokens of a sequence, special tokens included (DeCLUTR), or `cls`, its first token.

    Raises:
        EncoderError: the architecture cannot run packed, or the pooling is unknown.
    """

    def __init__(self, model: PreTrainedModel, pooling: str = "mean") -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise EncoderError(f"pooling {pooling!r} is not one of {', '.join(POOLINGS)}")
        self.model, self.pooling = model, pooling
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

    def forward(self, packed: Packed) -> Tensor:
        """Hidden states (T, h) of a packed batch; each sequence attends to itself only."""
        positions = packed.positions[None] + self.first_position
        return self.base(input_ids=packed.ids[None], position_ids=positions, packed=packed).last_hidden_state[0]

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
    def token_head(self) -> tuple[str, ...] | None:
        """The names of the modules that make the model's masked-LM head; None if it has none that is known."""
        return next((names for names in TOKEN_HEADS if all(hasattr(self.model, name) for name in names)), None)

    def token_logits(self, hidden: Tensor) -> Tensor:
        """The masked-LM head on selected tokens only: (k, h) -> (k, vocabulary)."""
        for name in self.token_head or ():
            hidden = getattr(self.model, name)(hidden)
        return hidden

    def drop_token_head(self) -> None:
        """Keeps the base model only, where no objective trains the head."""
        self.model = self.base

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


def _read_settings(path: Path) -> dict[str, Any]:
    return _read_json(path, dict) if path.is_file() else {}


def _read_json(path: Path, shape: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, shape):
        raise EncoderError(f"{path}: holds a {type(content).__name__}, expected a {shape.__name__}")
    return content


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
            EncoderError: the folder is missing, holds no model, or uses modules other than pooling and normalising.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise EncoderError(f"{folder}: no such folder; give a local folder with a model (config.json and weights)")
        pooling, normalize, limit, lower, prefix = "mean", False, None, False, ""
        weights = folder
        if (folder / "modules.json").is_file():
            weights, pooling, normalize = _sentence_transformers_modules(folder)
            settings = _read_settings(weights / "sentence_bert_config.json")
            limit, lower = settings.get("max_seq_length"), bool(settings.get("do_lower_case"))
            prompts = _read_settings(folder / "config_sentence_transformers.json")
            prefix = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name"), "")
        if not (weights / "config.json").is_file():
            raise EncoderError(f"{weights}: no config.json here, so no model; give the folder that holds it")
        if not any((weights / name).is_file() for name in TOKENIZER_FILES):
            raise EncoderError(f"{weights}: no tokenizer here (none of {', '.join(TOKENIZER_FILES)})")
        try:
            model = load_model(weights, AutoModel)
            tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise EncoderError(f"{weights}: no usable model ({str(error).strip().splitlines()[0]})") from None
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            encoder: Encoder | PreTrainedModel = Encoder(model, pooling)
            capacity = encoder.max_tokens
        except EncoderError:  # architectures of other shapes run padded
            encoder = load_model(weights, AutoModel, attention=None)
            capacity = int(getattr(encoder.config, "max_position_embeddings", 512)) - _first_position(encoder)
        text_encoder = cls(encoder.eval().to(device), tokenizer, pooling, min(limit or capacity, capacity))
        text_encoder.normalize, text_encoder.name = normalize, folder.resolve().name
        text_encoder.lower, text_encoder.prefix = lower, prefix
        return text_encoder

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], batch_tokens: int = 16384, progress: bool = False) -> np.ndarray:
        """Embeddings in the order of the texts: (len(texts), dim) float32.

        Batches hold texts of like length, `batch_tokens` tokens at most (one longer text makes a batch of its own).
        Texts longer than the model takes are cut at its limit.
        """
        if not len(texts):
            return np.zeros((0, self.dim), dtype=np.float32)
        training = self.encoder.training
        self.encoder.eval()
        texts = [self.prefix + (text.lower() if self.lower else text) for text in texts]
        ids = self.tokenizer(texts, truncation=True, max_length=self.max_tokens)["input_ids"]
        ids = [row or [self.tokenizer.pad_token_id or 0] for row in ids]
        out = np.empty((len(ids), self.dim), dtype=np.float32)
        with tqdm(total=len(ids), unit="text", desc="encode", disable=None if progress else True) as bar:
            for rows in _batches_by_length([len(row) for row in ids], batch_tokens):
                out[rows] = self._encode([ids[row] for row in rows]).float().cpu().numpy()
                bar.update(len(rows))
        self.encoder.train(training)
        return out

    def _encode(self, ids: list[list[int]]) -> Tensor:
        if isinstance(self.encoder, Encoder):
            packed = pack_ids(ids, self.encoder.base.device)
            pooled = self.encoder.pool(self.encoder(packed), packed)
        else:
            batch = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.encoder.device)
            hidden, mask = self.encoder(**batch).last_hidden_state.float(), batch["attention_mask"][..., None]
            pooled = hidden[:, 0] if self.pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
        return F.normalize(pooled, dim=1) if self.normalize else pooled


def load_model(folder: Path, auto_class: Any, attention: str | None = PACKED_ATTENTION) -> PreTrainedModel:
    """An HF model of a local folder, safetensors or `weights_only` weights, in fp32 and evaluation mode."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    options: dict[str, Any] = {"attn_implementation": attention} if attention else {}
    if auto_class is AutoModel and config.model_type in ("bert", "roberta", "xlm-roberta", "camembert", "mpnet"):
        options["add_pooling_layer"] = False
    with quiet_transformers():
        return auto_class.from_pretrained(folder, local_files_only=True, config=config, dtype=torch.float32, **options)


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


def _sentence_transformers_modules(folder: Path) -> tuple[Path, str, bool]:
    """(weights' folder, pooling, normalise) of a sentence-transformers folder, from its modules.json."""
    weights, pooling, normalize = folder, "mean", False
    modules = _read_json(folder / "modules.json", list)
    if not modules or not all(isinstance(m, dict) and {"type", "path"} <= m.keys() for m in modules):
        raise EncoderError(f"{folder / 'modules.json'}: expected a list of modules, each with type and path")
    for module in modules:
        name = module["type"].rsplit(".", 1)[-1]
        if name == "Transformer":
            weights = folder / module["path"]
        elif name == "Pooling":
            settings = _read_json(folder / module["path"] / "config.json", dict)
            named = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
            on = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
            chosen = [settings["pooling_mode"]] if "pooling_mode" in settings else [named.get(key, key) for key in on]
            if chosen not in (["mean"], ["cls"]):
                raise EncoderError(
                    f"{folder}: pooling {'+'.join(map(str, chosen))} is not supported, only mean and cls"
                )
            if settings.get("include_prompt") is False:
                raise EncoderError(f"{folder}: pooling without the prompt is not supported")
            pooling = chosen[0]
        elif name == "Normalize":
            normalize = True
        else:
            raise EncoderError(f"{folder}: the module {name} is not supported, only pooling and normalising")
    return weights, pooling, normalize
