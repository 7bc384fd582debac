"""The verdicts that are kept are those of the same models, dataset, questions and options."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from clearspan.adapt import judging
from clearspan.adapt.judging import Judging, fingerprint, write_verdicts
from clearspan.common import words
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.records import DataError
from clearspan.eval.verdict import Verdict

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
