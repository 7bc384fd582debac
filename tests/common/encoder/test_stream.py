"""Any number of texts are embedded in order, in windows that are tokenized ahead, in batches of tokens."""

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from clearspan.common.encoder import ahead, stream
from clearspan.common.encoder.tokens import Tokens
from clearspan.common.fast_tokenizer import TokenizerError

WAIT_S = 30.0


class Letters:
    """A reader whose ids are the code points, of the first eight characters."""

    def __init__(self) -> None:
        self.num_read = 0

    def read(self, texts: Sequence[str], prompt: str = "") -> Tokens:
        self.num_read += 1
        if "\ud800" in texts:
            raise TokenizerError("no text")
        ids = [[ord(letter) for letter in (prompt + text)[:8]] for text in texts]
        lengths = np.array([*map(len, ids)], np.int32)
        flat = np.array([*itertools.chain(*ids)], np.int32)
        return Tokens(flat, lengths, np.array([len(prompt + text) > 8 for text in texts], bool), len(prompt))


class Sums:
    """A model that embeds a text as the sum, the first and the last of its ids, their number, and the prompt's."""

    dim = 5
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def encode_ids(self, ids: Tensor, lengths: np.ndarray, prompt_tokens: int = 0) -> Tensor:
        assert torch.is_inference_mode_enabled() and int(lengths.sum()) == len(ids)
        self.batches.append(lengths.tolist())
        rows = [part.float() for part in ids.split(lengths.tolist())]
        ends = [(row[0], row[-1]) if len(row) else (-1.0, -1.0) for row in rows]
        made = [[row.sum(), *two, len(row), prompt_tokens] for row, two in zip(rows, ends, strict=True)]
        return torch.tensor([[float(value) for value in row] for row in made])


class Accelerator(str):
    """A device that is not the host, as far as its type tells."""

    type = "accelerator"


class SumsElsewhere(Sums):
    """The same model on another device, from which its embeddings are copied."""

    device = Accelerator("cpu")  # type: ignore[assignment]


def expected(texts: Sequence[str], prompt: str = "") -> np.ndarray:
    """What the model gives for each text alone."""
    rows = []
    for text in texts:
        ids = [ord(letter) for letter in (prompt + text)[:8]]
        ends = (ids[0], ids[-1]) if ids else (-1, -1)
        rows.append([sum(ids), *ends, len(ids), len(prompt)])
    return np.array(rows, np.float32).reshape(len(texts), Sums.dim)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WINDOW_TEXTS", 5)
    monkeypatch.setattr(ahead, "WINDOW_CHARACTERS", 40)


TEXTS = ["owl" * (7 * number % 5) + str(number) for number in range(43)] + ["", "an owl", "", "owl" * 50, "b"]


@pytest.mark.guarantee("embedded-in-order")
@pytest.mark.parametrize("batch_tokens", [1, 13, 1000])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 11, 16, 48])
@pytest.mark.parametrize("kind", [Sums, SumsElsewhere])
@pytest.mark.usefixtures("small_windows")
def test_rows_are_in_order_whatever_the_windows_and_batches(count: int, batch_tokens: int, kind: type[Sums]) -> None:
    model, texts = kind(), TEXTS[:count]
    for prompt in ("", "q:"):
        made = stream.embed(Letters(), model, texts, prompt, batch_tokens, progress=False)
        np.testing.assert_array_equal(made.vectors, expected(texts, prompt))
        assert made.vectors.dtype == np.float32
        assert made.truncated.tolist() == [len(prompt + text) > 8 for text in texts]
    for lengths in model.batches:
        assert sum(lengths) <= batch_tokens or len(lengths) == 1
        assert lengths == sorted(lengths, reverse=True)


@pytest.mark.guarantee("embedded-in-order")
@pytest.mark.parametrize("kind", [Sums, SumsElsewhere])
def test_a_window_of_thousands_of_texts_is_embedded_whole(kind: type[Sums]) -> None:
    texts = [*map(str, range(5_000))]
    assert len(texts) <= ahead.WINDOW_TEXTS
    (made,) = stream.embed_windows(Letters(), kind(), [texts], "", 30_000)
    np.testing.assert_array_equal(made.vectors, expected(texts))


@pytest.mark.guarantee("embedded-in-order")
@pytest.mark.usefixtures("small_windows")
def test_batches_are_as_large_as_they_may_be() -> None:
    model = Sums()
    stream.embed(Letters(), model, ["four"] * 5, "", 8, progress=False)
    assert model.batches == [[4, 4], [4, 4], [4]]


@pytest.mark.guarantee("embedded-in-order")
def test_a_window_ends_by_texts_or_by_characters(small_windows: None) -> None:
    made = list(ahead.windows(["a" * 30, "b" * 30, "c" * 100, *"defghijk"]))
    assert made == [["a" * 30, "b" * 30], ["c" * 100], [*"defgh"], [*"ijk"]]


@pytest.mark.guarantee("embedded-in-order")
def test_texts_without_end_are_embedded_a_few_windows_ahead() -> None:
    taken = []

    def endless() -> Iterator[list[str]]:
        for number in itertools.count():
            assert number < 100, "windows are taken long before they are embedded"
            taken.append(number)
            yield [f"{number}"] * 3

    made = stream.embed_windows(Letters(), Sums(), endless(), "", 100)
    for number in range(20):
        np.testing.assert_array_equal(next(made).vectors, expected([f"{number}"] * 3))
        assert len(taken) <= number + 5, "on any machine"
    made.close()
    assert not tokenizing()


@pytest.mark.guarantee("embedded-in-order")
@pytest.mark.parametrize("kind", [Sums, SumsElsewhere])
def test_each_window_has_its_own_vectors_also_if_it_is_empty_or_like_another(kind: type[Sums]) -> None:
    windows = [["an owl", "rain"], [], ["rain", "an owl"], ["an owl", "rain"], ["", ""], [], [], ["b"] * 3, []]
    made = list(stream.embed_windows(Letters(), kind(), windows, "q:", 7))
    assert len(made) == len(windows)
    for window, found in zip(windows, made, strict=True):
        np.testing.assert_array_equal(found.vectors, expected(window, "q:"))
        assert found.truncated.tolist() == [len("q:" + text) > 8 for text in window]
    for single in ([], ["an owl"]):
        (found,) = stream.embed_windows(Letters(), kind(), [single], "", 7)
        np.testing.assert_array_equal(found.vectors, expected(single))


def tokenizing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tokenization")]


@pytest.mark.guarantee("embedded-in-order")
@pytest.mark.parametrize("kind", [Sums, SumsElsewhere])
def test_a_window_is_done_as_soon_as_its_vectors_are_on_the_host(kind: type[Sums]) -> None:
    window = stream.Window(kind(), Letters().read(["owl", "a barn owl"]), 100)
    assert window.is_done()
    if window._copying is not None:
        window._copying._done = Mock(query=lambda: False)
        assert not window.is_done()


@pytest.mark.guarantee("embedded-in-order")
def test_a_guard_is_around_the_model_and_not_around_taking_a_window() -> None:
    inside: list[str] = []

    @contextlib.contextmanager
    def guard() -> Iterator[None]:
        inside.append("guarded")
        yield
        inside.pop()

    class Guarded(Sums):
        def encode_ids(self, ids: Tensor, lengths: np.ndarray, prompt_tokens: int = 0) -> Tensor:
            assert inside
            return super().encode_ids(ids, lengths, prompt_tokens)

    def windows() -> Iterator[list[str]]:
        for text in "abc":
            assert not inside
            yield [text]

    made = [each.vectors for each in stream.embed_windows(Letters(), Guarded(), windows(), "", 100, guard)]
    assert [each.dtype for each in made] == [np.float32] * 3
    np.testing.assert_array_equal(np.concatenate(made), expected([*"abc"]))


@pytest.mark.guarantee("embedded-in-order")
def test_windows_are_tokenized_while_the_model_computes() -> None:
    """The model waits in its first batch until later windows are read."""
    later = threading.Event()

    class Ahead(Letters):
        def read(self, texts: Sequence[str], prompt: str = "") -> Tokens:
            made = super().read(texts, prompt)
            if self.num_read == 1 + ahead.AHEAD:
                later.set()
            return made

    class Waiting(Sums):
        def encode_ids(self, ids: Tensor, lengths: np.ndarray, prompt_tokens: int = 0) -> Tensor:
            assert later.wait(WAIT_S), "nothing is read while the model computes"
            return super().encode_ids(ids, lengths, prompt_tokens)

    windows = [[f"{number}"] for number in range(6)]
    made = [each.vectors for each in stream.embed_windows(Ahead(), Waiting(), windows, "", 100)]
    np.testing.assert_array_equal(np.concatenate(made), expected([f"{number}" for number in range(6)]))


@pytest.mark.guarantee("embedded-in-order")
def test_a_text_that_cannot_be_tokenized_ends_it_after_the_windows_before() -> None:
    def windows() -> Iterator[list[str]]:
        yield from (["a"], ["b"], ["\ud800"], ["c"], ["d"], ["e"], ["f"])

    made = stream.embed_windows(Letters(), Sums(), windows(), "", 100)
    np.testing.assert_array_equal(next(made).vectors, expected(["a"]))
    with pytest.raises(TokenizerError):
        list(made)
    assert not tokenizing()


@pytest.mark.guarantee("embedded-in-order")
@pytest.mark.usefixtures("small_windows")
def test_progress_is_of_tokens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bars: list[stream.TokenBar] = []

    class Kept(stream.TokenBar):
        def __exit__(self, *failure: object) -> None:
            bars.append(self)
            assert self.total == self.n == sum(min(len(text), 8) for text in TEXTS)
            super().__exit__(*failure)

    monkeypatch.setattr(stream, "TokenBar", Kept)
    stream.embed(Letters(), Sums(), TEXTS, "", 13, progress=True)
    assert len(bars) == 1
