"""The model card of an export: what the Hub reads of it, and what tells where the model comes from."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from clearspan.train.card import Origin, card, read_scores
from clearspan.train.export import main
from clearspan.train.model.source import Inference
from tests.train.conftest import write_dataset
from tests.train.ranks import train_alone

ENCODER = SimpleNamespace(attends=True, pooling="mean", dim=32, max_tokens=64, inference=Inference())
INDEX = "model-index"


@pytest.fixture(scope="module")
def judged(
    tiny: list[str],
    documents: list[list[int]],
    tokenizer_folder: Path,
    shared_data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A run of four steps, with German pairs that pick the best and 20 documents held out."""
    folder = tmp_path_factory.mktemp("judged")
    kept = write_dataset(folder / "train", documents[:-20], tokenizer_folder)
    held = write_dataset(folder / "validation", documents[-20:], tokenizer_folder)
    pairs = (shared_data / "stsb_multi_mt" / "stsb-de-dev.csv").read_text().splitlines()[:40]
    (folder / "dev.csv").write_text("\n".join(pairs) + "\n")
    options = [f"data.text.path={kept}", f"data.text.validation={held}", f"training.eval_data={folder / 'dev.csv'}"]
    train_alone(*tiny, *options, "training.eval_steps=2", "training.max_steps=4", f"output={folder / 'run'}")
    return folder


@pytest.mark.slow
def test_the_card_holds_the_recipe_the_datas_fingerprint_and_the_scores(judged: Path) -> None:
    assert main([str(judged / "run"), str(judged / "out"), "--checkpoint", "last"]) == 0
    text = (judged / "out" / "README.md").read_text()
    assert text.split("```yaml\n")[1] == (judged / "run" / "recipe.yaml").read_text() + "```\n"
    for name in ("train", "validation"):
        digest = hashlib.sha256((judged / name / "manifest.json").read_bytes()).hexdigest()
        assert f"`{judged / name}`\n  - sha256 of its manifest.json: `{digest}`" in text
    lines = [json.loads(line) for line in (judged / "run" / "metrics.jsonl").read_text().splitlines()]
    (first,) = [line["dev_score"] for line in lines if line["step"] == 0 and "dev_score" in line]
    (last,) = [line["dev_score"] for line in lines if line["step"] == 4 and "dev_score" in line]
    assert f"| dev.csv, Spearman by cosine in percent | {first:.4g} | {last:.4g} |" in text
    assert "| validation/loss, on examples held out |" in text


def test_the_card_says_which_library_loads_what() -> None:
    assert "`AutoModel.from_pretrained` loads its transformer" in card(ENCODER, "mine", "", Origin())
    static = SimpleNamespace(**{**vars(ENCODER), "attends": False})
    assert "loads in sentence-transformers (since 3.2) and in model2vec" in card(static, "mine", "", Origin())


def test_without_scores_the_card_claims_none() -> None:
    recipe = "training:\n  eval_data: ''\n"
    text = card(ENCODER, "mine", recipe, Origin(3, {}, {}))
    assert "Scores" not in text and "Data" not in text and INDEX not in yaml.safe_load(text.split("---\n")[1])
    assert card(ENCODER, "mine", "", Origin()).endswith("```yaml\n```\n")


@pytest.mark.guarantee("export-of-the-start")
def test_scores_are_those_of_the_checkpoints_own_step(tmp_path: Path) -> None:
    """Not the best of the run, nor what a kill left half written; a figure of training is no score."""
    metrics = tmp_path / "metrics.jsonl"
    scores = {0: 20.0, 2: 70.5, 4: 60.25}
    lines = [json.dumps({"step": step, "dev_score": score}) for step, score in scores.items()]
    lines += [json.dumps({"step": 4, "loss": 1.5}), '{"step": 4, "dev_']
    metrics.write_text("\n".join(lines))
    found = read_scores(metrics, 4)
    assert found == {0: {"dev_score": 20.0}, 4: {"dev_score": 60.25}}
    text = card(ENCODER, "mine", "training: {eval_data: SENTEVAL}\n", Origin(4, {}, found))
    assert "| STS-B dev, Spearman by cosine in percent | 20 | 60.25 |" in text
    front = yaml.safe_load(text.split("---\n")[1])
    assert front[INDEX][0]["results"][0]["metrics"][0]["value"] == 60.25


@pytest.mark.slow
def test_a_run_that_bettered_nothing_says_so_in_its_last_line_and_in_the_card(
    tiny: list[str], judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate that changes no weight: no later score is above the first one."""
    words = [f"data.text.path={judged / 'train'}", f"training.eval_data={judged / 'dev.csv'}", "training.eval_steps=1"]
    words += ["optimizer.learning_rate=1e-30", "training.max_steps=2", f"output={tmp_path / 'run'}"]
    done = train_alone(*tiny, *words)
    said = "no checkpoint was better than the model you began with"
    assert said in done.stdout.splitlines()[-1] and "after 2 steps" in done.stdout.splitlines()[-1]
    first = (tmp_path / "run" / "model" / "README.md").read_text().split(f"# {tmp_path.name}\n\n")[1].splitlines()[0]
    assert first.startswith(f"In training {said}, and this is that model: mean pooling")
    assert main([str(tmp_path / "run"), str(tmp_path / "out")]) == 0 and said in capsys.readouterr().out
    assert main([str(tmp_path / "run"), str(tmp_path / "last"), "--checkpoint", "last"]) == 0
    assert said not in capsys.readouterr().out + (tmp_path / "last" / "README.md").read_text()
