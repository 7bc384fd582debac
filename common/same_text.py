"""The key of a text: two texts count as the same text if their keys are equal.

    " The  Owl ", "ＴＨＥ OWL" ──> NFKC_Casefold (letter case, Unicode form) ──> one space between words ──> "the owl"

Only deduplication, the choice of the held-out part, the tasks on held-out texts and the words that BM25 compares
(`common.words`) use keys. The text itself is tokenized, shown and hashed to an id without any change.
"""

import hashlib
import unicodedata
from collections.abc import Iterable

import numpy as np
import regex

VERSION = 1
"""Version of `key`, increased whenever the key of any text changes."""
DIGEST = 16
"""Bytes of a text's hash."""
_INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}+")
_MANY_MARKS = regex.compile(r"(\p{M}{30})\p{M}+")
"""More marks on one letter than Unicode's stream-safe text format allows: NFKC takes n^2 steps to sort n marks."""
_RARE = regex.compile(r"\p{Default_Ignorable_Code_Point}|\p{M}{31}")


def key(text: str, is_spaced: bool = False) -> str:
    """Return the key of a text: the text with uniform white space, letter case and Unicode form.

    Texts with equal keys count as the same text. Characters that are not shown (soft hyphens, zero-width spaces) are
    removed, and so are all combining marks on a letter except the first thirty. `key(key(text)) == key(text)`.

    Args:
        is_spaced: True if the caller knows that the only white space in the text is single spaces between words. Other
            white space is then not searched for.
    """
    if text.isascii():
        folded = text.lower()
    else:
        form = normal(text)
        folded = unicodedata.normalize("NFKC", form.casefold())
        is_spaced = is_spaced and form == text  # a form, or what is not shown, may hold or part spaces
    return folded if is_spaced else " ".join(folded.split())


def normal(text: str) -> str:
    """Return a text in the form NFKC, without characters that are not shown and marks beyond thirty on a letter."""
    shown = _MANY_MARKS.sub(r"\1", _INVISIBLE.sub("", text)) if _RARE.search(text) else text
    return unicodedata.normalize("NFKC", shown)


def digest(text: str, is_spaced: bool = False) -> bytes:
    """Return the hash of a text's key, 16 bytes.

    The key is the text with uniform white space, letter case and Unicode form.

    Args:
        is_spaced: True if the caller knows that the only white space in the text is single spaces between words.
    """
    return hashlib.blake2b(key(text, is_spaced).encode("utf-8", "surrogatepass"), digest_size=DIGEST).digest()


def digests(texts: Iterable[str], is_spaced: bool = False) -> np.ndarray:
    """Return the hashes of the keys of n texts, (n, 2) uint64: the 16 bytes of a hash are two numbers.

    A key is a text with uniform white space, letter case and Unicode form.

    Args:
        is_spaced: True if the caller knows that the only white space in the texts is single spaces between words.
    """
    return np.frombuffer(b"".join([digest(text, is_spaced) for text in texts]), "<u8").reshape(-1, 2)


def text_id(data: bytes) -> int:
    """Return the id of a text: the first 63 bits of the blake2b hash of its UTF-8 bytes."""
    return int.from_bytes(hashlib.blake2b(data).digest()[:8], "big") >> 1
