"""Find word boundaries in token ids. Only the tokenizer's vocabulary is needed, not the texts, which shards do not
hold.

    vocabulary -> class of each token's first and last character -> a word starts where the class changes

The class of a character is letter, sign, space, and so on. Digits are of the class letter; signs are punctuation and
symbols.

A token starts a word if it begins with a space (byte-level BPE, SentencePiece), lacks the continuation mark
(WordPiece), or follows an end-of-word mark (BPE with such a suffix) or a special token. A word also starts where
letters are followed by signs, or signs by letters; consecutive signs are one word. In a vocabulary of words
(WordLevel), every token starts a word. A token that is only a space belongs to the next token, and the unknown token
counts as letters. "don't" is one word and "film's" is two, with a straight or a curly apostrophe. In scripts without
spaces between words (`common.scripts`) each token is a word.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from clearspan.common.scripts import is_unspaced

VERSION = 2
"""Version of the rules for where words start, increased whenever they change. It is a part of the fingerprint of
datasets with views.
"""
_LETTER, _SIGN, _SPACE, _IDEOGRAPH, _SPECIAL, _INSIDE = range(6)
"""Classes of characters. _INSIDE is for bytes that continue a character of an earlier token."""
_METASPACE = "\u2581"
_APOSTROPHE, _APOSTROPHE_HEAD, _APOSTROPHE_TAIL, _CONTRACTED, _S = range(1, 6)
"""Roles of tokens in a contraction (don't). Byte-level BPE mostly splits the typographic apostrophe into two tokens."""
_ROLES = {b"'": _APOSTROPHE, "’".encode(): _APOSTROPHE, b"\xe2\x80": _APOSTROPHE_HEAD, b"\x99": _APOSTROPHE_TAIL}
_ROLES |= dict.fromkeys((b"t", b"re", b"ve", b"ll", b"m", b"d"), _CONTRACTED) | {b"s": _S}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class WordStarts:
    """Callable that finds the tokens that start a word, for one tokenizer.

    Attributes:
        special: for each token id, true if it is a special token, (vocabulary,) bool. It is false for the unknown
            token, because that stands for text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        size = 1 + max(vocabulary.values(), default=0)
        self.special = np.zeros(size, bool)
        self._begins = np.zeros(size, bool)
        self._continues = np.zeros(size, bool)
        self._first = np.full(size, _LETTER, np.uint8)
        self._last = np.full(size, _LETTER, np.uint8)
        self._is_space = np.zeros(size, bool)
        self._role = np.zeros(size, np.uint8)
        for token, surface, continues, ends in _surfaces(tokenizer, vocabulary):
            first, last = _end_classes(surface + b" " * ends)
            self._first[token], self._last[token] = first, last
            sign, ending = (surface[:1], surface[1:]) if surface[:1] == b"'" else (surface[:3], surface[3:])
            contracted = _ROLES.get(sign) == _APOSTROPHE and ending.isalpha() and ending.lower() != b"s"
            self._continues[token] = continues or first == _INSIDE or contracted
            self._begins[token] = first in (_SPACE, _IDEOGRAPH) and not self._continues[token]
            self._is_space[token] = surface.isspace()
            self._role[token] = 0 if continues else _ROLES.get(surface.lower(), 0)
        unknown = unknown_id(tokenizer)
        if unknown is not None:
            self._first[unknown] = self._last[unknown] = _LETTER
        if type(tokenizer.model).__name__ in ("WordPiece", "WordLevel"):
            self._begins = ~self._continues
        for token, added in tokenizer.get_added_tokens_decoder().items():
            if added.special and token != unknown:
                self.special[token] = self._begins[token] = True
                self._continues[token] = self._is_space[token] = False
                self._first[token] = self._last[token] = _SPECIAL
                self._role[token] = 0

    def __call__(self, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return a mask of S tokens: true for each token that starts a word, (S,) bool.

        Args:
            tokens: the token ids of n sentences, one sentence after the other, (S,).
            offsets: the bounds of the sentences, (n + 1,): sentence i is tokens[offsets[i]:offsets[i + 1]].
        """
        firsts = offsets[:-1][offsets[:-1] < len(tokens)]
        first, last = self._first[tokens], self._last[tokens]
        if (inside := last == _INSIDE).any():
            inside[firsts] = False
            last = last[np.maximum.accumulate(np.where(inside, 0, np.arange(len(last))))]
        starts = np.ones(len(tokens), bool)
        changes = (first[1:] != last[:-1]) & ~self._continues[tokens[1:]]
        starts[1:] = changes | self._begins[tokens[1:]] | (last[:-1] == _SPECIAL)
        (spaces,) = np.nonzero(self._is_space[tokens[:-1]])
        spaces = spaces[(first[spaces + 1] != _SPACE) & (first[spaces + 1] != _SPECIAL)]
        starts[spaces + 1] = False
        starts[firsts] = True
        self._join_contractions(tokens, starts, firsts, last)
        return starts

    def _join_contractions(self, tokens: np.ndarray, starts: np.ndarray, firsts: np.ndarray, last: np.ndarray) -> None:
        """Correct `starts` in place where a contraction has an apostrophe.

        In "don't", neither the apostrophe nor the ending starts a word, because both belong to the word before them. In
        "film's", the apostrophe starts a word: 's.

        Args:
            tokens: the token ids of all sentences, (S,).
            starts: a mask of the tokens that start a word, (S,) bool.
            firsts: the index in `tokens` of each sentence's first token.
            last: the class of each token's last character (_LETTER, _SIGN, ...), (S,).
        """
        roles = np.append(self._role[tokens], [0, 0])
        (sign,) = np.nonzero((roles == _APOSTROPHE) | (roles == _APOSTROPHE_HEAD))
        if not len(sign):
            return
        in_two = roles[sign] == _APOSTROPHE_HEAD
        ending = sign + 1 + in_two
        is_first = np.zeros(len(roles) + 1, bool)
        is_first[firsts] = is_first[len(tokens) :] = True
        joined = ~in_two | (roles[sign + 1] == _APOSTROPHE_TAIL)
        joined &= (roles[ending] == _CONTRACTED) | (roles[ending] == _S)
        joined &= ~is_first[sign] & ~is_first[ending] & ~(in_two & is_first[sign + 1])
        joined &= (last[sign - 1] == _LETTER) & np.append(starts, [True] * 3)[ending + 1]
        sign, ending, in_two = sign[joined], ending[joined], in_two[joined]
        starts[ending] = False
        starts[sign[in_two] + 1] = False
        starts[sign] = roles[ending] == _S


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the unknown token; None if the tokenizer has no such token."""
    name: Any = getattr(tokenizer.model, "unk_token", None)
    if name is not None:
        return tokenizer.token_to_id(name)
    number: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")  # Unigram
    return number


def _surfaces(tokenizer: Tokenizer, vocabulary: dict[str, int]) -> Iterator[tuple[int, bytes, bool, bool]]:
    """Yield (id, text, continues, ends) for each token of a tokenizer.

    Its text is in UTF-8 bytes and has none of the tokenizer's marks: a mark for a space becomes a space, and the other
    marks are removed. `continues` is True if a mark such as "##" says that the token continues a word; `ends` is True
    if a mark such as "</w>" says that the token ends one.

    Args:
        vocabulary: the id of each token.
    """
    record = json.loads(tokenizer.to_str())
    prefix = record["model"].get("continuing_subword_prefix") or ""
    suffix = record["model"].get("end_of_word_suffix") or ""
    byte_level = '"ByteLevel"' in json.dumps([record["pre_tokenizer"], record["decoder"]])
    alphabet = _byte_alphabet() if byte_level else {}
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
        yield token, surface, continues, ends


def _byte_alphabet() -> dict[str, int]:
    """Return the byte that each of the 256 characters in the tokens of byte-level BPE stands for.

    A printable byte is written as the character with the same code point. The other bytes, in order, are written as the
    characters from code point 256 on.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _end_classes(surface: bytes) -> tuple[int, int]:
    """Return the class of a token's first character, and the class of its last one: _LETTER, _SIGN, ...

    A token may begin or end between the bytes of a character. If the first bytes of a token's first character are
    missing, this character has the class _INSIDE.

    Args:
        surface: the token's text in UTF-8 bytes.
    """
    begins = [place for place, byte in enumerate(surface) if not 0x80 <= byte < 0xC0]
    if not begins:
        return _INSIDE, _INSIDE
    characters = [surface[begin:end] for begin, end in zip(begins, [*begins[1:], len(surface)], strict=True)]
    return _INSIDE if begins[0] else _character_class(characters[0]), _character_class(characters[-1])


def _character_class(data: bytes) -> int:
    """Return the class of a character: _LETTER, _SIGN, ...

    Args:
        data: the character's UTF-8 bytes. If the last ones are missing, the class is guessed from the first byte.
    """
    try:
        character = data.decode()
    except UnicodeDecodeError:
        # By the first byte: punctuation, symbols, emoji; Kana, Han; all others.
        return _SIGN if data[0] in (0xE2, 0xF0) else _IDEOGRAPH if 0xE3 <= data[0] <= 0xE9 else _LETTER
    if character.isspace():
        return _SPACE
    if is_unspaced(character):
        return _IDEOGRAPH
    return _LETTER if unicodedata.category(character)[0] in "LMN" else _SIGN
