"""Leftovers of engines such as Spark beside data: they are no data, and their number is told."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.common.errors import PipelineError
from tests.pipelines.conftest import Command, summary
from tests.pipelines.packings import jsonl, parquet, read_all, tar, write

TEXTS = ["An owl hunts at night.", "Moss grows on the north side.", "A political party won in 1980."]


def test_unfinished_parts_of_a_job_are_not_read_and_are_told(direct: Command, tmp_path: Path) -> None:
    part = parquet({"text": pa.array(TEXTS)})
    files = {"part-0.parquet": part, "_temporary/0/task_0/part-0.parquet": part, "_SUCCESS": b""}
    write(tmp_path / "in", files)
    words = ["--input", tmp_path / "in", "--min-tokens", "1"]
    assert summary(direct(*words, "--json"))["read"] == len(TEXTS)
    told = direct(*words, "--output", tmp_path / "again").out
    assert "2 files left out, since names that begin with _ are no data unless a pattern names them, e.g. " in told
    both = ["--input", tmp_path / "in", tmp_path / "in" / "_temporary", "--min-tokens", "1"]
    told = direct(*both, "--output", tmp_path / "both").out
    assert "1 file left out" in told and "_SUCCESS" in told


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("nested", [False, True])
def test_they_are_left_out_of_tars_too_and_counted(direct: Command, tmp_path: Path, nested: bool) -> None:
    files = {"part-0.jsonl": jsonl(TEXTS), "_temporary/0/part-0.jsonl": jsonl(TEXTS), "_SUCCESS": b""}
    archive = tar({f"out/{name}": data for name, data in {**files, "_year=2020/a.txt": b"An owl."}.items()})
    write(tmp_path / "_in", {"a.tar": tar({"inner.tar": archive}) if nested else archive})
    counts = summary(direct("--input", tmp_path / "_in", "--min-tokens", "1", "--json"))
    assert (counts["kept"], counts["filtered"]["auxiliary_name"]) == (len(TEXTS) + 1, 2)


@pytest.mark.parametrize("options", [[], ["--skip-unknown"]])
def test_media_have_leftovers_too(pipeline: Command, options: list[str], tmp_path: Path) -> None:
    write(tmp_path / "in", {"_temporary/cat/a.jpg": b"", "_b.jpg": b""})
    ended = pipeline("images", "--input", tmp_path / "in", *options)
    assert ended.code == 1 and "only files below names that begin with _" in ended.err


def test_a_parquet_file_that_describes_others_is_not_called_damaged(tmp_path: Path) -> None:
    collected: list[pq.FileMetaData] = []
    table = pa.table({"text": TEXTS})
    pq.write_table(table, tmp_path / "part-0.parquet", metadata_collector=collected)
    collected[0].set_file_path("part-0.parquet")
    pq.write_metadata(table.schema, tmp_path / "_metadata", metadata_collector=collected)
    data = (tmp_path / "_metadata").read_bytes()
    with pytest.raises(PipelineError, match=r"_metadata: only describes other Parquet files"):
        read_all({"_metadata": data}, tmp_path, 10**9)
