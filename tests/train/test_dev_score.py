"""The score without labels in training: it picks the best checkpoint, and is named in the card."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from clearspan.common.encoder.library import load_with_library
from clearspan.common.encoder.prompts import Sides
from clearspan.common.records import DataError
from clearspan.eval.data.heldout_data import read_dataset
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.tasks.heldout import mean_mrr
from clearspan.train.card import Origin, card, metric_fields
from clearspan.train.config.options import RecipeError
from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.recipe import load_recipe
from clearspan.train.selection import dev_score
from clearspan.train.selection.dev_score import evaluator
from tests.train.conftest import write_dataset
from tests.train.ranks import train_alone, train_on_ranks
from tests.train.runs import same_weights, without_its_last_checkpoint
from tests.train.test_card import ENCODER

STEPS = ["training.eval_steps=2", "training.save_steps=2", "training.max_steps=6", "optimizer.learning_rate=0.003"]


@pytest.fixture(scope="module")
def options(
    tiny: list[str], documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """A run of six steps, scored on half of 26 documents that are held out."""
    folder = tmp_path_factory.mktemp("heldout")
    kept = write_dataset(folder / "train", documents[:-26], tokenizer_folder)
    held = write_dataset(folder / "validation", documents[-26:], tokenizer_folder)
    words = [f"data.text.path={kept}", f"data.text.validation={held}", "training.eval_data=heldout"]
    return [*tiny, *words, *STEPS]


@pytest.fixture(scope="module")
def run(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    train_alone(*options, f"output={folder}")
    return folder


def dev_scores(run: Path) -> dict[int, float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["dev_score"] for line in lines if "dev_score" in line}


@pytest.mark.slow
def test_the_best_checkpoint_by_held_out_texts_is_the_one_exported(run: Path) -> None:
    """Its score is that of the exported model on half of the texts; held-out losses are logged, and pick nothing."""
    scores = dev_scores(run)
    assert list(scores) == [0, 2, 4, 6] and len(set(scores.values())) > 1
    best = max(scores, key=lambda step: (scores[step], -step))
    assert Checkpoints(run).last()[1] == f"step-{best:08d}"
    data = yaml.safe_load((run / "recipe.yaml").read_text())["data"]["text"]
    held = read_dataset(data["validation"], dev=True, training=data["path"]).collection
    assert len(held.documents) > 2 * len(held.queries), "texts that are trained on are ranked too"
    assert mean_mrr(EmbeddingSimilarity(load_with_library(run / "model").encode), [held]) == pytest.approx(
        scores[best], abs=1e-4
    )
    assert '"validation/loss"' in (run / "metrics.jsonl").read_text()
    text = (run / "model" / "README.md").read_text()
    assert f"| held-out texts, MRR in percent | {scores[0]:.4g} | {scores[best]:.4g} |" in text
    (result,) = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"]
    assert result["dataset"]["name"] == "held-out texts" and result["metrics"][0]["type"] == "mrr"


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_with_the_same_scores(run: Path, options: list[str], tmp_path: Path) -> None:
    again = without_its_last_checkpoint(run, tmp_path / "run")
    train_alone(*options, f"output={again}", "--resume")
    assert dev_scores(again) == dev_scores(run) and same_weights(run, again)
    assert Checkpoints(again).last()[1] == Checkpoints(run).last()[1]


@pytest.mark.exhaustive
def test_two_ranks_score_as_one(run: Path, options: list[str], tmp_path: Path) -> None:
    train_on_ranks(2, *options, f"output={tmp_path / 'run'}", port=29810 + os.getpid() % 300)
    one, two = dev_scores(run), dev_scores(tmp_path / "run")
    assert list(one) == list(two) and one[0] == two[0]
    assert list(two.values()) == pytest.approx(list(one.values()), abs=2)  # weights differ by rounding: ranks may swap


@pytest.mark.slow
def test_fewer_texts_than_a_batch_are_scored_without_losses(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from clearspan.train.run import main

    words = [word for word in options if "eval_steps" not in word]
    words += ["data.text.batch_size=32", "training.eval_steps=3", f"output={tmp_path / 'run'}", "--dry-run"]
    assert main(["--recipe", "demo", *words]) == 0
    note = "data.text.validation: fewer examples than are contrasted with each other, so no losses"
    assert note in capsys.readouterr().out
    assert main(["--recipe", "demo", *(word for word in words if "eval_data" not in word)]) == 2
    assert "26 documents are fewer than the 32 of a micro-batch" in capsys.readouterr().err


def test_what_cannot_be_scored_is_one_line(
    options: list[str], documents: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    without = [word for word in options if "validation" not in word]
    with pytest.raises(RecipeError, match=r"training.eval_data heldout: no dataset"):
        load_recipe("demo", [*without, "output=unused"])
    few = write_dataset(tmp_path / "few", documents[:5], tokenizer_folder)
    recipe = load_recipe("demo", [*without, f"data.text.validation={few}", "output=unused"])
    text, pictures = (SimpleNamespace(kind=SimpleNamespace(has_tokens=known)) for known in (True, False))
    with pytest.raises(RecipeError, match=r"eval_data heldout: .*few: 2 different"):
        evaluator(recipe, {"text": text}, None, True)  # type: ignore[dict-item]
    with pytest.raises(RecipeError, match=r"eval_data heldout: no dataset of text"):
        evaluator(recipe, {"text": pictures}, None, True)  # type: ignore[dict-item]


def test_each_score_has_its_own_name() -> None:
    names = {data: metric_fields(data)["dataset_name"] for data in ("heldout", "a/SENTEVAL", "b/de.tsv")}
    assert names == {"heldout": "held-out texts", "a/SENTEVAL": "STS-B dev", "b/de.tsv": "de.tsv"}
    text = card(ENCODER, "mine", "training: {eval_data: heldout}\n", Origin(4, {}, {4: {"dev_score": 51.5}}))
    assert "| held-out texts, MRR in percent |  | 51.5 |" in text


@pytest.mark.guarantee("prompts-held-out")
def test_each_dataset_of_text_with_a_held_out_part_is_scored_with_the_prompts_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = {
        "images": SimpleNamespace(path="images", validation="images/validation"),
        "whole": SimpleNamespace(path="whole", validation=None),
        "owls": SimpleNamespace(path="owls", validation="owls/validation"),
        "rain": SimpleNamespace(path="rain", validation="rain/validation"),
    }
    datasets: Any = {name: SimpleNamespace(kind=SimpleNamespace(has_tokens=name != "images")) for name in data}
    recipe: Any = SimpleNamespace(data=data, training=SimpleNamespace(eval_texts=500))
    looked, picked, scored = [], [], []
    monkeypatch.setattr(dev_score.heldout_data, "read_dataset", lambda *args, **more: looked.append((*args, more)))
    monkeypatch.setattr(dev_score, "dev_set", lambda *args: picked.append(args) or args[0])

    def mean(model: Prompted, collections: list[str]) -> float:
        queries, documents = model.ranking(["an owl"], ["rain"])
        scored.append((np.asarray(queries).tolist(), np.asarray(documents).tolist(), model.prompts, collections))
        return 42.0

    monkeypatch.setattr(dev_score, "mean_mrr", mean)
    score = dev_score._on_held_out(recipe, datasets)
    more = {"dev": True, "max_ranked": dev_score.MAX_LOOKED_AT}
    assert looked == [("owls/validation", more), ("rain/validation", more)] and not picked

    def encoded(prompt: str) -> Any:
        return lambda texts: np.array([[3.0, 4.0] if prompt == "query: " else [0.0, 1.0] for _ in texts])

    for _ in range(2):
        assert score(encoded, Sides("query: ", "passage: ")) == 42.0
    assert picked == [("owls", "owls/validation", 500), ("rain", "rain/validation", 500)], "they are read once"
    unit = ([[pytest.approx(0.6), pytest.approx(0.8)]], [[0.0, 1.0]])
    assert scored == [(*unit, Sides("query: ", "passage: "), ["owls", "rain"])] * 2
    del data["owls"], data["rain"]
    with pytest.raises(DataError, match=r"no dataset of text has held-out examples: set data\.NAME\.validation"):
        dev_score._on_held_out(recipe, datasets)
