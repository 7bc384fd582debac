"""Deduplication, limit, held-out part, excluded texts: tested on planted copies and interrupted runs."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.pipelines.builders.documents import Documents
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.text import minhash
from clearspan.pipelines.units import decisions, exchange
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.job import STAGED, Entries, Job, UnitResult
from clearspan.pipelines.units.keys import ID_BITS, KEY, keys
from clearspan.pipelines.units.rounds import rounds
from clearspan.shards import Dataset, storage, verify
from clearspan.shards.schema import schema
from tests.pipelines.conftest import rows

UNIT = ("--unit-bytes", "30000", "--min-tokens", "300")


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path) -> Path:
    """Sixty documents, and copies of eleven: beside the original, in another unit, file or plain text."""
    copies = [*texts[:30], *texts[10:14], *texts[30:60], *texts[2:6], texts[2], texts[45]]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in copies))
    (tmp_path / "corpus" / "b.txt").write_text(texts[20])
    (tmp_path / "corpus" / "c.txt").write_text(texts[20] + " ")
    return tmp_path / "corpus"


def counts(folder: Path) -> dict:
    figures = json.loads((folder / "manifest.json").read_text())["counts"]
    assert figures["read"] == figures["kept"] + sum(figures["filtered"].values()) + figures["bad"] == 72
    return figures


@pytest.mark.slow
def test_the_held_out_part_is_a_dataset_of_its_own(direct, corpus: Path, texts: list[str], tmp_path: Path) -> None:
    assert direct("--input", corpus, *UNIT, "--output", tmp_path / "all").code == 0
    assert direct("--input", corpus, *UNIT, "--holdout-fraction", "0.25").code == 0
    train, held = rows(tmp_path / "out"), rows(tmp_path / "out" / "validation")
    assert not {row["id"] for row in train} & {row["id"] for row in held}
    everything = rows(tmp_path / "all")
    assert sorted([*train, *held], key=everything.index) == everything
    assert counts(tmp_path / "out")["filtered"]["held_out"] == len(held) > 0
    assert counts(tmp_path / "out" / "validation")["filtered"]["in_training"] == len(train)
    for folder, split in ((tmp_path / "out", "train"), (tmp_path / "out" / "validation", "validation")):
        assert verify(folder) == []
        assert Dataset(folder).manifest.fingerprint["split"] == split
        assert (Dataset(folder).local_tokenizer() / "tokenizer.json").exists()


@pytest.mark.guarantee("held-out-share")
@pytest.mark.slow
def test_a_fraction_that_leaves_a_side_empty_is_an_error(direct, corpus: Path, tmp_path: Path) -> None:
    assert direct("--input", corpus, *UNIT, "--output", tmp_path / "all").code == 0
    num_texts = len(rows(tmp_path / "all"))
    outcome = direct("--input", corpus, *UNIT, "--holdout-fraction", "0.0001")
    assert outcome.code == 1
    assert f"--holdout-fraction 0.0001 of {num_texts} documents leaves none to validation" in outcome.err


ALL = ("--dedup", "--limit", "30", "--holdout-fraction", "0.3")


@pytest.mark.guarantee("any-workers")
@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", ["1", "2"])
def test_beam_gives_what_its_steps_give(pipeline, corpus: Path, tmp_path: Path, tree, request, workers: str) -> None:
    assert pipeline("--input", corpus, *UNIT, *ALL, "--workers", workers).code == 0
    direct = request.getfixturevalue("direct")
    assert direct("--input", corpus, *UNIT, *ALL, "--output", tmp_path / "direct").code == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "direct")
    assert counts(tmp_path / "out")["kept"] + counts(tmp_path / "out" / "validation")["kept"] == 30
    again = direct("--input", corpus, *UNIT, *ALL)
    assert "was already finished" in again.out


def test_every_option_is_in_the_fingerprint() -> None:
    options = {"dedup": True, "limit": 30, "holdout_fraction": 0.3, "near_dedup": 0.8}
    assert Curation(**options).options == {**options, "sketches": minhash.VERSION}
    assert Curation().options == {"dedup": False, "limit": None, "holdout_fraction": 0.0}


key_lists = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=12), min_size=1, max_size=6)


def staged_job(folder: Path, units: list[np.ndarray], curation: Curation) -> Job:
    """Return a job whose units have been staged, with these keys of examples."""
    job = Job(str(folder), "", "", Documents, {}, len(units), None, 0, curation=curation)
    for unit, found in enumerate(units):
        found = np.sort(found, order="id", kind="stable")
        content = exchange.pack(found, exchange.bucket(found["id"], ID_BITS), exchange.BUCKETS)
        storage.publish_bytes(content, job.entries_path(Entries.KEYS, unit))
        kept = len(set(found["row"].tolist()))
        storage.publish_bytes(UnitResult([], Counts(kept=kept)).to_json("", unit), job.result_path(unit, STAGED))
    return job


def marks_of_all(job: Job) -> list[list[int]]:
    """Run all rounds but the last; return the marks of each unit's documents."""
    for each in rounds(job.curation)[:-1]:
        for element in reversed(each.elements(job)):
            each.work(job, *element)
    return [decisions.marks_of(job, unit).tolist() for unit in range(job.num_units)]


@pytest.mark.exhaustive
@given(key_lists, st.integers(1, 200), st.none() | st.integers(1, 12))
@settings(max_examples=150)
def test_marks_are_those_of_a_plain_set(tmp_path_factory, units: list, size: int, limit: int | None) -> None:
    packed = []
    for unit in units:
        packed.append(np.zeros(len(unit), KEY))
        for row, (high, low) in enumerate(unit):
            # Spread over the buckets, and equal ids of unequal tokens.
            packed[-1][row] = (high << 60, low, row)
    seen, expected, kept = set(), [], 0
    for unit in units:
        marks = []
        for key in unit:
            marks.append(1 if key in seen else 2 if limit is not None and kept >= limit else 0)
            kept += marks[-1] == 0
            seen.add(key)
        expected.append(marks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "SLICE_BYTES", exchange.BUCKETS * 8 * len(units) // 2 + size)
        assert (
            marks_of_all(staged_job(tmp_path_factory.mktemp("keys"), packed, Curation(dedup=True, limit=limit)))
            == expected
        )


@pytest.fixture
def four_units() -> list[np.ndarray]:
    """The keys of four units of 5,000 rows each, which share the first hundred keys."""
    rng = np.random.default_rng(0)
    units = []
    for _ in range(4):
        found = np.zeros(5000, KEY)
        found["id"], found["row"] = rng.integers(0, 1 << 63, 5000), np.arange(5000)
        found["id"][:100] = np.arange(100) << 56
        units.append(found)
    return units


@pytest.mark.guarantee("any-workers")
def test_keys_are_compared_a_bounded_part_at_a_time(
    four_units: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, lexsort = [], np.lexsort
    job = staged_job(tmp_path, four_units, Curation(dedup=True))
    monkeypatch.setattr(np, "lexsort", lambda keys: (sizes.append(len(keys[0])), lexsort(keys))[1])
    monkeypatch.setattr(decisions, "SLICE_BYTES", 20_000)
    marks = marks_of_all(job)
    assert max(sizes) <= 1000 and len(list(tmp_path.glob("_staged/duplicates-*"))) > 20
    assert [np.flatnonzero(found).tolist() for found in marks] == [[], *[list(range(100))] * 3]


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 65535) | st.integers(0, 2), max_size=6), max_size=30))
@settings(max_examples=200)
def test_token_hashes_are_equal_where_tokens_are(lists: list[list[int]]) -> None:
    rows = [{"id": 7, "tokens": tokens, "view_0": [number]} for number, tokens in enumerate(lists)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema("sentences", pa.uint16(), views=1))
    hashes = keys(batch, None, 0, ["tokens"])["content"].tolist()
    assert hashes[3:] == keys(batch.slice(3), None, 3, ["tokens"])["content"].tolist()
    for number, tokens in enumerate(lists):
        assert [tokens == other for other in lists] == [hashes[number] == other for other in hashes]


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("switches", [(), ("--dedup", "--limit", "3", "--holdout-fraction", "0.5")])
def test_what_a_run_without_shards_left_makes_way_but_not_beside_other_files(
    direct, head: Path, tmp_path: Path, switches: tuple
) -> None:
    assert direct("--input", head, *switches, "--min-tokens", "1000000").code == 1
    for name in ("notes.txt", "_done/notes.txt", "tokenizer/notes.txt"):
        (tmp_path / "out" / name).write_text("mine")
        assert "was begun with other inputs or options" in direct("--input", head).err
        (tmp_path / "out" / name).unlink()
    assert direct("--input", head).code == 0
    assert verify(tmp_path / "out") == [] and not list((tmp_path / "out").rglob("_curated/*"))
    assert "was begun with other inputs or options" in direct("--input", head, "--dedup").err
