"""Tokenize texts with the same ids as Hugging Face `tokenizers`, by a faster method if there is one.

    tokenizer.json -> FastTokenizer -> quick(texts) or exact(texts) -> ids of each text, without special tokens

`exact` calls `tokenizers`, which defines the ids. `quick` uses a faster method: gigatoken for byte-level BPE and
SentencePiece BPE, or `WordTokens` for the tokenizers of BERT, XLM-R and T5. The tokenizers of these three models split
a text at every space, so that each distinct word needs to be tokenized only once. A faster method is used only if it
gives the same ids as `tokenizers` for a set of texts that are difficult to tokenize. Callers also compare `quick` with
`exact` on a sample of their texts, or call `quick_if_equal`, which does so.

A faster method reads all texts in a few calls that release Python's lock, so that another thread, which starts the work
of a GPU, is not held up (`benchmarks.encode_host`).

A special token that is spelled out in a text, such as `</s>` or `[MASK]`, is read as plain text and split into
subwords, as with `split_special_tokens=True` in transformers. An added token that is not special keeps its own id.
"""

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any
from unicodedata import is_normalized, normalize

import gigatoken
import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import DTypeLike
from tokenizers import AddedToken, Tokenizer, normalizers
from tokenizers.pre_tokenizers import BertPreTokenizer, PreTokenizer, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from clearspan.common.ragged import Ragged, bounds
from clearspan.common.special_tokens import read_special_as_text, spell_special

MAX_IDS, MAX_CHARACTERS = 1 << 20, 1 << 24
"""Limits on the number of ids, and on the number of characters in words, that `WordTokens` remembers. Characters are
limited too, since a word of any length, such as an image in base64, may have a single id.
"""
TOGETHER = 256
"""Number of words that are tokenized as one text, to save the overhead per text."""
SAMPLE, SAMPLE_CHARACTERS = 64, 4096
"""`quick_if_equal` checks one of every SAMPLE texts, up to SAMPLE_CHARACTERS characters of it."""
BY_WORD = (
    *(normalizers.BertNormalizer, normalizers.Lowercase, normalizers.StripAccents, normalizers.Precompiled),
    *(normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD),
)
"""Normalizers for which it makes no difference whether a text is normalized as a whole or word by word."""
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
    """A tokenizer cannot be read, or cannot encode a text. The message says why."""


def parse(data: bytes) -> Tokenizer:
    """Create the tokenizer that the content of a tokenizer.json describes, with all its settings.

    Raises:
        TokenizerError: the bytes are not a tokenizer.json.
    """
    try:
        return Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # tokenizers raises plain Exception
        raise TokenizerError(f"not a tokenizer.json: {error}") from None


def load_tokenizer(data: bytes, truncates: bool = False, prompts: Iterable[str] = ()) -> Tokenizer:
    """Create a tokenizer from the content of a tokenizer.json, without padding and BPE dropout.

    Args:
        truncates: whether the tokenizer truncates texts if the file says so; if False, it never does.
        prompts: the model's prompts. If a prompt spells out a special token, the tokenizer recognizes special tokens in
            texts; otherwise it reads them as plain text.

    Raises:
        TokenizerError: the bytes are not a tokenizer.json.
    """
    tokenizer = parse(data)
    if not truncates:
        tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    if not spell_special(tokenizer, prompts):
        read_special_as_text(tokenizer)
    return tokenizer


class FastTokenizer:
    """Tokenizer whose ids equal `Tokenizer.encode(text, add_special_tokens=False)`.

    Args:
        tokenizer: a tokenizer from `load_tokenizer`. Its setting `encode_special_tokens` says whether special tokens
            that a text spells out are read as plain text.
        dtype: the type of the ids.
        fast: whether `quick` may use a faster method than `exact`. There is no faster method for a tokenizer that
            truncates.

    Attributes:
        is_fast: whether `quick` uses a faster method than `exact`.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: DTypeLike, fast: bool = True) -> None:
        self._tokenizer, self._dtype = tokenizer, np.dtype(dtype)
        self._careful = _careful_tokens(tokenizer)
        self._fast = _fast(tokenizer) if fast and tokenizer.truncation is None else None
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:256]
        texts = [text for token in added for text in (token, f"a{token}b", f" a {token} {token}\nb")]
        if self._fast is not None and not self.agrees([*AWKWARD, *texts]):
            self._fast = None
        self.is_fast = self._fast is not None

    def exact(self, texts: Sequence[str]) -> Ragged:
        """Tokenize texts with `tokenizers`, and return the ids of each text.

        Raises:
            TokenizerError: the tokenizer cannot encode a text.
        """
        with _encoding():
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return Ragged.of([np.array(encoding.ids, dtype=self._dtype) for encoding in encodings], self._dtype)

    def quick(self, texts: Sequence[str]) -> Ragged:
        """Tokenize texts, by the faster method if `is_fast`, and return the ids of each text.

        Raises:
            TokenizerError: the tokenizer cannot encode a text.
        """
        if self._fast is None:
            return self.exact(texts)
        with _encoding():
            ids = self._fast(texts)
        careful = [row for row, text in enumerate(texts) if _is_found(self._careful, text)] if self._careful else []
        if not careful:
            return Ragged(ids.values.astype(self._dtype, copy=False), ids.offsets)
        parts = list(ids)
        for row, part in zip(careful, self.exact([texts[row] for row in careful]), strict=True):
            parts[row] = part
        return Ragged.of(parts, self._dtype)

    def quick_if_equal(self, texts: Sequence[str]) -> Ragged:
        """Tokenize texts, by the faster method if its ids are correct for a sample of the texts, otherwise by `exact`.

        Raises:
            TokenizerError: the tokenizer cannot encode a text.
        """
        is_proven = self.is_fast and self.agrees([text[:SAMPLE_CHARACTERS] for text in texts[::SAMPLE]])
        return self.quick(texts) if is_proven else self.exact(texts)

    def agrees(self, texts: Sequence[str]) -> bool:
        """Return whether `quick` and `exact` give equal ids for these texts; False if either cannot encode them."""
        try:
            quick, exact = self.quick(texts), self.exact(texts)
        except TokenizerError:
            return False
        return np.array_equal(quick.values, exact.values) and np.array_equal(quick.offsets, exact.offsets)


@contextlib.contextmanager
def _encoding() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # tokenizers raises plain Exception
        raise TokenizerError(f"the tokenizer cannot encode a text: {error}") from None


class WordTokens:
    """Tokenizer that remembers the ids of each word. Several threads may use an instance at the same time.

    Args:
        tokenizer: a tokenizer for which the ids of a text are the ids of its words, one word after the other.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._lock = tokenizer, threading.Lock()
        self._forget()

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """Return the token ids of each text, without special tokens."""
        with self._lock:
            return self._ids(texts)

    def _ids(self, texts: Sequence[str]) -> Ragged:
        if len(self._words.values) > MAX_IDS or self._characters > MAX_CHARACTERS:
            self._forget()
        if others := [type(text).__name__ for text in texts if not isinstance(text, str)]:
            raise TypeError(f"{others[0]} is no text")
        import pyarrow.compute as pc  # here, as it would take a tenth of the time of --help

        column = pc.replace_substring(pa.array(texts, pa.large_string()), "\n", " ")
        rows = pc.split_pattern(column, " ")
        words = rows.values.dictionary_encode()
        distinct = words.dictionary.to_pylist()
        self._add([word for word in distinct if word not in self._numbers])
        numbers = np.fromiter(map(self._numbers.__getitem__, distinct), np.int64, len(distinct))
        ids = self._words.take(numbers[words.indices.to_numpy()])
        return Ragged(ids.values, ids.offsets[rows.offsets.to_numpy()])

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words = Ragged.of([], np.int64)
        self._characters = 0

    def _add(self, words: list[str]) -> None:
        groups = [words[first : first + TOGETHER] for first in range(0, len(words), TOGETHER)]
        encodings = self._tokenizer.encode_batch(groups, is_pretokenized=True, add_special_tokens=False)
        lengths = [
            np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(group))
            for group, encoding in zip(groups, encodings, strict=True)
        ]
        ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
        self._numbers.update(zip(words, count(len(self._numbers)), strict=False))
        self._characters += sum(map(len, words))
        new = Ragged(Ragged.of(ids, np.int64).values, bounds(Ragged.of(lengths, np.int64).values))
        self._words = Ragged.concatenate([self._words, new])


def _fast(tokenizer: Tokenizer) -> Callable[[Sequence[str]], Ragged] | None:
    """Return a function that tokenizes texts faster than `tokenizers` does; None if this tokenizer has none."""
    if _splits_at_spaces(tokenizer.pre_tokenizer):
        added = [token.content for token in _matched(tokenizer)]
        is_by_word = all(isinstance(step, BY_WORD) for step in _steps(tokenizer.normalizer, normalizers.Sequence))
        return WordTokens(tokenizer) if is_by_word and not any(set(" \n") & set(token) for token in added) else None
    record = orjson.loads(tokenizer.to_str())
    if tokenizer.encode_special_tokens:  # gigatoken lacks this setting, so special tokens are removed
        record["added_tokens"] = [token for token in record["added_tokens"] if not token["special"]]
    try:
        quick = gigatoken.Tokenizer.from_json(orjson.dumps(record))
    except (RuntimeError, ValueError):
        return None
    return functools.partial(_together, quick)


def _together(tokenizer: gigatoken.Tokenizer, texts: Sequence[str]) -> Ragged:
    """Tokenize all texts in one call; return the ids of each text."""
    ids = tokenizer.encode_batch(list(texts), parallel=False).layout
    return Ragged(ids.content.data, ids.offsets.data)


def _splits_at_spaces(pre_tokenizer: PreTokenizer | None) -> bool:
    """Return whether a pre-tokenizer's first step splits a text at every space."""
    first = _steps(pre_tokenizer, PreTokenizers)[:1]
    return any(isinstance(step, (BertPreTokenizer, WhitespaceSplit)) for step in first)


def _steps(part: Any, sequence: Any) -> list[Any]:
    """Return the steps of a normalizer or pre-tokenizer in order: of a sequence of this class, one step, or None."""
    return list(part) if isinstance(part, sequence) else [] if part is None else [part]


def _matched(tokenizer: Tokenizer) -> list[AddedToken]:
    """Return the added tokens that the tokenizer recognizes when a text spells them out."""
    added = tokenizer.get_added_tokens_decoder().values()
    return [token for token in added if not (token.special and tokenizer.encode_special_tokens)]


def _careful_tokens(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Return a pattern for the added tokens that gigatoken 0.10 may match wrongly in a text; None if there are none.

    A text in which the pattern is found must be tokenized by `tokenizers` itself. A normalizer, or an added token that
    is white space, can make gigatoken match the other added tokens wrongly. If the tokenizer has either, the pattern is
    for all added tokens but those that are white space. Otherwise it is only for added tokens with the setting
    `single_word`, which gigatoken ignores. A token is looked for as it is spelled and in NFC, the only Unicode form
    that gigatoken can produce.
    """
    added = _matched(tokenizer)
    words = [token for token in added if not token.content.isspace()]
    if tokenizer.normalizer is None and len(words) == len(added):
        words = [token for token in words if token.single_word]
    forms = dict.fromkeys(form for token in words for form in (token.content, normalize("NFC", token.content)))
    return re.compile("|".join(map(re.escape, forms))) if words else None


def _is_found(tokens: re.Pattern[str], text: str) -> bool:
    """Return whether the pattern of careful tokens is found in a text, as it is spelled or in NFC."""
    return bool(tokens.search(text) or (not is_normalized("NFC", text) and tokens.search(normalize("NFC", text))))
