"""Tokenize texts exactly as sentence-transformers does for a loaded model, but faster.

A reader uses the model's own tokenizer object, so its settings apply: lower case, split special tokens, truncation
side, length limit. The tokenizer's template defines the special tokens around a text. Before the first use, the
reader's ids of some texts that are difficult to tokenize are compared with the library's ids. If they differ, or if the
tokenizer is not made from a tokenizer.json, the library tokenizes all texts (`is_fast` is false).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.modules import Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from clearspan.common.encoder.tokens import LONGEST, PostProcessing, TokenReader, Tokens
from clearspan.common.fast_tokenizer import AWKWARD
from clearspan.common.ragged import Ragged

LONG = 2048
"""Number of words of the awkward text that most models truncate."""
TOGETHER = 64
"""Number of texts that the library tokenizes in one call, of similar length since it pads them."""


class LibraryReader(TokenReader):
    """Tokenizes texts for a model that sentence-transformers has loaded. Several threads may use it at the same time.

    Args:
        transformer: the first module of the loaded model. If its settings change later, the changes apply.
        name: the model's name, for messages.

    Attributes:
        is_fast: whether texts are tokenized by this class rather than by sentence-transformers.
    """

    def __init__(self, transformer: Transformer, name: str) -> None:
        has_backend = bool(transformer.tokenizer.is_fast)
        rows = int(transformer.model.get_input_embeddings().num_embeddings)
        super().__init__(transformer.tokenizer.backend_tokenizer if has_backend else None, None, rows, name)
        self._transformer = transformer
        self._around = _around(self._tokenizer) if has_backend else None
        self.is_fast = self._around is not None and not transformer.processing_kwargs
        if self.is_fast:  # set before, as `_gives_equal_ids` reads prompts the faster way
            self.is_fast = self._gives_equal_ids()

    @property
    def limit(self) -> int:
        """The most tokens that the model reads of a text, special tokens included; 2**30 if there is no limit."""
        return min(int(self._transformer.max_seq_length), LONGEST)

    @property
    def post_processing(self) -> PostProcessing:
        assert self._around is not None
        tokenizer = self._transformer.tokenizer
        is_left = tokenizer.truncation_side == "left"
        return PostProcessing(*self._around, self.limit, is_left, [*tokenizer.all_special_ids])

    @property
    def most_tokens(self) -> int | None:
        if self.limit >= LONGEST:
            return None
        return self.limit - int(self._transformer.tokenizer.num_special_tokens_to_add())

    def count(self, texts: Sequence[str]) -> NDArray[np.int32]:
        if self.is_fast:
            return super().count(texts)
        with self.lock:
            return self._library_lengths(texts, truncation=False, add_special_tokens=False)

    def _read(self, texts: Sequence[str], prompt: str) -> Tokens:
        if self.is_fast:
            return super()._read(texts, prompt)
        with self.lock:
            return self._by_library(texts, prompt)

    def _set_up(self) -> None:
        """Restore the settings of the tokenizer, which transformers changes each time that it tokenizes texts."""
        super()._set_up()
        if self._tokenizer.encode_special_tokens != self._transformer.tokenizer.split_special_tokens:
            self._tokenizer.encode_special_tokens = self._transformer.tokenizer.split_special_tokens

    def _gives_equal_ids(self) -> bool:
        """Return whether this reader and sentence-transformers give equal ids for texts that are hard to tokenize."""
        special = [f"a {token}b" for token in self._transformer.tokenizer.all_special_tokens]
        texts = [*AWKWARD, *special, "an owl " * min(self.limit, LONG)]
        try:
            return all(
                _are_equal(TokenReader._read(self, texts, prompt), self._by_library(texts, prompt))
                for prompt in ("", "Find: ")
            )
        except Exception:  # `tokenizers` raises any type, e.g. if the vocabulary lacks a character of these texts
            return False

    def _by_library(self, texts: Sequence[str], prompt: str) -> Tokens:
        """Let sentence-transformers tokenize each text with the prompt before it, truncated as in its `encode`."""
        # One more token than the model reads shows that a text is longer.
        whole_texts = [prompt + text for text in texts]
        longest = self.limit + 1
        lengths = self._library_lengths(whole_texts, truncation=True, max_length=longest)
        order = np.argsort(lengths, kind="stable")
        prompt_tokens = 0
        ids = [np.empty(0, np.int32)] * len(texts)
        for first in range(0, len(texts), TOGETHER):
            rows = order[first : first + TOGETHER].tolist()
            features = self._transformer.preprocess([texts[row] for row in rows], prompt=prompt or None)
            for row, padded, mask in zip(rows, features["input_ids"], features["attention_mask"], strict=True):
                ids[row] = padded[mask.bool()].numpy().astype(np.int32)
            prompt_tokens = int(features.get("prompt_length") or 0)
        whole = Ragged.of(ids, np.int32)
        return Tokens(whole.values, whole.lengths.astype(np.int32), lengths > self.limit, prompt_tokens)

    def _library_lengths(self, texts: Sequence[str], **options: Any) -> NDArray[np.int32]:
        """Return the number of ids that transformers' tokenizer gives each text, (len(texts),).

        Args:
            options: arguments of the tokenizer, such as `truncation`. By default, special tokens are counted, and texts
                are not truncated.
        """
        if not texts:  # the tokenizer refuses an empty list
            return np.empty(0, np.int32)
        ids = self._transformer.tokenizer(
            list(texts),
            verbose=False,  # no warning of a text that is longer than the model reads
            return_attention_mask=False,
            return_token_type_ids=False,
            **options,
        )["input_ids"]
        return np.array([len(row) for row in ids], np.int32)


def _around(tokenizer: Tokenizer) -> tuple[list[int], list[int]] | None:
    """Return the ids that a template puts before and after a text ([] if none); None if the text is not in it once."""
    if tokenizer.post_processor is None:
        return [], []
    content = Tokenizer(WordLevel({"content": 0}, "content")).encode("content")
    whole = tokenizer.post_processor.process(content, None, True)
    at = [index for index, special in enumerate(whole.special_tokens_mask) if not special]
    return (whole.ids[: at[0]], whole.ids[at[0] + 1 :]) if len(at) == 1 else None


def _are_equal(one: Tokens, other: Tokens) -> bool:
    arrays = ((one.ids, other.ids), (one.lengths, other.lengths), (one.is_truncated, other.is_truncated))
    return all(np.array_equal(*pair) for pair in arrays) and one.prompt_tokens == other.prompt_tokens
