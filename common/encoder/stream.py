"""Embed any number of texts with a model in this process, in windows of texts and batches without padding.

    window of texts, tokenized (`common.encoder.ahead`) -> sorted by length -> batches -> embeddings, in the given order

The last digits of an embedding depend on the other texts in its window, but not on the timing of threads. On CUDA, the
host never waits for a batch: token ids and embeddings are copied by way of pinned memory while the next window is
computed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearspan.common.encoder import ahead
from clearspan.common.encoder.batching import batches_in_order
from clearspan.common.encoder.sentence_encoder import Embedded
from clearspan.common.encoder.tokens import TokenReader, Tokens
from clearspan.common.host_copy import HostCopy
from clearspan.common.progress import ProgressBar
from clearspan.common.ragged import Ragged, bounds


class IdEncoder(Protocol):
    """A model that embeds token ids without padding: a loaded model (`common.encoder.packed`), or one in training."""

    @property
    def dim(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    def encode_ids(self, ids: Tensor, lengths: NDArray[np.int32], prompt_tokens: int = 0) -> Tensor:
        """Return the embeddings of n texts in the given order, (n, dim) float32 on the device.

        Args:
            ids: the token ids of all texts, special tokens included, one text after the other, on the device.
            lengths: the number of ids of each text, (n,), on the host.
            prompt_tokens: the number of ids at the beginning of each text that belong to the prompt or are special
                tokens before it; the pooling of some models leaves them out.
        """


def embed(
    reader: TokenReader, model: IdEncoder, texts: Sequence[str], prompt: str, batch_tokens: int, progress: bool
) -> Embedded:
    """Return the embeddings of texts, in their order, and whether each text was truncated.

    Args:
        reader: the reader that tokenizes texts for the model.
        model: the model that embeds the token ids.
        prompt: the text to put before each text; "" for no prompt.
        batch_tokens: the largest number of tokens in a batch; a longer text has a batch of its own.
        progress: whether to show a progress bar.
    """
    vectors = np.empty((len(texts), model.dim), np.float32)
    row = 0
    with TokenBar(texts, not progress) as bar:

        def started(window: Sequence[str], tokens: Tokens) -> ahead.Running:
            nonlocal row
            bar.count_window(window, tokens)
            rows = slice(row, row + len(tokens))
            row = rows.stop
            return Window(model, tokens, batch_tokens, vectors[rows], bar.update)

        embedded = list(ahead.embed_windows(reader, started, ahead.windows(texts), prompt))
    return Embedded(vectors, np.concatenate([np.empty(0, bool), *(window.truncated for window in embedded)]))


def embed_windows(
    reader: TokenReader,
    model: IdEncoder,
    texts: Iterable[Sequence[str]],
    prompt: str,
    batch_tokens: int,
    guard: ahead.Guard = nullcontext,
) -> Iterator[Embedded]:
    """Yield the embeddings of each window of texts, in order, and whether each text was truncated.

    Args:
        reader: the reader that tokenizes texts for the model.
        model: the model that embeds the token ids.
        texts: the windows, each a list of texts.
        prompt: the text to put before each text; "" for no prompt.
        batch_tokens: the largest number of tokens in a batch; a longer text has a batch of its own.
        guard: function that returns a context manager, e.g. to convert exceptions. It is active while texts are
            tokenized and embedded, and not while a window is taken from `texts`.
    """

    def started(_: Sequence[str], tokens: Tokens) -> ahead.Running:
        return Window(model, tokens, batch_tokens)

    return ahead.embed_windows(reader, started, texts, prompt, guard)


class Window:
    """The computation of the embeddings of a window of n texts, which starts when an instance is created.

    On a CPU, the computation is also complete when the instance has been created.

    Args:
        model: the model that embeds the token ids.
        tokens: the token ids of the texts.
        batch_tokens: the largest number of tokens in a batch; a longer text has a batch of its own.
        vectors: the array to write the embeddings to, (n, dim) float32, where `dim` is their width; None for a new
            array.
        on_done: function that is called after each batch with the batch's number of tokens; None to call nothing.
    """

    def __init__(
        self,
        model: IdEncoder,
        tokens: Tokens,
        batch_tokens: int,
        vectors: NDArray[np.float32] | None = None,
        on_done: Callable[[int], object] | None = None,
    ) -> None:
        vectors = np.empty((len(tokens), model.dim), np.float32) if vectors is None else vectors
        self._embedded = Embedded(vectors, tokens.is_truncated)
        self._order = np.argsort(-tokens.lengths, kind="stable")  # longest first: what needs most memory fails first
        ordered = Ragged(tokens.ids, bounds(tokens.lengths)).take(self._order)
        lengths = tokens.lengths[self._order]
        is_host = model.device.type == "cpu"
        ids = torch.from_numpy(ordered.values)
        if not is_host:
            ids = (ids.pin_memory() if model.device.type == "cuda" else ids).to(model.device, non_blocking=True)
        made = [torch.empty((0, model.dim), device=model.device)]
        with torch.inference_mode():
            for rows in batches_in_order(lengths, batch_tokens):
                first, last = ordered.offsets[rows.start], ordered.offsets[rows.stop]
                batch = model.encode_ids(ids[first:last], lengths[rows], tokens.prompt_tokens)
                if is_host:
                    vectors[self._order[rows]] = batch.numpy()
                else:
                    made.append(batch)
                if on_done is not None:
                    on_done(int(last - first))
            self._copying = None if is_host else HostCopy(torch.cat(made))

    def is_done(self) -> bool:
        """Return whether the embeddings are there, so that `result` would not wait."""
        return self._copying is None or self._copying.is_done()

    def result(self) -> Embedded:
        """Wait for the embeddings, and return them in the order of the texts."""
        if self._copying is not None:
            self._embedded.vectors[self._order] = self._copying.result().numpy()
        return self._embedded


class TokenBar(ProgressBar):
    """Progress bar that counts tokens. Until all texts are tokenized, the total is estimated from their characters.

    Args:
        texts: all texts that will be embedded.
        quiet: whether nothing is shown.
    """

    def __init__(self, texts: Sequence[str], quiet: bool) -> None:
        self._left = 0 if quiet else sum(map(len, texts))
        self._tokens, self._characters = 0, 0
        super().__init__(0, f"embedding {len(texts):,} texts", quiet, unit=" tokens")

    def count_window(self, window: Sequence[str], tokens: Tokens) -> None:
        """Add a window that was tokenized to the counts of tokens and characters, and estimate the total anew.

        Args:
            window: the texts of the window.
            tokens: the token ids of these texts.
        """
        if self.disable:
            return
        characters = sum(map(len, window))
        self._left -= characters
        self._characters += characters
        self._tokens += len(tokens.ids)
        self.total = self._tokens + self._left * self._tokens // max(self._characters, 1)
