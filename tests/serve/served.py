"""A collection's page, served by a thread of this process, and requests to it."""

import contextlib
import dataclasses
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from clearspan.retrieval.collection import Collection
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.stemming import PLAIN, Words
from clearspan.serve.app import application
from clearspan.serve.compare import SideBySide
from clearspan.serve.guard import names_of
from clearspan.serve.server import Server, listening


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        error: str = self.json["error"]
        assert "\n" not in error and self.json.keys() == {"error"}
        return error


@dataclasses.dataclass
class Site:
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET", **parameters: Any) -> Answer:
        """Send a request; `headers` may name another Host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            target = f"{path}?{urlencode(parameters)}" if parameters else path
            connection.request(method, target, headers=headers or {})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read())
        finally:
            connection.close()

    def search(self, q: str, **parameters: Any) -> Answer:
        return self.get("/api/search", q=q, **parameters)


@contextlib.contextmanager
def served(collection: Any, weight: float | None = None, host: str = "127.0.0.1") -> Iterator[Site]:
    """Serve a collection, or what looks like one, while the block runs.

    Args:
        host: the address on which the server would listen; it always listens on 127.0.0.1.
    """
    with listening("127.0.0.1", 0) as listener:
        comparison = SideBySide(cast(Collection, collection), weight)
        server = Server.of(application(comparison, names_of(host)))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield Site(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@dataclasses.dataclass
class Fixed:
    """A collection whose hits are always the same, whatever is searched."""

    hits: Sequence[Hit]
    folder: str = "notes"
    model: str | None = "models/small"
    weight: float = 0.5
    has_texts: bool = True
    error: Exception | None = None
    words: Words = PLAIN
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> list[str]:
        return list({name: None for hit in self.hits for name in hit.fields})

    @property
    def num_texts(self) -> int:
        return len(self.hits)

    def search(self, query: str, top: int = 10, **options: Any) -> list[Hit]:
        if self.error:
            raise self.error
        return list(self.hits[:top])
