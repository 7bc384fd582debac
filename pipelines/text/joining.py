"""Consecutive sentences of a text joined to pieces of at most so many tokens; a longer sentence is cut.

    a text's sentences -> the length of each, where a piece begins and within one -> as many together as fit
                       -> the joined text's own ids; a sentence that is alone too long -> slices of its ids

Each text is read once for each of the two lengths and once for its pieces' ids, however many sentences a piece has.
Where a tokenizer's lengths do not add up (one that merges over spaces, or no space parts the sentences), a piece that
turns out too long is halved: none is longer than the limit. No piece holds sentences of two texts.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from clearspan.shards.ragged import Ragged

TOGETHER = 1 << 20
"""So many characters are tokenized together: an encoding of `tokenizers` takes a hundred bytes a token and more."""

Tokenize = Callable[[Sequence[str], Sequence[str]], Ragged]
"""Texts and the source of each -> their ids."""


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Examples to be: what the id of each is made from, its sentences as lines, its source, and its tokens; and how
    many sentences were cut for them.
    """

    names: Sequence[str]
    lines: Sequence[str]
    sources: Sequence[str]
    tokens: Ragged
    num_cut: int = 0


def join(texts: Sequence[Sequence[str]], sources: Sequence[str], limit: int, tokenize: Tokenize) -> Iterator[Pieces]:
    """The pieces of texts, in order.

    Args:
        texts: each text's sentences, with a space before those that whitespace parts from the one before.
        sources: of each text.
        limit: a piece has at most so many tokens.
        tokenize: gives the ids, without special tokens.

    Yields:
        Of some pieces at a time: a piece is as many of the next sentences as fit. Its name is its text; of a slice of a
        sentence the sentence, NUL and the slice's number.
    """
    sentences = [sentence for text in texts for sentence in text]
    sources = [source for text, source in zip(texts, sources, strict=True) for _ in text]
    alone = _lengths([sentence.lstrip() for sentence in sentences], sources, tokenize)
    within = alone.copy()
    spaced = [number for number, sentence in enumerate(sentences) if sentence.startswith(" ")]
    within[spaced] = _lengths([sentences[number] for number in spaced], [sources[i] for i in spaced], tokenize)
    runs, first = [], 0
    for text in texts:
        last = first + len(text)
        runs += [(first + a, first + b) for a, b in fit(alone[first:last].tolist(), within[first:last].tolist(), limit)]
        first = last

    def fitted(runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, str, np.ndarray]]:
        joined = ["".join(sentences[first:last]).lstrip() for first, last in runs]
        ids = tokenize(joined, [sources[first] for first, _ in runs])
        for number, (first, last) in enumerate(runs):
            if len(ids[number]) <= limit or last - first == 1:
                yield first, last, joined[number], ids[number]
            else:
                middle = (first + last) // 2
                yield from fitted([(first, middle), (middle, last)])

    for part in _slices([sum(map(len, sentences[first:last])) for first, last in runs]):
        names: list[str] = []
        lines: list[str] = []
        places: list[str] = []
        tokens: list[np.ndarray] = []
        num_cut = 0
        for first, last, text, ids in fitted(runs[part]):
            starts = range(0, len(ids), limit)
            is_cut = len(starts) > 1
            num_cut += is_cut
            names += [f"{text}\0{number}" for number in range(len(starts))] if is_cut else [text]
            lines += ["\n".join(sentences[first:last])] * max(1, len(starts))
            places += [sources[first]] * max(1, len(starts))
            tokens += [ids[start : start + limit] for start in starts] or [ids]
        yield Pieces(names, lines, places, Ragged.of(tokens, tokens[0].dtype), num_cut)


def fit(alone: Sequence[int], within: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Which sentences of one text are joined: the numbers first..last - 1 of each piece, as many as fit in `limit`.

    Args:
        alone: each sentence's length where a piece begins with it.
        within: its length within a piece.
    """
    first = size = 0
    for number, length in enumerate(within):
        if number > first and size + length > limit:
            yield first, number
            first = number
        size = alone[number] if number == first else size + length
    if within:
        yield first, len(within)


def _lengths(texts: Sequence[str], sources: Sequence[str], tokenize: Tokenize) -> np.ndarray:
    """The length of each text in tokens, (n,) int64."""
    parts = [tokenize(texts[part], sources[part]).lengths for part in _slices([len(text) for text in texts])]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Slices of texts of these sizes, of about TOGETHER each."""
    first = size = 0
    for number, more in enumerate(sizes, 1):
        size += more
        if size >= TOGETHER or number == len(sizes):
            yield slice(first, number)
            first, size = number, 0
