"""Pieces: examples of consecutive sentences of one text, without excluded texts."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from clearspan.common.same_text import text_id
from clearspan.pipelines.builders.text import containing_excluded
from clearspan.pipelines.text.exclude import Excluded
from clearspan.pipelines.text.segmentation import segment, segment_spaced
from clearspan.shards import verify
from tests.pipelines.conftest import rows
from tests.pipelines.test_joining import slowly
from tests.pipelines.test_sentences import counts


@pytest.mark.slow
def test_pieces_are_consecutive_sentences(
    direct, head: Path, texts: list[str], del_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    words = ("sentences", "--input", head, "--pack", "100", "--unit-bytes", "50000")
    sums = json.loads(direct(*words, "--json").out)["sums"]
    expected = slowly([segment_spaced(text, "en") for text in texts[:40]], 100, del_tokenizer)
    kept = dict.fromkeys((text_id(name.encode()), tuple(ids)) for name, ids in expected if len(ids) >= 4)
    assert [(row["id"], tuple(row["tokens"])) for row in rows(tmp_path / "out")] == list(kept)
    figures = counts(tmp_path / "out")
    assert figures["read"] == len(expected) > 300
    num_short = sum(len(ids) < 4 for _, ids in expected)
    duplicates = len(expected) - num_short - len(kept)
    assert figures["filtered"] == {"empty": 0, "short_tokens": num_short, "duplicate": duplicates}
    num_cut = sum(name.endswith("\0" + "0") for name, _ in expected)
    assert sums == {"packed": sum(len(segment(text, "en")) for text in texts[:40]), "cut": num_cut} and num_cut > 0
    said = f"{sums['packed']:,} sentences packed to pieces of up to 100 tokens; {num_cut} longer ones cut"
    assert said in direct(*words).out
    assert verify(tmp_path / "out") == []


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.slow
def test_what_is_excluded_together_is_what_is_excluded_alone(wiki: Path) -> None:
    texts = wiki.read_text(encoding="utf-8").splitlines()
    excluded = Excluded.of([*texts[5:40], "A man plays the guitar", *(text[20:120] for text in texts[400:440])])
    alone = [index for index, text in enumerate(texts) if excluded.contains_excluded(text)]
    assert containing_excluded(texts, excluded) == alone
    assert 40 < len(alone) < 120
