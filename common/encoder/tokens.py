"""Tokenize texts for a model with the model's tokenizer, but without the model.

    prompt + text -> ids (`common.fast_tokenizer`) -> truncation -> special tokens before and after -> one flat array

In a process that has loaded a model, texts are tokenized by a subclass of `TokenReader` (`common.encoder.reading`).
Another process, which needs neither the model nor torch and sentence-transformers, can create a reader that gives the
same ids: `TokenReader.from_description` makes it from the description that `description` returned in the first process.
"""

import dataclasses
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from clearspan.common.fast_tokenizer import SAMPLE, FastTokenizer
from clearspan.common.model_folder import check_largest
from clearspan.common.ragged import Ragged, bounds, segments
from clearspan.common.special_tokens import json_without_hiding, read_special_as_text

LONGEST = 1 << 30
"""A number of tokens that no text has, which stands for no limit. Some tokenizers state an even larger number."""


@dataclass(frozen=True)
class Tokens:
    """Token ids of n texts.

    Attributes:
        ids: the ids of all texts, one text after the other, truncated and with special tokens, (sum of lengths,).
        lengths: the number of ids of each text, (n,).
        is_truncated: whether each text was truncated, because it is longer than the model's limit, (n,).
        prompt_tokens: the number of ids at the beginning of each text that belong to the prompt or are special tokens
            before it.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    is_truncated: NDArray[np.bool_]
    prompt_tokens: int = 0

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class PostProcessing:
    """Rules by which a model's tokenizer truncates the ids of a text and puts special tokens around them.

    Attributes:
        before, after: ids of the special tokens to put before and after a text.
        limit: the most ids that the model reads, including `before` and `after`; 2**30 (LONGEST) if there is no limit.
        keeps_end: whether a text is truncated at its beginning rather than at its end.
        special: the ids of all special tokens of the tokenizer.
    """

    before: list[int]
    after: list[int]
    limit: int
    keeps_end: bool
    special: list[int]

    @property
    def room(self) -> int:
        """The most ids that the model reads of a text, without `before` and `after`."""
        return self.limit - len(self.before) - len(self.after)


class TokenReader:
    """Tokenizes texts for one model. Several threads may use an instance at the same time.

    Args:
        tokenizer: the model's tokenizer, from the library `tokenizers`. Its setting `encode_special_tokens` says
            whether special tokens that a text spells out are read as plain text. None if a subclass tokenizes in
            another way.
        post_processing: the rules for truncation and special tokens; None if a subclass defines the property
            `post_processing`.
        num_embeddings: the number of the model's token embeddings; every id must be below it.
        name: the model's name, for messages.

    Attributes:
        lock: the lock that a thread must hold to use the tokenizer, or to change its settings, since `tokenizers` does
            not allow settings to be changed while the tokenizer is in use.
    """

    def __init__(self, tokenizer: Any, post_processing: PostProcessing | None, num_embeddings: int, name: str) -> None:
        self._tokenizer = tokenizer
        self._post_processing = post_processing
        self._num_embeddings = num_embeddings
        self._name = name
        self.lock = threading.RLock()

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "TokenReader":
        """Create a reader that gives the same ids as another reader, from the result of its method `description`."""
        tokenizer = Tokenizer.from_str(description["tokenizer"])
        if description["special_as_text"]:
            read_special_as_text(tokenizer)
        post_processing = PostProcessing(**description["post_processing"])
        return cls(tokenizer, post_processing, description["num_embeddings"], description["name"])

    def description(self) -> dict[str, Any]:
        """Return a description of this reader that JSON can represent.

        From it, `from_description` creates a reader in another process that gives the same ids.
        """
        return {
            "tokenizer": json_without_hiding(self._tokenizer),
            "special_as_text": self._tokenizer.encode_special_tokens,
            "post_processing": dataclasses.asdict(self.post_processing),
            "num_embeddings": self._num_embeddings,
            "name": self._name,
        }

    @property
    def post_processing(self) -> PostProcessing:
        assert self._post_processing is not None
        return self._post_processing

    @property
    def most_tokens(self) -> int | None:
        """The most ids that the model reads of a text, without special tokens; None if there is no limit."""
        return None if self.post_processing.limit >= LONGEST else self.post_processing.room

    def read(self, texts: Sequence[str], prompt: str = "") -> Tokens:
        """Return the token ids of texts as the model takes them: truncated, and with special tokens.

        Args:
            prompt: the text to put before each text; "" for no prompt.

        Raises:
            EncoderError: the model has no embedding for an id.
            TokenizerError: the tokenizer cannot encode a text.
        """
        tokens = self._read(texts, prompt)
        check_largest(self._name, int(tokens.ids.max(initial=0)), self._num_embeddings)
        return tokens

    def count(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of ids of each of n texts before truncation, not counting special tokens, (n,) int32.

        Raises:
            TokenizerError: the tokenizer cannot encode a text.
        """
        return self._content(texts).lengths.astype(np.int32)

    def _read(self, texts: Sequence[str], prompt: str) -> Tokens:
        rules = self.post_processing
        content = self._content([prompt + text for text in texts] if prompt else texts)
        is_truncated = content.lengths > rules.room
        if is_truncated.any():
            lengths = np.minimum(content.lengths, rules.room)
            starts = content.offsets[1:] - lengths if rules.keeps_end else content.offsets[:-1]
            content = segments(content.values, starts, lengths)
        whole = _between(content, rules.before, rules.after)
        prompt_tokens = self._prompt_tokens(prompt) if prompt else 0
        return Tokens(whole.values, whole.lengths.astype(np.int32), is_truncated, prompt_tokens)

    def _prompt_tokens(self, prompt: str) -> int:
        """Return the number of ids of a prompt by itself and the special tokens before it, none after it."""
        ids = self._read([prompt], "").ids
        ends_special = len(ids) > 0 and ids[-1] in self.post_processing.special
        return len(ids) - 1 if ends_special else len(ids)

    def _content(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of each text before truncation, without special tokens."""
        with self.lock:
            self._set_up()
            # The faster way is checked on one of every SAMPLE texts, so it does not pay off for fewer texts.
            return self._exact.exact(texts) if len(texts) < SAMPLE else self._quick.quick_if_equal(texts)

    def _set_up(self) -> None:
        """Turn off the tokenizer's truncation and padding, which its file or other code may have turned on."""
        if self._tokenizer.truncation is not None:
            self._tokenizer.no_truncation()
        if self._tokenizer.padding is not None:
            self._tokenizer.no_padding()

    @functools.cached_property
    def _exact(self) -> FastTokenizer:
        return FastTokenizer(self._tokenizer, np.int32, fast=False)

    @functools.cached_property
    def _quick(self) -> FastTokenizer:
        return FastTokenizer(self._tokenizer, np.int32)


def _between(content: Ragged, prefix: list[int], suffix: list[int]) -> Ragged:
    """Return the lists of `content`, each with the ids `prefix` prepended and the ids `suffix` appended."""
    if not prefix and not suffix:
        return content
    offsets = bounds(content.lengths + len(prefix) + len(suffix))
    values = np.empty(offsets[-1], np.int32)
    is_content = np.ones(offsets[-1], bool)
    places = [(offsets[:-1] + at, token) for at, token in enumerate(prefix)]
    places += [(offsets[1:] - at, token) for at, token in enumerate(reversed(suffix), 1)]
    for rows, token in places:
        values[rows] = token
        is_content[rows] = False
    values[is_content] = content.values
    return Ragged(values, offsets)
