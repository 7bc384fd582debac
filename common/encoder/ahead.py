"""Windows of texts in flight: some windows are tokenized in a thread while a device embeds earlier windows.

    texts -> windows -> ids (in a thread, AHEAD windows before the device) -> started (IN_FLIGHT at once) -> results

Results are in order, and do not depend on threads. Memory holds a few windows, however many texts there are.
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
"""A window ends at this many texts, or with the text that brings it to this many characters."""
AHEAD = 2
"""Number of windows that are tokenized ahead of the device."""
IN_FLIGHT = 2
"""Number of windows whose computation is started before the result of the first window is read."""


class Running(Protocol):
    """A window whose embeddings are being computed."""

    def result(self) -> Embedded:
        """Wait for the embeddings, and return them in the order of the texts."""


Start = Callable[[Sequence[str], Tokens], Running]
Guard = Callable[[], AbstractContextManager[object]]


def windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in order, in windows of limited size."""
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

    The caller's thread takes a few windows from `texts` ahead of the window whose embeddings are yielded.

    Args:
        start: function that starts the computation of a window.
        texts: the windows of texts.
        guard: returns a context manager that is entered while this function waits for tokens, starts a window and waits
            for its embeddings, e.g. to convert exceptions. It is not active while windows are taken from `texts`.
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
