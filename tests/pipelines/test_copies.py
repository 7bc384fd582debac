"""Copies: texts that differ in white space, letter case or Unicode form alone are one text, whatever the kind."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest

from tests.pipelines.conftest import Command, rows

NUM_COPIES = 6


def copies_of(text: str) -> list[str]:
    """Return a text, and copies of it."""
    return [text, f" {text}", text.replace(" ", "\n "), text.swapcase(), normalize("NFD", text), text + "\u3000"]


@pytest.fixture
def copies(texts: list[str], tmp_path: Path) -> Path:
    """Twenty texts with titles, and five copies of each, all first copies before all second ones."""
    some = [(f"\u00c9t\u00e9 {text[:50]}", " ".join(text.split()[:40])) for text in texts[:20]]
    copied = [list(zip(copies_of(title), copies_of(text), strict=True)) for title, text in some]
    records = [{"title": title, "text": text} for several in zip(*copied, strict=True) for title, text in several]
    path = tmp_path / "copies.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.guarantee("copies-are-one-text")
@pytest.mark.parametrize(
    "command",
    ["documents", "sentences", "pairs", "embed", "documents --lowercase", "documents --whitespace collapse"],
)
def test_copies_are_duplicates_and_on_one_side(
    direct: Command, copies: Path, tmp_path: Path, command: str, request: pytest.FixtureRequest
) -> None:
    command, *more = command.split()
    words: list[str | Path] = [command, *more, "--input", copies, "--unit-bytes", "8000"]
    words += {"sentences": ["--no-split"], "embed": ["--model"]}.get(command, [])
    words += [request.getfixturevalue("encoder")] if command == "embed" else ["--min-tokens", "1"]
    apart = tmp_path / "apart"
    ended = direct(*words, "--no-dedup", "--holdout-fraction", "0.4", "--output", apart)
    assert ended.code == 0, ended.err
    train, held = len(rows(apart)), len(rows(apart / "validation"))
    assert train + held == 20 * NUM_COPIES and held > 0 == held % NUM_COPIES
    assert direct(*words, "--dedup", "--holdout-fraction", "0.4").code == 0
    kept = [row["id"] for part in (".", "validation") for row in rows(tmp_path / "out" / part)]
    firsts = [row["id"] for part in (".", "validation") for row in rows(apart / part)]
    assert len(kept) == 20 and {*kept} <= {*firsts}
    filtered = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]["filtered"]
    assert filtered["duplicate"] == 20 * (NUM_COPIES - 1)


def test_the_first_copy_stays(direct: Command, copies: Path, tmp_path: Path) -> None:
    assert direct("--input", copies, "--min-tokens", "1", "--dedup").code == 0
    firsts = [json.loads(line)["text"] for line in copies.read_text().splitlines()[:20]]
    (tmp_path / "firsts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in firsts))
    assert direct("--input", tmp_path / "firsts.jsonl", "--min-tokens", "1", "--output", tmp_path / "firsts").code == 0
    assert [row["id"] for row in rows(tmp_path / "out")] == [row["id"] for row in rows(tmp_path / "firsts")]
