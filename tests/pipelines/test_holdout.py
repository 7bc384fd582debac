"""The held-out part of pairs: the share that was asked, no text on both sides, shared titles in training."""

import errno
import json
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from clearspan.shards import storage
from tests.pipelines.conftest import Command, rows

LETTERS = "abcdefghij"


def word(number: int) -> str:
    return "".join(LETTERS[int(digit)] for digit in str(number))


@pytest.fixture
def written(tmp_path: Path):
    """Write pairs as two files of JSON lines; return the words that name them."""

    def write(pairs: list[tuple[str, str]]) -> list[str | Path]:
        for number in range(2):
            records = [{"title": title, "text": text} for title, text in pairs[number::2]]
            (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return ["pairs", "--input", tmp_path / "0.jsonl", tmp_path / "1.jsonl", "--unit-bytes", "9000"]

    return write


@pytest.mark.guarantee("linked-rows")
def test_a_title_that_half_of_the_rows_share_is_trained_on_and_the_share_is_kept(
    direct: Command, written, tmp_path: Path, decoded
) -> None:
    pairs = [("Untitled document" if n % 2 else f"On {word(n)}", f"The text of {word(n)} is here.") for n in range(600)]
    ended = direct(*written(pairs), "--holdout-fraction", "0.1")
    train, held = decoded(tmp_path / "out"), decoded(tmp_path / "out" / "validation")
    assert len(train) + len(held) == 600 and 45 <= len(held) <= 75
    assert all(title != "Untitled document" for title, _ in held)
    assert f"held out {len(held)} of 600 triplets: {len(held) / 6:.3g} % (asked: 10 %)" in ended.out


@pytest.mark.guarantee("linked-rows")
def test_rows_that_share_a_text_through_other_rows_are_on_one_side(
    direct: Command, written, tmp_path: Path, decoded
) -> None:
    """Chains of four rows in which each text is the next row's title, in another case."""
    chains = [[f"text {word(n)} {part}" for part in ("one", "two", "three", "four", "five")] for n in range(60)]
    pairs = [(first.upper(), second) for chain in chains for first, second in pairwise(chain)]
    assert direct(*written(pairs), "--holdout-fraction", "0.2").code == 0
    train, held = decoded(tmp_path / "out"), decoded(tmp_path / "out" / "validation")
    assert len(train) + len(held) == 240 and 0 < len(held) < 100 and len(held) % 4 == 0
    texts = [{text.casefold() for pair in side for text in pair} for side in (train, held)]
    assert not texts[0] & texts[1]


@pytest.mark.guarantee("held-out-share")
def test_a_smaller_share_is_told_and_none_is_an_error(direct: Command, written, tmp_path: Path) -> None:
    """At most half of the rows that share no text with many are held out."""
    pairs = [("Untitled" if n % 20 else f"On {word(n)}", f"The text of {word(n)} is here.") for n in range(600)]
    ended = direct(*written(pairs), "--holdout-fraction", "0.1")
    held = len(rows(tmp_path / "out" / "validation"))
    assert 5 <= held <= 25 and f"held out {held} of 600 triplets: {held / 6:.3g} % (asked: 10 %)" in ended.out
    common = [("Untitled", text) for _, text in pairs]
    ended = direct(*written(common), "--holdout-fraction", "0.1", "--output", tmp_path / "none")
    assert ended.code == 1
    assert "0.1 of 600 triplets, of which those that share a text stay together, leaves none to validat" in ended.err


def test_the_sides_depend_on_no_order_and_no_unit(direct: Command, written, tmp_path: Path, decoded) -> None:
    pairs = [(f"On {word(n // 2)}", f"The text of {word(n)} is here.") for n in range(300)]
    assert direct(*written(pairs), "--holdout-fraction", "0.2").code == 0
    again = ("--unit-bytes", "1000000", "--holdout-fraction", "0.2", "--output", tmp_path / "again")
    assert direct(*written(pairs[::-1])[:-2], *again).code == 0
    for part in (".", "validation"):
        assert sorted(decoded(tmp_path / "out" / part)) == sorted(decoded(tmp_path / "again" / part))


@pytest.mark.exhaustive
def test_stopped_while_groups_are_found_it_ends_with_the_same_bytes(
    direct: Command, tmp_path: Path, tree: Callable[[Path], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three units take several iterations: chains of rows of which each shares a text with one of the next unit."""
    texts = [f"The text of {word(n)} is here." for n in range(300)]
    pairs = [pair for number, pair in enumerate(pairwise(texts), 1) if number % 6]
    for unit in range(3):
        records = [{"title": title, "text": text} for title, text in pairs[unit::3]]
        (tmp_path / f"{unit}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ("pairs", "--input", tmp_path / "*.jsonl", "--unit-bytes", "9000", "--holdout-fraction", "0.2")
    published, publish = list[str](), storage.publish_bytes
    decided = r"(names|sent|replies)\d+-|(sizes|rows|eligible|groups)-"

    def publishing(fails_at: int | None) -> Callable[[bytes, str], None]:
        def publish_or_fail(data: bytes, path: str) -> None:
            if re.match(decided, Path(path).name):
                if len(published) == fails_at:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                published.append(Path(path).name)
            publish(data, path)

        return publish_or_fail

    monkeypatch.setattr(storage, "publish_bytes", publishing(None))
    assert direct(*words, "--output", tmp_path / "undisturbed").code == 0
    names, expected = [*published], tree(tmp_path / "undisturbed")
    assert {"sent2-00002.rows", "replies2-00000.rows", "groups-00000.rows"} <= {*names}
    assert len(names) == len({*names})
    for fails_at in range(0, len(names), 3):
        folder = tmp_path / f"{fails_at}"
        for number in (fails_at, None):
            published.clear()
            monkeypatch.setattr(storage, "publish_bytes", publishing(number))
            assert direct(*words, "--output", folder).code == (number is not None)
        assert tree(folder) == expected
