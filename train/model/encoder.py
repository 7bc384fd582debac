"""Any HF encoder on a packed batch: no padding anywhere, the same numbers as padded.

    ids (T,) -> the model's embeddings and layers, attention within each sequence -> hidden (T, h) -> pooled (N, h)

Every model is tried on two sequences when it is wrapped, against its own unpacked attention: one that does not honour
the packing (`train.model.attention`) is refused, not silently wrong.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedModel

from clearspan.common.model_folder import EncoderError
from clearspan.common.pretrained import first_position
from clearspan.eval.models.embed import batches_by_length
from clearspan.train.losses import in_fp32
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.dropout import replace_dropout
from clearspan.train.model.grouping import by_length
from clearspan.train.model.packing import Packed, pack_ids
from clearspan.train.model.source import Inference
from clearspan.train.options import POOLINGS, not_one_of

MLM_HEADS = (
    ("lm_head",),  # RoBERTa and its kin
    ("cls",),  # BERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("head", "decoder"),  # ModernBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA
)
"""The modules that make each architecture's masked-LM head, in order."""
MOST_GRAPHS = 64
"""Each turn has three: in training, in the first pass of gradient caching, in validation. torch ends a run at 8."""


class Encoder(nn.Module):
    """An HF encoder that takes packed batches, with pooling and, where the model has one, its masked-LM head.

    Args:
        model: a base model or one with a masked-LM head, loaded with `attn_implementation=PACKED_ATTENTION`.
        pooling: `mean` over all tokens of a sequence, special tokens included (DeCLUTR), or `cls`, its first token.
        new_weights: the names of the MLM head's weights that its folder did not hold (`common.pretrained.load_model`).
        head: sentence-transformers' Dense modules after the pooling, which stay at inference, such as supervised
            SimCSE's; each as wide as the model.
        inference: what else is done with a text when it is embedded.

    Attributes:
        notes: what the user should know of how it was made, a line each.

    Raises:
        EncoderError: the architecture cannot run packed, or the pooling is unknown.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pooling: str = "mean",
        new_weights: Sequence[str] = (),
        head: Sequence[nn.Module] = (),
        inference: Inference | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise EncoderError(f"pooling {not_one_of(pooling, POOLINGS)}")
        self.model, self.pooling, self.new_weights = model, pooling, list(new_weights)
        self.head, self.inference = nn.ModuleList(head), inference or Inference()
        self.notes: list[str] = []
        self.first_position = first_position(model)
        self._options: dict[str, Any] = {}  # of every forward
        replace_dropout(model)
        self._patches: Tensor | None = None  # of the forward that runs: an embedding module takes none as an argument
        self._compiled: Callable[..., Tensor] | None = None
        embeddings = getattr(self.base, "embeddings", None)
        if isinstance(embeddings, nn.Module):  # now and not by the forward: that is one graph, with what it finds
            embeddings.register_forward_hook(self._written)
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
        capacity = int(self.config.max_position_embeddings) - self.first_position
        return min(capacity, self.inference.max_tokens or capacity)

    def forward(self, packed: Packed, patches: Tensor | None = None) -> Tensor:
        """Hidden states (T, h) of a packed batch; each sequence attends to itself only.

        Args:
            patches: (packed.patch_rows, h), what the first rows are instead of the embeddings of their ids.
        """
        if packed.lengths is None:
            return (self._compiled or self._states)(packed, patches)
        if packed.ids.device.type != "cpu":
            return self._states(packed, patches)
        grouped, back = by_length(packed)
        states = self._states(grouped, patches)
        return states if back is None else states.index_select(0, back)

    def compile_static(self, backend: str = "inductor", repeats: bool = False) -> None:
        """From here on packed batches of a static budget go through one graph, compiled when the first of them comes,
        and again only for another shape. Those whose lengths the host knows, each of its own shape, do not.

        Args:
            repeats: a forward may have several backwards: none of them takes over the memory of what it read last.
        """
        from torch._dynamo import config as dynamo
        from torch._functorch import config as functorch

        dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_GRAPHS)
        functorch.donated_buffer = functorch.donated_buffer and not repeats
        self._compiled = torch.compile(self._states, fullgraph=True, dynamic=False, backend=backend)

    def _states(self, packed: Packed, patches: Tensor | None) -> Tensor:
        positions = packed.positions[None] + self.first_position
        if patches is not None and self._position_table:  # of which patches, with positions of their own, need none
            first, rest = positions.split([len(patches), positions.shape[1] - len(patches)], dim=1)
            positions = torch.cat([first.clamp(max=self._position_table - 1), rest], dim=1)
        ids, self._patches = packed.ids[None], patches
        try:
            return self.base(input_ids=ids, position_ids=positions, packed=packed, **self._options).last_hidden_state[0]
        finally:
            self._patches = None

    def _written(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        """What the embedding module gives, its first rows being the patches."""
        if self._patches is None:
            return output
        return torch.cat([self._patches.to(output.dtype), output[0, len(self._patches) :]])[None]

    @property
    def _position_table(self) -> int:
        """How many position embeddings the model has; 0: it tells positions by other means, such as rotation."""
        table = getattr(getattr(self.base, "embeddings", None), "position_embeddings", None)
        return int(table.num_embeddings) if isinstance(table, nn.Embedding) else 0

    @property
    def has_dropout(self) -> bool:
        """Whether two passes over one sequence differ in training."""
        return any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.base.modules())

    @property
    def attention_dropout(self) -> float:
        """The share of attention weights that training drops, by the name that the architecture has for it."""
        names = ("attention_probs_dropout_prob", "attention_dropout")
        return float(next((getattr(self.config, name) for name in names if hasattr(self.config, name)), 0.0))

    def check_patches(self, patches: int) -> None:
        """Raises EncoderError where so many patches could not stand in for what an embedding module gives."""
        embeddings = getattr(self.base, "embeddings", None)
        if not isinstance(embeddings, nn.Module) or isinstance(embeddings, nn.Embedding):
            raise EncoderError(f"model type {self.config.model_type!r} has no embedding module to write patches over")
        if getattr(self.config, "embedding_size", self.dim) != self.dim:
            raise EncoderError(f"model type {self.config.model_type!r}: its embeddings are not as wide as its layers")
        capacity = int(self.config.max_position_embeddings)
        if not self._position_table and patches > capacity:
            raise EncoderError(f"{patches} patches are more than the {capacity} positions that the encoder takes")

    def embedding_parameters(self) -> set[str]:
        """The names of the parameters that only tokens reach."""
        inside = {id(parameter) for parameter in self.base.embeddings.parameters()}
        return {name for name, parameter in self.named_parameters() if id(parameter) in inside}

    @in_fp32
    def pool(self, hidden: Tensor, packed: Packed) -> Tensor:
        """One vector a sequence, pooled and through the head, in fp32: hidden (T, h) -> (num_sequences, h)."""
        pooled = self.first_states(hidden, packed) if self.pooling == "cls" else self._mean(hidden, packed)
        for dense in self.head:
            pooled = dense({"sentence_embedding": pooled})["sentence_embedding"]
        return pooled

    @staticmethod
    def _mean(hidden: Tensor, packed: Packed) -> Tensor:
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

    def mlm_head_parameters(self) -> set[str]:
        """The names of the model's parameters outside its base; one tied to the base's is not among them."""
        if self.model is self.base:
            return set()
        prefix = f"{self.model.base_model_prefix}."
        return {name for name, _ in self.model.named_parameters() if not name.startswith(prefix)}

    def checkpoint_activations(self) -> None:
        """Keeps of each layer its input alone for the backward, which computes the layer again, with the same dropout.

        Raises:
            EncoderError: the architecture does not do so.
        """
        if not self.base.supports_gradient_checkpointing:
            raise EncoderError(
                f"model type {self.config.model_type!r} has no activation checkpointing: set "
                "training.activation_checkpointing=false"
            )
        new = getattr(self.base, "activation_checkpointing_enable", None)  # by its older name it warns
        (new or self.base.gradient_checkpointing_enable)({"use_reentrant": False})
        if getattr(self.config, "use_cache", False):  # a decoder's, which transformers would turn off with a warning
            self._options = {"use_cache": False}

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


@torch.inference_mode()
def encode_texts(
    encoder: Encoder, tokenizer: Any, texts: Sequence[str], batch_tokens: int | None = None, quiet: bool = True
) -> np.ndarray:
    """Embeddings as the exported model gives them, of an encoder in training: (len(texts), h) float32.

    Args:
        batch_tokens: of a forward; None: 16,384, or on a CPU 4,096, whose states its caches hold.
        quiet: no bar that shows, on a terminal, how far it is.
    """
    batch_tokens = batch_tokens or (4096 if encoder.base.device.type == "cpu" else 16384)
    what, training = encoder.inference, encoder.training
    texts = [what.prompt + text for text in texts]
    texts = [text.lower() for text in texts] if what.lower_case else texts
    ids = tokenizer(texts, truncation=True, max_length=encoder.max_tokens)["input_ids"] if texts else []
    ids = [row or [tokenizer.pad_token_id or 0] for row in ids]
    out = np.empty((len(ids), encoder.dim), dtype=np.float32)
    encoder.eval()
    batches = list(batches_by_length([len(row) for row in ids], batch_tokens))
    for rows in tqdm(batches, "evaluate", leave=False, unit="batch", disable=True if quiet else None):
        packed = pack_ids([ids[row] for row in rows], encoder.base.device)
        pooled = encoder.pool(encoder(packed), packed)
        out[rows] = (F.normalize(pooled, dim=1) if what.normalize else pooled).cpu().numpy()
    encoder.train(training)
    return out
