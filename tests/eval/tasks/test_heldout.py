"""Held-out retrieval: a score of real texts without labels, for models and baselines."""

import json
from pathlib import Path

import numpy as np
import pytest

from clearspan import compare
from clearspan.common.encoder.library import load_with_library
from clearspan.eval.__main__ import main
from clearspan.eval.data.heldout_data import read_dataset
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.tasks.heldout import load, mean_mrr
from clearspan.eval.tasks.task import TaskContext


@pytest.mark.exhaustive
def test_one_command_shows_a_model_beside_the_baselines(
    wikitext_shards: Path, minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [word for model in (minilm, "tfidf", "bm25", "bow") for word in ("--model", str(model))]
    data = ["--data", str(wikitext_shards), "--tasks", "heldout,geometry"]
    assert main([*models, *data, "--output", str(tmp_path), "--cache", "none", "--device", "cpu", "--quiet"]) == 0
    out = capsys.readouterr().out
    results = {name: json.loads((tmp_path / name / "results.json").read_text()) for name in ("tfidf", "bm25", "bow")}
    for name, content in results.items():
        scores, intervals = content["scores"]["heldout"], content["intervals"]["heldout"]
        assert set(intervals) == {"mrr", "recall@1", "recall@10"}
        assert all(low <= scores[key] <= high for key, (low, high) in intervals.items())
        assert content["counts"]["heldout"] == {"queries": 23, "documents": 121, "texts held out": 42}, "all texts"
        assert content["settings"]["heldout"]["fitted_on"] == "this task's texts", name
        manifests = [wikitext_shards / "validation" / "manifest.json", wikitext_shards / "manifest.json"]
        assert [*content["data"]["heldout"]] == [*map(str, manifests)]
        assert f"{scores['mrr']:.2f}" in out
    mrr = {name: content["scores"]["heldout"]["mrr"] for name, content in results.items()}
    assert 100 / 121 < mrr["bow"] < mrr["tfidf"] < 80
    assert "fitted_on" in (tmp_path / "report.html").read_text()
    rows = {row.metric: row for row in compare(tmp_path / "bow", tmp_path / "tfidf").rows}
    assert rows["mrr"].difference == pytest.approx(mrr["tfidf"] - mrr["bow"]) and rows["mrr"].low > 0


@pytest.mark.exhaustive
def test_the_score_in_training_is_that_of_the_evaluator(wikitext_shards: Path, minilm: Path) -> None:
    (task,) = load(wikitext_shards).tasks
    encode = load_with_library(minilm).encode
    scores = task.score(TaskContext(EmbeddingSimilarity(encode))).scores
    part = wikitext_shards / "validation"
    dev = read_dataset(part, dev=True).collection
    held = read_dataset(part, training=wikitext_shards).collection
    assert mean_mrr(EmbeddingSimilarity(encode), [held, held]) == pytest.approx(scores["mrr"])
    same = mean_mrr(EmbeddingSimilarity(lambda texts: np.ones((len(texts), 2), np.float32)), [dev])
    order = np.argsort(-dev.tie_keys)  # an encoder that collapsed ranks at random: by hashes of the texts
    places = [1 + int(np.flatnonzero(order == relevant)[0]) for (relevant,) in dev.relevant]
    assert same == pytest.approx(100 * np.mean(1 / np.array(places))) and 5 < same < 20


def test_a_dataset_in_the_data_folder_is_scored_beside_what_is_missing(
    sentence_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", "bow", "--tasks", "heldout,sts", "--output", str(tmp_path / "out"), "--data"]
    assert main([*arguments, str(tmp_path)]) == 1
    assert "skipped heldout: " in capsys.readouterr().err
    (tmp_path / "data" / "heldout").mkdir(parents=True)
    (tmp_path / "data" / "heldout" / "wikipedia").symlink_to(sentence_shards)
    assert main([*arguments, str(tmp_path / "data"), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    num_queries = len(read_dataset(sentence_shards).collection.queries)
    assert results["counts"]["heldout/wikipedia"]["queries"] == num_queries > 10
    assert "fingerprint" in results["environment"] and "STS12" in results["skipped"]
