"""Token ids of texts, exactly as sentence-transformers gives them to a model: each text is tokenized once.

    prompt + text -> ids (`common.fast_tokenizer`) -> truncated -> special tokens around them -> one flat array

A reader works with the tokenizer object of the loaded model, so its settings apply: lower case, split special tokens,
truncation side, length limit. The special tokens are those of the tokenizer's template. Before the first use, the
result is compared with the library's on awkward texts. Where it differs, or the tokenizer is not made from a
tokenizer.json, the library tokenizes (`is_fast`).
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.modules import Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from clearspan.common.fast_tokenizer import AWKWARD, SAMPLE, FastTokenizer
from clearspan.common.model_folder import check_largest
from clearspan.common.ragged import Ragged, bounds, segments

LONGEST = 1 << 30
"""Number of tokens that no text has: tokenizers without a limit state one that is too large for the library."""
LONG = 2048
"""Number of words of the awkward text that most models truncate."""
TOGETHER = 64
"""Number of texts that the library tokenizes in one call, of similar length since it pads them."""


@dataclass(frozen=True)
class Tokens:
    """Token ids of n texts.

    Attributes:
        ids: the ids of all texts, one text after the other, truncated and with special tokens, (sum of lengths,).
        lengths: number of ids of each text, (n,).
        is_truncated: whether a text is longer than the model reads, (n,).
        prompt_tokens: number of ids at the beginning of each text that are the prompt's, and special tokens before it.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    is_truncated: NDArray[np.bool_]
    prompt_tokens: int = 0

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class _Template:
    """The ids that a tokenizer puts before and after one sequence."""

    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "_Template | None":
        """Return the template of a tokenizer; None if it does not hold the sequence once."""
        if tokenizer.post_processor is None:
            return cls([], [])
        content = Tokenizer(WordLevel({"content": 0}, "content")).encode("content")
        whole = tokenizer.post_processor.process(content, None, True)
        at = [index for index, special in enumerate(whole.special_tokens_mask) if not special]
        return cls(whole.ids[: at[0]], whole.ids[at[0] + 1 :]) if len(at) == 1 else None

    @property
    def size(self) -> int:
        return len(self.before) + len(self.after)


class Reader:
    """Reader of texts for one model. Threads may share it.

    Args:
        transformer: the loaded first module of a sentence-transformers model; its settings may change later.
        name: the model's name, for messages.

    Attributes:
        is_fast: whether texts are tokenized here rather than by the library.
    """

    def __init__(self, transformer: Transformer, name: str) -> None:
        self._transformer, self._name, self._lock = transformer, name, threading.Lock()
        self._rows = int(transformer.model.get_input_embeddings().num_embeddings)
        self._template = _Template.of(self._backend) if transformer.tokenizer.is_fast else None
        self.is_fast = self._template is not None and not transformer.processing_kwargs
        self.is_fast = self.is_fast and self._agrees()

    @property
    def limit(self) -> int:
        """The number of tokens that the model reads of a text, special tokens included; LONGEST for any number."""
        return min(int(self._transformer.max_seq_length), LONGEST)

    def read(self, texts: Sequence[str], prompt: str = "") -> Tokens:
        """Return the ids of texts as the model reads them.

        Args:
            prompt: the text to put before each of them.

        Raises:
            EncoderError: the model has no embedding for an id.
            TokenizerError: the tokenizer cannot encode a text.
        """
        tokens = self._read(texts, prompt) if self.is_fast or not texts else self._by_library(texts, prompt)
        check_largest(self._name, int(tokens.ids.max(initial=0)), self._rows)
        return tokens

    def count(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of ids of each text, without special tokens, however long it is."""
        if self.is_fast or not texts:
            return self._content(texts).lengths.astype(np.int32)
        return self._library_lengths(texts, truncation=False, add_special_tokens=False)

    @property
    def _backend(self) -> Any:
        return self._transformer.tokenizer.backend_tokenizer

    def _read(self, texts: Sequence[str], prompt: str) -> Tokens:
        assert self._template is not None
        content = self._content([prompt + text for text in texts] if prompt else texts)
        room = self.limit - self._template.size
        is_truncated = content.lengths > room
        if is_truncated.any():
            lengths = np.minimum(content.lengths, room)
            is_left = self._transformer.tokenizer.truncation_side == "left"
            starts = content.offsets[1:] - lengths if is_left else content.offsets[:-1]
            content = segments(content.values, starts, lengths)
        whole = _between(content, self._template)
        prompt_tokens = self._prompt_tokens(prompt) if prompt else 0
        return Tokens(whole.values, whole.lengths.astype(np.int32), is_truncated, prompt_tokens)

    def _prompt_tokens(self, prompt: str) -> int:
        """Return the number of ids of a prompt alone, without a special token at its end, as the library does."""
        ids = self._read([prompt], "").ids
        return len(ids) - bool(len(ids) and ids[-1] in self._transformer.tokenizer.all_special_ids)

    def _content(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of texts, without special tokens and truncation."""
        with self._lock:
            self._set_up()
            # A faster way is proven on one of SAMPLE texts, so it does not pay for fewer.
            return self._exact.exact(texts) if len(texts) < SAMPLE else self._quick.proven(texts)

    def _set_up(self) -> None:
        """Undo the settings that the library makes in its tokenizer for each of its own calls."""
        backend = self._backend
        if backend.truncation is not None:
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        if backend.encode_special_tokens != self._transformer.tokenizer.split_special_tokens:
            backend.encode_special_tokens = self._transformer.tokenizer.split_special_tokens

    @functools.cached_property
    def _exact(self) -> FastTokenizer:
        return FastTokenizer(self._backend, np.int32, fast=False)

    @functools.cached_property
    def _quick(self) -> FastTokenizer:
        return FastTokenizer(self._backend, np.int32)

    def _agrees(self) -> bool:
        """Return whether texts are read here as by the library."""
        special = [f"a {token}b" for token in self._transformer.tokenizer.all_special_tokens]
        texts = [*AWKWARD, *special, "an owl " * min(self.limit, LONG)]
        prompt = "Find: "
        return all(_are_equal(self._read(texts, before), self._by_library(texts, before)) for before in ("", prompt))

    def _by_library(self, texts: Sequence[str], prompt: str) -> Tokens:
        """Return what `read` does, from the library's own function."""
        # One more token than the model reads shows that a text is longer.
        whole_texts, longest = [prompt + text for text in texts], self.limit + 1
        lengths = self._library_lengths(whole_texts, truncation=True, max_length=longest)
        order, prompt_tokens, ids = np.argsort(lengths, kind="stable"), 0, [np.empty(0, np.int32)] * len(texts)
        for first in range(0, len(texts), TOGETHER):
            rows = order[first : first + TOGETHER].tolist()
            features = self._transformer.preprocess([texts[row] for row in rows], prompt=prompt or None)
            for row, padded, mask in zip(rows, features["input_ids"], features["attention_mask"], strict=True):
                ids[row] = padded[mask.bool()].numpy().astype(np.int32)
            prompt_tokens = int(features.get("prompt_length") or 0)
        whole = Ragged.of(ids, np.int32)
        return Tokens(whole.values, whole.lengths.astype(np.int32), lengths > self.limit, prompt_tokens)

    def _library_lengths(self, texts: Sequence[str], **options: Any) -> NDArray[np.int32]:
        """Return the number of ids of each text by the library's tokenizer."""
        ids = self._transformer.tokenizer(
            list(texts),
            verbose=False,  # no warning of a text that is longer than the model reads
            return_attention_mask=False,
            return_token_type_ids=False,
            **options,
        )["input_ids"]
        return np.array([len(row) for row in ids], np.int32)


def _between(content: Ragged, template: _Template) -> Ragged:
    """Return lists of ids with the template's ids before and after each."""
    if not template.size:
        return content
    offsets = bounds(content.lengths + template.size)
    values, is_content = np.empty(offsets[-1], np.int32), np.ones(offsets[-1], bool)
    places = [(offsets[:-1] + at, token) for at, token in enumerate(template.before)]
    places += [(offsets[1:] - at, token) for at, token in enumerate(reversed(template.after), 1)]
    for rows, token in places:
        values[rows], is_content[rows] = token, False
    values[is_content] = content.values
    return Ragged(values, offsets)


def _are_equal(one: Tokens, other: Tokens) -> bool:
    arrays = ((one.ids, other.ids), (one.lengths, other.lengths), (one.is_truncated, other.is_truncated))
    return all(np.array_equal(*pair) for pair in arrays) and one.prompt_tokens == other.prompt_tokens
