"""Several processes embed with a model that one process holds: the same vectors, errors in one line."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from transformers import BertTokenizer

from clearspan.common.encoder import ahead, stream
from clearspan.common.encoder.model_server import ModelServer
from clearspan.common.encoder.sentence_encoder import Embedded
from clearspan.common.encoder.shared_model import SharedModel
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
