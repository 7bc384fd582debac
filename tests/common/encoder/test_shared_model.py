"""Several processes embed with a model that one process holds: the same vectors, errors in one line."""

import functools
import json
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Client, Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertTokenizer

from clearspan.common.encoder import ahead, shared_model, stream
from clearspan.common.encoder.model_server import ModelServer, _Request
from clearspan.common.encoder.sentence_encoder import Embedded
from clearspan.common.encoder.shared_model import SharedModel, send
from clearspan.common.encoder.tokens import PostProcessing, TokenReader
from clearspan.common.model_folder import EncoderError, refusing
from tests.common.encoder.test_stream import Sums

BATCH_TOKENS = 40
TEXTS = [f"an owl hunts by ear {number}" + " in snow" * (number % 7) for number in range(50)] + ["", "owl"]
WINDOWS = [TEXTS[first : first + 9] for first in range(0, len(TEXTS), 9)]


class Failing(Sums):
    """A model that fails on a batch with a bracket, whose id is 1,006."""

    def encode_ids(self, ids: Tensor, lengths: np.ndarray, prompt_tokens: int = 0) -> Tensor:
        if 1006 in ids.tolist():
            raise RuntimeError("out of memory:\nno more")
        return super().encode_ids(ids, lengths, prompt_tokens)


class Held:
    """What a process holds: a packed model, or one that takes texts."""

    name, dim = "held", Sums.dim

    def __init__(self, reader: TokenReader, is_packed: bool) -> None:
        self.packed, self.reader = Failing() if is_packed else None, reader
        self.most_tokens = reader.most_tokens

    def embed(self, texts: Sequence[str], batch_tokens: int, prompt: str) -> Embedded:
        with refusing("held: cannot encode every text"):  # as FolderEncoder.embed does
            return stream.embed(self.reader, Failing(), texts, prompt, batch_tokens, progress=False)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [*map(int, self.reader.count(texts))]


@pytest.fixture(scope="module")
def reader(shared_data: Path) -> TokenReader:
    tokenizer = BertTokenizer.from_pretrained(shared_data / "tokenizers" / "bert-base-uncased")
    tokenizer.backend_tokenizer.encode_special_tokens = True
    reader = TokenReader(
        tokenizer.backend_tokenizer, PostProcessing([101], [102], 12, False, [101, 102]), 30522, "held"
    )
    reader.is_fast = True  # type: ignore[attr-defined]
    return reader


@pytest.fixture
def served(reader: TokenReader) -> Iterator[Callable[[bool], str]]:
    """Serve a model in a thread of this process; return its address."""
    folder, listeners = tempfile.mkdtemp(), list[Listener]()  # the path of a socket must be short

    def serve(is_packed: bool) -> str:
        address = f"{folder}/{is_packed}"
        listeners.append(Listener(address, "AF_UNIX"))
        process: Any = ModelServer(Held(reader, is_packed), listeners[-1])  # type: ignore[arg-type]
        threading.Thread(target=process.run, daemon=True).start()
        return address

    yield serve
    for listener in listeners:
        listener.close()
    shutil.rmtree(folder)


def joined(made: Iterator[Embedded]) -> Embedded:
    parts = list(made)
    return Embedded(np.concatenate([part.vectors for part in parts]), np.concatenate([p.truncated for p in parts]))


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "texts"])
def test_several_processes_get_the_vectors_of_one(served: Callable, reader: TokenReader, is_packed: bool) -> None:
    address = served(is_packed)
    with ThreadPoolExecutor(3) as processes:  # each with connections of its own, as processes have
        made = list(processes.map(lambda prompt: embedded(address, prompt), ["", "find: ", "find: "]))
    for prompt, each in zip(["", "find: ", "find: "], made, strict=True):
        alone = joined(stream.embed_windows(reader, Sums(), WINDOWS, prompt, BATCH_TOKENS))
        np.testing.assert_array_equal(each.vectors, alone.vectors)
        assert each.truncated.tolist() == alone.truncated.tolist() and alone.truncated.any()


def embedded(address: str, prompt: str) -> Embedded:
    return joined(SharedModel(address).embed_windows(WINDOWS, BATCH_TOKENS, prompt))


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "texts"])
def test_tokens_are_counted_and_the_limit_is_told(served: Callable, reader: TokenReader, is_packed: bool) -> None:
    model = SharedModel(served(is_packed))
    assert model.most_tokens == 10
    assert model.count_tokens(TEXTS) == reader.count(TEXTS).tolist()


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "texts"])
def test_a_failure_is_one_line_and_others_go_on(served: Callable, is_packed: bool) -> None:
    model = SharedModel(served(is_packed))
    with pytest.raises(EncoderError, match=r"^held: cannot encode every text \(out of memory: no more\)$"):
        list(model.embed_windows([["an owl"], ["some (brackets"], ["an owl"]], BATCH_TOKENS))
    assert joined(model.embed_windows([["an owl"], []], BATCH_TOKENS)).vectors.shape == (1, Sums.dim)


@pytest.mark.guarantee("one-model-a-gpu")
def test_the_end_of_the_process_is_one_line(reader: TokenReader) -> None:
    with tempfile.TemporaryDirectory() as folder, Listener(address := f"{folder}/s", "AF_UNIX") as listener:

        def converse() -> None:
            connections = [listener.accept() for _ in range(ahead.IN_FLIGHT)]
            process: Any = ModelServer(Held(reader, True), listener)  # type: ignore[arg-type]
            threading.Thread(target=process.run, daemon=True).start()
            threading.Thread(target=process._converse, args=(connections[0],), daemon=True).start()
            connections[1].close()

        threading.Thread(target=converse, daemon=True).start()
        model = SharedModel(address)
        with pytest.raises(EncoderError, match=r"the process of the model has ended \(\w+\): run again"):
            list(model.embed_windows(WINDOWS, BATCH_TOKENS))


@pytest.mark.guarantee("one-model-a-gpu")
def test_a_fault_of_the_server_itself_ends_its_process_while_clients_wait() -> None:
    """Were the process to stay, its clients would wait without end."""

    def embed(*_: Any, **__: Any) -> Embedded:
        os.close(2)  # the traceback is expected
        raise AssertionError("a fault of ours")

    with tempfile.TemporaryDirectory() as folder, Listener(f"{folder}/s", "AF_UNIX") as listener:
        server = ModelServer(SimpleNamespace(embed=embed), listener)  # type: ignore[arg-type]
        process = multiprocessing.get_context("fork").Process(target=server.run)
        process.start()
        with Client(f"{folder}/s", "AF_UNIX") as connection:
            send(connection, {"do": "texts", "texts": ["owl"], "batch_tokens": 9, "prompt": ""})
            process.join(10)
            ended = process.exitcode
        process.kill()
    assert ended == 1


@pytest.mark.slow
def test_who_embeds_by_another_process_needs_no_torch() -> None:
    line = "import sys, clearspan.common.encoder.shared_model as m; print({'torch', 'transformers'} & {*sys.modules})"
    ended = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"


@pytest.mark.guarantee("one-model-a-gpu")
def test_messages_are_json_and_arrays(reader: TokenReader) -> None:
    """What a reader is made of survives the way."""
    again = TokenReader.from_description(json.loads(json.dumps(reader.description())))
    read, same = reader.read(TEXTS, "[SEP] "), again.read(TEXTS, "[SEP] ")
    np.testing.assert_array_equal(read.ids, same.ids)
    assert read.prompt_tokens == same.prompt_tokens


class Line:
    """A connection of a client that ends at a call, or gives an answer."""

    def __init__(self, answer: dict[str, Any] | None, ends: type[Exception] | None = None, at: str = "") -> None:
        self.sent: list[bytes] = []
        self._answer, self._ends, self._at = answer, ends, at
        self._waiting = [json.dumps({**(answer or {}), "types": ["<f4"]}).encode(), np.float32(3).tobytes()]

    def send_bytes(self, content: Any) -> None:
        if self._ends and self._at == "send":
            raise self._ends
        self.sent.append(bytes(content))

    def recv_bytes(self) -> bytes:
        if self._ends and self._at == "receive":
            raise self._ends
        return self._waiting.pop(0)


def client(line: Line) -> SharedModel:
    """A client with one connection."""
    model = object.__new__(SharedModel)
    model._free = queue.SimpleQueue()
    model._free.put(line)  # type: ignore[arg-type]
    return model


@pytest.mark.guarantee("one-model-a-gpu")
def test_an_answer_is_the_message_and_its_arrays() -> None:
    line = Line({"dim": 8})
    answer, (found,) = client(line)._request({"do": "ids"}, np.arange(3, dtype=np.int16))
    assert answer == {"dim": 8} and found.tolist() == [3.0]
    assert json.loads(line.sent[0]) == {"do": "ids", "types": ["<i2"]} and line.sent[1] == b"\0\0\1\0\2\0"


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("at", ["send", "receive"])
@pytest.mark.parametrize("ends", [EOFError, BrokenPipeError, ConnectionResetError, OSError])
def test_a_connection_that_ends_is_one_line_and_may_be_tried_again(ends: type[Exception], at: str) -> None:
    model = client(Line({}, ends, at))
    for _ in range(2):
        with pytest.raises(EncoderError, match=rf"^the process of the model has ended \({ends.__name__}\): run again$"):
            model._request({"do": "describe"})
    assert model._free.qsize() == 1


@pytest.mark.guarantee("one-model-a-gpu")
def test_an_error_of_the_process_is_the_clients() -> None:
    model = client(Line({"error": "held: out of memory"}))
    with pytest.raises(EncoderError, match=r"^held: out of memory$"):
        model._request({"do": "ids"})
    assert model._free.qsize() == 1


def asked(server: ModelServer, message: dict[str, Any]) -> Any:
    """The answer to a request that is computed at once."""
    request = _Request(message, [], Future())
    server._answer_now(request)
    return request.answer.result(0)


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize(
    ("is_packed", "has_reader", "is_fast"),
    [(True, True, True), (False, True, True), (True, False, False), (True, True, False)],
)
def test_a_client_reads_the_tokens_if_the_model_is_packed_and_its_tokenizer_is_fast(
    is_packed: bool, has_reader: bool, is_fast: bool
) -> None:
    reader = SimpleNamespace(is_fast=is_fast, description=lambda: {"tokenizer": "owls"}) if has_reader else None
    model: Any = SimpleNamespace(name="held", dim=8, most_tokens=10, packed=is_packed or None, reader=reader)
    told, arrays = asked(ModelServer(model, Listener.__new__(Listener)), {"do": "describe"})
    expected = {"tokenizer": "owls"} if is_packed and is_fast else None
    assert told == {"name": "held", "dim": 8, "most_tokens": 10, "reader": expected} and arrays == []


@pytest.mark.guarantee("one-model-a-gpu")
def test_texts_are_embedded_and_counted_as_asked() -> None:
    calls: list[Any] = []

    def embed(*given: Any, **named: Any) -> Embedded:
        calls.append((*given, named))
        return Embedded(np.ones((2, 8), np.float32), np.array([True, False]))

    model: Any = SimpleNamespace(embed=embed, count_tokens=lambda texts: [len(text) for text in texts])
    server = ModelServer(model, Listener.__new__(Listener))
    assert asked(server, {"do": "count", "texts": ["owl", ""]}) == ({"counts": [3, 0]}, [])
    message = {"do": "texts", "texts": ["owl", "rain"], "batch_tokens": 99, "prompt": "find: "}
    told, (vectors, truncated) = asked(server, message)
    assert told == {} and vectors.shape == (2, 8) and truncated.tolist() == [True, False]
    assert calls == [(["owl", "rain"], 99, {"prompt": "find: "})]


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("do", ["describe", "count", "texts"])
def test_an_error_in_a_request_is_one_line_of_its_answer(do: str) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise EncoderError("held: out of memory:\n  no more")

    reader = SimpleNamespace(is_fast=True, description=fails)
    model: Any = SimpleNamespace(embed=fails, count_tokens=fails, packed=True, reader=reader)
    message = {"do": do, "texts": ["owl"], "batch_tokens": 9, "prompt": ""}
    assert asked(ModelServer(model, Listener.__new__(Listener)), message) == (
        {"error": "held: out of memory: no more"},
        [],
    )


class Step(int):
    """A window, known by its number, that is done."""

    def is_done(self) -> bool:
        return True


class Steps(ModelServer):
    """A server that keeps what it starts and finishes."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(), Listener.__new__(Listener))  # type: ignore[arg-type]
        self.done: list[str] = []

    def _accept(self) -> None:
        self.done.append("accept")

    def _started(self, request: _Request) -> Any:
        if request.message.get("fails"):
            raise EncoderError("held: too long:\n  no more")
        self.done.append(f"start {request.message['number']}")
        return Step(request.message["number"])

    def _finish(self, request: _Request, running: Any) -> None:
        self.done.append(f"finish {running}")
        request.answer.set_result(({"number": request.message["number"]}, []))

    def _answer_now(self, request: _Request) -> None:
        self.done.append(f"answer {request.message['number']}")
        request.answer.set_result(({}, []))


@pytest.mark.guarantee("one-model-a-gpu")
def test_a_few_windows_are_computed_at_once_and_each_is_answered_in_its_turn() -> None:
    server, before = Steps(), {*threading.enumerate()}
    requests = [
        _Request({"do": do, "number": number, "fails": number == 3}, [], Future())
        for number, do in enumerate(["ids", "ids", "count", "ids", "ids"])
    ]
    for request in requests:
        server._requests.put(request)
    threading.Thread(target=server.run, daemon=True).start()
    answers = [request.answer.result(5) for request in requests]
    assert answers[3] == ({"error": "held: too long: no more"}, [])
    assert [message.get("number") for message, _ in answers] == [0, 1, None, None, 4]
    assert "accept" in server.done
    steps = [step for step in server.done if step != "accept"]
    assert steps == ["start 0", "start 1", "finish 0", "answer 2", "start 4", "finish 1", "finish 4"]
    later = _Request({"do": "ids", "number": 9}, [], Future())
    server._requests.put(later)
    assert later.answer.result(5) == ({"number": 9}, [])
    assert all(thread.daemon for thread in {*threading.enumerate()} - before)
    assert ahead.IN_FLIGHT == 2


def test_a_window_that_comes_while_another_is_computed_is_started_before_that_one_is_done() -> None:
    """The first window is done only when the second one was started: a GPU would be idle in between."""

    waiting = [_Request({"do": "ids", "number": number}, [], Future()) for number in range(2)]
    first, second = waiting

    class Computing(Step):
        def is_done(self) -> bool:
            if len(waiting) > 1:
                server._requests.put(waiting.pop())
            if self == 1:
                raise RuntimeError("CUDA error: what its result will say")
            return "start 1" in server.done

    class Late(Steps):
        def _started(self, request: _Request) -> Any:
            return Computing(super()._started(request))

    server = Late()
    server._requests.put(first)
    threading.Thread(target=server.run, daemon=True).start()
    assert first.answer.result(10) == ({"number": 0}, []) and second.answer.result(10) == ({"number": 1}, [])
    assert [step for step in server.done if step != "accept"][:3] == ["start 0", "start 1", "finish 0"]


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("as_text", [False, True])
def test_a_reader_is_known_by_its_description(as_text: bool, shared_data: Path) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/bert-base-uncased/tokenizer.json"))
    tokenizer.encode_special_tokens = as_text
    own = PostProcessing([101], [102], 12, False, [101, 102])
    again = TokenReader.from_description(
        json.loads(json.dumps(TokenReader(tokenizer, own, 30522, "owls").description()))
    )
    assert again.post_processing == own and (again._name, again._num_embeddings) == ("owls", 30522)
    assert (103 in again.read(["[MASK] owl"], "").ids) is not as_text


@pytest.mark.guarantee("one-model-a-gpu")
def test_models_of_one_name_are_read_each_by_its_own_rules(
    reader: TokenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where several models are embedded with in turn, each from a folder that is called model."""
    shorter = TokenReader(reader._tokenizer, PostProcessing([], [102], 4, True, [102]), 30522, "held")
    text = "Owls hunt at night, by ear more than by eye."
    for each in (reader, shorter, reader):
        hello = {"name": "held", "dim": 5, "most_tokens": each.most_tokens, "reader": each.description()}
        monkeypatch.setattr(shared_model, "Client", lambda *_, hello=hello: Line(hello))
        model = SharedModel("")
        assert model._reader is not None and model.most_tokens == each.most_tokens
        np.testing.assert_array_equal(model._reader.read([text], "find: ").ids, each.read([text], "find: ").ids)


@pytest.mark.guarantee("one-model-a-gpu")
def test_one_thread_computes_for_all_clients() -> None:
    """Two threads would hold the states of two batches on the device."""
    threads: list[threading.Thread] = []

    def embed(texts: Sequence[str], *_: Any, **__: Any) -> Embedded:
        threads.append(threading.current_thread())
        return Embedded(np.ones((len(texts), 8), np.float32), np.zeros(len(texts), bool))

    def counted(texts: Sequence[str]) -> list[int]:
        threads.append(threading.current_thread())
        return [len(text) for text in texts]

    server: Any = Steps()
    server._model = SimpleNamespace(embed=embed, count_tokens=counted)
    server._answer_now = functools.partial(ModelServer._answer_now, server)
    messages = [{"do": do, "texts": ["owl"], "batch_tokens": 9, "prompt": ""} for do in ["texts", "count"] * 3]
    requests = [_Request(message, [], Future()) for message in messages]
    for request in requests:
        server._requests.put(request)
    threading.Thread(target=server.run, daemon=True).start()
    assert all("error" not in request.answer.result(5)[0] for request in requests)
    assert len(threads) == 6 and len({*map(id, threads)}) == 1
