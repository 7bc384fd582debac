"""A server on this machine that speaks the part of the Hugging Face hub's API that `huggingface_hub` downloads with.

GET  /api/models/ORG/NAME/revision/REVISION    commit and names of files
GET  /api/models/ORG/NAME/tree/REVISION        files with sizes and hashes
HEAD, GET  /ORG/NAME/resolve/REVISION/FILE     ETag, commit, size; the content, or a range of it
"""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

API = "/api/models/"


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder: path in it -> content."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@dataclass
class Repository:
    """A model: its commits, the branches that point to them, and whether its authors must grant access.

    Attributes:
        cut: name of a file -> number of answers that end after half of the file, as when a connection breaks.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    is_gated: bool = False
    cut: dict[str, int] = field(default_factory=dict)

    def push(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Add a commit, let the branch point to it, and return its hash."""
        content = json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in files.items()}, sort_keys=True)
        commit = hashlib.sha1(f"{len(self.commits)}{content}".encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit

    def commit_of(self, revision: str) -> str | None:
        return self.branches.get(revision, revision if revision in self.commits else None)


class HubServer:
    """The server: repositories by name, and the requests that were made, as `METHOD path`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.is_down = False
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def push(self, name: str, files: Mapping[str, bytes]) -> str:
        """Add a commit to the branch main of a repository, which may be new; return the commit's hash."""
        return self.repositories.setdefault(name, Repository()).push(files)

    @property
    def downloads(self) -> list[str]:
        """Names of the files whose contents were asked for, in the order of the requests."""
        return [each.partition("/resolve/")[2].partition("/")[2] for each in self.requests if each.startswith("GET /")]

    @contextlib.contextmanager
    def running(self) -> Iterator["HubServer"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server_hub, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        if hub.is_down:
            return self._send(503, b"")
        is_api = path.startswith(API)
        place = path.removeprefix(API) if is_api else path.removeprefix("/")
        parts = next(
            (place.partition(f"/{word}/") for word in ("revision", "tree", "resolve") if f"/{word}/" in place), None
        )
        if parts is None:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        name, kind, rest = parts
        repository = hub.repositories.get(name)
        if repository is None:  # the hub tells nobody without access whether a model exists
            return self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        if kind == "/resolve/":
            return self._file(repository, rest)
        commit = repository.commit_of(rest)
        if commit is None:
            return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if kind == "/tree/":
            tree = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            return self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
        about = {"id": name, "sha": commit, "private": False, "tags": [], "downloads": 0, "likes": 0}
        siblings = [{"rfilename": path} for path in files]
        return self._send(
            200, json.dumps({**about, "siblings": siblings}).encode(), {"Content-Type": "application/json"}
        )

    def _file(self, repository: Repository, rest: str) -> None:
        revision, _, name = rest.partition("/")
        commit = repository.commit_of(revision)
        data = repository.commits.get(commit or "", {}).get(name)
        if repository.is_gated:
            return self._send(403, b"", {"X-Error-Code": "GatedRepo"})
        if data is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": str(commit),
            "Accept-Ranges": "bytes",
        }
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        code = 206 if self.headers.get("Range") else 200
        if code == 206:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        sent = None
        if self.command == "GET" and repository.cut.get(name, 0) > 0:
            repository.cut[name] -= 1
            sent = (len(data) - start) // 2
        return self._send(code, data[start:], headers, sent)

    def _send(self, code: int, data: bytes, headers: Mapping[str, str] | None = None, sent: int | None = None) -> None:
        """Send an answer; of the body `sent` bytes alone before the connection is closed, if that is not None."""
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(data if sent is None else data[:sent])
        if sent is not None:
            self.wfile.flush()
            self.close_connection = True
