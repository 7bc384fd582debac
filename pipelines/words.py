"""Where words start in a sentence's tokens, from the vocabulary alone: shards hold ids, not texts.

    vocabulary -> each token's first and last character, each of a class -> a word starts where the class changes

A token starts a word where it begins with a space (byte-level BPE, SentencePiece), lacks the mark of a continuation
(WordPiece) or follows the mark of a word's end (BPE with such a suffix), where letters and digits meet other signs, and
after a special token; where the vocabulary is of words (WordLevel), always. "don't" is one word, "film's" two; signs in
a row are one. In scripts written without spaces (Chinese, Japanese, Thai, ...) every token is a word.
"""

import json
import re
import unicodedata

import numpy as np
from tokenizers import Tokenizer

_LETTER, _SIGN, _SPACE, _IDEOGRAPH, _SPECIAL, _INSIDE = range(6)
"""_INSIDE: bytes of a character that an earlier token begins."""
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x31FF),  # Kana, Bopomofo
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_METASPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class WordStarts:
    """A tokenizer's word starts.

    Attributes:
        special: (vocabulary,) bool: the added special tokens, which stand for no text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        size = 1 + max(vocabulary.values(), default=0)
        self.special = np.zeros(size, bool)
        self._begins = np.zeros(size, bool)
        self._continues = np.zeros(size, bool)
        self._first = np.full(size, _LETTER, np.uint8)
        self._last = np.full(size, _LETTER, np.uint8)
        surfaces = _surfaces(tokenizer, vocabulary)
        for token, (surface, continues) in surfaces.items():
            first, last = _ends(surface)
            self._first[token], self._last[token] = first, last
            contracted = surface[:1] == b"'" and surface[1:].isalpha() and surface.lower() != b"'s"
            self._continues[token] = continues or first == _INSIDE or contracted
            self._begins[token] = first in (_SPACE, _IDEOGRAPH) and not self._continues[token]
        if type(tokenizer.model).__name__ in ("WordPiece", "WordLevel"):
            self._begins = ~self._continues
        for token, added in tokenizer.get_added_tokens_decoder().items():
            if added.special:
                self.special[token] = self._begins[token] = True
                self._continues[token] = False
                self._first[token] = self._last[token] = _SPECIAL

    def __call__(self, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Sentences' ids (S,), end to end with bounds (n + 1,) -> (S,) bool, True where a word starts."""
        firsts = offsets[:-1][offsets[:-1] < len(tokens)]
        last = self._last[tokens]
        if (inside := last == _INSIDE).any():
            inside[firsts] = False
            last = last[np.maximum.accumulate(np.where(inside, 0, np.arange(len(last))))]
        last = last[:-1]
        starts = np.ones(len(tokens), bool)
        changes = (self._first[tokens[1:]] != last) & ~self._continues[tokens[1:]]
        starts[1:] = changes | self._begins[tokens[1:]] | (last == _SPECIAL)
        starts[firsts] = True
        return starts


def _surfaces(tokenizer: Tokenizer, vocabulary: dict[str, int]) -> dict[int, tuple[bytes, bool]]:
    """Of each id the bytes of text that it stands for, and whether it is marked as the continuation of a word."""
    record = json.loads(tokenizer.to_str())
    prefix = record["model"].get("continuing_subword_prefix") or ""
    suffix = record["model"].get("end_of_word_suffix") or ""
    byte_level = '"ByteLevel"' in json.dumps([record["pre_tokenizer"], record["decoder"]])
    alphabet = _byte_alphabet() if byte_level else {}
    found = {}
    for text, token in vocabulary.items():
        continues = bool(prefix) and text.startswith(prefix) and len(text) > len(prefix)
        text = text[len(prefix) :] if continues else text
        ends = bool(suffix) and text.endswith(suffix)
        text = text[: -len(suffix)] if ends else text
        if byte_level and all(character in alphabet for character in text):
            surface = bytes(alphabet[character] for character in text)
        elif match := _BYTE.fullmatch(text):
            surface = bytes([int(match[1], 16)])
        else:
            surface = text.replace(_METASPACE, " ").encode("utf-8", "replace")
        found[token] = (surface + b" " * ends, continues)
    return found


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's characters for bytes: printable ones stand for themselves, the others follow from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _ends(surface: bytes) -> tuple[int, int]:
    """The classes of a token's first and last character, of which there may be only some bytes."""
    begins = [place for place, byte in enumerate(surface) if not 0x80 <= byte < 0xC0]
    if not begins:
        return _INSIDE, _INSIDE
    characters = [surface[begin:end] for begin, end in zip(begins, [*begins[1:], len(surface)], strict=True)]
    return _INSIDE if begins[0] else _kind(characters[0]), _kind(characters[-1])


def _kind(data: bytes) -> int:
    """The class of a character's bytes, or of the first of them."""
    try:
        character = data.decode()
    except UnicodeDecodeError:
        # By its first byte: punctuation and symbols, emoji; Kana, Han; all others.
        return _SIGN if data[0] in (0xE2, 0xF0) else _IDEOGRAPH if 0xE3 <= data[0] <= 0xE9 else _LETTER
    if character.isspace():
        return _SPACE
    if any(low <= ord(character) <= high for low, high in _UNSPACED):
        return _IDEOGRAPH
    return _LETTER if unicodedata.category(character)[0] in "LMN" else _SIGN
