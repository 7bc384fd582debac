"""Pieces: examples of consecutive sentences of one text, without excluded texts."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import read_synonyms
from clearspan.pipelines.kinds.text import meeting
from clearspan.pipelines.kinds.text_inputs import text_id
from clearspan.pipelines.text.exclude import Excluded
from clearspan.pipelines.text.segmentation import segment
from clearspan.shards import keyed, verify
from tests.pipelines.test_sentences import counts, rows


@pytest.mark.exhaustive
def test_pieces_are_consecutive_sentences_with_views_of_their_own(
    direct, head: Path, texts: list[str], del_tokenizer: Tokenizer, synonyms: Path, tmp_path: Path
) -> None:
    words = ("sentences", "--input", head, "--pack", "100", "--augment", "subs+del-span", "--synonyms", synonyms)
    outcome = direct(*words, "--json", "--unit-bytes", "50000")
    summary = json.loads(outcome.out)
    expected: list[list[int]] = []
    ids: list[int] = []
    num_cut = 0
    for text in texts[:40]:
        whole, bounds = " ".join(text.split()), [0]
        for sentence in segment(text, "en"):
            bounds.append(whole.index(sentence, bounds[-1]) + len(sentence))
        first = 0
        while first < len(bounds) - 1:
            last = first + 1
            while last < len(bounds) - 1:
                if len(del_tokenizer.encode(whole[bounds[first] : bounds[last + 1]].strip()).ids) > 102:
                    break
                last += 1
            piece, first = whole[bounds[first] : bounds[last]].strip(), last
            tokens = del_tokenizer.encode(piece, add_special_tokens=False).ids
            parts = [tokens[start : start + 100] for start in range(0, len(tokens), 100)]
            num_cut += len(parts) > 1
            expected += parts
            ids += [
                text_id(f"{piece}\0{part}".encode() if len(parts) > 1 else piece.encode()) for part in range(len(parts))
            ]
    found = rows(tmp_path / "out")
    kept = dict.fromkeys((name, tuple(part)) for name, part in zip(ids, expected, strict=True) if len(part) >= 4)
    assert [(row["id"], tuple(row["tokens"])) for row in found] == list(kept)
    figures = counts(tmp_path / "out")
    assert figures["read"] == len(expected) > 300
    assert figures["filtered"] == {
        "empty": 0,
        "short_tokens": sum(len(part) < 4 for part in expected),
        "duplicate": sum(len(part) >= 4 for part in expected) - len(kept),
    }
    sums = {"packed": sum(len(segment(text, "en")) for text in texts[:40]), "cut": num_cut}
    assert num_cut > 0 and {name: summary["sums"][name] for name in sums} == sums
    said = f"{sums['packed']:,} sentences packed to pieces of up to 100 tokens; {num_cut} longer ones cut"
    assert said in direct(*words, "--unit-bytes", "50000").out
    augmenter = Augmenter(Augmentation.parse("subs+del-span"), del_tokenizer, read_synonyms(synonyms))
    for row in found[::20]:
        block = Ragged.of([np.array(row["tokens"])], np.uint16)
        assert row["view_1"] == augmenter(block, keyed.mix(42, np.array([row["id"]]), 1))[0].tolist()
    assert verify(tmp_path / "out") == []


@pytest.mark.slow
def test_what_is_excluded_together_is_what_is_excluded_alone(wiki: Path) -> None:
    texts = wiki.read_text(encoding="utf-8").splitlines()
    excluded = Excluded.of([*texts[5:40], "A man plays the guitar", *(text[20:120] for text in texts[400:440])])
    alone = [index for index, text in enumerate(texts) if excluded.meets(text)]
    assert meeting(texts, excluded) == alone
    assert 40 < len(alone) < 120
