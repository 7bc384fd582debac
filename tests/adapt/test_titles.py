"""Titles and texts, the whole way: the verdict among all texts, computed again from what is published, and a search.

Cranfield's titles and abstracts, by static encoders, which train in seconds.
"""

import csv
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearspan
from clearspan.adapt import __main__ as adapt
from clearspan.cli.main import main as command
from clearspan.common import same_text
from clearspan.eval.models.load import load_model
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.scoring import Scoring
from clearspan.retrieval.stemming import Words
from clearspan.shards import Dataset

Row = tuple[str, str]
KEYS = ["training.max_steps=60", "data.text.batch_size=128"]


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[Row]:
    text = (shared_data / "retrieval/cranfield/cran.all.1400").read_text()
    pairs = re.findall(r"(?s)\n\.T\n(.*?)\n\.A\n.*?\n\.W\n(.*?)\n\.I", text)
    found = [(" ".join(title.split()), " ".join(body.split())) for title, body in pairs]
    return [(title, body[len(title) :].strip()) for title, body in found if len(body) > len(title) + 100]


def write(path: Path, rows: list[Row]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "title", "text"], *([f"c{n}", *row] for n, row in enumerate(rows))])
    return path


def line(path: Path, output: Path, *more: str) -> list[str]:
    return ["--input", str(path), "--output", str(output), "--holdout-fraction", "0.3", "--quiet", *more, *KEYS]


@pytest.fixture(scope="module")
def adapted(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("titles")
    assert adapt.main(line(write(folder / "texts.csv", rows), folder / "out")) == 0
    return folder / "out"


def decoded(folder: Path) -> list[Row]:
    """The titles and texts of a dataset, as the judge reads them."""
    dataset = Dataset(folder)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(dataset.local_tokenizer() / "tokenizer.json"))
    columns = [
        tokenizer.decode_batch([row for batch in dataset for row in batch.column(name).to_pylist()])
        for name in ("tokens", "positive")
    ]
    return list(zip(*columns, strict=True))


def unit(vectors: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def scaled(scores: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)
    return scaled


def recomputed(folder: Path, verdict: dict[str, Any]) -> dict[str, float]:
    """The MRR of each system, by numpy alone, from the datasets, the models and the weights of the verdict."""
    held = [row for row in decoded(folder / "texts/validation") if not same_text.digest(row[0])[0] & 1]
    texts = list(
        {
            same_text.key(text): text for name in ("texts", "texts/validation") for _, text in decoded(folder / name)
        }.values()
    )
    place = {same_text.key(text): number for number, text in enumerate(texts)}
    queries: dict[str, tuple[str, set[int]]] = {}
    for title, text in held:
        queries.setdefault(same_text.key(title), (title, set()))[1].add(place[same_text.key(text)])
    asked, right = [title for title, _ in queries.values()], [places for _, places in queries.values()]
    words = BM25.of(texts, Scoring(Words("english"), verdict["k1"], verdict["b"])).scores(asked).array()
    found = {}
    for system in verdict["systems"]:
        name, weight = system["name"], system["weight"]
        scores = words
        if name != "BM25":
            model = load_model({"trained": folder / "run/model"}.get(name.removesuffix(" + BM25"), folder / "start"))
            near = unit(model.encode_query(asked)) @ unit(model.encode_document(texts)).T
            scores = near if weight is None else weight * scaled(near) + (1 - weight) * scaled(words)
        ranks = [
            1 + min(int((row > row[each] + 1e-6).sum()) for each in of) for row, of in zip(scores, right, strict=True)
        ]
        found[name] = float(100 * np.mean([1 / rank for rank in ranks]))
    assert (len(asked), len(texts)) == (verdict["num_queries"], verdict["num_texts"])
    return found


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.exhaustive
def test_the_figures_are_those_of_numpy_among_all_texts(adapted: Path, rows: list[Row]) -> None:
    state = json.loads((adapted / "adapt.json").read_text())
    verdict = json.loads((adapted / "verdict.json").read_text())["held_out"]
    expected = recomputed(adapted, verdict)
    assert state["mrr"] == pytest.approx(expected, abs=0.005)
    names = ["BM25", "trained", "trained + BM25", "untrained static", "untrained static + BM25"]
    assert sorted(state["mrr"]) == names and list(state["mrr"].values()) == sorted(state["mrr"].values(), reverse=True)
    best = [state[f"best_{name}"] for name in ("trained", "untrained")]
    assert state["difference"] == pytest.approx(expected[best[0]] - expected[best[1]], abs=0.005)
    assert state["num_texts"] == state["num_collection"] > 0.98 * len(rows)
    assert f"among {state['num_texts']:,} texts" in state["sentence"]
    said = "95 % interval [" if state["low"] or state["high"] else "training brought nothing: "
    assert said in state["sentence"]


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.exhaustive
def test_the_folder_is_searched_with_nothing_else(
    adapted: Path, rows: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    title, text = rows[700]
    assert command(["search", str(adapted), title, "--top", "3", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["results"][0]["hits"]
    number = next(n for n, hit in enumerate(hits) if hit["fields"]["id"] == "c700")
    assert hits[number]["fields"] == {"title": title, "id": "c700"} and hits[number]["record"] == 701
    assert hits[number]["text"] == text


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.exhaustive
def test_a_start_that_is_damaged_or_gone_is_made_again(adapted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = json.loads((adapted / "adapt.json").read_text())
    weights = adapted / "start/model.safetensors"
    content = weights.read_bytes()
    for damaged in (False, True):
        weights.write_bytes(content[:-1000]) if damaged else shutil.rmtree(weights.parent)
        assert adapt.main(line(adapted.parent / "texts.csv", adapted)) == 0
        said = capsys.readouterr().out
        assert f"{adapted}/start/" in said and "step start is run again" in said
        assert weights.read_bytes() == content
    assert json.loads((adapted / "adapt.json").read_text())["mrr"] == state["mrr"]


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.exhaustive
def test_questions_are_added_to_a_finished_folder_and_nothing_is_trained(
    adapted: Path, rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By ids, then by texts: the same figures, beside those of the titles."""
    before = json.loads((adapted / "adapt.json").read_text())
    trained = (adapted / "run/metrics.jsonl").read_bytes()
    questions = {number: " ".join(rows[number][1].split()[4:14]) for number in range(0, 200, 10)}
    by_id, by_text = tmp_path / "by_id.csv", tmp_path / "by_text.jsonl"
    by_id.write_text("query,id\n" + "".join(f'"{query}",c{number}\n' for number, query in questions.items()))
    asked = [{"query": query, "text": rows[number][1]} for number, query in questions.items()]
    by_text.write_text("".join(json.dumps(row) + "\n" for row in asked))
    found = []
    for file in (by_id, by_text):
        assert adapt.main(line(adapted.parent / "texts.csv", adapted, "--queries", str(file))) == 0
        state = json.loads((adapted / "adapt.json").read_text())
        assert state["others"]["questions"]["num_queries"] == len(questions)
        assert state["others"]["questions"]["num_texts"] == before["num_texts"]
        assert (state["mrr"], state["winner"]) == (before["mrr"], before["winner"])  # the titles decide
        found.append(state["others"]["questions"]["mrr"])
        assert "Only 20 questions: the interval is wide" in capsys.readouterr().out
    assert found[0] == found[1] and found[0].keys() == before["mrr"].keys()
    assert (adapted / "run/metrics.jsonl").read_bytes() == trained
    result = clearspan.adapt(
        adapted.parent / "texts.csv", adapted, overrides=KEYS, quiet=True, holdout_fraction=0.3, queries=by_text
    )
    assert result.others["questions"]["mrr"] == found[1] and result.weight == state["weight"]


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.exhaustive
def test_titles_that_say_nothing_of_their_texts_are_never_found_better(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The titles of other abstracts; 300 rows, of which half a third is judged: the interval is as wide as that."""
    others = [text for _, text in rows[:300]]
    random.Random(7).shuffle(others)
    shuffled = [(title, text) for (title, _), text in zip(rows[:300], others, strict=True)]
    assert adapt.main(line(write(tmp_path / "noise.csv", shuffled), tmp_path / "noise")) == 0
    noise = json.loads((tmp_path / "noise/adapt.json").read_text())
    assert noise["verdict"] != "better" and noise["winner"] not in ("trained", "trained + BM25")
    assert "take " in capsys.readouterr().out
    assert adapt.main(line(write(tmp_path / "few.csv", rows[:300]), tmp_path / "few")) == 0
    few = json.loads((tmp_path / "few/adapt.json").read_text())
    systems = json.loads((tmp_path / "few/verdict.json").read_text())["held_out"]["systems"]
    assert few["num_texts"] == 300 and 30 <= few["num_queries"] <= 60
    assert all(system["high"] - system["low"] > 5 for system in systems if 10 < system["mrr"] < 90)
