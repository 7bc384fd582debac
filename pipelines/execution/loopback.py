"""Keep the servers of Beam's local runner on 127.0.0.1.

Beam's runner and its workers speak plain gRPC, without authentication, and Beam binds its servers to every interface:
whoever reaches the host could read any file that the user may read, or register as a worker. Beam has no option for
the address, and all its servers come from `grpc.server`, so that is where the address is chosen.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc

ADDRESS = "127.0.0.1"


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Bind to 127.0.0.1 each gRPC server that this process makes within the context, whatever host it is given."""
    make = grpc.server

    def server(*arguments: Any, **options: Any) -> grpc.Server:
        made = make(*arguments, **options)
        bind = made.add_insecure_port
        made.add_insecure_port = lambda address: bind(f"{ADDRESS}:{address.rpartition(':')[2]}")
        return made

    grpc.server = server
    try:
        yield
    finally:
        grpc.server = make
