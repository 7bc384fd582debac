"""HTTP server: a socket on which uvicorn answers requests until Ctrl-C or SIGTERM."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearspan.common.errors import PipelineError

WAIT_S = 2
"""Time in seconds that the shutdown waits for a running search."""
LONGEST = 32_768
"""Maximum size in bytes of a request's first line and headers. A query of 2,000 characters needs up to 18,000."""
HEAD_S = 10
"""Time in seconds within which a client must send the first line and the headers of its next request."""
PORT_FAULTS = (errno.EADDRINUSE, errno.EACCES)
"""Errors for which another port helps: it is in use, or below 1024. Any other error is one of the host."""
MAX_CONNECTIONS = 256
"""Maximum number of connections at once. A browser opens about six."""


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens on a host and port, and close it at the end of the context.

    Args:
        port: the port; 0 for any free port.

    Raises:
        PipelineError: the host or the port cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        why = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        advice = (
            "try `port` 0, which picks a free port"
            if not isinstance(error, socket.gaierror) and getattr(error, "errno", None) in PORT_FAULTS
            else "give a name or an address of this machine, or 0.0.0.0 for all; without `host`, only this "
            "machine can read the page"
        )
        raise PipelineError(f"`host` {host} `port` {port}: {why}: {advice}") from None
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    """Return the URL of the page, given the socket on which the server listens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class HttpConnection(H11Protocol):
    """A connection, which is closed if there are too many, or if no whole request comes within `HEAD_S` seconds.

    uvicorn by itself waits without end for the rest of a request's headers, or of a body that nothing reads.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEAD_S, transport.close)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._clock.cancel()

    def on_response_complete(self) -> None:
        self._clock.cancel()
        self._clock = self.loop.call_later(HEAD_S, self.transport.close)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """uvicorn's server, which ends on SIGINT or SIGTERM, but does not raise the signal again after it has ended.

    Because the signal is not raised again, the command can still print its result.
    """

    @classmethod
    def of(cls, app: ASGIApp) -> Self:
        """Return the server of an application; its `run([socket])` answers requests until SIGINT or SIGTERM."""
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # uvicorn logs the traceback of a bug as an error
        config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=LONGEST,
            timeout_graceful_shutdown=WAIT_S,
        )
        return cls(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
