"""`adapt` looks at all its inputs for titles before it begins."""

import csv
import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from clearspan.adapt import __main__ as adapt
from clearspan.adapt import fields
from clearspan.adapt.fields import Titles, find_titles
from clearspan.common.terminal import UsageError
from clearspan.pipelines.records import Inputs, ReadOptions
from clearspan.pipelines.units.plan import find_inputs

TITLED = {"title": "Owls at night", "text": "They hunt by ear, and fly without a sound."}
ALONE = {"text": "It rains, and the streets are wet."}
ASKED = {"question": "Does it rain?", "text": "It does, and the streets are wet."}


def written(folder: Path, **files: list[dict[str, Any]]) -> list[str]:
    for name, records in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return [str(folder / "*")]


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"a": [TITLED] * 230, "b": [ALONE] * 500}, "no titles in b.jsonl; title and text in a.jsonl"),
        ({"a": [ALONE] * 500, "b": [TITLED] * 230}, "no titles in a.jsonl; title and text in b.jsonl"),
        ({"a": [TITLED] * 900, "b": [ASKED] * 90}, "title and text in a.jsonl; question and text in b.jsonl"),
    ],
)
def test_a_mixture_is_refused_before_the_work_with_the_two_ways_out(
    files: dict[str, list[dict[str, str]]], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (pattern,) = written(tmp_path / "in", **files)
    line = ["--input", pattern, "--output", str(tmp_path / "out")]
    assert adapt.main(line) == 2 and not (tmp_path / "out").exists()
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and complaint in message
    assert "text takes these pairs and leaves other records out, --text-field text takes that field" in message
    for way in (["--fields", "title,text"], ["--text-field", "text"]):
        assert adapt.main([*line, *way, "--dry-run"]) == 0


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_a_plain_text_or_a_table_without_titles_beside_them_is_a_mixture(tmp_path: Path) -> None:
    patterns = written(tmp_path, a=[TITLED] * 9)
    (tmp_path / "b.txt").write_text(ALONE["text"] * 20)
    with pytest.raises(UsageError, match=r"title and text in a\.jsonl; no titles in b\.txt"):
        find_titles(patterns)
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.csv").write_text("text\n" + f'"{ALONE["text"]}"\n' * 20)
    with pytest.raises(UsageError, match=r"no titles in c\.csv"):
        find_titles(patterns)


def in_form(path: Path, records: list[dict[str, str]]) -> Path:
    """Write records in the form that the suffixes of a path say."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    table = io.StringIO()
    rows = csv.DictWriter(table, records[0])
    rows.writeheader()
    rows.writerows(records)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(table.getvalue().encode() if ".csv" in path.suffixes else lines))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.compress(lines))
    else:
        path.write_bytes({".jsonl": lines, ".csv": table.getvalue().encode()}.get(path.suffix, lines))
    return path


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("place", [0, 9, 19])
def test_a_file_of_another_kind_is_found_in_any_form_and_at_any_place(form: str, place: int, tmp_path: Path) -> None:
    """Whatever the others are; the message has both ways out, however long the names of the files are."""
    other = {"jsonl": "csv", "csv": "jsonl.gz"}.get(form, "jsonl")
    folder = tmp_path / "a crawl of pages on the owls of each county" / "2024"
    folder.mkdir(parents=True)
    for number in range(20):
        texts = [hashlib.sha512(f"{number} {row}".encode()).hexdigest() for row in range(12)]
        titled = [{"title": f"Owls of county {row}", "text": text} for row, text in enumerate(texts)]
        alone = [{"text": text} for text in texts]
        name = f"{'a very long name of a file ' * 4}{number:02}.{form if number == place else other}"
        in_form(folder / name, alone if number == place else titled)
    with pytest.raises(UsageError) as caught:
        find_titles([str(tmp_path)])
    message, odd = str(caught.value), f"{place:02}.{form}"
    assert f"no titles in {'a very long name of a file ' * 4}{odd}" in message.replace("2024/", "")
    assert message.endswith(
        ": `fields` title,text takes these pairs and leaves other records out, `text_field` text takes that field of "
        "all files as texts without titles"
    )


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_titles_that_some_records_lack_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = written(tmp_path, a=[TITLED] * 300, b=[*[TITLED] * 200, *[ALONE] * 100])
    assert adapt.main(["--input", *inputs, "--output", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "(found by their names, in 500 of the first 600 records; `text_field` NAME" in capsys.readouterr().out


@pytest.mark.guarantee("groups-apart")
def test_families_are_held_out_by_the_pairs_of_titles_and_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = written(tmp_path, a=[{**TITLED, "family": "owls"}] * 300)
    line = ["--input", *inputs, "--output", str(tmp_path / "out"), "--dry-run", "--group-field", "family"]
    assert adapt.main(line) == 0
    commands = capsys.readouterr().out.splitlines()
    (pairs,) = [words for words in commands if "pipelines pairs " in words]
    assert "--group-field=family" in pairs and "10% held out, those of one family together" in "".join(commands)
    assert adapt.main([*line, "--text-field", "text"]) == 2
    assert "--group-field has no effect, since --text-field takes texts without titles" in capsys.readouterr().err


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_many_files_are_looked_at_a_few_records_each(tmp_path: Path) -> None:
    inputs = written(tmp_path, **{f"f{number:03}": [TITLED] * 50 for number in range(40)})
    assert find_titles(inputs).names == ("title", "text") and find_titles(inputs).note == ""
    inputs = written(tmp_path, **{f"f{number:03}": [ALONE] * 50 for number in range(40)})
    assert find_titles(inputs).names is None
    assert find_titles([str(tmp_path / "missing")]) == find_titles(inputs) == Titles(None)


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_the_most_bytes_say_which_names_are_meant(tmp_path: Path) -> None:
    """Three small files of another kind come before one large file, in which a record lacks the title."""
    headline = {"headline": "Owls at night", "text": TITLED["text"]}
    inputs = written(tmp_path, a=[TITLED], b=[TITLED], c=[TITLED], d=[*[headline] * 150, ALONE, *[headline] * 300])
    assert find_titles(inputs) == Titles(("headline", "text"), "in 249 of the first 253 records")


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_a_hundredth_of_the_bytes_may_have_other_names(tmp_path: Path) -> None:
    titled, asked = {"title": "Owls", "text": "They hunt."}, {"question": "Owls?", "text": "Yes."}
    asked["text"] += "." * (len(json.dumps(titled)) - len(json.dumps(asked)))
    assert len(json.dumps(asked)) == len(json.dumps(titled))
    assert find_titles(written(tmp_path, a=[asked], b=[titled] * 99)).names == ("title", "text")
    with pytest.raises(UsageError, match=r"question and text in a\.jsonl"):
        find_titles(written(tmp_path, a=[asked], b=[titled] * 98))


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("records", "names"),
    [
        ([*[TITLED] * 10, *[ALONE] * 10], None),
        ([*[TITLED] * 11, *[ALONE] * 10], ("title", "text")),
        ([*[ASKED] * 10, *[TITLED] * 30], ("title", "text")),
        ([*[TITLED] * 30, *[ASKED] * 10], ("title", "text")),
        ([{**TITLED, "title": "  "}] * 20, None),
        ([{**TITLED, "title": 7}] * 20, None),
    ],
)
def test_a_file_has_the_titles_of_more_than_half_of_its_records(
    records: list[dict[str, Any]], names: tuple[str, str] | None, tmp_path: Path
) -> None:
    assert find_titles(written(tmp_path, a=records)).names == names


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_titles_are_read_in_the_encoding_and_beside_files_of_unknown_type(tmp_path: Path) -> None:
    rows = "title,text\n" + "Eulen in Köln,Sie jagen über den Dächern.\n" * 20
    (tmp_path / "a.csv").write_bytes(rows.encode("cp1252"))
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 9)
    assert find_titles([str(tmp_path)], "cp1252").names == find_titles([str(tmp_path)], "windows-1252").names
    assert find_titles([str(tmp_path)], "cp1252").names == ("title", "text")
    assert find_titles([str(tmp_path)]) == find_titles([str(tmp_path)], "klingon") == Titles(None)


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize("names", [["owls.bin"], ["dataset_info.json", "state.json"], []])
def test_inputs_without_a_file_of_texts_have_no_titles(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(bytes(range(256)) if name.endswith("bin") else b"{}")
    assert find_titles([str(tmp_path)]) == Titles(None)


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_no_files_at_all_have_no_titles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all files of a folder only describe others."""
    monkeypatch.setattr(fields, "find_inputs", lambda *_: Inputs(str(tmp_path), ()))
    assert find_titles([str(tmp_path)]) == Titles(None)


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("num_files", "read"), [(3, {0: 1, 1: 1, 2: 1}), (4, {0: 1, 1: 1, 2: 1, 3: 1}), (9, {0: 1, 3: 1, 6: 1})]
)
def test_the_files_that_are_looked_at_are_spread_over_all(
    num_files: int, read: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "SAMPLE", 4)
    inputs = written(tmp_path, **{f"f{number}": [TITLED] * 5 for number in range(num_files)})
    reading = ReadOptions(columns=(("title", "text"),))
    found = list(fields._sampled(find_inputs(inputs, reading), reading))
    assert {int(file.entry.name[1]): file.records for file in found} == read


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_a_single_file_is_looked_at_as_far_as_the_sample_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "SAMPLE", 4)
    reading = ReadOptions(columns=(("title", "text"),))
    (file,) = fields._sampled(find_inputs(written(tmp_path, a=[TITLED] * 9), reading), reading)
    assert (file.titled, file.records) == (4, 4)
