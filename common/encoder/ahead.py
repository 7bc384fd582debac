"""Tokenize windows of texts in a thread, while a device embeds earlier windows.

    texts -> windows -> token ids (in a thread, AHEAD windows ahead) -> device (IN_FLIGHT windows at once) -> embeddings

A window is a list of texts that are tokenized and embedded together. Embeddings are returned in the order of the texts,
and do not depend on the timing of threads. Memory holds a few windows, however many texts there are.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import Protocol

from clearspan.common.encoder.sentence_encoder import Embedded
from clearspan.common.encoder.tokens import TokenReader, Tokens

WINDOW_TEXTS, WINDOW_CHARACTERS = 8192, 1 << 22
"""A window ends at this many texts, or at the text with which it has this many characters."""
AHEAD = 2
"""Number of windows that are tokenized ahead of the device."""
IN_FLIGHT = 2
"""Number of windows whose computation is started before the embeddings of the first of them are read."""


class Running(Protocol):
    """A window of texts whose embeddings are being computed."""

    def result(self) -> Embedded:
        """Wait for the embeddings, and return them in the order of the texts."""


Start = Callable[[Sequence[str], Tokens], Running]
Guard = Callable[[], AbstractContextManager[object]]


def windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Group texts, in order, into windows of at most 8,192 texts and about four million characters."""
    window: list[str] = []
    characters = 0
    for text in texts:
        window.append(text)
        characters += len(text)
        if len(window) == WINDOW_TEXTS or characters >= WINDOW_CHARACTERS:
            yield window
            window = []
            characters = 0
    if window:
        yield window


def embed_windows(
    reader: TokenReader, start: Start, texts: Iterable[Sequence[str]], prompt: str, guard: Guard = nullcontext
) -> Iterator[Embedded]:
    """Yield the embeddings of each window of texts, in order.

    The windows are taken from `texts` in the caller's thread, a few windows ahead of the embeddings.

    Args:
        reader: the reader that tokenizes the texts.
        start: function that takes a window of texts and their tokens, starts to embed them, and returns an object
            whose method `result` waits for the embeddings.
        texts: the windows, each a list of texts.
        prompt: the text to put before each text.
        guard: function that returns a context manager, e.g. to convert exceptions. It is active while this function
            waits for tokens, calls `start` or waits for embeddings, and not while it takes a window from `texts`.
    """
    upcoming = iter(texts)
    first = list(islice(upcoming, 2))
    if len(first) < 2:  # a thread would take longer than a few texts
        for window in first:
            with guard():
                made = start(window, reader.read(window, prompt)).result()
            yield made
        return
    reading: deque[tuple[Sequence[str], Future[Tokens]]] = deque()
    running: deque[Running] = deque()
    thread = ThreadPoolExecutor(1, "tokenization")
    try:
        for taken in chain(first, upcoming, [None] * (AHEAD + IN_FLIGHT)):
            if taken is not None:
                reading.append((taken, thread.submit(reader.read, taken, prompt)))
            if reading and (taken is None or len(reading) > AHEAD):
                window, tokens = reading.popleft()
                with guard():
                    running.append(start(window, tokens.result()))
            if running and (len(running) == IN_FLIGHT or (taken is None and not reading)):
                with guard():
                    made = running.popleft().result()
                yield made
    finally:
        thread.shutdown(cancel_futures=True)
