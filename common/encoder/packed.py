"""Run a sentence-transformers model on packed batches, without padding, with the same embeddings as its `encode`.

    SentenceTransformer -> PackedModel
    encode_ids: T token ids of N texts -> states (T, h) -> pooling and later modules -> embeddings (N, dim)

The hidden states have h values, the embeddings have dim. The transformer's modules are copied and its weights are
shared, so the SentenceTransformer itself still works. When a model is loaded, `check_packing` compares the states of
the SentenceTransformer and the packed model.
"""

from collections.abc import Sequence
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
from clearspan.common.encoder import packed_batches, relative
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.autocast import in_fp32
from clearspan.common.encoder.forward import UNLIMITED, check_packing, output, with_shared_weights
from clearspan.common.encoder.library_pooling import FirstLast
from clearspan.common.encoder.linear import replace_linear
from clearspan.common.encoder.packed_pooling import first as first_states
from clearspan.common.encoder.packed_pooling import pooled
from clearspan.common.encoder.packing import Packed
from clearspan.common.model_folder import EncoderError
from clearspan.common.pretrained import first_position, max_tokens, quiet_transformers

LAST_STATES, HEAD_OUTPUT = "last_hidden_state", "pooler_output"
HEADS = ("BertPooler", "MPNetPooler", "RobertaPooler", "XLMRobertaPooler")
"""Classes of heads that compute an embedding from the state of the first token of each sequence."""
DEVICES = ("cpu", "cuda")
AFTER = (Dense, Dropout, LayerNorm, Normalize)
"""Classes of modules that may follow the pooling; the library's own code runs them."""


class PackedTransformer:
    """A transformer that runs on packed batches, without padding.

    Args:
        model: the transformer; its modules are copied, and its weights are shared.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model: Any = with_shared_weights(model).eval()
        with quiet_transformers():  # MPNet, which ignores it, warns
            self.model.set_attn_implementation(PACKED_ATTENTION)
        replace_linear(self.model)
        self._current = relative.adapt(self.model)
        self._first_position = first_position(model)

    def __call__(self, packed: Packed) -> Tensor:
        """Return the last layer's hidden states, of width h, for the T tokens of a packed batch, (T, h)."""
        hidden: Tensor = self.output(packed).last_hidden_state[0]
        return hidden

    def output(self, packed: Packed) -> Any:
        """Return transformers' output object for a packed batch, with all its tensors, such as `last_hidden_state`."""
        self._current.packed = packed
        return output(self.model, packed, packed.positions[None] + self._first_position)

    def first_and_last(self, packed: Packed) -> Tensor:
        """Return the mean of the hidden states after the first and the last layer, for each token of a packed batch.

        The result is (T, h) fp32, for T tokens and states of width h.
        """
        layers = self.output(packed).hidden_states
        mean: Tensor = (layers[1][0].float() + layers[-1][0].float()) / 2
        return mean

    def through_head(self, hidden: Tensor, packed: Packed) -> Tensor:
        """Return the output of the transformer's head (its `pooler`) for the first token of each sequence.

        The result is (N, h) fp32, for N sequences and states of width h.

        Args:
            hidden: the hidden states of the T tokens of the batch, (T, h).
            packed: the batch.
        """
        head = self.model.pooler
        vectors: Tensor = head(first_states(hidden, packed)[:, None].to(hidden.dtype))
        return vectors.float()


class PackedModel:
    """A sentence-transformers model that embeds packed batches.

    Args:
        model: the model, as sentence-transformers has loaded it; its weights are shared.

    Attributes:
        dim: the width of the embeddings.

    Raises:
        EncoderError: the model does not support packed batches; the message says why.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        first, *after = list(model)
        transformer, output_name = _checked_transformer(first)
        self.dim = int(model.get_embedding_dimension() or 0)
        self._weights = after.pop(0).emb_layer if after and isinstance(after[0], WordWeights) else None
        self._pooling: Pooling | FirstLast | None = None  # the transformer's head pools
        if output_name == LAST_STATES:
            if not after or not isinstance(after[0], (Pooling, FirstLast)):
                raise EncoderError(f"{_names(model)} have no Pooling after the Transformer")
            self._pooling = after.pop(0)
        self._after = after
        for module in after:
            if type(module) not in AFTER or not _takes_embeddings(module):
                raise EncoderError(f"its module {type(module).__name__} is not applied to packed texts")
        if transformer.device.type not in DEVICES:
            raise EncoderError(f"packed texts are embedded on {' and '.join(DEVICES)}, not on {transformer.device}")
        if transformer.device.type == "cpu":
            keep_blocks()
            keep_few_kernels()
        self._forward = PackedTransformer(transformer)

        def alone(ids: Tensor) -> Tensor:
            hidden: Tensor = transformer(input_ids=ids).last_hidden_state
            return hidden

        self._max_tokens = max_tokens(transformer)
        check_packing(transformer, self._forward, alone, self._max_tokens or UNLIMITED)

    @property
    def device(self) -> torch.device:
        device: torch.device = self._forward.model.device
        return device

    @torch.inference_mode()
    def encode_ids(self, ids: Tensor, lengths: NDArray[np.integer[Any]], prompt_tokens: int = 0) -> Tensor:
        """Return the embeddings of n texts, (n, dim) fp32 on the device, in the given order.

        Args:
            ids: the token ids of all texts, special tokens included, one text after the other, (sum of lengths,), on
                the device.
            lengths: the number of ids of each text, (n,), on the host.
            prompt_tokens: the number of ids at the beginning of each text that belong to the prompt or are special
                tokens before it; the pooling of some models leaves them out.
        """
        return packed_batches.embed_ids(
            ids, lengths, self.dim, lambda batch: self._embedded(batch, prompt_tokens), self._max_tokens
        )

    def _embedded(self, packed: Packed, prompt_tokens: int) -> Tensor:
        is_both = isinstance(self._pooling, FirstLast)
        hidden = self._forward.first_and_last(packed) if is_both else self._forward(packed)
        return self._finished(hidden, packed, prompt_tokens)

    @in_fp32
    def _finished(self, hidden: Tensor, packed: Packed, prompt_tokens: int) -> Tensor:
        """Pool the states of N sequences and run the modules after the pooling; return the embeddings, (N, dim) fp32.

        Args:
            hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
            packed: the batch.
            prompt_tokens: the number of tokens at the beginning of each sequence that belong to the prompt or are
                special tokens before it; the pooling of some models leaves them out.
        """
        features = {"sentence_embedding": self._pooled(hidden, packed, prompt_tokens)}
        for module in self._after:
            features = module(features)
        return features["sentence_embedding"][:, : self.dim]

    def _pooled(self, hidden: Tensor, packed: Packed, prompt_tokens: int) -> Tensor:
        if self._pooling is None:
            return self._forward.through_head(hidden, packed)
        if isinstance(self._pooling, FirstLast):
            return pooled(hidden, packed, "mean")
        mode = self._pooling.pooling_mode
        modes = (mode,) if isinstance(mode, str) else mode
        skipped = 0 if self._pooling.include_prompt else prompt_tokens
        weights = None if self._weights is None else self._weights(packed.ids)[:, 0].float()
        return torch.cat([pooled(hidden, packed, mode, skipped, weights) for mode in modes], dim=1)


def _checked_transformer(first: Any) -> tuple[Any, str]:
    """Return the transformer in the first module of a model, and the name of the output that embeddings are made from.

    The output is `last_hidden_state`, the states of the last layer, or `pooler_output`, the output of a head in HEADS,
    such as BERT's pooler.

    Raises:
        EncoderError: the module is not sentence-transformers' `Transformer`, makes embeddings from another output, or
            appends tokens to queries (`query_expansion`).
    """
    if not isinstance(first, Transformer) or not isinstance(getattr(first, "model", None), PreTrainedModel):
        raise EncoderError(f"its first module is {type(first).__name__}, and no Transformer")
    text = first.modality_config.get("text", {})
    name = text.get("method_output_name")
    has_head = type(getattr(first.model, "pooler", None)).__name__ in HEADS
    if text.get("method") != "forward" or name not in ((LAST_STATES, HEAD_OUTPUT) if has_head else (LAST_STATES,)):
        raise EncoderError(f"it embeds with the transformer's {name}, which packed texts do not have")
    if first.query_expansion is not None:
        raise EncoderError("the model expands queries")
    return first.model, str(name)


def _takes_embeddings(module: nn.Module) -> bool:
    """Return whether a module after the pooling has `sentence_embedding` as its only input and output."""
    names = ("module_input_name", "module_output_name")
    return all(getattr(module, name, "sentence_embedding") == "sentence_embedding" for name in names)


def _names(modules: Sequence[nn.Module]) -> str:
    return ", ".join(type(module).__name__ for module in modules)
