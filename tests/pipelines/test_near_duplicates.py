"""Near-duplicates: estimates against exact similarities, decisions against slow ones, planted copies in a corpus."""

import json
import random
import signal
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.common import files
from clearspan.pipelines.text import minhash
from clearspan.pipelines.text.minhash import NUM_HASHES, sketches
from clearspan.pipelines.text.word_hashes import WordHashes
from clearspan.pipelines.units import decisions, near, unit
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.job import Job
from clearspan.shards import verify
from tests.pipelines.conftest import killed, logged, rows

UNIT = ("--unit-bytes", "40000", "--min-tokens", "50")
NEAR = (*UNIT, "--near-dedup", "0.8")
ALL = (*NEAR, "--dedup", "--limit", "35", "--holdout-fraction", "0.3")


def jaccard(first: str, second: str) -> float:
    """Return the similarity of the sets of 5-grams of words of two English texts."""
    sets = []
    for text in (first, second):
        words = "".join(c if c.isalnum() else " " for c in text.lower().replace("'", "")).split()
        sets.append({tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def edited(text: str, fraction: float, seed: int) -> str:
    """Return a text with a fraction of its words replaced."""
    rng = random.Random(seed)
    return " ".join(word if rng.random() > fraction else f"other{rng.randrange(10**6)}" for word in text.split())


@pytest.fixture(scope="module")
def plain(texts: list[str]) -> list[str]:
    """Forty texts of ASCII, in which words are what they seem."""
    return [text for text in texts if text.isascii() and 200 < len(text.split()) < 600][:40]


@pytest.mark.guarantee("near-duplicates")
def test_estimates_are_the_similarities_of_ngrams(plain: list[str]) -> None:
    copies = [edited(text, number % 8 / 80, number) for number, text in enumerate(plain)]
    first, second = sketches(plain), sketches(copies)
    exact = np.array([jaccard(*pair) for pair in zip(plain, copies, strict=True)])
    errors = (first == second).mean(axis=1) - exact
    deviations = np.sqrt(exact * (1 - exact) / NUM_HASHES)
    assert exact.min() < 0.5 and (errors[exact == 1] == 0).all()
    assert np.abs(errors).max() < 0.1 and np.sqrt((errors**2).mean()) < 1.3 * np.sqrt((deviations**2).mean())
    assert abs(errors.mean()) < 0.01


@pytest.mark.exhaustive
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=6))
@settings(max_examples=60)
def test_a_sketch_depends_on_the_set_alone(sets: list[list[int]]) -> None:
    rows = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    grams = np.array([number for each in sets for number in each], np.int64)
    made = minhash.sketch(grams, rows, len(sets))
    for number, each in enumerate(sets):
        alone = minhash.sketch(np.array(sorted(set(each)), np.int64), np.zeros(len(set(each)), np.int64), 1)[0]
        assert made[number].tolist() == alone.tolist()
        assert made[number].any() == bool(each)
        for other, numbers in enumerate(sets):
            assert (set(each) == set(numbers)) == (made[number].tolist() == made[other].tolist())


def test_texts_together_have_the_ngrams_of_each(texts: list[str]) -> None:
    mixed = [
        *texts[:20],
        "",
        "...",
        "Two words",
        "\n\n",
        "一个男人在弹吉他。",
        "Ein Satz.\nNoch einer.",
        "ein satz noch einer",
    ]
    grams, rows = minhash.ngrams(mixed)
    for number, text in enumerate(mixed):
        words = WordHashes(text.replace("\n", " "))
        alone = words.ngrams(minhash.NGRAM, minhash.NGRAM_LETTERS)
        if not len(alone) and len(words.starts):
            alone = words._hashes(np.array([0]), np.array([len(words.starts) - 1]))
        assert sorted(grams[rows == number].tolist()) == sorted(alone.view(np.int64).tolist())
    assert grams[rows == 25].tolist() == grams[rows == 26].tolist()  # as --exclude compares: no case, no marks
    assert not np.isin([20, 21, 23], rows).any()


def slowly(entries: np.ndarray, accepted: float) -> dict[int, int]:
    """Return position -> position of the entry that it resembles, with one comparison at a time."""
    found: dict[int, int] = {}
    kept: dict[int, list[int]] = {}
    for position, entry in enumerate(entries):
        for other in kept.setdefault(int(entry["band"]), []):
            if near.similarity(entry["code"][None], entries[other]["code"][None])[0] >= accepted:
                found[position] = other
                break
        else:
            kept[int(entry["band"])].append(position)
    return found


@pytest.mark.guarantee("near-duplicates")
@pytest.mark.parametrize("seed", range(5))
def test_each_document_is_compared_with_those_that_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = np.zeros(80, near.CANDIDATE)
    entries["band"], entries["row"] = rng.integers(0, 6, 80), np.arange(80)
    originals = rng.integers(0, 256, (4, NUM_HASHES))
    for position, original in enumerate(rng.integers(0, 4, 80)):
        changed = rng.random(NUM_HASHES) < rng.choice([0.02, 0.12])
        entries["code"][position] = np.where(changed, rng.integers(0, 256, NUM_HASHES), originals[original])
    dropped, kept, similarity = near.compare(entries, 0.8)
    assert dict(zip(dropped.tolist(), kept.tolist(), strict=True)) == slowly(entries, 0.8)
    assert len(dropped) > 20 and similarity.min() >= 0.8
    assert entries["band"][dropped].tolist() == entries["band"][kept].tolist()


@pytest.mark.guarantee("near-duplicates")
@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.75, 0.8, 0.84, 0.9, 1.0])
def test_bands_find_documents_at_the_threshold(threshold: float) -> None:
    banding = near.Banding(threshold)
    found = [1 - (1 - threshold**width) ** (NUM_HASHES // width) for width in (banding.width, banding.width + 1)]
    assert found[0] >= near.RECALL and (found[1] < near.RECALL or threshold == 1)


@pytest.fixture
def corpus(plain: list[str], tmp_path: Path) -> Path:
    """Forty documents; then copies: four exact, eight of 1 % other words, four of 20 %, one in other letters."""
    copies = [*plain[:4], *(edited(text, 0.01, number) for number, text in enumerate(plain[4:12]))]
    copies += [*(edited(text, 0.2, number) for number, text in enumerate(plain[12:16])), plain[16].upper()]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*plain, *copies]))
    return path


@pytest.mark.guarantee("near-duplicates")
@pytest.mark.slow
def test_of_similar_documents_the_first_stays(direct, corpus: Path, tmp_path: Path) -> None:
    assert direct("--input", corpus, *UNIT, "--output", tmp_path / "all").code == 0
    assert direct("--input", corpus, *NEAR).code == 0
    everything, found = rows(tmp_path / "all"), rows(tmp_path / "out")
    assert found == [*everything[:40], *everything[52:56]]
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    assert counts["filtered"]["near_duplicate"] == 13 and counts["read"] == 57
    assert verify(tmp_path / "out") == []
    lines, dropped = logged(tmp_path / "out" / "_near_duplicates"), [*everything[40:52], everything[56]]
    assert [(line["id"], line["source"]) for line in lines] == [(row["id"], row["source"]) for row in dropped]
    assert [line["kept"] for line in lines] == [row["id"] for row in [*everything[:12], everything[16]]]
    assert all(0.75 < line["similarity"] <= 1 for line in lines)


@pytest.mark.guarantee("near-duplicates")
def test_exact_copies_count_as_duplicates_and_the_limit_counts_what_stays(direct, corpus: Path, tmp_path: Path) -> None:
    lines = corpus.read_text().splitlines(keepends=True)
    corpus.write_text("".join([*lines[:10], *lines[40:50], *lines[10:40]]))
    assert direct("--input", corpus, *ALL).code == 0
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]["filtered"]
    assert (counts["duplicate"], counts["near_duplicate"], counts["over_limit"]) == (4, 6, 5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("when", "name"),
    [
        ("before", "_staged/00001.json"),
        ("before", "_staged/duplicates-00000.rows"),
        ("before", "_staged/candidates-00000.rows"),
        ("before", "_staged/codes-00001.rows"),
        ("before", "_curated/near-00002.rows"),
        ("after", "_curated/limit-00000.rows"),
        ("after", "_curated/00001.zst"),
        ("after", "_done/00001.json"),
        ("before", "out/manifest.json"),
    ],
)
def test_killed_in_any_round_it_ends_with_the_same_bytes(
    direct, corpus: Path, roberta_tokenizer: Path, tmp_path: Path, tree, when: str, name: str
) -> None:
    assert direct("--input", corpus, *ALL, "--output", tmp_path / "direct").code == 0
    words = ["--input", corpus, *ALL, "--output", tmp_path / "out", "--tokenizer", roberta_tokenizer]
    assert killed(when, name, "documents", *words) == -signal.SIGKILL
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert direct("--input", corpus, *ALL).code == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "direct")
    assert not list((tmp_path / "out").rglob(f"{files.TEMPORARY}*"))


@pytest.mark.guarantee("killed-run", "near-duplicates")
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("lost", ["*.tar", "validation/*.tar", "_near_duplicates/*"])
def test_what_is_lost_is_made_again_from_its_own_unit(
    direct, corpus: Path, tmp_path: Path, tree, lost: str, is_cut: bool
) -> None:
    command = ("--input", corpus, *NEAR, "--holdout-fraction", "0.3", "--json")
    assert direct(*command).code == 0
    before, path = tree(tmp_path / "out"), sorted((tmp_path / "out").glob(lost))[-1]
    path.write_bytes(path.read_bytes()[: 1000 if path.suffix == ".tar" else -3]) if is_cut else path.unlink()
    assert json.loads(direct(*command).out)["run"]["units"] == 1
    assert tree(tmp_path / "out") == before


@pytest.mark.guarantee("near-duplicates")
def test_sentences_are_compared_too(direct, tmp_path: Path) -> None:
    sentence = "The old bridge over the river was closed to all traffic in the spring of that year for repairs"
    lines = [sentence + ".", sentence.replace("old ", "") + ".", "An unlike sentence of some words stands here, too."]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    words = ("--no-split", "--text-per", "line", "--near-dedup", "0.7")
    assert direct("sentences", "--input", tmp_path / "lines.txt", *words).code == 0
    assert len(rows(tmp_path / "out")) == 2
    assert [set(line) for line in logged(tmp_path / "out" / "_near_duplicates")] == [{"id", "kept", "similarity"}]


@pytest.mark.guarantee("near-duplicates")
def test_documents_that_only_begin_alike_both_stay(direct, plain: list[str], tmp_path: Path) -> None:
    beginning, *ends = (" ".join(plain[part]) for part in (slice(8), slice(8, 24), slice(24, 40)))
    documents = [f"{beginning} {end}" for end in ends]
    assert len(beginning) > 10_000 and min(map(len, ends)) > 3 * len(beginning) / 2
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    assert direct("--input", tmp_path / "a.jsonl", *NEAR).code == 0
    assert len(rows(tmp_path / "out")) == 2


@pytest.mark.guarantee("near-duplicates")
def test_each_number_of_a_sketch_counts_for_its_own_band_and_a_text_without_words_has_none() -> None:
    banding = near.Banding(0.8)
    width, num_bands = banding.width, banding.num_bands
    assert width > 1 and num_bands > 1
    sketch = np.random.default_rng(0).integers(1, 1 << 40, NUM_HASHES)
    sketch[width : 2 * width] = sketch[:width]
    changed = np.tile(sketch, (width * num_bands, 1))
    np.fill_diagonal(changed, 0)
    entries = banding.bands(np.stack([sketch, np.zeros_like(sketch), *changed]), 100)
    assert entries["row"].tolist() == [row for row in (100, *range(102, 102 + len(changed))) for _ in range(num_bands)]
    hashes = entries["band"].reshape(-1, num_bands)
    assert len({*hashes[0].tolist()}) == num_bands
    for number, each in enumerate(hashes[1:]):
        assert np.flatnonzero(each != hashes[0]).tolist() == [number // width]
    assert banding.bands(np.zeros((2, NUM_HASHES), np.int64), 0).shape == (0,)


@pytest.mark.guarantee("near-duplicates")
@pytest.mark.parametrize(
    ("bands", "expected"),
    [
        ([5, 3, 5, 7, 3, 5], [0, 1, 2, 4, 5]),
        ([1, 2, 2], [1, 2]),
        ([2, 2, 3], [0, 1]),
        ([2, 1], []),
        ([1], []),
        ([], []),
    ],
)
def test_bands_that_several_documents_have_are_found(bands: list[int], expected: list[int]) -> None:
    assert near.shared(np.array(bands, np.uint64)).tolist() == expected


def candidates(*changed: int) -> np.ndarray:
    """Return candidates of one band: of each, as many numbers of the code as are given differ from the first one's."""
    entries = np.zeros(len(changed), near.CANDIDATE)
    for number, count in enumerate(changed):
        entries["code"][number, :count] = number + 1
    entries["row"], entries["id"] = np.arange(len(changed)) + 20, np.arange(len(changed)) * 1000 + 7
    return entries


@pytest.mark.guarantee("near-duplicates")
def test_a_document_as_similar_as_the_estimate_allows_is_dropped_for_the_one_that_it_resembles() -> None:
    curation = Curation(near_dedup=0.8)
    accepted = 0.8 - 2 * (0.8 * 0.2 / NUM_HASHES) ** 0.5
    for changed in range(NUM_HASHES):
        similarity = (1 - changed / NUM_HASHES - 1 / 256) / (1 - 1 / 256)
        dropped, answers = decisions.similar(candidates(0, changed), curation)
        assert dropped.tolist() == [1] * (similarity >= accepted)
        assert [(row, kept) for row, kept, _ in answers.tolist()] == [(21, 7)] * (similarity >= accepted)
        assert answers["similarity"].tolist() == pytest.approx([similarity] * len(dropped), abs=1e-6)
    assert (candidates()["row"].size, *map(len, near.compare(candidates(), 0.8))) == (0, 0, 0, 0)
    similarity = near.similarity(*candidates(0, 9)["code"][:, None])[0]
    assert [len(near.compare(candidates(0, 9), least)[0]) for least in (similarity, np.nextafter(similarity, 1))] == [
        1,
        0,
    ]


@pytest.mark.guarantee("near-duplicates")
def test_of_a_band_the_first_that_stay_are_compared_in_the_order_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "MAX_KEPT", 3)
    unlike = np.random.default_rng(3).integers(0, 256, (5, NUM_HASHES))
    order = [0, 1, 0, 2, 3, 4, 3, 2, 4, 1, 0]
    entries = np.zeros(300 * len(order), near.CANDIDATE)
    entries["code"], entries["band"] = np.tile(unlike[order], (300, 1)), np.repeat(np.arange(300)[::-1] % 250, 11)
    entries = entries[np.argsort(np.tile(np.arange(len(order)), 300), kind="stable")]
    dropped, kept, similarity = near.compare(entries, 0.9)
    first: dict[tuple[int, int], int] = {}
    number = np.argsort(unlike[:, 0])[np.searchsorted(np.sort(unlike[:, 0]), entries["code"][:, 0])]
    expected = {}
    for at, (band, code) in enumerate(zip(entries["band"].tolist(), number.tolist(), strict=True)):
        if code > 2:
            continue  # the fourth and the fifth of a band are compared with no later one
        if (band, code) in first:
            expected[at] = first[band, code]
        first.setdefault((band, code), at)
    assert dict(zip(dropped.tolist(), kept.tolist(), strict=True)) == expected and (similarity == 1).all()


@pytest.mark.guarantee("near-duplicates")
def test_the_document_that_a_dropped_one_resembles_most_is_named() -> None:
    found = [(3, 50, 0.875), (1, 7, 0.75), (3, 40, 0.875), (1, 9, 0.9375), (2, 5, 0.75), (3, 30, 0.8125)]
    merged = near.merge(np.array(found, near.DROPPED))
    assert merged.tolist() == [(1, 9, 0.9375), (2, 5, 0.75), (3, 40, 0.875)]
    assert len(near.merge(np.empty(0, near.DROPPED))) == 0


@pytest.mark.guarantee("near-duplicates")
def test_each_dropped_document_of_all_batches_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = np.array([(4, 11, 0.87654), (5, 12, 1.0), (9, 11, 0.9)], near.DROPPED)
    monkeypatch.setattr(decisions, "near_duplicates", lambda job, unit: found if (job, unit) == ("a job", 3) else [])
    batches = [pa.record_batch({"id": ids, "tokens": ids, "source": [f"a:{n}" for n in ids]}) for ids in ([1, 2], [1])]
    lines = [json.loads(line) for line in unit._near_duplicates(cast(Job, "a job"), 3, batches)]
    assert lines == [
        {"source": "a:1", "id": 1, "kept": 11, "similarity": 0.877},
        {"source": "a:2", "id": 2, "kept": 12, "similarity": 1.0},
        {"source": "a:1", "id": 1, "kept": 11, "similarity": 0.9},  # a copy of the first
    ]
    without = list(unit._near_duplicates(cast(Job, "a job"), 3, [batch.select(["id"]) for batch in batches]))
    assert [json.loads(line) for line in without] == [
        {name: value for name, value in line.items() if name != "source"} for line in lines
    ]
