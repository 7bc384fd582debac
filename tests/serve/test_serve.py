"""The page and its API: the hits of `search`, for pages of its own on this machine alone."""

import asyncio
import contextlib
import itertools
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.datastructures import Headers

import clearspan
from clearspan.common.errors import PipelineError
from clearspan.retrieval.collection import SearchSettings, open_collection, write_collection
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.hybrid import HYBRID_WEIGHT
from clearspan.retrieval.where import Condition
from clearspan.serve import app, guard, server
from clearspan.serve.compare import example
from clearspan.serve.serve_command import Serve
from clearspan.shards.reader import ShardError
from tests.conftest import ROOT
from tests.listening import addresses
from tests.pipelines.conftest import Command
from tests.processes import environment
from tests.serve.served import Fixed, Site, served

OWL = Hit(0.5, 7, "birds/owls.csv", "Owls hunt at night.", 3, {"title": "Owls", "year": 2021}, collection="notes")
QUERIES = ["An owl hunts at night.", "A political party of the north", "1980s", "the river and its valley"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(Fixed([OWL, OWL])) as found:
        yield found


@pytest.fixture
def made(direct: Command, wiki: Path, encoder: Path, tmp_path: Path) -> Path:
    """500 lines of Wikipedia."""
    lines = wiki.read_text(encoding="utf-8").split("\n")[:500]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder, "--keep-text"]
    assert direct("embed", *words).code == 0
    return tmp_path / "out"


def found(answer: dict[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """The ids and scores of each system's hits."""
    return {each["key"]: [(hit["id"], hit["score"]) for hit in each["hits"]] for each in answer["systems"]}


@pytest.mark.slow
def test_the_hits_are_those_of_search_also_of_many_at_once(made: Path, encoder: Path) -> None:
    weights = {"model": 1.0, "both": 0.3, "bm25": 0.0}
    collection = open_collection(made, encoder)
    expected = {
        query: {
            key: [(hit.id, hit.score) for hit in collection.search(query, 7, weight=weight)]
            for key, weight in weights.items()
        }
        for query in QUERIES
    }
    for query in QUERIES:
        alone = clearspan.search(made, query, encoder, top=7)
        beside = clearspan.search(made, query, encoder, top=7, hybrid=0.3)
        assert [[(hit.id, hit.score) for hit in hits] for hits in (alone, beside)] == [
            expected[query]["model"],
            expected[query]["both"],
        ]
    asked = QUERIES * 4
    with served(open_collection(made, encoder), 0.3) as site, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda query: site.search(query, top=7).json, asked))
        other = site.search(QUERIES[0], top=7, weight="0.9").json
    assert [found(answer) for answer in answers] == [expected[query] for query in asked]
    assert [answer["query"] for answer in answers] == asked
    assert found(other)["both"] != expected[QUERIES[0]]["both"] and other["systems"][1]["weight"] == 0.9
    assert other["num_texts"] == 500 and 0 < other["seconds"] < 60


def test_a_hit_is_its_text_with_the_querys_words_its_fields_file_and_record(site: Site) -> None:
    answer = site.search("What do OWLS eat at night?", top=1).json
    assert [(each["key"], each["name"], each["weight"]) for each in answer["systems"]] == [
        ("model", "small", 1.0),
        ("both", "small + BM25", 0.5),
        ("bm25", "BM25", 0.0),
    ]
    ((hit,),) = [each["hits"] for each in answer["systems"][:1]]
    assert hit == {
        "score": 0.5,
        "id_field": None,
        "id": 7,
        "source": "birds/owls.csv",
        "record": 3,
        "fields": {"title": "Owls", "year": 2021},
        "chunk": None,
        "collection": "notes",
        "text": "Owls hunt at night.",
        "is_cut": False,
        "marks": [[0, 4], [13, 18]],
        "title": "title",
        "title_marks": [[0, 4]],
        "passage": [0, 19],
    }
    about = site.get("/api/collection").json
    for system in answer["systems"]:
        del system["hits"]
    assert about.pop("systems") == answer["systems"]
    assert about == {
        "name": "notes",
        "num_texts": 2,
        "unit": "text",
        "weight": 0.5,
        "fields": ["title", "year"],
        "example": "",
        "has_texts": True,
        "chosen": None,
    }


@pytest.mark.parametrize(
    ("model", "has_texts", "keys"), [(None, True, ["bm25"]), ("small", False, ["model"]), (None, False, [])]
)
def test_only_systems_that_can_search_are_asked(model: str | None, has_texts: bool, keys: list[str]) -> None:
    with served(Fixed([OWL], model=model, has_texts=has_texts)) as site:
        assert [each["key"] for each in site.search("owls").json["systems"]] == keys


@pytest.mark.parametrize(("weight", "key"), [(0.0, "bm25"), (0.85, "both"), (1.0, "model")])
def test_the_system_that_the_folder_chooses_is_named(weight: float, key: str, tmp_path: Path) -> None:
    settings = SearchSettings(str(tmp_path / "vectors"), str(tmp_path / "model"), weight)
    write_collection(tmp_path, settings)
    with served(Fixed([OWL], folder=str(tmp_path), weight=weight)) as site:
        about = site.get("/api/collection").json
    assert about["chosen"] == key and about["weight"] == (0.85 if key == "both" else HYBRID_WEIGHT)


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize("path", ["/", "/style.css", "/api/collection", "/api/search?q=owls", "/nowhere"])
@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"Host": "evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "evil.example:{port}"}, "the Host header is not a name of this server"),
        ({"Host": "127.0.0.1.evil.example:{port}"}, "the Host header is not a name of this server"),
        ({"Host": "localhost.evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "10.0.0.7:{port}"}, "the Host header is not a name of this server"),
        ({"Host": ""}, "the Host header is not a name of this server"),
        ({"Host": "[::1]evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "[::1]:{port}evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "localhost:1@evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "localhost@evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "localhost/.evil.example"}, "the Host header is not a name of this server"),
        ({"Host": "localhost:evil"}, "the Host header is not a name of this server"),
        ({"Host": "localhost:"}, "the Host header is not a name of this server"),
        ({"Host": "[127.0.0.1]"}, "the Host header is not a name of this server"),
        ({"Host": "[localhost]"}, "the Host header is not a name of this server"),
        ({"Host": "::1"}, "the Host header is not a name of this server"),
        ({"Host": "localhost, evil.example"}, "the Host header is not a name of this server"),
        ({"Origin": "https://evil.example"}, "a page of another origin may not"),
        ({"Origin": "http://127.0.0.1:1"}, "a page of another origin may not"),
        ({"Origin": "null"}, "a page of another origin may not"),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "a page of another site may not"),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, "a page of another site may not"),
    ],
)
def test_another_host_or_origin_is_refused(site: Site, path: str, headers: dict[str, str], complaint: str) -> None:
    answer = site.get(path, {name: value.format(port=site.port) for name, value in headers.items()})
    assert (
        answer.status == 403
        and answer.error.startswith(complaint)
        and "access-control-allow-origin" not in answer.headers
    )


@pytest.mark.guarantee("serve-local")
def test_names_of_this_machine_and_links_to_the_page_are_answered(site: Site) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST:{port}", "[::1]:{port}"):
        assert site.get("/", {"Host": host.format(port=site.port)}).status == 200
    own = {"Origin": site.address, "Sec-Fetch-Site": "same-origin"}
    assert site.get("/api/search?q=owls", own).status == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert site.get("/?q=owls", link).status == 200
    assert site.get("/api/search?q=owls", link).status == 403
    with served(Fixed([OWL]), host="0.0.0.0") as everywhere:
        assert everywhere.get("/", {"Host": "10.0.0.7:80"}).status == 200
        assert everywhere.get("/", {"Host": "[fe80::1]:80"}).status == 200
        for other in ("evil.example", "10.0.0.7:80@evil.example", "[fe80::1]evil.example", "[10.0.0.7]", "fe80::1"):
            assert everywhere.get("/", {"Host": other}).status == 403


LOCAL = {"localhost", "127.0.0.1", "::1"}


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        (["127.0.0.1"], LOCAL),
        (["Owls.example"], LOCAL | {"owls.example"}),
        (["owls.example", "10.0.0.7"], LOCAL | {"owls.example", "10.0.0.7"}),
        (["0.0.0.0"], None),
        (["::"], None),
        ([""], None),
        (["0", "0.0.0.0"], None),
        (["::0", "::"], None),
    ],
)
def test_the_guard_knows_the_names_of_its_host(hosts: list[str], names: set[str] | None) -> None:
    assert guard.names_of(*hosts) == names


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize("host", ["0", "127.1", "*"])
def test_the_printed_address_is_answered_however_the_host_is_written(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[set[str] | None] = []
    monkeypatch.setattr(app, "application", lambda comparison, names: made.append(names))
    monkeypatch.setattr(server.Server, "of", lambda application: SimpleNamespace(run=lambda sockets: None))
    monkeypatch.setattr(Serve, "opened", lambda self, keep: Fixed([OWL]))
    Serve(folder="notes", host=host, port=0).run()
    address = capsys.readouterr().out.split("http://")[1].split(" ")[0]
    headers = Headers({"host": address})
    assert guard.Guard(nothing, made[0]).problem(headers, is_page=True) is None


async def nothing(*_: Any) -> None: ...


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize(
    ("headers", "is_answered"),
    [
        ([("host", "localhost:8765")], True),
        ([], False),
        ([("host", "localhost"), ("host", "localhost")], False),
        ([("host", "LocalHost:8765"), ("origin", "HTTP://localhost:8765")], True),
        ([("host", "localhost:8765"), ("origin", "https://LOCALHOST:8765")], True),
        ([("host", "LocalHost:8765"), ("origin", "https://localhost:8765")], True),
        ([("host", "localhost:8765"), ("origin", "http://localhost")], False),
        ([("host", "localhost:8765"), ("origin", "ftp://localhost:8765")], False),
        ([("host", "evil.example"), ("x-forwarded-host", "localhost"), ("forwarded", "host=localhost")], False),
    ],
)
@pytest.mark.parametrize("names", [LOCAL, None])
def test_the_guard_compares_the_origin_with_the_host(
    headers: list[tuple[str, str]], is_answered: bool, names: set[str] | None
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    assert (guard.Guard(nothing, names).problem(Headers(raw=raw), is_page=True) is None) == is_answered


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize("names", [LOCAL, None])
def test_each_request_is_judged_by_its_own_headers_alone(names: set[str] | None) -> None:
    """Also after others, that were answered or refused, of the same host, origin or path."""
    hosts = {
        "localhost:8765": True,
        "127.0.0.1:8765": True,
        "[::1]:8765": True,
        "localhost": True,
        "evil.example": False,
    }
    hosts |= {"127.0.0.1:8765.evil.example": False, "127.0.0.1.evil.example:8765": False, "LOCALHOST:8765": True}
    origins = {
        None: True,
        "http://{}": True,
        "https://{}": True,
        "null": False,
        "": False,
        "http://evil.example": False,
    }
    origins |= {"http://{}0": False, "http://{}.evil.example": False, "http://{}@evil.example": False, "{}": False}
    origins |= {"http://{}/": False, "http://{},http://evil.example": False, "http://evil.example#{}": False}
    sites = [(None, True), ("none", True), ("same-origin", True), ("same-site", False), ("cross-site", False)]
    guarded = guard.Guard(nothing, names)
    requests = [
        (host, origin, site, mode, is_page)
        for host, origin, (site, _), mode, is_page in itertools.product(
            hosts, origins, sites, (None, "cors", "navigate"), (True, False)
        )
    ]
    random.Random(7).shuffle(requests)
    for host, origin, site, mode, is_page in requests:
        told = {"host": host, "origin": origin and origin.format(host), "sec-fetch-site": site, "sec-fetch-mode": mode}
        headers = Headers({name: value for name, value in told.items() if value is not None})
        is_link = is_page and mode == "navigate"
        is_answered = hosts[host] and origins[origin] and (dict(sites)[site] or is_link)
        assert (guarded.problem(headers, is_page) is None) == is_answered, (told, is_page)


@pytest.mark.guarantee("serve-local")
def test_the_guard_passes_on_what_is_no_request() -> None:
    passed: list[tuple[Any, ...]] = []

    async def app(*given: Any) -> None:
        passed.append(given)

    receive, send = object(), object()
    asyncio.run(guard.Guard(app, LOCAL)({"type": "lifespan"}, receive, send))  # type: ignore[arg-type]
    assert passed == [({"type": "lifespan"}, receive, send)]


WHOLE = b"GET /style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"", b""),
        (b"GET / HT", b""),
        (WHOLE, b""),
        (WHOLE + b"\r\n", b""),
        (WHOLE + b"\r\n", WHOLE),
        (WHOLE + b"Content-Length: 9999\r\n\r\nsome of it", b"more of it"),
    ],
)
def test_a_request_that_is_not_sent_to_its_end_ends_its_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch, first: bytes, more: bytes
) -> None:
    """Also after a request that was answered."""
    monkeypatch.setattr(server, "HEAD_S", 0.1)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(first)
        answer = connection.recv(12)
        assert answer == (b"HTTP/1.1 200" if b"\r\n\r\n" in first else b"")
        if answer:
            connection.sendall(more)
            while connection.recv(1 << 16):  # until the server closes it
                pass


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nX: ", WHOLE + b"Content-Length: 99999\r\n\r\n"])
def test_a_request_that_comes_byte_by_byte_ends_its_connection_too(
    site: Site, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    assert server.HEAD_S == 10, "seconds, as promised"
    monkeypatch.setattr(server, "HEAD_S", 0.1)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(first)
        with contextlib.suppress(ConnectionError):  # closed while a byte was under way
            for _ in range(2000):
                is_readable, _, _ = select.select([connection], [], [], 0.001)
                if is_readable and not connection.recv(1 << 16):
                    return
                connection.sendall(b"a")
            pytest.fail("is still open")


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_the_server_listens_on_its_host_alone(host: str) -> None:
    with server.listening(host, 0) as listener:
        assert listener.getsockname()[0] == host
        assert server.address(listener) == f"http://{host}:{listener.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.guarantee("serve-local")
def test_no_setting_of_the_machine_lets_others_read() -> None:
    names = ("HOST", "HOSTNAME", "BIND", "ADDRESS", "UVICORN_HOST", "SERVER_NAME", "CLEARSPAN_HOST", "PORT", "CI")
    code = "from clearspan.serve.serve_command import Serve; print(Serve(folder='notes').host)"
    variables = environment(PYTHONPATH=str(ROOT), **dict.fromkeys(names, "0.0.0.0"))
    assert subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True).stdout == b"127.0.0.1\n"


@pytest.mark.guarantee("serve-local")
def test_requests_that_come_in_parts_are_answered_one_after_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, parts = server.HttpConnection.data_received, threading.Semaphore(0)

    def received(connection: server.HttpConnection, data: bytes) -> None:
        receive(connection, data)
        parts.release()

    monkeypatch.setattr(server.HttpConnection, "data_received", received)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        answers = connection.makefile("rb")
        for _ in range(3):
            for part in (WHOLE[:9], WHOLE[9:] + b"\r\n"):
                connection.sendall(part)
                assert parts.acquire(timeout=30)
            head = dict(line.lower().split(b": ", 1) for line in iter(answers.readline, b"\r\n") if b": " in line)
            assert b":root {" in answers.read(int(head[b"content-length"]))


@pytest.mark.guarantee("serve-local")
def test_a_search_may_take_longer_than_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.1)
    began, may_end = threading.Event(), threading.Event()

    class Slow(Fixed):
        def search(self, *words: Any, **options: Any) -> list[Hit]:
            began.set()
            assert may_end.wait(30)
            return super().search(*words, **options)

    with served(Slow([OWL])) as site, ThreadPoolExecutor(1) as threads:
        first = threads.submit(site.search, "owls")
        assert began.wait(30)
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as later:
            assert later.recv(1) == b""  # whose time began later, and is over
        may_end.set()
        assert first.result().status == 200


@pytest.mark.guarantee("serve-local")
def test_more_connections_than_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    with served(Fixed([OWL])) as site, contextlib.ExitStack() as kept:
        for _ in range(2):
            connection = kept.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=30))
            connection.sendall(WHOLE + b"\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        with pytest.raises(ConnectionError):  # reset by the server, or closed without an answer
            site.get("/")


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize(
    "path",
    [
        "/../setup.py",
        "/page/index.html",
        "/%2e%2e/app.py",
        "/style.css/../app.py",
        "//etc/passwd",
        "/app.py",
        "/api/",
        "/api/search/",
    ],
)
def test_no_path_leads_to_a_file(site: Site, path: str) -> None:
    answer = site.get(path)
    assert answer.status == 404 and answer.error == "no such address: see /api/search and /api/collection"


@pytest.mark.guarantee("serve-local")
def test_an_answer_keeps_the_browser_from_loading_or_guessing_anything_else(site: Site) -> None:
    for path, kind in {
        "/": "text/html",
        "/page.js": "text/javascript",
        "/api/search?q=owls": "application/json",
    }.items():
        headers = site.get(path).headers
        assert headers["content-type"].startswith(kind) and headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["content-security-policy"] and "server" not in headers
    page = site.get("/").body.decode()
    assert not re.findall(r"https?:|<script>|<style|\son\w+=|style=", page)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({}, "q"),
        ({"q": ""}, "q"),
        ({"q": " \n"}, "q"),
        ({"q": "\x1f"}, "q"),
        ({"q": "o" * 2001}, "q"),
        ({"q": ["owl", "bat"]}, "q"),
        ({"q": ["owl", "owl"]}, "q"),
        ({"q": "owl", "top": ["3", "3"]}, "top"),
        *[
            ({"q": "owl", "top": top}, "top")
            for top in (0, 101, -1, "ten", "", "1_0", "5.0", "1e1", "0x5", "true", "٣")
        ],
        *[({"q": "owl", "top": "9" * digits}, "top") for digits in (400, 1001)],
        *[
            ({"q": "owl", "weight": weight}, "weight")
            for weight in ("nan", "inf", "-inf", "1e999", 1.5, -0.1, "", "0_0", "half", "None", "true")
        ],
        *[({"q": "owl", "length": length}, "length") for length in (0, 100_001, "1_0", "", "9.5")],
        ({"q": "owl", "where": "x" * 1001}, "where"),
    ],
)
def test_a_search_that_cannot_work_is_refused_in_a_line(site: Site, parameters: dict[str, Any], name: str) -> None:
    answer = site.get(f"/api/search?{urlencode(parameters, doseq=True)}")
    assert answer.status == 400 and answer.error.startswith(f"{name}: ")


def test_a_parameter_that_does_not_exist_is_refused_with_the_nearest_name(site: Site) -> None:
    unknown = site.search("owl", topp=3)
    assert unknown.status == 400 and unknown.error == "no such parameter: topp; did you mean 'top'?"
    assert site.search("owl", model_config="{}").status == 400
    assert site.get("/api/collection?q=owl").status == 400


def test_values_at_the_limits_are_answered(site: Site) -> None:
    for given in ({"top": "1"}, {"top": "100", "length": "100000"}, {"top": " +5 "}, {"length": "1"}):
        assert site.search("o" * 2000, where="x" * 1000, **given).status == 200
    for weight in ("0", "1", " 0.5 ", "5e-1", "1.", "-0"):
        assert site.search(" owl ", weight=weight).json["query"] == " owl "


@pytest.mark.guarantee("serve-local")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_but_get_is_answered(site: Site, method: str) -> None:
    for path in ("/api/search?q=owls", "/api/collection", "/", "/page.js"):
        answer = site.get(path, method=method)
        assert answer.status == 405 and answer.error == "only GET is answered"


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (PipelineError("where: no such field: yeer"), 400, "where: no such field: yeer"),
        (ShardError("vectors-0.tar: is damaged"), 500, "vectors-0.tar: is damaged"),
        (ZeroDivisionError("of a secret"), 500, "the search failed: the terminal of the server says why"),
    ],
)
def test_a_search_that_fails_is_a_line_without_a_traceback(error: Exception, status: int, shown: str) -> None:
    with served(Fixed([OWL], error=error)) as site:
        answer = site.search("owls")
    assert answer.status == status and answer.error == shown


def test_more_searches_than_can_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_SEARCHES", 1)
    began, may_end = threading.Event(), threading.Event()

    class Slow(Fixed):
        def search(self, *words: Any, **options: Any) -> list[Hit]:
            began.set()
            assert may_end.wait(30)
            return super().search(*words, **options)

    with served(Slow([OWL])) as site, ThreadPoolExecutor(1) as threads:
        first = threads.submit(site.search, "owls")
        assert began.wait(30)
        answer = site.search("owls")
        assert answer.status == 503 and answer.error == "too many searches at once: try again"
        assert site.get("/").status == 200  # the page does not wait for a search
        may_end.set()
        assert first.result().status == 200


@pytest.mark.guarantee("serve-local")
@pytest.mark.exhaustive
def test_the_command_listens_on_this_machine_alone_and_ctrl_c_ends_it(made: Path, encoder: Path) -> None:
    command = [sys.executable, "-m", "clearspan", "serve", str(made), "--model", str(encoder), "--port", "0"]
    command += ["--stemmer", "none"]
    variables = environment(PYTHONPATH=str(ROOT))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{made}: 500 texts, searched by encoder and BM25\n"
        address = process.stdout.readline()
        port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+) \(Ctrl-C ends it\)\n", address)[1])  # type: ignore[index]
        assert addresses(process.pid) == {f"127.0.0.1:{port}"}
        assert len(Site(port).search("owls").json["systems"]) == 3
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and out == "\nended; queries answered: 1\n" and err == ""


@pytest.mark.parametrize("host", ["no host", "203.0.113.9", "a" * 70])
def test_a_host_that_is_not_this_machine_is_told_as_the_host(host: str) -> None:
    expected = f"`host` {host} .*address of this machine"
    with pytest.raises(PipelineError, match=expected) as error, server.listening(host, 0):
        pass
    assert "free port" not in str(error.value) and "\n" not in str(error.value)


def test_a_port_in_use_and_a_missing_package_are_one_line(
    pipeline: Command, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = pipeline("serve", tmp_path, "--model", encoder, "--port", port)
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert f"--port {port}: Address already in use: try --port 0, which picks a free port" in ended.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ended = pipeline("serve", tmp_path, "--model", encoder)
    assert (
        ended.code == 1
        and "the page needs starlette, uvicorn: in a clone, pip install -c constraints.txt -e '.[serve]'\n" in ended.err
    )


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 1, "no manifest.json"),
        (["--port", "70000"], 2, "--port must be at most 65,535"),
        (["--weight", "2"], 2, "--weight must be at most 1"),
        (["--model", "nowhere"], 2, "--model nowhere: no such folder"),
        (["--host", "no.such.host.invalid"], 1, "--host no.such.host.invalid --port 8765: "),
    ],
)
def test_bad_usage_is_one_line(pipeline: Command, tmp_path: Path, words: list[str], code: int, complaint: str) -> None:
    ended = pipeline("serve", tmp_path, *(words or ["--port", "0"]))
    assert ended.code == code and complaint in ended.err and ended.err.count("\n") == 1


def test_a_collection_that_nothing_can_search_is_refused(
    pipeline: Command, direct: Command, encoder: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("An owl.\nA bat.\n")
    assert direct("embed", "--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder).code == 0
    ended = pipeline("serve", tmp_path / "out", "--port", "0")
    assert ended.code == 1 and "names no model, and stores no texts for BM25: pass --model DIR" in ended.err


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"id": 7, "title": "Owls", "lang": "it's", "year": 2021}, "year > 2020"),
        ({"title": "Owls", "url": "https://x", "lang": "it's"}, "lang = 'it''s'"),
        ({"draft": True, "first author": "Ada", "meta.lang": "de"}, "`first author` = 'Ada'"),
        ({"in": "Berlin", "doc_id": 7}, "`in` = 'Berlin'"),
        ({"text": "a long text that nobody would type here", "empty": "", "none": None}, ""),
    ],
)
def test_the_example_of_a_filter_is_a_condition_on_a_field(fields: dict[str, Any], expected: str) -> None:
    assert example(fields) == expected
    if expected:
        assert Condition.parse(expected).fields <= fields.keys()
