"""Binding of Beam's local servers to 127.0.0.1.

Beam's local runner and its workers use gRPC without authentication, and Beam binds its servers to every interface:
anyone who can reach the host could read every file that the user can read, or register as a worker. Beam has no option
for the address, but creates all its servers with `grpc.server`, which is therefore replaced.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc

ADDRESS = "127.0.0.1"


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Bind every gRPC server that this process creates within the context to 127.0.0.1."""
    make = grpc.server

    def server(*arguments: Any, **options: Any) -> grpc.Server:
        instance = make(*arguments, **options)
        bind = instance.add_insecure_port
        instance.add_insecure_port = lambda address: bind(f"{ADDRESS}:{address.rpartition(':')[2]}")
        return instance

    grpc.server = server
    try:
        yield
    finally:
        grpc.server = make
