"""A Python function as a model: it embeds each text, or an error says in one line why not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clearspan.common.model_folder import EncoderError
from clearspan.eval.models.load import FunctionEncoder

TEXTS = ["a text", "a much longer text, of many more words than the others have", "", "ein Satz"]


def counts(texts: list[str]) -> np.ndarray:
    """Return the numbers of characters and words, (n, 2)."""
    assert isinstance(texts, list)
    return np.array([[len(text), len(text.split())] for text in texts])


@pytest.mark.parametrize(
    "given",
    [
        lambda rows: rows,
        lambda rows: rows.astype(np.float64),
        lambda rows: rows.tolist(),
        lambda rows: torch.tensor(rows),
        lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
        lambda rows: torch.tensor(rows, dtype=torch.float32, requires_grad=True),
        lambda rows: list(torch.tensor(rows, dtype=torch.bfloat16)),
        list,
    ],
)
def test_arrays_tensors_and_lists_give_the_same_float32_rows(given: Callable[[np.ndarray], Any]) -> None:
    model = FunctionEncoder("own:encode", lambda texts: given(counts(texts)))
    embeddings = model.encode(TEXTS)
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(embeddings, counts(TEXTS))
    assert (model.dim, model.fingerprint, model.folder) == (2, None, None)
    assert model.encode([]).shape == (0, 2)


def test_texts_come_longest_first_in_batches_of_the_budget() -> None:
    batches: list[list[str]] = []

    def encode(texts: list[str]) -> np.ndarray:
        batches.append(texts)
        return counts(texts)

    model = FunctionEncoder("own:encode", encode)
    batches.clear()
    np.testing.assert_array_equal(model.encode(TEXTS, batch_tokens=4), counts(TEXTS))
    assert batches == [[TEXTS[1]], [TEXTS[3]], [TEXTS[0], TEXTS[2]]]
    batches.clear()
    model.encode(["an owl"] * 100, batch_tokens=50)
    assert [len(batch) for batch in batches] == [25] * 4


def fails(texts: list[str]) -> None:
    raise RuntimeError("out of\nmemory")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: counts(texts)[:-1], r"int64 \(1, 2\): expected an array \(2, dim\) of real"),
        (lambda texts: counts(texts)[0], r" \(2,\)"),
        (lambda texts: counts(texts)[None], r" \(1, 2, 2\)"),
        (lambda texts: np.empty((len(texts), 0)), r" \(2, 0\)"),
        (lambda texts: None, "returned a NoneType of object"),
        (lambda texts: [[1, 2], [3]], "returned a list of "),
        (lambda texts: np.array([["a", "b"]] * len(texts)), "returned a ndarray of <U1"),
        (lambda texts: np.ones((len(texts), 2), complex), "returned a ndarray of complex128"),
        (lambda texts: np.ones((len(texts), 2), bool), "returned a ndarray of bool"),
        (lambda texts: {text: [1.0] for text in texts}, "returned a dict of object"),
        (lambda texts: (row for row in counts(texts)), "returned a generator of object"),
        (lambda texts: [torch.ones(2), torch.ones(3)], "returned a list of "),
        (fails, "raised RuntimeError: out of memory on 2 texts"),
    ],
)
def test_what_is_no_embedding_of_each_text_is_one_line(function: Callable[[list[str]], Any], message: str) -> None:
    with pytest.raises(EncoderError, match=message) as error:
        FunctionEncoder("own:encode", function)
    assert str(error.value).startswith("own:encode: ") and "\n" not in str(error.value)


def test_a_width_that_changes_is_found_in_the_middle() -> None:
    model = FunctionEncoder("own:encode", lambda texts: np.ones((len(texts), 3 if len(texts) == 1 else 2)))
    with pytest.raises(EncoderError, match=r" \(1, 3\): expected an array \(1, 2\)"):
        model.encode(["alone"])


def test_broken_numbers_reach_whoever_counts_them() -> None:
    model = FunctionEncoder("own:encode", lambda texts: np.full((len(texts), 2), [np.nan, 1e300]))
    assert not np.isfinite(model.encode(["owl"])).any()
