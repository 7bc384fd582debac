"""Token ids of texts: those of Hugging Face `tokenizers`, computed by gigatoken where it gives the same.

    tokenizer.json -> FastTokenizer -> quick(texts) or exact(texts) -> ids of each text, without special tokens

`tokenizers` defines the ids and always works. gigatoken (byte-level BPE, SentencePiece BPE) is used if it loads the
tokenizer and agrees on a set of awkward texts. Callers also compare `quick` with `exact` on a sample of their texts.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import gigatoken
import numpy as np
from numpy.typing import DTypeLike, NDArray
from tokenizers import Tokenizer

AWKWARD = (
    "",
    " ",
    "\n",
    "  two  spaces,\ttab\r\nand a line ",
    "don't I'LL we'd 've ''s",
    "1234567890 3.14 ½ ² ١٢٣ Ⅳ",
    "naïve café cafe\u0301 ſ ǅ ß İ \u0345",
    "日本語のテキスト 한국어 ไทย العربية हिन्दी",
    "🙂🙂 👨‍👩‍👧 🏳️‍🌈 \U0010ffff \uffff",
    "a\u00a0b\u2028c\u2029d\u3000e\u200bf\ufeffg\x00h\x1ci\x85j",
    "x" * 3000 + " " * 3000 + "ab" * 2000,
    "<|im_start|>[INST]</s><0x0A>▁▁ Ġ Ċ ##ing",
)


class TokenizerError(ValueError):
    """A tokenizer cannot be read, or cannot encode a text; says why."""


class Ids(NamedTuple):
    """Ids of n texts as one array (S,), and offsets (n + 1,) int64: text i has values[offsets[i] : offsets[i + 1]]."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, lists: Sequence[NDArray[Any]], dtype: DTypeLike) -> "Ids":
        """Concatenate the ids of single texts."""
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, dtype), *lists], dtype=dtype, casting="unsafe"), offsets)

    def lists(self) -> list[NDArray[Any]]:
        """Return the ids of each text."""
        return np.split(self.values, self.offsets[1:-1])


def load(data: bytes, truncates: bool = False) -> Tokenizer:
    """Load a tokenizer without padding and BPE dropout, so that it returns all ids of a text.

    Args:
        truncates: keep the truncation that the file may ask for.

    Raises:
        TokenizerError: the bytes are not a tokenizer.json.
    """
    try:
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # tokenizers raises plain Exception
        raise TokenizerError(f"not a tokenizer.json: {error}") from None
    if not truncates:
        tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    return tokenizer


class FastTokenizer:
    """Ids of texts, exactly those of `Tokenizer.encode(text, add_special_tokens=False)`.

    Args:
        tokenizer: as returned by `load`.
        dtype: type of the ids.
        fast: whether to try gigatoken, which never truncates.

    Attributes:
        is_fast: whether gigatoken computes the ids of `quick`.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: DTypeLike, fast: bool = True) -> None:
        self._tokenizer, self._dtype = tokenizer, np.dtype(dtype)
        self._careful = _careful_tokens(tokenizer)
        self._fast = _fast(tokenizer) if fast and tokenizer.truncation is None else None
        if self._fast is not None and not self._agrees():
            self._fast = None
        self.is_fast = self._fast is not None

    def exact(self, texts: Sequence[str]) -> Ids:
        """Return the ids of each text, by `tokenizers`.

        Raises:
            TokenizerError: the tokenizer cannot encode a text.
        """
        try:
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:  # tokenizers raises plain Exception
            raise TokenizerError(f"the tokenizer cannot encode a text: {error}") from None
        return Ids.of([np.array(encoding.ids, dtype=self._dtype) for encoding in encodings], self._dtype)

    def quick(self, texts: Sequence[str]) -> Ids:
        """Return the ids of each text, by gigatoken if `is_fast`.

        Raises:
            TokenizerError: the tokenizer cannot encode a text.
        """
        if self._fast is None:
            return self.exact(texts)
        parts = [self._fast.encode(text) for text in texts]
        careful = [row for row, text in enumerate(texts) if self._careful.search(text)] if self._careful else []
        if careful:
            for row, part in zip(careful, self.exact([texts[row] for row in careful]).lists(), strict=True):
                parts[row] = part
        return Ids.of(parts, self._dtype)

    def _agrees(self) -> bool:
        added = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()][:256]
        texts = [*AWKWARD, *(text for token in added for text in (token, f"a{token}b", f" a {token} {token}\nb"))]
        return all(map(np.array_equal, self.quick(texts), self.exact(texts)))


def _fast(tokenizer: Tokenizer) -> Any:
    """Return gigatoken's form of a tokenizer, or None if gigatoken does not support it."""
    try:
        return gigatoken.Tokenizer(tokenizer)
    except (RuntimeError, ValueError):
        return None


def _careful_tokens(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Return a pattern of the added tokens that gigatoken 0.10 may match differently; None if there are none.

    gigatoken ignores `single_word`, and matches differently if there is a normalizer or if runs of spaces are added
    tokens. The runs of spaces themselves agree.
    """
    added = list(tokenizer.get_added_tokens_decoder().values())
    words = [token for token in added if not token.content.isspace()]
    if tokenizer.normalizer is None and len(words) == len(added):
        words = [token for token in words if token.single_word]
    return re.compile("|".join(re.escape(token.content) for token in words)) if words else None
