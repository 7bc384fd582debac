"""Synonyms: a table of words read from a file, and the same as token ids, ready to put in the place of a word's.

    FILE -> {word: [synonym, ...]} -> every form of every word (case, after a space or not) -> ids -> SynonymTable

Three forms of file: a JSON object of words to lists of words (the counter-fitted neighbours of Jia et al. 2019, which
CLEAR used; lists derived from WordNet), or lines of a word and its synonyms, separated by tabs (two words may be
separated by a space, as in PPDB pairs).

A word in capitals, or with a capital, gets its synonyms so. Of a word's synonyms those with its own inflection are
taken where there are any ("movies" -> "films", not "film"), told by English endings of words of the table.
"""

import dataclasses
import itertools
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from clearspan.pipelines.augment.words import unknown_id
from clearspan.shards import keyed, token_type
from clearspan.shards.ragged import Ragged, bounds

EXPECTED = "expected a JSON object of words to lists of words, or lines of a word and its synonyms separated by tabs"
SOURCES = (
    "public lists: counter-fitted neighbours of Jia et al. 2019 (certified-word-sub, which CLEAR used), PPDB's word "
    "pairs, WordNet's synonyms"
)
"""Where tables come from, for whoever has none."""
PUBLISHED = "synonyms.json"
"""The name under which a dataset keeps the table that its views were made with."""
SHORTEST_IN_CAPITALS = 4
"""Shorter words in capitals are mostly something else: US, IT, WHO."""
ENDINGS = ("ing", "ed", "est", "ly", "s")
SHORTEST_STEM = 3
CONTEXTS = ("a ", "(")
"""What a word is encoded after: its ids differ after a space and after a sign."""


class SynonymError(ValueError):
    """A file that is no table of synonyms. The message names the file, what is wrong, and what is expected."""


def read_synonyms(path: str | Path) -> dict[str, list[str]]:
    """word -> synonyms, in the order of the file.

    Raises:
        SynonymError: it is none of the three forms, or holds no synonym.
        OSError: it cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SynonymError(f"{path}: not UTF-8 text (byte {error.start:,}): {EXPECTED}") from None
    pairs = _json_pairs(text, path) if text.lstrip()[:1] in ("{", "[") else _line_pairs(text, path)
    table: dict[str, list[str]] = {}
    for word, synonyms in pairs:
        word = word.strip()
        known = table.setdefault(word, [])
        known += [s for s in dict.fromkeys(map(str.strip, synonyms)) if s and s != word and s not in known]
    for word, synonyms in table.items():
        if not all(map(_is_text, (word, *synonyms))):
            raise SynonymError(f"{path}: the entry of {word!r} holds half of a surrogate pair: {EXPECTED}")
    table = {word: synonyms for word, synonyms in table.items() if word and synonyms}
    if not table:
        raise SynonymError(f"{path}: holds no word with a synonym: {EXPECTED}")
    return table


def _is_text(word: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in word)


def _json_pairs(text: str, path: str | Path) -> Iterator[tuple[str, list[str]]]:
    try:
        # Pairs, so that a word that occurs twice has the synonyms of both.
        record = json.loads(text, object_pairs_hook=tuple)
    except json.JSONDecodeError as error:
        raise SynonymError(f"{path}: line {error.lineno}: not JSON ({error.msg}): {EXPECTED}") from None
    except (RecursionError, ValueError) as error:
        raise SynonymError(f"{path}: not readable as JSON ({error}): {EXPECTED}") from None
    if not isinstance(record, tuple):
        raise SynonymError(f"{path}: a JSON {type(record).__name__}: {EXPECTED}")
    for word, synonyms in record:
        if not isinstance(synonyms, list) or not all(isinstance(synonym, str) for synonym in synonyms):
            raise SynonymError(f"{path}: the entry of {word!r} is no list of words: {EXPECTED}")
        yield word, synonyms


def _line_pairs(text: str, path: str | Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) < 2 or ("\t" not in line and len(cells) != 2):
            raise SynonymError(f"{path}: line {number}: {line[:40]!r} is no word with synonyms: {EXPECTED}")
        yield cells[0], cells[1:]


def inflection(word: str, known: Container[str]) -> str:
    """A word's English ending where the rest is a word too, of those known ("needed", but not "speed"); "" for none."""
    for ending in ENDINGS:
        stem = word.removesuffix(ending)
        if len(word) - len(stem) and len(stem) >= SHORTEST_STEM:
            undoubled = stem[:-1] if stem[-1] == stem[-2] else stem
            y = f"{stem[:-1]}y" if stem[-1] == "i" else f"{stem[:-2]}y" if stem.endswith("ie") else stem
            if any(base in known for base in (stem, f"{stem}e", undoubled, y, stem.removesuffix("e"))):
                return ending
    return ""


def forms(table: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Every word that is looked for, with its synonyms: all words as they are, then in the cases that they take."""
    known = {word for entry in table.items() for word in (entry[0], *entry[1])}
    endings: dict[str, str] = {word: inflection(word, known) for word in known}
    chosen = {}
    for word, synonyms in table.items():
        if len(word.split()) == 1:
            alike = [synonym for synonym in synonyms if endings[synonym] == endings[word]] or list(synonyms)
            chosen[word] = alike
            yield word, alike
    for word, alike in chosen.items():
        if word == word.lower() and len(word) > 1:
            yield word[0].upper() + word[1:], [synonym[0].upper() + synonym[1:] for synonym in alike]
            if len(word) >= SHORTEST_IN_CAPITALS:
                yield word.upper(), [synonym.upper() for synonym in alike]


@dataclasses.dataclass(frozen=True)
class SynonymTable:
    """Entries by a word's ids. Entry e has the options first_option[e] .. first_option[e + 1] - 1 of `options`.

    by_token: (vocabulary,) int32, the entry of a word of one token, -1 for none. hashes, entries: sorted, of words of
    several tokens.
    """

    by_token: np.ndarray
    hashes: np.ndarray
    entries: np.ndarray
    first_option: np.ndarray
    options: Ragged

    @classmethod
    def build(cls, table: Mapping[str, Sequence[str]], tokenizer: Tokenizer) -> "SynonymTable":
        """The table in a tokenizer's ids; what it cannot write, or writes with special tokens, is left out.

        Raises:
            SynonymError: nothing is left.
        """
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
        wanted = list(forms(table))
        texts = sorted({text for word, synonyms in wanted for text in (word, *synonyms)})
        found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for context in CONTEXTS:
            ids = _encode(texts, context, tokenizer)
            for word, synonyms in wanted:
                key = ids.get(word)
                if key and key not in found:
                    choices = dict.fromkeys(ids[synonym] for synonym in synonyms if synonym in ids)
                    choices.pop(key, None)
                    if choices:
                        found[key] = list(choices)
        if not found:
            raise SynonymError("the tokenizer can write no word of the table of synonyms: is it of the same language?")
        size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        entry_lengths = np.fromiter(map(len, found), np.int64, len(found))
        keys = Ragged(np.fromiter(itertools.chain.from_iterable(found), np.int64), bounds(entry_lengths))
        options = list(itertools.chain.from_iterable(found.values()))
        option_lengths = np.fromiter(map(len, options), np.int64, len(options))
        option_ids = np.fromiter(itertools.chain.from_iterable(options), np.dtype(str(token_type(size))))
        (short,), (longer,) = np.nonzero(entry_lengths == 1), np.nonzero(entry_lengths > 1)
        by_token = np.full(size, -1, np.int32)
        by_token[keys.values[keys.offsets[short]]] = short
        hashes = _hash(keys.values, keys.offsets[longer], entry_lengths[longer])
        order = np.argsort(hashes)
        return cls(
            by_token,
            hashes[order],
            longer[order].astype(np.int32),
            bounds(np.fromiter(map(len, found.values()), np.int64, len(found))),
            Ragged(option_ids, bounds(option_lengths)),
        )

    def find(self, tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The entry (k,) of each word tokens[starts[i]:starts[i] + lengths[i]], -1 for none."""
        entries = self.by_token[tokens[starts]]
        (longer,) = np.nonzero(lengths > 1)
        entries[longer] = -1
        if len(self.hashes) and len(longer):
            hashes = _hash(tokens, starts[longer], lengths[longer])
            place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
            entries[longer] = np.where(self.hashes[place] == hashes, self.entries[place], -1)
        return entries


def _encode(texts: list[str], context: str, tokenizer: Tokenizer) -> dict[str, tuple[int, ...]]:
    """Each text's ids after the context, of those that the tokenizer can write."""
    added = tokenizer.get_added_tokens_decoder()
    barred = {unknown_id(tokenizer), *(token for token, content in added.items() if content.special)}
    (before,) = (e.ids for e in tokenizer.encode_batch_fast([context.strip()], add_special_tokens=False))
    start, found = len(before), {}
    encodings = tokenizer.encode_batch_fast([context + text for text in texts], add_special_tokens=False)
    for text, encoding in zip(texts, encodings, strict=True):
        ids = encoding.ids
        # Where the context joins with the text to one token, nothing can be said of the text's own ids.
        if len(ids) > start and ids[:start] == before and barred.isdisjoint(ids):
            found[text] = tuple(ids[start:])
    return found


def _hash(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """64-bit hashes (k,) of stretches of ids, none empty."""
    if not len(starts):
        return np.empty(0, np.int64)
    offsets = np.cumsum(lengths) - lengths
    at = np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())
    place = np.arange(len(at)) - np.repeat(offsets, lengths)
    return np.add.reduceat(keyed.mix(tokens[at].astype(np.int64), place), offsets)
