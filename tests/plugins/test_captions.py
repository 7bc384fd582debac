"""Image-caption retrieval on made-up images in COCO's format."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.records import DataError
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.scores import figure
from clearspan.eval.tasks.registry import family
from clearspan.eval.tasks.task import TaskContext
from clearspan.plugins.captions import ranking

THINGS = ["owl", "horse", "bus", "lake", "cake", "kite", "sofa", "tree", "boat", "ring"]
SIZES = {"train": 40, "dev": 23, "test": 30}


def features(generator: np.random.RandomState, num: int) -> np.ndarray:
    return np.round(generator.rand(num, len(THINGS)), 1).astype(np.float32)


def caption_of(picture: np.ndarray, number: int) -> str:
    """Return a caption that names what the image shows most of; later captions name less of it."""
    return "a " + " and a ".join(THINGS[i] for i in np.argsort(-picture)[: 5 - number])


def by_things(texts: list[str]) -> np.ndarray:
    return np.array([[text.split().count(thing) for thing in THINGS] for text in texts], np.float32)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A SentEval folder with a made-up COCO."""
    folder = tmp_path / "downstream" / "COCO"
    folder.mkdir(parents=True)
    generator = np.random.RandomState(0)
    for name, num in (("train", SIZES["train"]), ("valid", SIZES["dev"]), ("test", SIZES["test"])):
        pictures = features(generator, num)
        content = {
            "features": pictures,
            "image_to_caption_ids": {i: [5 * i + number for number in range(5)] for i in range(num)},
            "captions": {
                5 * i + number: {"cleaned_caption": caption_of(picture, number)}
                for i, picture in enumerate(pictures)
                for number in range(5)
            },
        }
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(content, protocol=2))
    return tmp_path


@pytest.mark.guarantee("coco-captions")
def test_captions_that_tell_their_pictures_find_them(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_DIM", 40)
    (task,) = family("captions").load(data).tasks
    assert task.name == "ImageCaptionRetrieval" and len(task.files) == 3
    scored = task.score(TaskContext(EmbeddingSimilarity(by_things)))
    directions = [f"{way}_{figure}" for way in ("i2t", "t2i") for figure in ("r1", "r5", "r10", "medr")]
    assert list(scored.scores) == ["acc", "devacc", *directions]
    recalls = [scored.scores[name] for name in directions if not name.endswith("medr")]
    assert scored.scores["acc"] == pytest.approx(np.mean(recalls))
    assert scored.scores["t2i_r1"] > 35  # chance is 1 of the 6 pictures of a fold
    assert scored.counts == {"pictures": SIZES["test"], "train": SIZES["train"], "dev": SIZES["dev"]}
    assert scored.settings["folds"] == 5


def test_the_examples_of_the_figure_are_its_queries(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_DIM", 10)
    monkeypatch.setattr(ranking, "_MOST_PASSES", 0)
    (task,) = family("captions").load(data).tasks
    scored = task.score(TaskContext(EmbeddingSimilarity(by_things)))
    examples = scored.examples["acc"]
    assert len(examples) == SIZES["test"] * (1 + 5)
    assert figure(examples) == pytest.approx(scored.scores["acc"])


def test_an_embedding_that_is_no_number_finds_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_DIM", 10)
    (task,) = family("captions").load(data).tasks
    scored = task.score(TaskContext(EmbeddingSimilarity(lambda texts: np.full((len(texts), 4), np.nan))))
    assert scored.scores["t2i_r1"] <= 20


def test_what_is_missing_is_named(data: Path) -> None:
    (data / "downstream/COCO/valid.pkl").unlink()
    loaded = family("captions").load(data)
    assert loaded.tasks == [] and "no valid.pkl in " in loaded.missing["captions"]


@pytest.mark.parametrize(
    ("num", "width", "message"),
    [(25, 10, "25 images.*give 26 or more"), (40, 7, "10 numbers per image, train.pkl has 7")],
)
def test_splits_that_do_not_do_are_refused(data: Path, num: int, width: int, message: str) -> None:
    content = {
        "features": np.ones((num, width)),
        "image_to_caption_ids": {i: [0] * 5 for i in range(num)},
        "captions": {0: {"cleaned_caption": "an owl"}},
    }
    (data / "downstream/COCO/train.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=message):
        family("captions").load(data)
