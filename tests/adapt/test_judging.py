"""The verdicts that are kept are those of the same models, dataset, questions and options."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from clearspan.adapt import judging
from clearspan.adapt.judging import Judging, fingerprint
from clearspan.common import words

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
