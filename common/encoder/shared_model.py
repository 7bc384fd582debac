"""Client of a model that one process of this machine holds on a GPU, so that several processes embed with one copy.

    client: texts -> token ids ──(Unix socket)──> server: batches on the GPU -> embeddings ──(Unix socket)──> client

The server is `common.encoder.model_server`. Messages are JSON and the bytes of arrays, so nothing is unpickled. The
client needs neither torch nor sentence-transformers. If the model does not support packed batches, texts are sent in
place of ids.
"""

import functools
import json
import queue
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np

from clearspan.common.compute import BATCH_TOKENS
from clearspan.common.encoder import ahead
from clearspan.common.encoder.sentence_encoder import Embedded
from clearspan.common.encoder.tokens import TokenReader, Tokens
from clearspan.common.model_folder import EncoderError, refusing


def send(connection: "Connection[Any, Any]", message: dict[str, Any], *arrays: np.ndarray) -> None:
    """Send a message, which JSON must be able to represent, followed by arrays of any dtype and shape."""
    connection.send_bytes(json.dumps({**message, "types": [array.dtype.str for array in arrays]}).encode())
    for array in arrays:
        connection.send_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def received(connection: "Connection[Any, Any]") -> tuple[dict[str, Any], list[np.ndarray]]:
    """Receive what `send` has sent; return the message and the arrays, each flattened to one dimension.

    Raises:
        EOFError, OSError: the other side has closed the connection.
    """
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message, [np.frombuffer(connection.recv_bytes(), np.dtype(name)) for name in message.pop("types")]


class SharedModel:
    """Client of a model in another process, with the methods of `FolderEncoder` that embedding a corpus needs.

    Args:
        address: the path of the Unix socket at which the model's process listens.

    Attributes:
        most_tokens: the most tokens that the model reads of a text, without special tokens; None if there is no limit.

    Raises:
        EncoderError: the model's process cannot be reached.
    """

    def __init__(self, address: str) -> None:
        self._free: queue.SimpleQueue[Connection[Any, Any]] = queue.SimpleQueue()
        with refusing("the process of the model cannot be reached"):
            for _ in range(ahead.IN_FLIGHT):
                self._free.put(Client(address, "AF_UNIX"))
        hello, _ = self._request({"do": "describe"})
        self._name, self._dim, self.most_tokens = hello["name"], hello["dim"], hello["most_tokens"]
        self._reader = TokenReader.from_description(hello["reader"]) if hello["reader"] else None

    def embed_windows(
        self, windows: Iterable[Sequence[str]], batch_tokens: int = BATCH_TOKENS, prompt: str = ""
    ) -> Iterator[Embedded]:
        """Yield the embeddings of each window of texts, in order.

        Args:
            windows: lists of texts. If this process tokenizes them, a few windows are read ahead, and tokenized while
                earlier windows are embedded.
            batch_tokens: the largest number of tokens in a batch; a longer text has a batch of its own.
            prompt: the text to put before each text; "" for no prompt.

        Raises:
            EncoderError: a text cannot be encoded, or the model's process has ended.
        """
        if self._reader is None:
            yield from (self._of_texts(list(window), batch_tokens, prompt) for window in windows)
            return
        guard = functools.partial(refusing, f"{self._name}: cannot encode every text")
        threads = ThreadPoolExecutor(ahead.IN_FLIGHT, "embedding")

        def started(_: Sequence[str], tokens: Tokens) -> ahead.Running:
            return threads.submit(self._of_tokens, tokens, batch_tokens)

        try:
            yield from ahead.embed_windows(self._reader, started, windows, prompt, guard)
        finally:
            threads.shutdown(cancel_futures=True)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text before truncation, not counting special tokens.

        If the model has no tokenizer, return the number of characters of each text.

        Raises:
            EncoderError: a text cannot be tokenized, or the model's process has ended.
        """
        if self._reader is None:
            counts: list[int] = self._request({"do": "count", "texts": list(texts)})[0]["counts"]
            return counts
        with refusing(f"{self._name}: cannot tokenize every text"):
            return [*map(int, self._reader.count(texts))]

    def _of_tokens(self, tokens: Tokens, batch_tokens: int) -> Embedded:
        message = {"do": "ids", "prompt_tokens": tokens.prompt_tokens, "batch_tokens": batch_tokens}
        _, (vectors,) = self._request(message, tokens.lengths, tokens.ids)
        return Embedded(vectors.reshape(len(tokens), self._dim), tokens.is_truncated)

    def _of_texts(self, texts: list[str], batch_tokens: int, prompt: str) -> Embedded:
        message = {"do": "texts", "texts": texts, "prompt": prompt, "batch_tokens": batch_tokens}
        _, (vectors, truncated) = self._request(message)
        return Embedded(vectors.reshape(len(texts), self._dim), truncated)

    def _request(self, message: dict[str, Any], *arrays: np.ndarray) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Send a message and arrays to the model's process; return its answer and arrays, or raise EncoderError."""
        connection = self._free.get()
        try:
            send(connection, message, *arrays)
            answer, results = received(connection)
        except (EOFError, OSError) as error:
            raise EncoderError(f"the process of the model has ended ({type(error).__name__}): run again") from None
        finally:
            self._free.put(connection)
        if "error" in answer:
            raise EncoderError(answer["error"])
        return answer, results
