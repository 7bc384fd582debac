"""Corpus -> shards -> training -> model folder -> scores, each stage by its command, on real documents."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes import run_module
from tests.train.ranks import train_alone


def command(*words: str | Path) -> str:
    """Runs `python -m ...`; returns what it printed."""
    done = run_module(*map(str, words))
    assert done.returncode == 0, done.stderr
    return done.stdout


def scored(model: Path, data: Path, output: Path) -> dict[str, Any]:
    """Return what the evaluator finds by STS of `some_sts`."""
    cut = ("--quiet", "--allow-missing")
    command("eval", "--model", model, "--tasks", "sts", "--data", data, "--output", output, *cut)
    found: dict[str, Any] = json.loads((output / "results.json").read_text())
    return found


def some_sts(shared_data: Path, folder: Path, *tasks: str) -> Path:
    """Return a SentEval folder of these tasks, of each file the first 300 lines."""
    for task in tasks:
        (target := folder / "downstream" / task).mkdir(parents=True)
        for file in (shared_data / "senteval" / "downstream" / task).iterdir():
            with file.open("rb") as lines:
                (target / file.name).write_bytes(b"".join(itertools.islice(lines, 300)))
    return folder


@pytest.mark.exhaustive
def test_openwebtext_becomes_a_scored_model(shared_data: Path, roberta_tokenizer: Path, tmp_path: Path) -> None:
    """DeCLUTR's own recipe, with its spans and batches, on an encoder small enough for a test."""
    corpus = shared_data / "text" / "openwebtext_sample.jsonl"
    shards, run, scores = (tmp_path / name for name in ("shards", "run", "scores"))
    command(
        "pipelines", "documents", "--input", corpus, "--output", shards, "--tokenizer", roberta_tokenizer, "--quiet"
    )
    manifest = json.loads(command("shards", "ls", shards, "--json"))
    assert manifest["totals"]["examples"] == 163 and manifest["counts"]["read"] == 1426
    command("shards", "verify", shards)

    small = ["model_type=roberta", "hidden_size=32", "num_hidden_layers=2", "num_attention_heads=2"]
    small += ["intermediate_size=64", "max_position_embeddings=514"]
    overrides = [f"data.text.path={shards}", f"output={run}", *(f"model.config.{key}" for key in small)]
    overrides += ["data.text.batch_size=4", "training.max_steps=4", "training.logging_steps=1", "training.bf16=false"]
    trained = train_alone(*overrides, recipe="declutr-small")
    assert trained.returncode == 0, trained.stderr
    losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 4 and np.isfinite(losses).all()

    pairs = some_sts(shared_data, tmp_path / "senteval", "STS/STS12-en-test", "STS/STSBenchmark", "SICK")
    results = scored(run / "model", pairs, scores)
    assert results["scores"].keys() == {"STS12", "STSBenchmark", "SICKRelatedness"}
    assert {"spearman_all", "spearman_mean", "spearman_wmean"} <= results["scores"]["STS12"].keys()
    assert "http" not in (scores / "report.html").read_text().split("</style>", 1)[-1].replace("http://www.w3.org", "")
