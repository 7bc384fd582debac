"""A sentence-transformers model that embeds packed: no padding, the numbers of the library's `encode`.

    SentenceTransformer -> PackedModel.of -> encode_ids: ids (T,), lengths (N,) -> states (T, h) -> pooled -> (N, dim)

The transformer's modules are copied and its weights are shared, so the library's model stays as it is, and the way for
what cannot run packed. `check_packing` compares the two at load.

On a CPU, a batch is cut into smaller ones, sorted by length: the states of a batch stay in a core's cache, texts of one
length share a call of attention, and the number of rows is one of a few, since oneDNN prepares each product of another
size anew.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    Transformer,
    WordWeights,
)
from torch import Tensor, nn
from transformers import PreTrainedModel

from clearspan.common.allocator import keep_blocks, keep_few_kernels
from clearspan.common.encoder import relative
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.autocast import in_fp32
from clearspan.common.encoder.forward import UNLIMITED, check_packing, states
from clearspan.common.encoder.linear import replace_linear
from clearspan.common.encoder.packing import Packed, pack
from clearspan.common.encoder.token_pooling import pooled
from clearspan.common.model_folder import EncoderError
from clearspan.common.pretrained import first_position, max_tokens

CPU_TOKENS = 2048
"""Most tokens of a forward on a CPU, unless one text has more."""
FEW_ROWS, MANY_ROWS = 16, 64
"""On a CPU, the number of rows of a forward is a multiple of the first, and of the second from 8 times of it on."""
AFTER = (Dense, Dropout, LayerNorm, Normalize)
"""Modules after the pooling, which are the library's own."""


class PackedTransformer:
    """The forward of a transformer on packed batches.

    Args:
        model: the model, whose weights are shared.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        tensors = [*model.parameters(), *model.buffers()]
        self.model: Any = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
        self.model.set_attn_implementation(PACKED_ATTENTION)
        replace_linear(self.model)
        self._current, self._first_position = relative.adapt(self.model), first_position(model)

    def __call__(self, packed: Packed) -> Tensor:
        """Return the states of a packed batch, (T, h)."""
        self._current.packed = packed
        return states(self.model, packed, packed.positions[None] + self._first_position)


class PackedModel:
    """A sentence-transformers model, run packed.

    Args:
        model: the library's model; weights are shared.

    Attributes:
        dim: the width of the embeddings.

    Raises:
        EncoderError: it cannot run packed; says why.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        first, *after = model
        _check_transformer(first)
        self._weights = after.pop(0).emb_layer if after and isinstance(after[0], WordWeights) else None
        if not after or not isinstance(after[0], Pooling):
            raise EncoderError(f"{_names(model)} have no Pooling after the Transformer")
        self._pooling, self._after = after[0], after[1:]
        for module in self._after:
            if type(module) not in AFTER or not _takes_embeddings(module):
                raise EncoderError(f"its module {type(module).__name__} is not applied to packed texts")
        transformer = first.model
        if transformer.device.type == "cpu":
            keep_blocks()
            keep_few_kernels()
        self.dim = int(model.truncate_dim or model.get_embedding_dimension())
        self._forward = PackedTransformer(transformer)

        def alone(ids: Tensor) -> Tensor:
            found: Tensor = transformer(input_ids=ids).last_hidden_state
            return found

        check_packing(transformer, self._forward, alone, min(max_tokens(transformer) or UNLIMITED, UNLIMITED))

    @property
    def device(self) -> torch.device:
        device: torch.device = self._forward.model.device
        return device

    @torch.inference_mode()
    def encode_ids(self, ids: Tensor, lengths: NDArray[np.integer[Any]], prompt_tokens: int = 0) -> Tensor:
        """Return the embeddings of n texts, (n, dim) fp32 on the device, in the given order.

        Args:
            ids: the token ids of all texts, special tokens included, one text after the other, on the device.
            lengths: (n,), the number of ids of each text, on the host.
            prompt_tokens: ids at the beginning of each text that a pooling without the prompt leaves out.
        """
        if ids.device.type != "cpu":
            return self._embedded(pack(ids.long(), lengths), prompt_tokens)
        ends = np.cumsum(lengths, dtype=np.int64)
        out = torch.empty((len(lengths), self.dim))
        for rows in small_batches(lengths):
            sizes = lengths[rows]
            starts = np.repeat(ends[rows] - np.cumsum(sizes), sizes)
            filler = -len(starts) % (MANY_ROWS if len(starts) > 8 * MANY_ROWS else FEW_ROWS)
            batch = torch.zeros(len(starts) + filler, dtype=torch.int64)
            batch[: len(starts)] = ids[torch.from_numpy(starts + np.arange(len(starts)))]
            packed = pack(batch, np.append(sizes, filler) if filler else sizes)
            out[torch.from_numpy(rows)] = self._embedded(packed, prompt_tokens)[: len(rows)]
        return out

    def _embedded(self, packed: Packed, prompt_tokens: int) -> Tensor:
        if not len(packed.ids):
            hidden = torch.zeros((1, self._pooling.embedding_dimension), device=packed.ids.device)
        else:
            hidden = self._forward(packed)
        return self._finished(hidden, packed, prompt_tokens)

    @in_fp32
    def _finished(self, hidden: Tensor, packed: Packed, prompt_tokens: int) -> Tensor:
        """Return the embeddings of sequences from their states: (T, h) -> (N, dim)."""
        modes, skipped = self._pooling.pooling_mode, 0 if self._pooling.include_prompt else prompt_tokens
        weights = None if self._weights is None else self._weights(packed.ids)[:, 0].float()
        vectors = [
            pooled(hidden, packed, mode, skipped, weights) for mode in ([modes] if isinstance(modes, str) else modes)
        ]
        features = {"sentence_embedding": torch.cat(vectors, dim=1) if len(vectors) > 1 else vectors[0]}
        for module in self._after:
            features = module(features)
        return features["sentence_embedding"][:, : self.dim]


def small_batches(lengths: NDArray[np.integer[Any]], most: int = CPU_TOKENS) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of texts, shortest first, in batches of at most `most` tokens; a longer one is alone."""
    order = np.argsort(lengths, kind="stable")
    ends, first = np.cumsum(lengths[order], dtype=np.int64), 0
    while first < len(order):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield order[first:last]
        first = last


def _check_transformer(first: Any) -> None:
    """Raise EncoderError if the library's first module does more than to return a transformer's last states."""
    if not isinstance(first, Transformer) or not isinstance(getattr(first, "model", None), PreTrainedModel):
        raise EncoderError(f"its first module is {type(first).__name__}, and no Transformer")
    text = first.modality_config.get("text", {})
    if (text.get("method"), text.get("method_output_name")) != ("forward", "last_hidden_state"):
        raise EncoderError(f"it embeds with the transformer's {text.get('method_output_name')}, not its last states")
    if first.query_expansion is not None:
        raise EncoderError("it expands queries")


def _takes_embeddings(module: nn.Module) -> bool:
    """Return whether a module after the pooling reads and writes embeddings of sentences."""
    names = ("module_input_name", "module_output_name")
    return all(getattr(module, name, "sentence_embedding") == "sentence_embedding" for name in names)


def _names(modules: Sequence[nn.Module]) -> str:
    return ", ".join(type(module).__name__ for module in modules)
