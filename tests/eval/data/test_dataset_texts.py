"""Texts of a dataset of token ids: read without the prompts that are stored before them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from clearspan.common.fast_tokenizer import load_tokenizer
from clearspan.eval.data.dataset_texts import DatasetTexts

LONG = "owls hunt by ear in the dark northern woods"


@pytest.fixture(scope="module")
def tokenizer(shared_data: Path) -> Any:
    return load_tokenizer((shared_data / "tokenizers/bert-base-uncased/tokenizer.json").read_bytes())


def texts_of(tokenizer: Any, kind: str, prompts: dict[str, str], **options: Any) -> DatasetTexts:
    """The texts of a dataset without shards."""
    found = object.__new__(DatasetTexts)
    fingerprint = {"options": options} if options else {}
    manifest = SimpleNamespace(fingerprint=fingerprint, prompts=prompts)
    found._dataset = SimpleNamespace(kind=SimpleNamespace(name=kind), manifest=manifest)  # type: ignore[assignment]
    found._prompts, found.tokenizer = prompts, tokenizer
    return found


@pytest.mark.guarantee("prompts-held-out")
@pytest.mark.parametrize("kind", ["triplets", "documents"])
@pytest.mark.parametrize("prompts", [{}, {"tokens": "Query: "}, {"positive": "a long passage: "}])
def test_a_text_is_cut_where_the_dataset_cuts_it_behind_its_prompt(
    tokenizer: Any, kind: str, prompts: dict[str, str]
) -> None:
    prompt = prompts.get("positive" if kind == "triplets" else "tokens", "")
    num_kept = 7 - len(tokenizer.encode(prompt, add_special_tokens=False).ids)
    cut = " ".join(LONG.split()[:num_kept])
    assert cut != LONG
    for options, expected in [
        ({"max_tokens": 7, "long": "cut"}, cut),
        ({"max_tokens": 7, "long": "drop"}, LONG),
        ({"max_tokens": 7}, LONG),
        ({"long": "cut"}, LONG),
        ({}, LONG),
    ]:
        assert texts_of(tokenizer, kind, prompts, **options).round_trip(LONG) == expected
    assert texts_of(tokenizer, kind, prompts).round_trip("  The OWL ") == "the owl"


@pytest.mark.guarantee("prompts-held-out")
@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("tokens", "Query "),
        ("positive", "passage "),
        ("positive_2", "passage "),
        ("negative_1", "other "),
        ("x", ""),
    ],
)
def test_each_column_is_read_without_its_own_prompt(tokenizer: Any, name: str, prompt: str) -> None:
    prompts = {"tokens": "Query ", "positive": "passage ", "negative": "never ever find ", "negative_1": "other "}
    texts = [None, "an owl", "query an owl", None, "the passage of owls", ""]
    ids = [None if text is None else tokenizer.encode(prompt + text, add_special_tokens=False).ids for text in texts]
    found = texts_of(tokenizer, "triplets", prompts)._texts(pa.array(ids, pa.list_(pa.int32())), name)
    assert found == texts
