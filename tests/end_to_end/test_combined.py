"""Everything at once: raw text, pictures and sound -> shards -> one encoder, one loss -> a model folder -> scores."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from clearspan.shards import Dataset
from tests.end_to_end.stages import command, scored, some_sts
from tests.train.ranks import train_alone
from tests.train.runs import metrics

STEPS, SOME = 20, 6
OBJECTIVES = ("spans", "mlm", "clear", "simcse", "images", "audio")
CONTRASTS = ("spans", "clear", "simcse", "images", "audio")


@pytest.fixture(scope="module")
def shards(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four datasets of `combined-demo`, of one tokenizer, in a folder of that name each."""
    folder = tmp_path_factory.mktemp("combined")
    wiki, documents = folder / "wiki.txt", shared_data / "text" / "wikitext2_articles.jsonl"
    with (shared_data / "sentences" / "wiki1m_head_11914.txt").open("rb") as lines:
        wiki.write_bytes(b"".join(itertools.islice(lines, 4000)))
    command("pipelines", "vocabulary", "--input", documents, "--size", 2000, "--output", folder / "words", "--quiet")
    whole = ["--no-split", "--text-per", "line", "--augment", "del-span"]
    tokenizers = {"sentences": folder / "words", "documents": folder / "sentences" / "tokenizer"}
    for kind, *words in (
        ("sentences", "--input", wiki, *whole, "--tokenizer", tokenizers["sentences"]),
        ("documents", "--input", documents, "--min-tokens", 512, "--tokenizer", tokenizers["documents"]),
        ("images", "--input", shared_data / "images" / "tinyimagenet60", "--classes", 20),
        ("audio", "--input", shared_data / "audio" / "librispeech_50spk_x10_wav"),
    ):
        command("pipelines", kind, *words, "--output", folder / kind, "--quiet")
    return folder


@pytest.mark.exhaustive
def test_six_objectives_over_four_datasets_become_one_scored_model(
    shards: Path, shared_data: Path, tmp_path: Path
) -> None:
    kinds = ("documents", "sentences", "images", "audio")
    assert [Dataset(shards / kind).num_examples > 100 for kind in kinds] == [True] * 4
    run, scores = tmp_path / "run", tmp_path / "scores"
    paths = [f"data.{kind}.path={shards / kind}" for kind in kinds]
    options = [f"output={run}", f"training.max_steps={STEPS}", "training.logging_steps=1", "training.bf16=false"]
    train_alone(*paths, *options, recipe="combined-demo", quiet=False)

    losses = first_and_last(run, [f"{name}/loss" for name in OBJECTIVES])
    assert all(last < first for first, last in losses), dict(zip(OBJECTIVES, losses, strict=True))
    shares = first_and_last(run, [f"{name}/accuracy" for name in CONTRASTS])
    assert all(last > first for first, last in shares), dict(zip(CONTRASTS, shares, strict=True))
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert all(line[f"examples_per_s/{kind}"] > 0 for kind in kinds) and line["epoch/documents"] > 1

    results = scored(run / "model", some_sts(shared_data, tmp_path / "senteval", "STS/STSBenchmark"), scores)
    assert results["scores"]["STSBenchmark"]["spearman"] > 0


def first_and_last(run: Path, names: list[str]) -> list[tuple[float, float]]:
    """The means of the first and of the last six steps of each metric."""
    values = np.array([[line[name] for name in names] for line in metrics(run, names)])
    assert len(values) == STEPS
    return [
        (float(first), float(last)) for first, last in zip(values[:SOME].mean(0), values[-SOME:].mean(0), strict=True)
    ]
