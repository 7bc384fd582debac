"""The held-out part of pairs: the share that was asked, no text on both sides, shared titles in training."""

import csv
import dataclasses
import errno
import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.pipelines.builders import rows as row_steps
from clearspan.pipelines.builders import text as text_kind
from clearspan.pipelines.builders.groups import digests, group_of
from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.records import Record
from clearspan.pipelines.units.curation import held_out_share
from clearspan.shards import Manifest, storage
from tests.pipelines.conftest import Command, rows, summary

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


@pytest.mark.guarantee("held-out-share")
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
    for animal in ("owl", "fox"):  # another dataset in the same folder, in the same process
        chains = [[f"{animal} {word(n)} {part}" for part in ("one", "two", "three", "four", "five")] for n in range(60)]
        pairs = [(first.upper(), second) for chain in chains for first, second in pairwise(chain)]
        if animal == "fox":
            random.Random(0).shuffle(pairs)
        assert direct(*written(pairs), "--holdout-fraction", "0.2").code == 0
        train, held = decoded(tmp_path / "out"), decoded(tmp_path / "out" / "validation")
        assert len(train) + len(held) == 240 and 0 < len(held) < 100 and len(held) % 4 == 0
        texts = [{text.casefold() for pair in side for text in pair} for side in (train, held)]
        assert not texts[0] & texts[1]
        shutil.rmtree(tmp_path / "out")


@pytest.mark.guarantee("linked-rows")
def test_texts_that_rows_lack_join_none_of_them(direct: Command, tmp_path: Path, decoded) -> None:
    records = [
        {
            "query": f"On {word(n)}",
            "pos": [f"The text of {word(n)}."],
            "neg": [f"A text of {word(n + 7000)}."] * (n % 3),
        }
        for n in range(300)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ("triplets", "--input", tmp_path / "a.jsonl", "--max-positives", "2", "--max-negatives", "2")
    ended = direct(*words, "--holdout-fraction", "0.2")
    assert ended.code == 0, ended.err
    train, held = decoded(tmp_path / "out"), decoded(tmp_path / "out" / "validation")
    assert len(train) + len(held) == 300 and 40 <= len(held) <= 80


@pytest.mark.guarantee("held-out-share")
def test_a_smaller_share_is_told_and_none_is_an_error(direct: Command, written, tmp_path: Path) -> None:
    """At most half of the rows that share no text with many are held out."""
    pairs = [("Untitled" if n % 20 else f"On {word(n)}", f"The text of {word(n)} is here.") for n in range(600)]
    ended = direct(*written(pairs), "--holdout-fraction", "0.1")
    held = len(rows(tmp_path / "out" / "validation"))
    line = f"held out {held} of 600 triplets: {held / 6:.3g} % (asked: 10 %)"
    assert 5 <= held <= 25 and line in ended.out
    assert "was already finished" in (again := direct(*written(pairs), "--holdout-fraction", "0.1").out)
    assert line in again
    next((tmp_path / "out").glob("*.tar")).unlink()  # another run makes it again, of its unit alone
    assert line in direct(*written(pairs), "--holdout-fraction", "0.1").out
    common = [("Untitled", text) for _, text in pairs]
    ended = direct(*written(common), "--holdout-fraction", "0.1", "--output", tmp_path / "none")
    assert ended.code == 1
    assert "0.1 of 600 triplets, of which those that share a text stay together, leaves none to validat" in ended.err


@pytest.mark.guarantee("held-out-share")
@pytest.mark.parametrize(
    ("asked", "filtered", "line"),
    [
        (0.1, {"held_out": 200}, "held out 200 of 2,000 triplets: 10 % (asked: 10 %)"),
        (0.25, {"held_out": 1800, "duplicate": 7}, "held out 1,800 of 3,600 triplets: 50 % (asked: 25 %)"),
        (0.015, {"held_out": 1}, "held out 1 of 1,801 triplets: 0.0555 % (asked: 1.5 %)"),
        (0.1, {"held_out": 0}, "held out 0 of 1,800 triplets: 0 % (asked: 10 %)"),
        *((asked, {"held_out": 200}, "") for asked in (None, 0.0)),
        (0.1, {"duplicate": 7}, ""),
    ],
)
def test_the_share_is_that_of_all_that_is_trained_on_or_held_out(
    asked: float | None, filtered: dict[str, int], line: str
) -> None:
    options = {} if asked is None else {"holdout_fraction": asked}
    manifest = Manifest("triplets", {"options": options}, [], {"read": 9000, "kept": 1800, "filtered": filtered})
    assert held_out_share(manifest) == line
    for kind in ("documents", "sentences", "images", "audio"):
        assert held_out_share(dataclasses.replace(manifest, kind=kind)) == line.replace("triplets", kind)


@pytest.mark.guarantee("held-out-share")
def test_the_share_is_told_however_much_else_there_is_to_tell(direct: Command, tmp_path: Path) -> None:
    """Of a table in another encoding, with files left out, excluded texts, prompts and groups."""
    lines = [f"On {word(n)},Das ist höchst {word(n)},{n // 2}" for n in range(60)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("\n".join(["title,text,topic", *lines]), encoding="cp1252")
    (tmp_path / "in" / "_b.csv").touch()
    (tmp_path / "in" / "c.pdf").write_bytes(b"%PDF-1.4\n\x00")
    (tmp_path / "test.txt").write_text("...\nNobody has ever written this sentence\n")
    words = ("pairs", "--input", tmp_path / "in", "--encoding", "auto", "--skip-unknown", "--prompt", "find: ")
    more = ("--max-tokens", "6", "--exclude", tmp_path / "test.txt", "--group-field", "topic")
    ended = direct(*words, *more, "--holdout-fraction", "0.3")
    assert ended.code == 0, ended.err
    held = len(rows(tmp_path / "out" / "validation"))
    assert f"held out {held} of 60 triplets: {held / 0.6:.3g} % (asked: 30 %)" in ended.out
    assert ended.out.count("\n") > 8


def passages() -> list[dict[str, Any]]:
    """Return passages of the topics of Python's reference, without a common text: those of one topic are a family."""
    made, seen = [], set[str]()
    for topic, text in sorted(topics.items()):
        for passage in [" ".join(each.split()) for each in text.split("\n\n")][1:5]:
            if len(passage) > 80 and not seen & {passage[:40], passage[40:300]}:
                seen |= {passage[:40], passage[40:300]}
                made.append({"title": passage[:40], "text": passage[40:300], "topic": topic})
    return made


def in_form(records: list[dict[str, Any]], form: str, folder: Path) -> list[Path]:
    """Write records as two files of a form; return their paths."""
    paths = []
    for number in range(2):
        part, path = records[number::2], folder / f"{number}.{form}"
        paths.append(path)
        if form == "jsonl":
            path.write_text("".join(json.dumps(record) + "\n" for record in part))
        elif form == "parquet":
            pq.write_table(pa.Table.from_pylist(part), path)
        else:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, [*records[0]])
                writer.writeheader()
                writer.writerows(part)
    return paths


def topics_of(folder: Path, records: list[dict[str, Any]], decoded) -> tuple[set[str | None], set[str | None]]:
    """Return the topics in the part to train on, and in the held-out part, of a dataset of all records."""
    of_text = {(record["title"].strip(), record["text"].strip()): record["topic"] for record in records}
    both = [decoded(folder), decoded(folder / "validation")]
    assert sum(map(len, both)) == len(records)
    train, held = ({of_text[title.strip(), text.strip()] for title, text in part} for part in both)
    return train, held


@pytest.mark.guarantee("groups-apart")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_rows_of_one_group_are_held_out_together(
    direct: Command, tmp_path: Path, decoded, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a topic are in two files, several units and several batches of each, and share no text."""
    monkeypatch.setattr(row_steps, "TOKENIZE_ROWS", 7)
    monkeypatch.setattr(text_kind, "BATCH_BYTES", 500)
    records = passages()
    words = ("pairs", "--input", *in_form(records, form, tmp_path), "--unit-bytes", "9000", "--holdout-fraction", "0.2")
    assert direct(*words, "--output", tmp_path / "without").code == 0
    train, held = topics_of(tmp_path / "without", records, decoded)
    assert len(train & held) > 20
    ended = direct(*words, "--group-field", "topic")
    train, held = topics_of(tmp_path / "out", records, decoded)
    assert not train & held and len(held) > 5
    share = len(rows(tmp_path / "out" / "validation")) / len(records)
    assert 0.12 < share < 0.28
    number = len({record["topic"] for record in records})
    assert f"{len(records)} rows are {number} groups of one topic or text, each on one side" in ended.out
    assert re.search(rf"held out \d+ of {len(records)} triplets: [\d.]+ % \(asked: 20 %\)", ended.out)
    assert "was already finished" in (again := direct(*words, "--group-field", "topic")).out
    assert f"{number} groups of one topic or text" in again.out
    assert direct(*words).code == 1  # the groups are part of what a dataset is


@pytest.mark.guarantee("groups-apart")
def test_a_row_without_a_group_is_alone_and_a_large_group_is_trained_on(
    direct: Command, tmp_path: Path, decoded
) -> None:
    """Of 3 rows one belongs to a large group, one has no value, and one a number."""
    records = passages()
    for number, record in enumerate(records):
        record["topic"] = ("all", [None, "", " "][number // 3 % 3], number // 12)[number % 3]
    words = ("pairs", "--input", *in_form(records, "jsonl", tmp_path), "--holdout-fraction", "0.2")
    ended = direct(*words, "--group-field", "Topic")
    train, held = topics_of(tmp_path / "out", records, decoded)
    assert train & held == {None, "", " "} and "all" in train
    assert 0.12 < len(rows(tmp_path / "out" / "validation")) / len(records) < 0.28
    groups = 1 + len(records[1::3]) + len({record["topic"] for record in records[2::3]})
    assert f"{len(records)} rows are {groups} groups of one Topic or text" in ended.out
    assert f"trained on as parts of large groups: {len(records[::3])} rows" in ended.out


def recorded(value: Any) -> Record:
    return Record("packages.jsonl", 0, value, b"")


@pytest.mark.guarantee("groups-apart")
@pytest.mark.parametrize(
    ("value", "group"),
    [
        *(({"topic": text}, "bash") for text in ("bash", "  bash\n", "\tbash ")),
        ({"Topic ": "bash"}, "bash"),
        ({"topic": "Bash", "Topic": "sed"}, "Bash"),
        *(
            ({"topic": number}, text)
            for number, text in ((7, "7"), ("7", "7"), (0, "0"), (7.5, "7.5"), (1e300, "1e+300"))
        ),
        *(({"topic": value}, text) for value, text in ((False, "false"), (True, "true"), (math.inf, "Infinity"))),
        *(({"topic": text}, text) for text in ("nan", "None", "null", "NA", "n/a", "-")),
        *(({"topic": value}, "") for value in (None, math.nan, "", " \n")),
        *((value, "") for value in ({}, {"text": "bash"}, "the topic of a text", ["topic"], None)),
    ],
)
def test_a_records_group_is_the_value_of_its_field_as_a_text(value: Any, group: str) -> None:
    assert group_of(recorded(value), "topic") == group
    assert group_of(recorded(value), None) == ""


@pytest.mark.guarantee("groups-apart")
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (["bash"], 'its "topic" is an array'),
        ({"name": "bash"}, 'its "topic" is an object'),
        ("bash \ud83d", "half of a surrogate pair at character 5"),
    ],
)
def test_a_value_that_names_no_group_makes_its_record_bad(value: Any, complaint: str) -> None:
    with pytest.raises(RecordError, match=re.escape(complaint)):
        group_of(recorded({"topic": value}), "topic")


@pytest.mark.guarantee("groups-apart")
def test_rows_of_one_group_have_one_hash_in_every_process_and_a_row_without_a_group_its_own() -> None:
    own = np.array([11, 12, 13, 14, 15, 16], np.uint64)
    hashes = digests(["", "bash", "", "Bash", "bash", "bash "], own)
    assert hashes.shape == (6, 1) and own.tolist() == [11, 12, 13, 14, 15, 16]
    alone, bash, other, upper, again, spaced = hashes[:, 0].tolist()
    assert (alone, other) == (11, 13)
    assert bash == again == 0xBBB51B9480825918
    assert len({bash, upper, spaced}) == 3


@pytest.mark.guarantee("groups-apart")
def test_a_group_is_no_text_of_a_row(direct: Command, tmp_path: Path, decoded) -> None:
    """Neither a third column of texts, nor linked to a text that is spelled as it is."""
    records = [{"a": f"On {word(n)}", "b": f"It is {word(n)}.", "family": f"on {word(n + 1)}"} for n in range(60)]
    paths = in_form(records, "csv", tmp_path)
    words = ("triplets", "--input", *paths, "--group-field", "family", "--holdout-fraction", "0.3")
    ended = direct(*words)
    assert sorted(decoded(tmp_path / "out") + decoded(tmp_path / "out" / "validation")) == sorted(
        (record["a"], record["b"]) for record in records
    )
    assert "60 rows are 60 groups of one family or text" in ended.out


@pytest.mark.guarantee("groups-apart")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("structure", ["headings", "sentences"])
def test_the_parts_of_one_text_can_be_held_out_together(
    direct: Command, tmp_path: Path, decoded, structure: str, form: str
) -> None:
    """Two texts have one id, and share no word with each other."""

    def text(n: int) -> str:
        parts = [f"{word(n)} {word(1000 + 4 * n + part)}" for part in range(4)]
        if structure == "headings":
            return "".join(f"# {part}\n\nThe text of {part}.\n\n" for part in parts)
        return "\n\n".join(
            f"The owls of {part} call at night in {part}. They of {part} sleep by day." for part in parts
        )

    records = [{"id": n // 2, "text": text(n)} for n in range(100)]
    words = ("pairs", "--input", *in_form(records, form, tmp_path), "--structure", structure)
    assert direct(*words, "--group-field", "id", "--holdout-fraction", "0.2").code == 0
    train, held = decoded(tmp_path / "out"), decoded(tmp_path / "out" / "validation")
    named = {word(n): n // 2 for n in range(100)}
    families = [
        {named[name] for row in part for name in " ".join(row).split() if name in named} for part in (train, held)
    ]
    assert len(train) + len(held) == {"headings": 400, "sentences": 100}[structure]
    assert not families[0] & families[1] and families[1]


@pytest.mark.guarantee("groups-apart")
@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--group-field", "topics", "--holdout-fraction", "0.2"), 1, '--group-field: no field "topics": the first'),
        (("--group-field", "topic"), 2, "--group-field has no effect without --holdout-fraction: leave it out"),
        (("--group-field", "tags", "--holdout-fraction", "0.2"), 1, '--group-field: "tags" holds an array'),
    ],
)
def test_a_group_that_cannot_be_told_is_one_line(
    direct: Command, tmp_path: Path, words: tuple[str, ...], code: int, complaint: str
) -> None:
    records = [{**record, "tags": ["a"]} for record in passages()[:20]]
    ended = direct("pairs", "--input", *in_form(records, "jsonl", tmp_path), *words)
    assert ended.code == code and complaint in ended.err and ended.err.count("\n") == 1


@pytest.mark.guarantee("groups-apart")
def test_a_later_group_that_is_a_list_is_a_bad_record(direct: Command, tmp_path: Path) -> None:
    records = passages()[:40]
    paths = in_form(records[:38], "jsonl", tmp_path)
    with paths[0].open("a") as file:
        file.write(json.dumps({**records[38], "topic": ["a", "b"]}) + "\n")
    words = ("--group-field", "topic", "--holdout-fraction", "0.4", "--max-bad-fraction", "0.1", "--json")
    found = summary(direct("pairs", "--input", *paths, *words))
    assert found["bad"] == 1


@pytest.mark.guarantee("any-workers", "linked-rows")
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
