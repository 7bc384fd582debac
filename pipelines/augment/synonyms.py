"""Synonyms: a table of words, read from a file, and the same table in token ids.

    FILE -> {word: [synonym, ...]} -> each form of each word (case, after a space or not) -> token ids -> SynonymTable

A file is either JSON or lines of words. JSON is an object that maps each word to a list of words, such as the
counter-fitted neighbors of Jia et al. 2019, which CLEAR used, or lists derived from WordNet. A line has a word and its
synonyms, separated by tabs; if it has only two words, a space may separate them, as in PPDB.

A capitalized word, or a word in capitals, gets synonyms in the same case. If some synonyms have the word's inflection,
only these are used ("movies" -> "films", not "film"). Inflections are inferred from English endings of words.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from clearspan.common.ragged import Ragged, bounds
from clearspan.pipelines.augment.choices import members
from clearspan.pipelines.augment.words import unknown_id
from clearspan.shards import keyed, token_type

EXPECTED = "expected a JSON object of words to lists of words, or lines of a word and its synonyms separated by tabs"
SOURCES = (
    "public lists: counter-fitted neighbors of Jia et al. 2019 (certified-word-sub, which CLEAR used), PPDB's word "
    "pairs, WordNet's synonyms"
)
"""Public sources of tables, for error messages."""
PUBLISHED = "synonyms.json"
"""Name of the file with the table in a dataset's folder."""
SHORTEST_IN_CAPITALS = 4
"""Minimum length of a word that also gets an entry in capitals. Shorter words in capitals
mostly mean something else (US, WHO).
"""
ENDINGS = ("ing", "ed", "est", "ly", "s")
SHORTEST_STEM = 3
CONTEXTS = ("a ", "(")
"""Strings after which each word is encoded, because a word has different ids after a space
and after a punctuation mark.
"""


_SURROGATE = re.compile("[\ud800-\udfff]")


class SynonymError(ValueError):
    """A file holds no valid table of synonyms, or the tokenizer can encode none of its words. The message says why."""


def read_synonyms(path: str | Path) -> dict[str, list[str]]:
    """Read the synonyms of words from a file: JSON, or lines of a word and its synonyms, separated by tabs.

    Returns:
        The synonyms of each word, in the order of the file.

    Raises:
        SynonymError: the file has another form, or no word in it has a synonym.
        OSError: the file cannot be read.
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
        if _SURROGATE.search("".join([word, *known])):
            raise SynonymError(f"{path}: the entry of {word!r} holds half of a surrogate pair: {EXPECTED}")
    table = {word: synonyms for word, synonyms in table.items() if word and synonyms}
    if not table:
        raise SynonymError(f"{path}: holds no word with a synonym: {EXPECTED}")
    return table


def _json_pairs(text: str, path: str | Path) -> Iterator[tuple[str, list[str]]]:
    try:
        # Pairs, so that a word that occurs twice gets the synonyms of both entries.
        record = json.loads(text, object_pairs_hook=tuple)
    except (RecursionError, ValueError) as error:
        raise SynonymError(f"{path}: not readable as JSON ({error}): {EXPECTED}") from None
    if not isinstance(record, tuple):
        raise SynonymError(f"{path}: a JSON {type(record).__name__}: {EXPECTED}")
    for word, synonyms in record:
        if not isinstance(synonyms, list) or not all(isinstance(synonym, str) for synonym in synonyms):
            raise SynonymError(f"{path}: the entry of {word!r} is not a list of words: {EXPECTED}")
        yield word, synonyms


def _line_pairs(text: str, path: str | Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) < 2 or ("\t" not in line and len(cells) != 2):
            raise SynonymError(f"{path}: line {number}: {line[:40]!r} is not a word with synonyms: {EXPECTED}")
        yield cells[0], cells[1:]


def inflection(word: str, known: Container[str]) -> str:
    """Return the ending of an inflected English word ("ing", "ed", "est", "ly" or "s"); "" if the word has no such
    ending.

    An ending counts only if the word's base form is known: "needed" has the ending "ed" if "need" is known, and "hoped"
    if "hope" is known. "speed" has no ending.

    Args:
        known: the words that are known as base forms.
    """
    for ending in ENDINGS:
        stem = word.removesuffix(ending)
        if len(word) - len(stem) and len(stem) >= SHORTEST_STEM:
            undoubled = stem[:-1] if stem[-1] == stem[-2] else stem
            y = stem
            if stem.endswith("i"):
                y = f"{stem[:-1]}y"
            elif stem.endswith("ie"):
                y = f"{stem[:-2]}y"
            if any(base in known for base in (stem, f"{stem}e", undoubled, y, stem.removesuffix("e"))):
                return ending
    return ""


def forms(table: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield (form, synonyms) for each form of each word of a table: the word as it is, capitalized, and in capitals.

    The synonyms are in the case of the form: movie -> film, Movie -> Film, MOVIE -> FILM. Only lower-case words of two
    or more letters have further forms, and only words of four or more letters have a form in capitals, because short
    words in capitals mostly mean something else (US, WHO).

    If some synonyms have the same English ending as the word (movies -> films), its other synonyms are left out. An
    expression of several words, separated by spaces, is skipped.

    Args:
        table: the synonyms of each word.
    """
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
    """Synonyms of words, in the token ids of a tokenizer. The table is searched with the token ids of a word.

    The words that have synonyms are numbered from 0. A word whose token ids differ after a space and after a
    punctuation mark is in the table twice. The synonyms of word w are the sequences first_option[w], ...,
    first_option[w + 1] - 1 of `options`.

    Attributes:
        by_token: for each token id, the number of the word that is encoded as this one token; -1 if there is no such
            word, (vocabulary,) int32.
        hashes: the hashes of the m words that are encoded as several tokens, sorted, (m,) int64.
        entries: the number of each word in `hashes`, (m,) int32.
        first_option: for each of n words, the index in `options` of its first synonym; after these, the number of all
            synonyms, (n + 1,) int64.
        options: the token ids of each synonym.
    """

    by_token: np.ndarray
    hashes: np.ndarray
    entries: np.ndarray
    first_option: np.ndarray
    options: Ragged

    @classmethod
    def build(cls, table: Mapping[str, Sequence[str]], tokenizer: Tokenizer) -> "SynonymTable":
        """Build the table for a tokenizer.

        A word or synonym is left out if its encoding has the unknown token or a special token.

        Args:
            table: the synonyms of each word, as `read_synonyms` returns them.

        Raises:
            SynonymError: no word with a synonym is left.
        """
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
        wanted = list(forms(table))
        texts = sorted({text for word, synonyms in wanted for text in (word, *synonyms)})
        by_ids: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for context in CONTEXTS:
            ids = _encode(texts, context, tokenizer)
            for word, synonyms in wanted:
                key = ids.get(word)
                if key and key not in by_ids:
                    choices = dict.fromkeys(ids[synonym] for synonym in synonyms if synonym in ids)
                    choices.pop(key, None)
                    if choices:
                        by_ids[key] = list(choices)
        if not by_ids:
            raise SynonymError("the tokenizer cannot encode any word of the synonyms: are they in the same language?")
        size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        keys = _ragged(list(by_ids), np.int64)
        (short,), (longer,) = np.nonzero(keys.lengths == 1), np.nonzero(keys.lengths > 1)
        by_token = np.full(size, -1, np.int32)
        by_token[keys.values[keys.offsets[short]]] = short
        hashes = _hash(keys.values, keys.offsets[longer], keys.lengths[longer])
        order = np.argsort(hashes)
        options = _ragged(list(itertools.chain.from_iterable(by_ids.values())), np.dtype(str(token_type(size))))
        first_option = bounds(np.array([*map(len, by_ids.values())]))
        return cls(by_token, hashes[order], longer[order].astype(np.int32), first_option, options)

    def find(self, tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the number in this table of each of k words, (k,) int32; -1 for a word that has no synonyms.

        Args:
            tokens: the token ids of the text that contains the words.
            starts: the index in `tokens` of each word's first token, (k,).
            lengths: the number of tokens of each word, (k,).
        """
        entries: np.ndarray = self.by_token[tokens[starts]]
        (longer,) = np.nonzero(lengths > 1)
        entries[longer] = -1
        if len(self.hashes) and len(longer):
            hashes = _hash(tokens, starts[longer], lengths[longer])
            place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
            entries[longer] = np.where(self.hashes[place] == hashes, self.entries[place], -1)
        return entries


def _encode(texts: list[str], context: str, tokenizer: Tokenizer) -> dict[str, tuple[int, ...]]:
    """Return the token ids that each text has where it follows `context`, without the ids of `context` itself.

    A text is left out if its encoding has the unknown token or a special token, or if one token covers the end of
    `context` and the beginning of the text.

    Args:
        context: the string before each text, such as "(". The ids of a word depend on the character before it.
    """
    added = tokenizer.get_added_tokens_decoder()
    barred = {unknown_id(tokenizer), *(token for token, content in added.items() if content.special)}
    (before,) = (e.ids for e in tokenizer.encode_batch_fast([context.strip()], add_special_tokens=False))
    start = len(before)
    encoded = {}
    encodings = tokenizer.encode_batch_fast([context + text for text in texts], add_special_tokens=False)
    for text, encoding in zip(texts, encodings, strict=True):
        ids = encoding.ids
        # If the context and the text share a token, the ids of the text alone are unknown.
        if len(ids) > start and ids[:start] == before and barred.isdisjoint(ids):
            encoded[text] = tuple(ids[start:])
    return encoded


def _ragged(lists: Sequence[tuple[int, ...]], dtype: np.dtype | type) -> Ragged:
    values = np.fromiter(itertools.chain.from_iterable(lists), dtype)
    return Ragged(values, bounds(np.array([*map(len, lists)])))


def _hash(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the hash of each of k sequences of token ids, (k,) int64. No sequence may be empty.

    Args:
        tokens: token ids, which contain all the sequences.
        starts: the index in `tokens` of each sequence's first token, (k,).
        lengths: the number of tokens of each sequence, (k,).
    """
    if not len(starts):
        return np.empty(0, np.int64)
    places = members(np.zeros_like(starts), lengths)
    mixed = keyed.mix(tokens[members(starts, lengths)].astype(np.int64), places)
    hashes: np.ndarray = np.add.reduceat(mixed, np.cumsum(lengths) - lengths)
    return hashes
