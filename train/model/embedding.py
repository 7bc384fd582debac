"""Embed texts with an encoder in training, exactly as the exported model would: by `common.encoder.stream`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from clearspan.common.encoder import packed_batches, stream
from clearspan.common.encoder.packing import Packed
from clearspan.common.encoder.tokens import LONGEST, PostProcessing, TokenReader
from clearspan.common.pretrained import max_tokens
from clearspan.common.special_tokens import read_special_as_text, spell_special
from clearspan.train.model.encoder import TrainableEncoder


class EncoderInTraining:
    """Gives an encoder in training the interface of a loaded model, so that `common.encoder.stream` can embed with it.

    Args:
        encoder: the encoder in training.
    """

    def __init__(self, encoder: TrainableEncoder) -> None:
        self._encoder, self.dim = encoder, encoder.dim
        self.device: torch.device = encoder.base.device

    def encode_ids(self, ids: Tensor, lengths: NDArray[np.integer[Any]], prompt_tokens: int = 0) -> Tensor:
        """Return the embeddings of n texts, (n, dim) on the device.

        Args:
            ids: the token ids of all texts, special tokens included, one text after the other, on the device.
            lengths: the number of ids of each text, (n,), on the host.
            prompt_tokens: ignored, because an encoder in training pools the tokens of a prompt too.
        """
        return packed_batches.embed_ids(ids, lengths, self.dim, self._embedded, max_tokens(self._encoder.model))

    def _embedded(self, packed: Packed) -> Tensor:
        pooled = self._encoder.pool(self._encoder(packed), packed)
        return F.normalize(pooled, dim=1) if self._encoder.inference.normalize else pooled


def reader_of(encoder: TrainableEncoder, tokenizer: Any) -> TokenReader:
    """Return a reader that turns texts into the token ids that the exported model would get.

    Args:
        encoder: the encoder in training.
        tokenizer: its tokenizer, of transformers.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    if not spell_special(backend, encoder.inference.prompts.values()):
        read_special_as_text(backend)
    special = encoder.special_tokens(tokenizer)
    limit, is_left = min(encoder.max_tokens, LONGEST), tokenizer.truncation_side == "left"
    post_processing = PostProcessing(special.prefix, special.suffix, limit, is_left, list(tokenizer.all_special_ids))
    return TokenReader(
        backend, post_processing, encoder.base.get_input_embeddings().num_embeddings, "the encoder in training"
    )


def encode_texts(
    encoder: TrainableEncoder,
    tokenizer: Any,
    texts: Sequence[str],
    batch_tokens: int = 16384,
    quiet: bool = True,
    prompt: str | None = None,
) -> NDArray[np.float32]:
    """Return the embeddings of n texts, (n, dim) float32, as the exported model would compute them.

    Args:
        encoder: an encoder in training; dim is the width of its embeddings.
        tokenizer: its tokenizer, of transformers.
        texts: the texts.
        batch_tokens: the maximum number of tokens in a batch; a longer text has a batch of its own.
        quiet: True to show no progress bar, even on a terminal.
        prompt: the text to put before each text; None for the model's default prompt.
    """
    inference, training = encoder.inference, encoder.training
    prompt = inference.sides.other if prompt is None else prompt
    if inference.lower_case:
        prompt, texts = prompt.lower(), [text.lower() for text in texts]
    encoder.eval()
    try:
        reader = reader_of(encoder, tokenizer)
        return stream.embed(reader, EncoderInTraining(encoder), texts, prompt, batch_tokens, not quiet).vectors
    finally:
        encoder.train(training)
