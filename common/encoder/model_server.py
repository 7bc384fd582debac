"""Server that holds a model on a device and embeds texts for other processes of the machine.

    connections, a thread each -> requests in a queue -> one thread computes, IN_FLIGHT windows at once -> answers

The clients are `common.encoder.shared_model`. The device does not wait for a client: while it computes a window of
texts, the next window is in the queue.
"""

import contextlib
import queue
import threading
from collections import deque
from concurrent.futures import Future
from multiprocessing.connection import Connection, Listener
from typing import Any, NamedTuple

import numpy as np

from clearspan.common.encoder.ahead import IN_FLIGHT
from clearspan.common.encoder.library import Model
from clearspan.common.encoder.shared_model import received, send
from clearspan.common.encoder.stream import Window
from clearspan.common.encoder.tokens import Tokens
from clearspan.common.model_folder import EncoderError, refusing
from clearspan.common.terminal import one_line

POLL_S = 0.001
"""Seconds between two looks at whether a window is done, while the server also waits for the next request."""
_Answer = tuple[dict[str, Any], list[np.ndarray]]


class _Request(NamedTuple):
    """A request of a client to the server.

    Attributes:
        message: the request; its key `do` says what to compute.
        arrays: the arrays that the client sent with the message, such as token ids.
        answer: the future that will hold the answer: a message and its arrays.
    """

    message: dict[str, Any]
    arrays: list[np.ndarray]
    answer: "Future[_Answer]"


class ModelServer:
    """Server that embeds texts with a model, for all processes that connect to a Unix socket.

    Args:
        model: the model.
        listener: the socket, already open.
    """

    def __init__(self, model: Model, listener: Listener) -> None:
        self._model = model
        self._listener = listener
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def run(self) -> None:
        """Answer the requests of all clients until the process ends; this method never returns."""
        threading.Thread(target=self._accept, daemon=True).start()
        running: deque[tuple[_Request, Window]] = deque()
        while True:
            request = self._next(running)
            if request is None:
                self._finish(*running.popleft())
                continue
            if request.message["do"] == "ids":
                try:
                    running.append((request, self._started(request)))
                except EncoderError as error:
                    request.answer.set_result(({"error": one_line(error)}, []))
            else:
                self._answer_now(request)
            if len(running) == IN_FLIGHT:
                self._finish(*running.popleft())

    def _next(self, running: "deque[tuple[_Request, Window]]") -> _Request | None:
        """Return the next request, which the device can start meanwhile; None if none came until a window was done."""
        while True:
            is_done = bool(running) and _is_done(running[0][1])
            try:
                return self._requests.get(block=not is_done, timeout=POLL_S if running else None)
            except queue.Empty:
                if is_done:
                    return None

    def _accept(self) -> None:
        """Wait for clients until the listener is closed; for each, start a thread that answers its requests."""
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: "Connection[Any, Any]") -> None:
        """Answer the requests of one connection until the client closes it."""
        try:
            while True:
                request = _Request(*received(connection), Future())
                self._requests.put(request)
                message, arrays = request.answer.result()
                send(connection, message, *arrays)
        except (EOFError, OSError):
            connection.close()

    def _started(self, request: _Request) -> Window:
        packed = self._model.packed
        assert packed is not None
        lengths, ids = request.arrays
        tokens = Tokens(ids, lengths, np.zeros(len(lengths), bool), request.message["prompt_tokens"])
        with refusing(f"{self._model.name}: cannot encode every text"):
            return Window(packed, tokens, request.message["batch_tokens"])

    def _finish(self, request: _Request, running: Window) -> None:
        try:
            with refusing(f"{self._model.name}: cannot encode every text"):
                request.answer.set_result(({}, [running.result().vectors]))
        except EncoderError as error:
            request.answer.set_result(({"error": one_line(error)}, []))

    def _answer_now(self, request: _Request) -> None:
        """Compute the answer to a request that is no window of token ids, and store it in `request.answer`."""
        message = request.message
        model = self._model
        try:
            if message["do"] == "describe":
                reader = model.reader.description() if model.packed and model.reader and model.reader.is_fast else None
                described = {"name": model.name, "dim": model.dim, "most_tokens": model.most_tokens, "reader": reader}
                request.answer.set_result((described, []))
            elif message["do"] == "count":
                request.answer.set_result(({"counts": model.count_tokens(message["texts"])}, []))
            else:
                made = model.embed(message["texts"], message["batch_tokens"], prompt=message["prompt"])
                request.answer.set_result(({}, [made.vectors, made.truncated]))
        except EncoderError as error:
            request.answer.set_result(({"error": one_line(error)}, []))


def _is_done(window: Window) -> bool:
    """Return whether a window is done, or has failed, which only its result says."""
    try:
        return window.is_done()
    except RuntimeError:  # as CUDA's errors
        return True
