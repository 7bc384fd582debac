"""Google's and Amazon's object stores on this machine, reached by their own clients, and empty for each test.

Google's client asks for a token first: the machine's metadata server, here one that hands out a token for nothing.
"""

import functools
import http.server
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BUCKET = "clearspan-test"
AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


ANSWERS = {
    "/token": b'{"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}',
    "/project-id": b"clearspan-test",
    "/universe-domain": b"googleapis.com",
    "": b'{"email": "test@localhost"}',
}


class Metadata(http.server.BaseHTTPRequestHandler):
    """What google.auth asks of the machine it runs on."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        answer = next(data for end, data in ANSWERS.items() if path.endswith(end))
        self.send_response(200)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json" if answer.startswith(b"{") else "application/text")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def google() -> Iterator[Callable[[], None]]:
    """gs:// on this machine; called, it is emptied."""
    server = pytest.importorskip("gcp_storage_emulator.server")
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem")
    from gcp_storage_emulator.handlers import buckets

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    metadata = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=metadata.serve_forever, daemon=True).start()
    store = server.Storage(use_memory_fs=True)
    emulator = http.server.HTTPServer(("127.0.0.1", 0), lambda *arguments: server.RequestHandler(store, *arguments))
    threading.Thread(target=emulator.serve_forever, daemon=True).start()

    def empty() -> None:
        store.wipe()
        buckets.create_bucket(BUCKET, store)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
            patch.setenv(name, f"127.0.0.1:{metadata.server_port}")
        patch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{emulator.server_port}")
        yield empty
    emulator.shutdown()
    metadata.shutdown()


@pytest.fixture(scope="session")
def amazon() -> Iterator[Callable[[], None]]:
    """s3:// on this machine; called, it is emptied. Its endpoint is `amazon.url`."""
    server = pytest.importorskip("moto.server")
    pytest.importorskip("apache_beam.io.aws.s3filesystem")
    import boto3
    import requests

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    emulator = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    emulator.start()
    host, port = emulator.get_host_and_port()
    url = f"http://{host}:{port}"

    def empty() -> None:
        requests.post(f"{url}/moto-api/reset", timeout=10).raise_for_status()
        boto3.client("s3").create_bucket(Bucket=BUCKET)

    empty.url = url  # type: ignore[attr-defined]
    variables, make = {**AWS, "AWS_ENDPOINT_URL": url}, boto3.session.Session.client

    @functools.cache
    def made(_: tuple[str | None, ...], service: str, **options: Any) -> Any:
        return make(boto3.session.Session(), service, **options)

    def client(_: Any, service_name: str, **options: Any) -> Any:
        """Beam makes one for each request: here one for all that are made alike."""
        return made(tuple(map(os.environ.get, variables)), service_name, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3.session.Session, "client", client)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield empty
    emulator.stop()


@pytest.fixture(params=["gs", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket on an object store, and an empty cache for what is read from it."""
    request.getfixturevalue({"gs": "google", "s3": "amazon"}[request.param])()
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    return f"{request.param}://{BUCKET}"


@pytest.fixture(scope="session")
def corpus(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of forty OpenWebText documents, five of them long, in two files."""
    folder = tmp_path_factory.mktemp("corpus")
    with (shared_data / "text" / "openwebtext_sample.jsonl").open("rb") as lines:
        (folder / "a.jsonl").write_bytes(b"".join(itertools.islice(lines, 25)))
        (folder / "b.jsonl").write_bytes(b"".join(itertools.islice(lines, 15)))
    return folder
