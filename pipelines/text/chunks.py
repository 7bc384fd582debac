"""Chunks of long texts, short enough for a model to read whole: runs of sentences of at most `size` tokens.

    text -> sentences (`segmentation`), or words of a sentence that is too long -> runs of at most `size` tokens
    [one. two. three.] [three. four. five.] [five. six]       each begins with the last sentences of the previous chunk

A chunk is an unchanged part of the text, with its line breaks. A prompt and a title that are put before a chunk count
towards the model's limit, but not towards `size`. A run of sentences can have a few tokens more or less than its
sentences have separately. Therefore every chunk is counted again as the model reads it, and a chunk that is too long is
halved.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.text.segmentation import segment_spaced

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""
Count = Callable[[Sequence[str]], Sequence[int]]
"""Function of texts that returns the number of tokens of each, without special tokens."""
WORD = re.compile(r"\S+")
SURE = 0.9
"""A text with fewer tokens than this fraction of the allowed number is not counted again with prompt and title."""


class Chunker:
    """Splitter of texts into chunks.

    Args:
        count: function that returns the number of tokens of each text, without special tokens.
        size: maximum number of tokens of a chunk, without prompt and title.
        overlap: maximum number of tokens that a chunk repeats from the previous chunk. A chunk begins with as many of
            the previous chunk's last sentences as this number allows; 0: nothing is repeated.
        limit: maximum number of tokens that the model reads, including prompt and title but not special tokens; None
            for no limit.
        language: the code of the texts' language (ISO 639-1), whose rules split the texts into sentences.
    """

    def __init__(self, count: Count, size: int, overlap: int, limit: int | None, language: str = "en") -> None:
        self.count, self.size, self.overlap, self.limit = count, size, overlap, limit
        self.language = language

    def cut_title(self, prompt: str, title: str) -> str:
        """Return the title, cut so that prompt and title together take at most half of the model's maximum of tokens.

        It is cut at the end of a word if possible. If it is short enough, or if the model has no maximum, it is
        returned unchanged.
        """
        if self.limit is None or self.count([prompt + title])[0] <= self.limit // 2:
            return title
        low, high = 0, len(title)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.count([prompt + title[:middle]])[0] <= self.limit // 2
            low, high = (middle, high) if fits else (low, middle - 1)
        return title[: title.rfind(" ", 0, low) + 1 or low].rstrip()

    def chunks(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[list[Span]]:
        """Return the spans of the chunks of each text, in order. A text that is short enough is one chunk.

        A span is (start, end) in characters of the text; `end` is excluded.

        Args:
            prefixes: for each text, the prompt and the title (from `cut_title`) that are put before each of its chunks.
        """
        rooms = [self.size] * len(texts)
        if self.limit is not None:
            rooms = [max(1, min(self.size, self.limit - tokens)) for tokens in self.count(prefixes)]
        sizes = self.count(texts)
        made: list[list[Span]] = [[(0, len(text))] for text in texts]
        full = [row for row, (tokens, room) in enumerate(zip(sizes, rooms, strict=True)) if tokens > SURE * room]
        long = [row for row in full if sizes[row] > rooms[row]]
        parts_of_long = self._sentences_or_words([texts[row] for row in long], [rooms[row] for row in long])
        for row, parts in zip(long, parts_of_long, strict=True):
            made[row] = list(self._packed(parts, rooms[row]))
        halved = self._halved(
            [texts[row] for row in full], [prefixes[row] for row in full], [made[row] for row in full]
        )
        for row, spans in zip(full, halved, strict=True):
            made[row] = spans
        return made

    def _sentences_or_words(self, texts: Sequence[str], rooms: Sequence[int]) -> list[list[tuple[Span, int]]]:
        """Return (span, number of tokens) of each sentence of each text.

        A span is (start, end) in characters. A sentence that is too long for a chunk is replaced by its words.

        Args:
            rooms: for each text, the maximum number of tokens of its chunks.
        """
        sentences = self._counted(texts, [_sentences(text, self.language) for text in texts])
        long = [[span for span, tokens in row if tokens > room] for row, room in zip(sentences, rooms, strict=True)]
        words = [[part for span in row for part in _words(text, span)] for text, row in zip(texts, long, strict=True)]
        rows = zip(sentences, self._counted(texts, words), rooms, strict=True)
        return [sorted([*(each for each in row if each[1] <= room), *parts]) for row, parts, room in rows]

    def _counted(self, texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> list[list[tuple[Span, int]]]:
        parts = [text[start:end] for text, row in zip(texts, spans, strict=True) for start, end in row]
        tokens = iter(self.count(parts))
        return [[(span, next(tokens)) for span in row] for row in spans]

    def _packed(self, parts: Sequence[tuple[Span, int]], room: int) -> Iterator[Span]:
        """Yield the spans, (start, end) in characters, of the chunks of a text.

        A chunk has as many consecutive sentences as fit, and begins by repeating the last sentences of the previous
        chunk (`overlap`).

        Args:
            parts: (span, number of tokens) of each sentence of the text, or of each word of a sentence that is too
                long for a chunk.
            room: maximum number of tokens of a chunk.
        """
        first = 0
        while first < len(parts):
            last, total = first, 0
            while last < len(parts) and (last == first or total + parts[last][1] <= room):
                total += parts[last][1]
                last += 1
            yield parts[first][0][0], parts[last - 1][0][1]
            if last == len(parts):
                return
            again, total = last, 0
            room_left = min(self.overlap, room - parts[last][1])  # leave room for the next part, which must be new
            while again - 1 > first and total + parts[again - 1][1] <= room_left:
                again -= 1
                total += parts[again][1]
            first = again

    def _halved(self, texts: Sequence[str], prefixes: Sequence[str], made: list[list[Span]]) -> list[list[Span]]:
        """Halve each chunk that is too long, again and again until all fit; return the chunks of each text.

        Args:
            prefixes: for each text, the prompt and the title that are put before each of its chunks.
            made: for each text, the spans, (start, end) in characters, of its chunks so far.
        """
        while True:
            placed = [(row, span) for row, spans in enumerate(made) for span in spans]
            parts = [texts[row][start:end] for row, (start, end) in placed]
            alone = self.count(parts)
            whole = [0] * len(parts)
            if self.limit is not None:
                whole = list(self.count([prefixes[row] + part for (row, _), part in zip(placed, parts, strict=True)]))
            most = self.limit or 0
            is_long = [size > self.size or total > most for size, total in zip(alone, whole, strict=True)]
            if not any(is_long):
                return made
            halved: list[list[Span]] = [[] for _ in texts]
            for (row, span), too_long in zip(placed, is_long, strict=True):
                halved[row] += _halves(texts[row], span) if too_long else [span]
            if halved == made:  # chunks of one character cannot be halved
                return made
            made = halved


def _sentences(text: str, language: str) -> list[Span]:
    """Return the spans, (start, end) in characters, of the sentences of a text.

    If the segmenter fails, return the span of the whole text.
    """
    try:
        sentences = segment_spaced(text, language)
    except RecordError:
        return [(0, len(text))]
    words, spans = iter(match.span() for match in WORD.finditer(text)), list[Span]()
    place = end = 0
    for sentence in sentences:
        left, start = sum(map(len, sentence.split())), None
        while left:
            if place == end:
                place, end = next(words)
            start = place if start is None else start
            taken = min(left, end - place)
            place, left = place + taken, left - taken
        if start is not None:
            spans.append((start, place))
    return spans


def _words(text: str, span: Span) -> list[Span]:
    return [match.span() for match in WORD.finditer(text, *span)]


def _halves(text: str, span: Span) -> list[Span]:
    """Divide a span of a text, (start, end) in characters, into two spans, and return both.

    It is divided at the space nearest to its middle, or in the middle if there is no space. A span that cannot be
    divided, such as one character, is returned as the only item.
    """
    start, end = span
    middle = (start + end) // 2
    gaps = [match.end() for match in WORD.finditer(text, start, end)][:-1]
    at = min(gaps, key=lambda gap: abs(gap - middle), default=middle)
    if not start < at < end:
        return [span]
    second = WORD.search(text, at, end)
    return [(start, at), (second.start() if second else at, end)]
