"""Mistakes of a user: exit code 1, one line that names the mistake and the mend, and no manifest."""

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from clearspan.common import files
from clearspan.common.checksummed import build
from clearspan.common.errors import PipelineError
from clearspan.common.fast_tokenizer import FastTokenizer
from clearspan.common.ragged import Ragged
from clearspan.pipelines.builders.labeled import LabeledWorker
from clearspan.pipelines.counter import Counts, RecordCounter, RecordError
from clearspan.pipelines.records import Record
from clearspan.shards import storage
from tests.pipelines.conftest import logged, summary


def assert_fails(outcome, *parts: str) -> None:
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("pipelines: ") and outcome.err.count("\n") == 1, outcome.err
    for part in parts:
        assert part in outcome.err


@pytest.fixture(autouse=True)
def no_manifest(tmp_path: Path):
    yield
    assert not list(tmp_path.rglob("manifest.json"))
    assert not list(tmp_path.rglob(f"{files.TEMPORARY}*"))


def damage(head: Path, line: bytes, at: int = 20) -> Path:
    """The forty documents with one more line among them."""
    lines = head.read_bytes().splitlines(keepends=True)
    head.write_bytes(b"".join([*lines[:at], line + b"\n", *lines[at:]]))
    return head


def test_a_tokenizer_that_is_not_there(pipeline, head: Path, tmp_path: Path) -> None:
    for path in ("roberta-base", tmp_path):
        assert_fails(pipeline("--input", head, "--tokenizer", path), f"--tokenizer {path}: no tokenizer.json there")
        assert_fails(pipeline("--input", head, "--tokenizer", path), "`clearspan vocabulary`, or save a model's")


def test_a_tokenizer_that_is_none(pipeline, head: Path, tmp_path: Path) -> None:
    for name, data in (("a.json", b"{}"), ("b.json", b"\xff\xfe"), ("c.json", b"")):
        (tmp_path / name).write_bytes(data)
        assert_fails(pipeline("--input", head, "--tokenizer", tmp_path / name), f"{name}: not a tokenizer.json")


@pytest.mark.guarantee("records-counted")
@pytest.mark.slow
def test_a_corpus_of_nothing_but_bad_records_stops_early(pipeline, openwebtext: Path, tmp_path: Path) -> None:
    assert_fails(pipeline("--input", openwebtext, "--text-field", "body"), 'no field "body" among ')
    assert not (tmp_path / "out" / "_done").exists()


BAD = {
    b'{"text": "Call me Ishmael': "broken JSON",
    b'{"text": "caf\xe9 au lait"}': "invalid UTF-8 at byte 13 of the line",
    b'["Call me Ishmael."]': "not a JSON object but an array",
    b'{"id": 7}': 'no field "text"',
    b'{"text": ["Call", "me"]}': '"text" is not a string but an array',
    b'{"text": true}': '"text" is not a string but true or false',
    rb'{"text": "Call me \ud83d"}': "half of a surrogate pair at character 8 of the text",
}


@pytest.mark.guarantee("records-counted")
def test_one_bad_record_among_forty_is_too_many_and_is_named(pipeline, head: Path) -> None:
    offset = len(b"".join(head.read_bytes().splitlines(keepends=True)[:20]))
    outcome = pipeline("--input", damage(head, b'{"text": "Call me Ishmael'))
    assert_fails(outcome, "1 of 41 records are bad", f"head.jsonl:{offset}: broken JSON", "--max-bad-fraction 0.001")


@pytest.mark.guarantee("records-counted")
@pytest.mark.slow
def test_every_kind_of_bad_record_is_written_down_with_its_reason(pipeline, head: Path, tmp_path: Path) -> None:
    for line in BAD:
        damage(head, line)
    assert_fails(pipeline("--input", head), "7 of 47 records are bad")
    data = head.read_bytes()
    found = {row["offset"]: row for row in logged(tmp_path / "out" / "_rejected")}
    assert len(found) == 7
    for line, reason in BAD.items():
        row = found[data.index(line)]
        assert row["source"] == "head.jsonl"
        assert row["reason"].startswith(reason)
        assert row["head"] == line.decode("utf-8", "backslashreplace")


@pytest.mark.guarantee("records-counted")
def test_the_advice_on_encodings_follows_from_what_is_wrong_and_not_from_its_words() -> None:
    counter = RecordCounter((), 1.0)
    for _ in range(5):
        said = Record("a.txt", 0, None, b"", "invalid UTF-8, says its header")
        counter.reject(said, RecordError(said.problem))
    assert "name the encoding" not in counter.counts.complaint()
    cafe = Record.of_text("b.txt", 0, b"caf\xe9", 10, "line")
    counter.reject(cafe, RecordError(f"row 3: {cafe.problem}"))
    stored = build(Counts, json.loads(json.dumps(dataclasses.asdict(counter.counts))))
    assert stored == counter.counts and stored.complaint().endswith(
        "name the encoding of text that is not UTF-8, e.g. `encoding` cp1252, or auto to detect it"
    )


@pytest.mark.guarantee("records-counted")
def test_bad_records_within_the_limit_are_counted_and_the_rest_kept(pipeline, head: Path, tmp_path: Path) -> None:
    damage(head, b'{"text": "Call me Ishmael')
    assert pipeline("--input", head).code == 1
    outcome = pipeline("--input", head, "--max-bad-fraction", "0.05", "--json")
    assert outcome.code == 0
    summary = json.loads(outcome.out)
    assert summary["bad"] == 1 and summary["kept"] == 5
    assert summary["read"] == summary["kept"] + sum(summary["filtered"].values()) + 1 == 41
    assert summary["run"]["units"] == 0
    (tmp_path / "out" / "manifest.json").unlink()


@pytest.mark.slow
@pytest.mark.guarantee("records-counted")
@pytest.mark.parametrize("option", ["--dedup", "--json"])
def test_bad_records_of_every_unit_are_written_down_also_where_nothing_is_kept(
    direct, tmp_path: Path, option: str
) -> None:
    folder, bad = tmp_path / "in", [b'{"text": 7}', b"Call me", b'{"title": "Owls"}']
    folder.mkdir()
    lines = "".join(json.dumps({"text": f"Owl {number} hunts at night."}) + "\n" for number in range(40))
    (folder / "a.jsonl").write_text(lines)
    for number, line in enumerate(bad):
        (folder / f"{number}.jsonl").write_bytes(b"\n" + line + b"\n" + line + b"\n")
    (folder / "b.jsonl").write_bytes(lines.encode() + bad[0] + b"\n")
    words = ("--input", folder, "--min-tokens", "1", "--max-bad-fraction", "0.1", "--unit-bytes", "300", option)
    found = summary(direct(*words, "--json"))
    rows = [(row["source"], row["offset"], row["head"]) for row in logged(tmp_path / "out" / "_rejected")]
    expected = [(f"{number}.jsonl", 1 + again * (len(line) + 1), line.decode())
                for number, line in enumerate(bad) for again in range(2)]  # fmt: skip
    size = (folder / "b.jsonl").stat().st_size
    assert sorted(rows) == sorted([*expected, ("b.jsonl", size - len(bad[0]) - 1, bad[0].decode())])
    assert (found["read"], found["kept"], found["bad"]) == (87, 40 if option == "--dedup" else 80, 7)
    (tmp_path / "out" / "manifest.json").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("moved", [False, True])
def test_an_input_changed_in_place_between_two_runs_is_named(pipeline, head: Path, tmp_path: Path, moved: bool) -> None:
    damage(head, b"broken", at=0)
    assert pipeline("--input", head).code == 1
    data = head.read_bytes()
    if moved:
        head = tmp_path / "elsewhere" / head.name
        head.parent.mkdir()
    head.write_bytes(data)
    assert_fails(pipeline("--input", head), "1 of 41 records are bad")
    head.write_bytes(data.replace(b"broken", b"{}    "))
    assert_fails(pipeline("--input", head), "begun with other inputs", "inputs[head.jsonl]")


@pytest.mark.slow
def test_no_document_long_enough(pipeline, head: Path, texts: list[str], del_tokenizer: Tokenizer) -> None:
    longest = max(texts[:40], key=lambda text: len(text.encode()))
    num_bytes, num_tokens = len(longest.encode()), len(del_tokenizer.encode(longest, add_special_tokens=False).ids)
    some = pipeline("--input", head, "--min-tokens", "20000")
    assert_fails(some, f" short_tokens; the longest has {num_bytes:,} bytes, {num_tokens:,} tokens: lower --min-tokens")
    none = pipeline("--input", head, "--min-tokens", "1000000")
    assert_fails(none, f"40 short_bytes; the longest has {num_bytes:,} bytes: lower --min-tokens")


def test_an_output_that_is_a_file(pipeline, head: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")
    outcome = pipeline("--input", head)
    assert outcome.code == 2
    assert f"--output {tmp_path / 'out'}: {tmp_path / 'out'} is a file, not a folder: name a new or" in outcome.err


@pytest.mark.guarantee("full-disk")
@pytest.mark.slow
def test_a_full_disk(pipeline, head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(local: Path, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "publish_file", full)
        assert_fails(pipeline("--input", head), "No space left on device", "documents-00000-000.tar")
    assert pipeline("--input", head).code == 0
    (tmp_path / "out" / "manifest.json").unlink()


@pytest.mark.guarantee("same-ids")
def test_ids_that_cannot_be_proved_stop_the_run(
    pipeline, head: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = FastTokenizer.quick

    def wrong(tokenizer: FastTokenizer, given: list[str]) -> Ragged:
        ids = quick(tokenizer, given)
        found = zip(given, ids, strict=True)
        return Ragged.of([ids[::-1] if text == texts[0] else ids for text, ids in found], ids.values.dtype)

    monkeypatch.setattr(FastTokenizer, "quick", wrong)
    assert_fails(
        pipeline("--input", head, "--min-tokens", "100"),
        "head.jsonl:0: fast tokenization and tokenizers give different ids",
    )


def counted(counter: RecordCounter) -> tuple[int, int, int]:
    """Return the numbers of records that a counter has read, filtered and called bad."""
    return counter.counts.read, sum(counter.counts.filtered.values()), counter.counts.bad


@pytest.mark.guarantee("records-counted")
def test_each_record_is_yielded_or_counted_with_its_reason() -> None:
    records = [
        Record("a.tar/0.txt", None, "Owls.", b"Owls."),
        Record("a.tar/0.cls", None, None, b"", skipped="class_label"),
        Record("a.tar/1.cls", None, None, b"", skipped="class_label"),
        Record("a.tar/2.html", None, None, b"", skipped="unknown_type"),
        Record("a.tar/3.txt", None, "Rivers.", b"Rivers."),
        *(Record("b.own", offset, "Rain.", b"Rain.", skipped="draft") for offset in (0, 7, 7)),
    ]
    counter = RecordCounter(("class_label",), 0.5)
    assert [record.value for record in counter.readable(records)] == ["Owls.", "Rivers."]
    assert counter.counts == Counts(read=6, filtered={"class_label": 2, "unknown_type": 1, "draft": 3})


@pytest.mark.guarantee("records-counted")
@pytest.mark.guarantee("encoding-auto")
def test_each_file_that_is_not_utf8_is_counted_once() -> None:
    found = [("de/a.txt", "cp1252"), ("de/a.txt", "cp1252"), ("b.txt", ""), ("a.txt", "koi8-r"), ("fr/a.txt", "cp1252")]
    records = [Record(name, 0, "Größe", b"", encoding=encoding) for name, encoding in found]
    counter = RecordCounter((), 0.5)
    assert list(counter.readable(records)) == records
    assert counter.counts == Counts(
        encodings={"cp1252": 2, "koi8-r": 1},
        recoded=[["de/a.txt", "cp1252"], ["a.txt", "koi8-r"], ["fr/a.txt", "cp1252"]],
    )


@pytest.mark.guarantee("records-counted")
def test_what_cannot_be_made_of_a_record_is_bad_and_the_next_is_made() -> None:
    def make(record: Record) -> str | None:
        if record.value == "short":
            counter.counts.filtered["short"] += 1
            return None
        if record.problem:
            raise RecordError(record.problem)
        return record.value.upper()

    records = [
        Record("a.jsonl", 0, "owls", b"owls"),
        Record("a.jsonl", 5, None, b"{", "broken JSON"),
        Record("a.jsonl", 7, "short", b"short"),
        Record("b.jsonl", 0, "", b""),
        Record("b.jsonl", 1, None, b"[]\r\n", "no object"),
        Record("b.jsonl", 5, "rivers", b"rivers"),
    ]
    counter = RecordCounter(("short",), 0.5)
    assert list(counter.made(records, make)) == ["OWLS", "", "RIVERS"]
    assert counted(counter) == (6, 1, 2)
    assert [json.loads(line) for line in counter.rejected.splitlines()] == [
        {"source": "a.jsonl", "offset": 5, "reason": "broken JSON", "head": "{"},
        {"source": "b.jsonl", "offset": 1, "reason": "no object", "head": "[]"},
    ]
    assert counter.counts.bad_examples == [["a.jsonl:5", "broken JSON"], ["b.jsonl:1", "no object"]]


@pytest.mark.guarantee("records-counted")
def test_every_picture_is_read_and_one_that_cannot_be_decoded_is_bad() -> None:
    class Halves(LabeledWorker):
        def build(self, data: bytes, counts: Counts) -> Iterator[bytes]:
            if not data:
                raise RecordError("no picture")
            yield from (data[:1], data[1:])

        def column(self, values: list[bytes]) -> pa.Array:
            return pa.array(values, pa.binary())

    schema = pa.schema([("id", pa.int64()), ("value", pa.binary()), ("label", pa.int64())])
    records = [
        Record(f"owl/{number}.jpg", None, data, b"", label="owl") for number, data in enumerate((b"ab", b"", b"cd"))
    ]
    records.append(Record("owl/3.jpg", None, None, b"", "longer than 9 bytes", label="owl"))
    counter = RecordCounter((), 1.0)
    (batch,) = Halves(schema, {"owl": 7}).examples(records, counter)
    assert batch.column("value").to_pylist() == [b"a", b"b", b"c", b"d"]
    assert (counter.counts.kept, *counted(counter)) == (4, 6, 0, 2)
    assert [json.loads(line)["source"] for line in counter.rejected.splitlines()] == ["owl/1.jpg", "owl/3.jpg"]


@pytest.mark.guarantee("records-counted")
@pytest.mark.parametrize(
    ("raw", "head"),
    [
        (b"caf\xe9 au lait\r\n", r"caf\xe9 au lait"),
        ("Größe\n".encode(), "Größe"),
        (b"x" * 2000, "x" * 1000),
        ("ß".encode() * 2000, "ß" * 500),
        (b"\xff" * 2000, r"\xff" * 250),
        (b"x\\" + b"\xff" * 2000, "x\\" + r"\xff" * 249),
        (b"xyz" + b"\xff" * 2000, "xyz" + r"\xff" * 249),
        (b"x" * 999 + b"\\", "x" * 999 + "\\"),
        (b"x\n" * 2, "x\nx"),
        (b" x ", " x "),
        (b"x" * 1000 + b"\xff", "x" * 1000),
    ],
)
def test_the_beginning_of_a_bad_record_is_written_as_text(raw: bytes, head: str) -> None:
    counter = RecordCounter((), 1.0)
    reason = f"no field {', '.join(map(str, range(200)))}"
    counter.reject(Record("in/a.txt", None, None, raw, reason), RecordError(reason))
    assert json.loads(counter.rejected) == {"source": "in/a.txt", "offset": None, "reason": reason, "head": head}


@pytest.mark.guarantee("records-counted")
def test_the_first_three_bad_records_are_examples_and_all_are_rejected() -> None:
    counter = RecordCounter((), 1.0)
    offsets = [*range(5001), 0, 0]  # also the same record again
    for number in offsets:
        record = Record("a.txt", number, None, b"caf\xe9", "wrong", is_not_utf8=number % 2 == 0)
        counter.reject(record, RecordError(f"reason {number % 7}"))
    assert (counter.counts.bad, counter.counts.not_utf8) == (5003, 2503)
    assert counter.counts.bad_examples == [[f"a.txt:{number}", f"reason {number}"] for number in range(3)]
    assert [json.loads(line)["offset"] for line in counter.rejected.splitlines()] == offsets


@pytest.mark.guarantee("records-counted")
@pytest.mark.parametrize(
    ("good", "bad", "allowed", "ends"),
    [(0, 999, 0.1, False), (0, 1000, 0.1, True), (999, 1000, 0.499, True), (1000, 1000, 0.1, False),
     (0, 1000, 0.5, False), (5000, 1000, 0.001, False)],
)  # fmt: skip
def test_a_unit_stops_at_a_thousand_bad_records_that_are_most_of_all(
    good: int, bad: int, allowed: float, ends: bool
) -> None:
    counter = RecordCounter((), allowed)
    counter.counts.read = good + bad
    error = None
    for number in range(bad):
        assert error is None, number
        try:
            counter.reject(Record("a.txt", number, None, b"{"), RecordError("broken JSON"))
        except PipelineError as raised:
            error = str(raised)
    assert counter.counts.bad == bad
    assert (error is not None) == ends
    if error:
        assert error == f"{bad:,} of {good + bad:,} records are bad, e.g. a.txt:0: broken JSON"


@pytest.mark.guarantee("records-counted")
def test_the_counts_of_units_add_up_in_every_figure() -> None:
    one = Counts(
        *(7, 4, {"short": 1, "empty": 1}, 1, 1),
        longest={"bytes": 90, "tokens": 3},
        sums={"chunks": 2, "words": 1},
        bad_examples=[["a:0", "x"], ["a:1", "x"]],
        lacking="",
        encodings={"cp1252": 1, "koi8-r": 2},
        recoded=[[f"{number}.txt", "cp1252"] for number in range(15)],
        lacking_in={"a.csv": 2},
    )
    two = Counts(
        *(9, 3, {"empty": 2, "excluded": 1, "short": 0}, 3, 2),
        longest={"bytes": 80, "tokens": 5, "words": 2},
        sums={"words": 4, "pairs": 6},
        bad_examples=[["b:0", "y"], ["b:1", "y"], ["b:2", "y"]],
        lacking="no fields x",
        encodings={"koi8-r": 1, "cp932": 1},
        recoded=[[f"{number}.txt", "koi8-r"] for number in range(15, 30)],
        lacking_in={"b.csv": 3, "a.csv": 1},
    )
    later = dataclasses.asdict(two)
    one.add(two)
    assert dataclasses.asdict(two) == later
    assert one == Counts(
        *(16, 7, {"short": 1, "empty": 3, "excluded": 1}, 4, 3),
        longest={"bytes": 90, "tokens": 5, "words": 2},
        sums={"chunks": 2, "words": 5, "pairs": 6},
        bad_examples=[["a:0", "x"], ["a:1", "x"], ["b:0", "y"]],
        lacking="no fields x",
        encodings={"cp1252": 1, "koi8-r": 3, "cp932": 1},
        recoded=[[f"{number}.txt", "cp1252" if number < 15 else "koi8-r"] for number in range(20)],
        lacking_in={"a.csv": 3, "b.csv": 3},
    )


@pytest.mark.guarantee("records-counted")
@pytest.mark.parametrize(
    ("read", "bad", "allowed", "ends"),
    [(1000, 1, 0.001, False), (999, 1, 0.001, True), (10, 0, 0.0, False), (10, 1, 0.0, True), (10, 10, 1.0, False)],
)
def test_a_run_fails_above_the_fraction_that_is_allowed(read: int, bad: int, allowed: float, ends: bool) -> None:
    counts = Counts(read=read, bad=bad, bad_examples=[["a.txt:7", "broken JSON"]])
    if not ends:
        counts.check_bad(allowed)
        return
    expected = f"{bad} of {read} records are bad, e.g. a.txt:7: broken JSON (allowed: `max_bad_fraction` {allowed:g}"
    with pytest.raises(PipelineError) as caught:
        counts.check_bad(allowed)
    assert str(caught.value) == f"{expected})"
    with pytest.raises(PipelineError) as caught:
        counts.check_bad(allowed, "; all: _rejected/")
    assert str(caught.value) == f"{expected}; all: _rejected/)"
