"""GLUE: a tiny encoder is fine-tuned on rows that it can learn, and scores equal scikit-learn's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sklearn import metrics
from transformers import AutoTokenizer, BertConfig, BertModel

from clearspan.common.model_folder import EncoderError
from clearspan.eval.__main__ import main
from clearspan.eval.data.glue_data import LAYOUTS
from clearspan.eval.data.labeled import Labeled
from clearspan.eval.fit.finetuning import FinetuningSettings, finetune, transformer_folder
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.scores import figure
from clearspan.eval.tasks.glue import SEARCHED, GlueTask, best_epoch, examples_of, load, median_run
from clearspan.eval.tasks.task import TaskContext, UnscoredError

GENERATOR = np.random.default_rng(3)
QUICK = FinetuningSettings(epochs=2, batch_size=16, learning_rate=1e-3)


@pytest.fixture(scope="module")
def encoder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained BERT as a plain Hugging Face folder."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = AutoTokenizer.from_pretrained(shared_data / "tokenizers" / "bert-base-uncased")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **size)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rows(num: int, num_classes: int) -> Labeled:
    """Return rows of many lengths whose class depends on the first text; with `num_classes` 0, a score of 0 or 5."""
    labels = GENERATOR.integers(0, num_classes or 2, num)
    lengths = GENERATOR.integers(1, 9, num)
    first = [f"it was {('awful', 'lovely', 'blue')[label]} today" for label in labels]
    return Labeled((first, ["they said so . " * length for length in lengths]), labels * (1.0 if num_classes else 5.0))


def run_of(folder: Path | None, device: str = "cpu") -> TaskContext:
    return TaskContext(
        EmbeddingSimilarity(lambda texts: np.zeros((len(texts), 2), np.float32)), "fast", device=device, folder=folder
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("num_classes", [0, 2])
def test_a_tiny_encoder_learns_a_learnable_task(encoder: Path, num_classes: int) -> None:
    train, dev = rows(320, num_classes), rows(50, num_classes)
    settings = replace(QUICK, epochs=8, learning_rate=2e-3)
    history = finetune(encoder, (train.columns, train.labels), dev.columns, num_classes, settings, seed=1)
    assert len(history) == 8
    if num_classes:
        assert history[-1].tolist() == dev.labels.tolist()
    else:
        assert stats.pearsonr(history[-1], dev.labels).statistic > 0.9


@pytest.mark.slow
def test_what_is_fine_tuned_is_the_folders_transformer(encoder: Path, tmp_path: Path) -> None:
    """Also from a sentence-transformers folder; other weights change the predictions, so they are used as saved."""
    transformer = Transformer(str(encoder))
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save_pretrained(str(tmp_path / "same"))
    with torch.no_grad():
        transformer.model.get_input_embeddings().weight.mul_(3)
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save_pretrained(str(tmp_path / "other"))
    train, dev = rows(32, 0), rows(20, 0)
    predictions = []
    for folder in (encoder, tmp_path / "same", tmp_path / "other"):
        inner = transformer_folder(folder)
        assert inner is not None
        predictions.append(finetune(inner, (train.columns, train.labels), dev.columns, 0, QUICK, seed=1)[-1])
    assert predictions[0].tolist() == predictions[1].tolist()
    assert not np.allclose(predictions[0], predictions[2])


@pytest.mark.slow
def test_rows_longer_than_the_model_takes_are_cut(encoder: Path) -> None:
    longer = (["a word " * 100] * 2, ["another " * 100] * 2)  # the encoder takes 64 tokens
    (predicted,) = finetune(encoder, (longer, np.array([0.0, 1])), longer, 2, replace(QUICK, epochs=1), seed=1)
    assert len(predicted) == 2


def test_a_model_that_no_head_fits_on_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(EncoderError, match=r"cannot be fine-tuned") as error:
        finetune(tmp_path, ((["a"],), np.zeros(1)), (["a"],), 2, QUICK, seed=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("task", ["RTE", "CoLA", "MRPC", "QQP"])
def test_figures_of_classes_are_scikit_learns(task: str) -> None:
    gold = GENERATOR.integers(0, 2, 200)
    predicted = np.where(GENERATOR.random(200) < 0.8, gold, 1 - gold)
    by_metric = {
        key: figure(examples)
        for key, examples in examples_of(task, predicted.astype(float), {"dev": Labeled(((),), gold)}).items()
    }
    accuracy, f1 = metrics.accuracy_score(gold, predicted), metrics.f1_score(gold, predicted)
    expected = {
        "RTE": {"accuracy": accuracy},
        "CoLA": {"matthews": metrics.matthews_corrcoef(gold, predicted)},
    }.get(task, {"mean": (accuracy + f1) / 2, "accuracy": accuracy, "f1": f1})
    assert by_metric == {key: pytest.approx(100 * value, abs=1e-9) for key, value in expected.items()}
    assert list(by_metric) == list(expected)


def test_mnli_is_the_plain_mean_of_its_two_dev_files() -> None:
    dev = {"matched": Labeled(((),), np.array([0.0, 1, 2, 0])), "mismatched": Labeled(((),), np.array([1.0, 2]))}
    by_metric = examples_of("MNLI", np.array([0.0, 1, 2, 1, 2, 2]), dev)
    assert {key: figure(examples) for key, examples in by_metric.items()} == {
        "mean": 62.5,
        "accuracy_matched": 75,
        "accuracy_mismatched": 50,
    }


def test_the_first_best_epoch_and_the_median_run_are_taken() -> None:
    assert best_epoch([10, 30, 30, 20]) == 1
    assert best_epoch([float("nan"), -5.0]) == 1
    assert [median_run(figures) for figures in ([5.0], [3.0, 9, 1], [3.0, float("nan"), 9, 1, 2])] == [0, 0, 4]


def test_the_figures_are_the_median_runs(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of two epochs with fixed predictions: the best epoch of each, then the median run."""
    gold = np.array([0.0, 0, 0, 0])
    right = {7: [1, 2], 8: [4, 0], 9: [3, 3]}
    monkeypatch.setattr("clearspan.eval.tasks.glue.SEEDS", {"fast": 3})
    monkeypatch.setattr(
        "clearspan.eval.fit.finetuning.finetune",
        lambda folder, train, dev, num_classes, settings, seed, device, progress: [
            (np.arange(4) >= number).astype(float) for number in right[seed]
        ],
    )
    split = Labeled((["a"] * 4,), gold)
    scored = GlueTask("glue/SST-2", split, {"dev": split}, 2).score(replace(run_of(encoder), seed=7))
    assert scored.scores == {"accuracy": 75}
    assert scored.settings["by_seed"] == {"accuracy": [50, 100, 75]}
    assert (scored.settings["best_epochs"], scored.settings["median_seed"]) == ([2, 1, 1], 9)
    assert figure(scored.examples["accuracy"]) == 75


def test_a_fine_tuning_that_is_no_better_than_one_answer_says_so(
    encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four dev rows three have the most frequent class of the training rows."""
    train, dev = Labeled((["a"] * 3,), np.array([1.0, 1, 0])), Labeled((["a"] * 4,), np.array([1.0, 1, 1, 0]))

    def text_with(*predicted: list[float]) -> str:
        history = [np.array(each) for each in predicted]
        monkeypatch.setattr("clearspan.eval.fit.finetuning.finetune", lambda *_, **__: history)
        return GlueTask("glue/SST-2", train, {"dev": dev}, 2).score(run_of(encoder)).details.text

    said = "not better than one answer for all rows, which has accuracy 75.00: this fine-tuning has learned nothing."
    assert said in text_with([1, 1, 1, 1], [0, 1, 0, 0])
    assert "learned nothing" not in text_with([1, 1, 1, 1], [1, 1, 1, 0])


def test_every_task_has_the_settings_that_roberta_found_for_it() -> None:
    """The values of fairseq's examples/roberta/README.glue.md; all others are from Liu et al. 2019, section 5.1."""
    tasks = ("MNLI", "QNLI", "QQP", "RTE", "SST-2", "MRPC", "CoLA", "STS-B")
    rates = (1e-5, 1e-5, 1e-5, 2e-5, 1e-5, 1e-5, 1e-5, 2e-5)
    sizes = (32, 32, 32, 16, 32, 16, 16, 16)
    assert set(LAYOUTS) == set(tasks)
    for task, rate, size in zip(tasks, rates, sizes, strict=True):
        settings = FinetuningSettings(*SEARCHED[task])
        assert (settings.learning_rate, settings.batch_size) == (rate, size)
        assert (settings.epochs, settings.warmup, settings.weight_decay) == (10, 0.06, 0.1)
        assert (settings.adam_beta2, settings.adam_epsilon) == (0.98, 1e-6)


def test_word_vectors_and_other_gpus_are_skipped_with_a_reason(encoder: Path, tmp_path: Path) -> None:
    task = GlueTask("glue/RTE", rows(8, 2), {"dev": rows(8, 2)}, 2)
    with pytest.raises(UnscoredError, match="a transformer"):
        task.score(run_of(None))
    with pytest.raises(UnscoredError, match="CUDA_VISIBLE_DEVICES"):
        task.score(run_of(encoder, "cuda:1"))
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.WordEmbeddings"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(UnscoredError):
        task.score(run_of(tmp_path))


@pytest.mark.published("glue")
def test_a_task_without_its_files_is_missing_with_a_reason(shared_data: Path) -> None:
    loaded = load(shared_data)
    assert {task.name for task in loaded.tasks} == {"glue/RTE", "glue/MRPC", "glue/CoLA", "glue/STS-B"}
    assert loaded.missing["glue/MNLI"].startswith("no file ")


@pytest.mark.published("glue")
@pytest.mark.exhaustive
def test_the_command_fine_tunes_on_real_rows(
    encoder: Path, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first rows of CoLA and STS-B are scored; stdout holds the results only."""
    for task, num in (("CoLA", 200), ("STS-B", 100)):
        (tmp_path / "data" / "glue" / task).mkdir(parents=True)
        for name in ("train.tsv", "dev.tsv"):
            lines = (shared_data / "glue" / task / name).read_bytes().split(b"\n")[:num]
            (tmp_path / "data" / "glue" / task / name).write_bytes(b"\n".join(lines) + b"\n")
    arguments = ["--model", str(encoder), "--tasks", "glue", "--data", str(tmp_path / "data"), "--protocol", "fast"]
    arguments += ["--allow-missing", "--output", str(tmp_path / "out"), "--device", "cpu", "--json"]
    assert main(arguments) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["scores"].keys() == {"glue/CoLA", "glue/STS-B"}
    assert results["counts"]["glue/CoLA"] == {"train": 200, "dev": 200}
    assert results["scores"]["glue/STS-B"].keys() == {"mean", "pearson", "spearman"}
    assert results["skipped"]["glue/RTE"].startswith("no file")
    assert len(results["data"]["glue/STS-B"]) == 2
    assert "glue/STS-B" in (tmp_path / "out" / "report.html").read_text()
