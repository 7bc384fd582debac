"""Packing: join consecutive sentences of a text into examples of limited length, and slice sentences that are longer.

    sentences of a text -> number of tokens of each, with and without a space before it -> as many together as fit
                        -> token ids of the joined text; a single sentence that is too long -> slices of its ids

In this module, a piece is a run of consecutive sentences of one text that becomes an example. Each sentence is
tokenized two or three times: without a space before it, as the first of a piece; with the space, as a later one; and in
its piece. If the tokenizer merges over spaces, or no space separates the sentences, a piece can have more tokens than
its sentences have separately. A piece that is too long is then halved, so that no piece exceeds the limit.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from clearspan.common.ragged import Ragged

TOGETHER = 1 << 20
"""Number of characters that are tokenized at a time, because an encoding of `tokenizers`
takes over 100 bytes per token.
"""

Tokenize = Callable[[Sequence[str], Sequence[str]], Ragged]
"""Function of texts and their sources that returns the token ids of each text."""


@dataclasses.dataclass(frozen=True)
class TokenizedTexts:
    """Texts that become examples, with their token ids.

    Attributes:
        prepared: for each example, the text whose hash is the example's id.
        raw: for each example, the text that it was made from, to find excluded texts and near-duplicates. If
            sentences were joined, each is a line. For a slice of a sentence, it is the whole sentence.
        sources: for each example, the file and place that it was read from.
        tokens: for each example, its token ids.
        num_cut: number of sentences that were sliced because they were too long.
        groups: for each text, the group of its example, such as an author, by which examples are held out; empty if
            there are no groups.
        width: the number of texts of each example, which are consecutive.
        num_uncounted: for each text of an example, the number of tokens at its start, such as a prompt's, that do not
            count towards a minimum, (width,); 0 if all tokens count.
    """

    prepared: Sequence[str]
    raw: Sequence[str]
    sources: Sequence[str]
    tokens: Ragged
    num_cut: int = 0
    groups: Sequence[str] = ()
    width: int = 1
    num_uncounted: np.ndarray | int = 0


def join(
    texts: Sequence[Sequence[str]], sources: Sequence[str], max_tokens: int, tokenize: Tokenize
) -> Iterator[TokenizedTexts]:
    """Join consecutive sentences of each text into examples, as many in each as fit; yield many examples at a time.

    A sentence that is too long is sliced, and each slice is an example. The id of an example is the hash of its
    prepared text: its text, or, for a slice, the whole sentence, a NUL and the number of the slice.

    Args:
        texts: the sentences of each text. A sentence that follows whitespace begins with a space.
        sources: for each text, the file and place that it was read from.
        max_tokens: the maximum number of tokens of an example, without special tokens.
        tokenize: function of texts and their sources that returns the token ids of each text, without special tokens.
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
        runs += [
            (first + a, first + b)
            for a, b in runs_that_fit(alone[first:last].tolist(), within[first:last].tolist(), max_tokens)
        ]
        first = last

    def fitted(runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, str, np.ndarray]]:
        joined = ["".join(sentences[first:last]).lstrip() for first, last in runs]
        ids = tokenize(joined, [sources[first] for first, _ in runs])
        for number, (first, last) in enumerate(runs):
            if len(ids[number]) <= max_tokens or last - first == 1:
                yield first, last, joined[number], ids[number]
            else:
                middle = (first + last) // 2
                yield from fitted([(first, middle), (middle, last)])

    for part in _slices([sum(map(len, sentences[first:last])) for first, last in runs]):
        prepared: list[str] = []
        raw: list[str] = []
        places: list[str] = []
        tokens: list[np.ndarray] = []
        num_cut = 0
        for first, last, text, ids in fitted(runs[part]):
            starts = range(0, len(ids), max_tokens)
            is_cut = len(starts) > 1
            num_cut += is_cut
            prepared += [f"{text}\0{number}" for number in range(len(starts))] if is_cut else [text]
            raw += ["\n".join(sentences[first:last])] * max(1, len(starts))
            places += [sources[first]] * max(1, len(starts))
            tokens += [ids[start : start + max_tokens] for start in starts] or [ids]
        yield TokenizedTexts(prepared, raw, places, Ragged.of(tokens, tokens[0].dtype), num_cut)


def runs_that_fit(
    first_lengths: Sequence[int], next_lengths: Sequence[int], max_tokens: int
) -> Iterator[tuple[int, int]]:
    """Divide a text into runs of consecutive sentences, as many in each as fit; yield (first, end) of each run.

    `end` is excluded. A sentence of more than `max_tokens` tokens is a run by itself.

    Args:
        first_lengths: for each sentence of the text, its number of tokens if it begins a run.
        next_lengths: for each sentence of the text, its number of tokens if it follows another sentence of the run.
        max_tokens: maximum number of tokens of a run.
    """
    first = size = 0
    for number, length in enumerate(next_lengths):
        if number > first and size + length > max_tokens:
            yield first, number
            first = number
        size = first_lengths[number] if number == first else size + length
    if next_lengths:
        yield first, len(next_lengths)


def _lengths(texts: Sequence[str], sources: Sequence[str], tokenize: Tokenize) -> np.ndarray:
    """Return the number of tokens of each of n texts, (n,) int64.

    Args:
        sources: for each text, the file and place that it was read from, for error messages.
        tokenize: function of texts and their sources that returns the token ids of each text.
    """
    parts = [tokenize(texts[part], sources[part]).lengths for part in _slices([len(text) for text in texts])]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Divide a list of texts into slices of about 2^20 characters (TOGETHER); yield the slices.

    Args:
        sizes: number of characters of each text.
    """
    first = size = 0
    for number, more in enumerate(sizes, 1):
        size += more
        if size >= TOGETHER or number == len(sizes):
            yield slice(first, number)
            first, size = number, 0
