"""A run in which no step is better than its start exports the model that it began with, as it was given."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import AutoModel, RobertaConfig

from clearspan.common.encoder.library import load_with_library
from clearspan.train.api import export_model
from clearspan.train.export import main
from clearspan.train.model.tokenizer import load_tokenizer
from tests.train.conftest import TINY_MODEL, VOCABULARY
from tests.train.ranks import train_alone

SAID = "no checkpoint was better than the model you began with, and this is that model"


@pytest.fixture(scope="module")
def models(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One transformer, by its first token and a Dense layer, and by the mean and that layer."""
    folder = tmp_path_factory.mktemp("models")
    values = [option.removeprefix("model.config.").split("=") for option in TINY_MODEL[2:]]
    config = RobertaConfig(vocab_size=VOCABULARY, pad_token_id=1, **{key: json.loads(value) for key, value in values})
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    load_tokenizer(tokenizer_folder).save_pretrained(folder / "plain")
    dense = Dense(32, 32)
    for pooling in ("cls", "mean"):
        modules = [Transformer(str(folder / "plain")), Pooling(32, pooling), dense, Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder / pooling))
    return {pooling: folder / pooling for pooling in ("cls", "mean")}


def trained(
    tiny: list[str], models: dict[str, Path], judge: str, texts: list[str], folder: Path, *overrides: str
) -> str:
    """The last line of a run that begins with the model `cls`, pools by the mean and changes no weight; the best model
    by its pairs is the one of this name."""
    pairs = [(texts[i][:200], texts[i + 1][:200]) for i in range(40)]
    left, right = (load_with_library(models[judge]).encode([pair[side] for pair in pairs]) for side in (0, 1))
    with (folder / "dev.csv").open("w", newline="") as file:
        rows = [(*pair, f"{score:.9f}") for pair, score in zip(pairs, (left * right).sum(1), strict=True)]
        csv.writer(file).writerows(rows)
    words = [option for option in tiny if option not in TINY_MODEL]
    words += ["model.config=null", f"model.path={models['cls']}", "model.pooling=mean", "training.eval_steps=1"]
    words += [f"training.eval_data={folder / 'dev.csv'}", "training.max_steps=2", f"output={folder / 'run'}"]
    return train_alone(*words, "optimizer.learning_rate=1e-30", *overrides).stdout.splitlines()[-1]


def first_scores(run: Path) -> list[str]:
    """The scores of the model as given and of the first checkpoint, as a card writes them."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()[:2]]
    return [f"{lines[0]['given/dev_score']:.4g}", f"{lines[1]['dev_score']:.4g}"]


@pytest.mark.slow
@pytest.mark.guarantee("export-of-the-start")
def test_the_model_is_exported_as_it_was_given(
    tiny: list[str],
    models: dict[str, Path],
    texts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the run, by the command and from Python, which say so; not where the last checkpoint is asked for."""
    said = trained(tiny, models, "cls", texts, tmp_path)
    assert said == f"{tmp_path / 'run' / 'model'}: {SAID}, after 2 steps"
    assert main([str(tmp_path / "run"), str(tmp_path / "command")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'command'}, of {tmp_path / 'run'}: {SAID}\n"
    exports = [tmp_path / "run" / "model", tmp_path / "command", export_model(tmp_path / "run", tmp_path / "python")]
    given = load_with_library(models["cls"]).encode(texts)
    given_score, _ = first_scores(tmp_path / "run")
    for export in exports:
        np.testing.assert_allclose(load_with_library(export).encode(texts), given, atol=1e-6)
        card = (export / "README.md").read_text()
        assert f"In training {SAID}: cls pooling" in card and f"| {given_score} | {given_score} |" in card
        assert not (export / "mlm_head.safetensors").exists(), "the folder had none"
    export_model(tmp_path / "run", tmp_path / "last", "last")
    np.testing.assert_allclose(
        load_with_library(tmp_path / "last").encode(texts), load_with_library(models["mean"]).encode(texts), atol=1e-6
    )


@pytest.mark.guarantee("export-of-the-start")
@pytest.mark.slow
def test_a_first_checkpoint_that_is_better_than_the_model_as_given_is_said_to_be_that(
    tiny: list[str], models: dict[str, Path], texts: list[str], tmp_path: Path
) -> None:
    said = trained(tiny, models, "mean", texts, tmp_path)
    remark = "no checkpoint was better than the first: the model you began with, pooled as the recipe says"
    assert said == f"{tmp_path / 'run' / 'model'}: {remark}, after 2 steps"
    exported = load_with_library(tmp_path / "run" / "model").encode(texts)
    np.testing.assert_allclose(exported, load_with_library(models["mean"]).encode(texts), atol=1e-6)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert " | ".join(["dev.csv, Spearman by cosine in percent", *first_scores(tmp_path / "run")]) in card


@pytest.mark.guarantee("export-of-the-start")
@pytest.mark.slow
def test_a_killed_run_that_resumes_still_exports_the_model_as_given(
    tiny: list[str], models: dict[str, Path], texts: list[str], tmp_path: Path
) -> None:
    trained(tiny, models, "cls", texts, tmp_path, "training.save_steps=1")
    shutil.rmtree(tmp_path / "run" / "model")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000002")
    said = trained(tiny, models, "cls", texts, tmp_path, "training.save_steps=1", "--resume")
    assert SAID in said
    given = load_with_library(models["cls"]).encode(texts)
    np.testing.assert_allclose(load_with_library(tmp_path / "run" / "model").encode(texts), given, atol=1e-6)


@pytest.mark.slow
@pytest.mark.guarantee("export-of-the-start")
def test_a_run_that_nothing_judges_says_that_it_was_not_compared_with_its_start(
    tiny: list[str], models: dict[str, Path], tmp_path: Path
) -> None:
    words = [option for option in tiny if option not in TINY_MODEL]
    words += ["model.config=null", f"model.path={models['mean']}", "training.max_steps=1", f"output={tmp_path / 'run'}"]
    last = train_alone(*words).stdout.splitlines()[-1]
    assert last.endswith(
        "the last checkpoint, that of step 1, after 1 steps; whether it is better than the model you began with was "
        "not measured: set training.eval_data"
    )
