"""`python -m clearspan.eval.data check`: the data in a folder, its state, and the source of the rest."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clearspan.eval.data.__main__ import main
from clearspan.eval.data.catalog import Compared, Finding, catalog, check, compared
from clearspan.eval.data.senteval import PROBING
from clearspan.eval.tables.averages import AVERAGES
from clearspan.eval.tables.published import tables
from clearspan.eval.tasks import sts


def finding(data: Path, name: str) -> Finding:
    (found,) = check(data, [one for one in catalog() if one.name == name])
    return found


def copied(shared_data: Path, tmp_path: Path, folder: str) -> Path:
    """A data folder with the files of one data set, which tests may damage."""
    place = tmp_path / "senteval" / "downstream" / folder
    shutil.copytree(shared_data / "senteval" / "downstream" / folder, place, copy_function=shutil.copyfile)
    return place


def test_every_task_of_the_papers_tables_has_data_in_the_catalog() -> None:
    known = {task for one in catalog() for task in one.tasks}
    wanted = {task for rule in AVERAGES.values() for task in rule.metrics}
    wanted |= {task for table in tables().values() for column in table.columns for task, _ in column.of}
    assert wanted <= known
    assert set(PROBING) <= known
    assert {*sts.YEARS, *sts.SPLITS} <= known


@pytest.mark.published("senteval")
def test_a_file_of_a_task_is_compared_with_the_known_copy(shared_data: Path, tmp_path: Path) -> None:
    file = copied(shared_data, tmp_path, "TREC") / "TREC_10.label"
    lines = file.read_bytes().splitlines(keepends=True)
    whole = compared(file)
    assert whole == Compared(hashlib.sha256(b"".join(lines)).hexdigest(), 500)

    def written(lines: list[bytes]) -> Compared:
        file.write_bytes(b"".join(lines))
        return replace(compared(file), sha256="")

    fewer, more = "TREC_10.label: 100 rows, not 500", "TREC_10.label: 1,000 rows, not 500"
    assert written(lines[:100]) == Compared("", 100, fewer, has_other_rows=True, is_truncated=True)
    assert written([*lines, *lines]) == Compared("", 1000, more, has_other_rows=True)
    assert written([*lines[1:], lines[0]]) == Compared("", 500, "TREC_10.label differs from the known copy")


def test_every_data_set_says_where_it_is_from_and_has_files() -> None:
    for one in catalog():
        assert one.source.startswith("http") and one.licence and one.files, one.name
        for file in one.files:
            assert file.sha256 is None or len(file.sha256) == 64


WHOLE = {
    "senteval": "STS12 STS14 STS16 STSBenchmark SICK MR SUBJ SST2 SST5 TREC MRPC",
    "glue": "glue/RTE glue/MRPC glue/CoLA glue/STS-B",
    "stsb_multi_mt": "stsb/de stsb/zh",
    "retrieval": "retrieval/flickr8k retrieval/cranfield",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.published(part), id=name)
        for part, names in WHOLE.items()
        for name in names.split()
    ],
)
def test_the_real_data_is_whole(name: str, shared_data: Path) -> None:
    found = finding(shared_data, name)
    assert (found.state, found.problems, found.notes) == ("whole", [], [])


def test_what_lacks_a_file_is_not_whole_and_what_has_none_is_absent(shared_data: Path, tmp_path: Path) -> None:
    place = copied(shared_data, tmp_path, "MR")
    (place / "rt-polarity.neg").unlink()
    found = finding(tmp_path, "MR")
    assert (found.state, found.problems) == ("not whole", [f"no {place / 'rt-polarity.neg'}"])
    assert found.rows == {"rt-polarity.pos": 5331}
    absent = finding(tmp_path, "SUBJ")
    assert (absent.state, absent.place) == ("absent", tmp_path / "senteval" / "downstream" / "SUBJ")


def test_data_is_found_where_the_evaluator_finds_it(shared_data: Path) -> None:
    folders = (shared_data, shared_data / "senteval", shared_data / "senteval" / "downstream")
    assert [finding(folder, "TREC").state for folder in folders] == ["whole"] * 3
    assert finding(shared_data / "stsb_multi_mt", "stsb/de").state == "whole"
    assert finding(shared_data / "glue", "glue/RTE").state == "absent"  # --tasks glue needs its parent folder


def test_the_command_names_what_is_missing_and_where_it_is(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(shared_data, tmp_path, "MR")
    assert main(["check", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert err == ""
    assert "MR whole MR see source 10,662" in lines
    assert "SNLI absent SNLI CC BY-SA 4.0" in lines
    source = lines.index("obtain from https://dl.fbaipublicfiles.com/glue/data/RTE.zip:")
    assert lines[source + 1] == f"glue/RTE into {tmp_path / 'glue' / 'RTE'}"


def test_what_is_there_and_not_whole_fails_the_command(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied(shared_data, tmp_path, "MR") / "rt-polarity.neg").write_text("one line\n")
    assert main(["check", str(tmp_path), "--json"]) == 1
    found = {one["data"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["MR"]["state"] == "not whole"
    assert "1 rows, not 5,331" in found["MR"]["problems"][0]
    assert found["CR"]["state"] == "absent" and found["CR"]["source"].startswith("https://")
