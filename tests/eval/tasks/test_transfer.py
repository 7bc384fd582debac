"""Transfer and probing: SentEval's order of rows and features, scores on real files, and data that cannot be scored."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.records import DataError
from clearspan.eval.data.labeled import Labeled
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.scores import figure
from clearspan.eval.tasks import probing, transfer
from clearspan.eval.tasks.classification import ClassificationTask, Head
from clearspan.eval.tasks.task import TaskContext


def bag_of_words(texts: Sequence[str]) -> np.ndarray:
    """Encode texts without weights: signs of hashed lower-cased words, (n, 64)."""
    out = np.zeros((len(texts), 64), np.float32)
    for row, text in zip(out, texts, strict=True):
        for word in text.lower().split():
            value = zlib.crc32(word.encode())
            row[value % 64] += 1 if value & 64 else -1
    return out


def run(protocol: str = "fast", encode: object = bag_of_words) -> TaskContext:
    return TaskContext(EmbeddingSimilarity(encode), protocol)  # type: ignore[arg-type]


def task(shared_data: Path, name: str) -> ClassificationTask:
    (chosen,) = [task for task in transfer.load(shared_data / "senteval").tasks if task.name == name]
    return chosen  # type: ignore[return-value]


@pytest.mark.slow
def test_trec_with_a_bag_of_words_is_far_above_its_largest_class(shared_data: Path) -> None:
    scores = task(shared_data, "TREC").score(run())
    assert 50 < scores.scores["devacc"] < 80 and 50 < scores.scores["acc"] < 80  # 138 of 500 are the largest class
    assert scores.counts == {"sentences": 5952, "test": 500}
    assert figure(scores.examples["acc"]) == pytest.approx(scores.scores["acc"])
    assert scores.settings["num_folds"] == 5 and len(scores.settings["l2"]) == 1 and scores.settings["seed"] == 1111


@pytest.mark.published("senteval")
def test_what_is_there_loads_and_the_rest_is_named(shared_data: Path) -> None:
    loaded = transfer.load(shared_data / "senteval")
    assert [task.name for task in loaded.tasks] == ["MR", "SUBJ", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment"]
    assert set(loaded.missing) == {"CR", "MPQA", "SNLI"}
    assert "custrev.pos" in loaded.missing["CR"] and "s1.train" in loaded.missing["SNLI"]


def test_a_folder_that_is_no_senteval_folder_misses_every_task(tmp_path: Path) -> None:
    others = {"SST2", "SST5", "TREC", "MRPC", "SICKEntailment", "SNLI"}
    assert set(transfer.load(tmp_path).missing) == {*transfer.TWO_CLASSES, *others}
    assert len(probing.load_linear(tmp_path).missing) == len(probing.load_mlp(tmp_path).missing) == 10


def sentences(num: int, seed: int = 0) -> Labeled:
    """Return sentences of one to nine words, one of which determines the class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, num)
    texts = [" ".join(["good" if label else "bad", *["word"] * random.integers(0, 9)]) for label in labels]
    return Labeled((texts,), labels.astype(np.int64))


@pytest.mark.parametrize("name", ["CR", "MPQA"])
def test_nested_tasks_of_one_s_own_files_are_learned(tmp_path: Path, name: str) -> None:
    data = sentences(120)
    files = [tmp_path / "downstream" / file for file in transfer.TWO_CLASSES[name]]
    files[0].parent.mkdir(parents=True)
    for label, file in zip((1, 0), files, strict=True):
        file.write_text("".join(f"{t}\n" for t, of in zip(data.columns[0], data.labels, strict=True) if of == label))
    (task,) = transfer.load(tmp_path).tasks
    scores = task.score(run())
    assert scores.scores["acc"] > 75 and scores.scores["devacc"] > 95  # four rows alone stop the last fits
    assert scores.counts == {"sentences": 120, "test": 120}
    assert sorted(set(scores.examples["acc"].groups)) == [0, 1, 2, 3, 4] and len(scores.settings["l2"]) == 5


def test_sentences_are_sorted_by_tokens_then_label_and_else_keep_their_order() -> None:
    texts = ["c c", "b", "a a", "", "d d"]
    train = Labeled((texts,), np.array([1, 1, 0, 1, 0]))
    made = ClassificationTask("x", "split", {"train": train, "dev": train, "test": train}, ("0", "1"))
    assert [texts[row] for row in made.order(train)] == ["", "b", "a a", "d d", "c c"]


@pytest.mark.parametrize(
    ("snli", "expected"),
    [(False, ["b", "z", "a", "x y", "c c", "x"]), (True, ["b", "z", "c c", "x", "a", "x y"])],
)
def test_pairs_are_sorted_by_tokens_of_the_first_and_snli_s_of_the_second(snli: bool, expected: list[str]) -> None:
    pairs = Labeled((["c c", "a", "b"], ["x", "x y", "z"]), np.array([0, 1, 2]))
    made = ClassificationTask(
        "x",
        "split",
        {"train": pairs, "dev": pairs, "test": pairs},
        ("e", "n", "c"),
        parts=("product",),
        snli_order=snli,
    )
    rows = [(pairs.columns[0][row], pairs.columns[1][row]) for row in made.order(pairs)]
    assert [text for pair in rows for text in pair] == expected


def test_snli_labels_are_sorted_by_name() -> None:
    pairs = Labeled((["a", "b", "c"], ["x", "y", "z"]), np.array([0, 1, 2]))
    made = ClassificationTask(
        "x", "split", {"train": pairs}, ("entailment", "neutral", "contradiction"), parts=("left",), snli_order=True
    )
    assert made.order(pairs).tolist() == [2, 0, 1]


def write_snli(folder: Path, num: int) -> None:
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        data = sentences(num)
        (folder / f"s1.{split}").write_text("".join(f"{text}\n" for text in data.columns[0]))
        (folder / f"s2.{split}").write_text("".join(f"{text} .\n" for text in data.columns[0]))
        names = ["entailment" if label else "contradiction" for label in data.labels]
        (folder / f"labels.{split}").write_text("".join(f"{name}\n" for name in names))


def test_snli_is_fitted_without_a_grid(tmp_path: Path) -> None:
    write_snli(tmp_path / "downstream/SNLI", 300)
    (task,) = transfer.load(tmp_path).tasks
    scores = task.score(run("full"))
    assert scores.settings["l2"] == [1e-9] and scores.counts == {"pairs": 900, "test": 300}
    assert scores.scores["acc"] > 95


def write_probing(folder: Path, file: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for split, num in (("tr", 200), ("va", 60), ("te", 60)):
        data = sentences(num)
        lines += [f"{split}\t{'AB'[label]}\t{text}\n" for text, label in zip(data.columns[0], data.labels, strict=True)]
    (folder / file).write_text("".join(lines))


def test_probing_is_linear_or_tunes_a_hidden_layer_but_word_content_never_has_one(tmp_path: Path) -> None:
    for file in ("past_present.txt", "word_content.txt"):
        write_probing(tmp_path / "probing", file)
    linear = {task.name: task for task in probing.load_linear(tmp_path).tasks}
    hidden = {task.name: task for task in probing.load_mlp(tmp_path).tasks}
    assert list(linear) == ["WordContent", "Tense"] and list(hidden) == ["WordContent-mlp", "Tense-mlp"]
    assert linear["Tense"].heads == hidden["WordContent-mlp"].heads == (Head(),)
    assert len(hidden["Tense-mlp"].heads) == 9 and Head(200, 0.2) in hidden["Tense-mlp"].heads
    assert linear["Tense"].score(run()).scores["acc"] > 95
    tuned = hidden["Tense-mlp"].score(run())
    assert tuned.settings["num_hidden"] in (50, 100, 200) and tuned.scores["acc"] > 95


def test_fewer_examples_than_folds_are_a_sentence_that_names_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "downstream/CR"
    folder.mkdir(parents=True)
    (folder / "custrev.pos").write_text("good\n" * 12)
    (folder / "custrev.neg").write_text("bad\n" * 12)
    with pytest.raises(DataError, match=r"custrev\.pos: .* 12 .*10 folds need 20"):
        transfer.load(tmp_path)
