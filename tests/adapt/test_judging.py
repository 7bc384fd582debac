"""The verdicts that are kept are those of the same models, dataset, questions and options."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from clearspan.adapt import judging
from clearspan.adapt.judging import Judging, candidates_for_questions, fingerprint, write_verdicts
from clearspan.common import words
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.records import DataError
from clearspan.eval.verdict import Verdict
from clearspan.train.interpolate import interpolate

EARLIER_VERDICT = {
    "task": "titles", "num_queries": 30, "num_texts": 90, "num_collection": 90, "systems": [], "winner": "BM25",
    "best_trained": "trained", "best_untrained": "BM25", "difference": 0.0, "low": 0.0, "high": 0.0,
    "word": "no difference", "sentence": "take BM25", "notes": [], "examples": [],
}  # fmt: skip
TYPE = "sentence_transformers.models.Transformer"


@pytest.fixture
def options(tmp_path: Path) -> Judging:
    """Two models, a dataset with a held-out part and a file of questions, each of a few bytes."""
    for name in ("trained", "given", "other", "data", "data/validation"):
        (tmp_path / name).mkdir()
    for name in ("trained", "given", "other"):
        (tmp_path / name / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": TYPE}]))
        (tmp_path / name / "config.json").write_text(json.dumps({"name": name}))
    (tmp_path / "data" / "manifest.json").write_text("owls")
    (tmp_path / "data" / "validation" / "manifest.json").write_text("foxes")
    (tmp_path / "questions.jsonl").write_text('{"query": "Who flies silently?", "text": "Owls"}\n')
    return Judging(
        data=tmp_path / "data",
        trained=tmp_path / "trained",
        untrained=(f"given={tmp_path / 'given'}",),
        queries=tmp_path / "questions.jsonl",
        output=tmp_path / "verdict.json",
    )


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    "file",
    [
        "trained/config.json",
        "given/config.json",
        "data/manifest.json",
        "data/validation/manifest.json",
        "questions.jsonl",
    ],
)
def test_a_changed_file_is_judged_anew(options: Judging, file: str) -> None:
    path = options.data.parent / file
    kept, before = fingerprint(options), path.read_text()
    for edited in ('{"name": "edited"}', before[::-1], before.swapcase(), before + "\n", ""):
        path.write_text(edited)
        assert fingerprint(options) != kept, "also if the size stays"
    path.write_text(before)
    assert fingerprint(options) == kept


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    "change",
    [
        {"untrained": ()},
        {"queries": None},
        {"stemmer": "english"},
        {"prompt_name": ("query",)},
        {"precision": "bf16"},
        {"chunk_tokens": 256},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_option_is_judged_anew(options: Judging, change: dict[str, object]) -> None:
    assert fingerprint(replace(options, **change)) != fingerprint(options)


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("module", [judging, words])
def test_another_version_of_the_verdict_or_of_words_judges_anew(
    options: Judging, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(options)
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert fingerprint(options) != before


@pytest.mark.guarantee("verdict-among-all")
def test_another_version_of_the_stemmer_judges_anew(options: Judging, monkeypatch: pytest.MonkeyPatch) -> None:
    english = replace(options, stemmer="english")
    before, without = fingerprint(english), fingerprint(options)
    monkeypatch.setattr("clearspan.retrieval.stemming.version", lambda name: "9.9")
    assert fingerprint(english) != before and fingerprint(options) == without


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("stemmer", [None, "english"])
def test_a_verdict_of_an_earlier_version_stays_with_its_k1_and_b(options: Judging, stemmer: str | None) -> None:
    """It is not judged anew until a model, the dataset, the questions or an option changes."""
    options = replace(options, stemmer=stemmer)
    earlier = fingerprint(options, judging.EARLIER)
    assert earlier != fingerprint(options)
    kept = dump_checksummed({"inputs": earlier, "held_out": {}, "questions": None})
    options.output.write_bytes(kept)
    write_verdicts(options)
    assert options.output.read_bytes() == kept
    assert Verdict.from_json(EARLIER_VERDICT).k1 == 1.5 and Verdict.from_json(EARLIER_VERDICT).b == 0.75
    options.trained.joinpath("config.json").write_text("{}")
    with pytest.raises(DataError):  # this dataset cannot be judged
        write_verdicts(options)


@pytest.mark.guarantee("verdict-among-all")
def test_another_model_or_another_name_of_it_is_judged_anew(options: Judging) -> None:
    folder = options.data.parent
    several = [
        options,
        replace(options, untrained=(f"given={folder / 'other'}",)),
        replace(options, untrained=(f"base={folder / 'given'}",)),
        replace(options, untrained=(f"given={folder / 'given'}", f"other={folder / 'other'}")),
        replace(options, untrained=(f"given={folder / 'given'}", f"other={folder / 'given'}")),
        replace(options, trained=folder / "other"),
        replace(options, chunk_tokens=128),
        replace(options, chunk_tokens=256),
    ]
    assert len({fingerprint(each) for each in several}) == len(several)
    assert fingerprint(replace(options, output=folder / "elsewhere.json")) == fingerprint(options)


@pytest.fixture
def shared(options: Judging, still: Path, tmp_path: Path) -> Judging:
    """A model before training, one after it and one with half of the training, and 50 questions."""
    weights = load_file(still / "model.safetensors")["embedding.weight"]
    exported = Path(shutil.copytree(still, tmp_path / "exported"))
    save_file({"embedding.weight": weights + 1}, exported / "model.safetensors")
    interpolate(still, exported, 0.5, tmp_path / "half")
    rows = [{"query": f"Which owl is number {number}?", "text": f"Owl {number}"} for number in range(50)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = {"start": still, "exported": exported, "shares": tmp_path / "shares", "trained": tmp_path / "half"}
    return replace(options, **folders)


def shares_of(options: Judging) -> dict[float | None, float]:
    """Return the share that a candidate is said to have -> the difference of its weights from those before training."""
    assert options.start is not None
    before = load_file(options.start / "model.safetensors")["embedding.weight"]
    return {
        each.share: round(
            float((load_file(Path(each.model, "model.safetensors"))["embedding.weight"] - before).mean()), 5
        )
        for each in candidates_for_questions(options)
        if each.is_trained
    }


@pytest.mark.guarantee("chosen-apart")
def test_fifty_questions_choose_among_the_shares_of_the_training(shared: Judging) -> None:
    """The one that titles chose is first, so it stays if another finds no more."""
    assert list(shares_of(shared).items()) == [(0.5, 0.5), (0.25, 0.25), (1.0, 1.0)]
    assert [each.name for each in candidates_for_questions(shared)] == ["trained"] * 3 + ["given"]
    assert [each.share for each in shared.candidates] == [None, None], "titles choose none here"
    assert shared.queries is not None and shared.shares is not None and shared.exported is not None
    assert [path.name for path in shared.shares.iterdir()] == ["0.25"]
    shared.queries.write_text("".join(shared.queries.read_text().splitlines(keepends=True)[:49] * 2))
    assert [each.share for each in candidates_for_questions(shared)] == [None, None], "of 49, none"
    assert [each.share for each in candidates_for_questions(replace(shared, queries=None))] == [None, None]


def test_a_model_with_a_share_is_written_again_if_it_is_damaged_or_of_other_models(
    shared: Judging, capsys: pytest.CaptureFixture[str]
) -> None:
    first = shares_of(shared)
    assert shared.shares is not None and shared.exported is not None
    path = shared.shares / "0.25/model.safetensors"
    shared.output.write_bytes(dump_checksummed({"inputs": fingerprint(shared), "held_out": {}, "questions": None}))
    path.write_bytes(path.read_bytes()[:-4])
    write_verdicts(shared)
    assert "0.25.damaged" in capsys.readouterr().out and shares_of(shared) == first
    kept = fingerprint(shared)
    weights = load_file(shared.exported / "model.safetensors")["embedding.weight"]
    save_file({"embedding.weight": weights + 3}, shared.exported / "model.safetensors")
    assert fingerprint(shared) != kept
    with pytest.raises(DataError):  # this dataset cannot be judged
        write_verdicts(shared)
    assert shares_of(shared) == {0.5: 0.5, 0.25: 1.0, 1.0: 4.0}


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("name", ["start", "exported"])
def test_other_models_to_choose_between_are_judged_anew(shared: Judging, name: str) -> None:
    folder = getattr(shared, name)
    other = Path(shutil.copytree(folder, folder.parent / f"other {name}"))
    save_file({"embedding.weight": np.ones((4, 4), np.float32)}, other / "model.safetensors")
    assert fingerprint(replace(shared, **{name: other})) != fingerprint(shared)
    assert fingerprint(replace(shared, **{name: None})) != fingerprint(shared)
