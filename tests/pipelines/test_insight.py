"""Statistics of a run: lengths of the examples and time of the workers, which must not change the files."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearspan.pipelines.__main__ import main
from clearspan.pipelines.stopwatch import Stopwatch, percentages
from clearspan.shards import Manifest


@pytest.mark.slow
def test_the_summary_shows_lengths_and_worker_time(pipeline, head: Path, tmp_path: Path) -> None:
    out = pipeline("--input", head).out
    assert "  worker time: read " in out and " %, tokenize " in out
    bars = [line.split() for line in out.partition("tokens per example\n")[2].splitlines()[1:]]
    assert sum(int(bar[-1]) for bar in bars) == Manifest.load(str(tmp_path / "out")).counts["kept"] == 5


@pytest.mark.exhaustive
def test_worker_seconds_are_those_of_all_workers_and_of_every_stage(
    pipeline, openwebtext: Path, tmp_path: Path
) -> None:
    words = ["--input", openwebtext, "--unit-bytes", "1000000", "--json"]
    summary = json.loads(pipeline(*words, "--workers", "2").out)
    seconds = summary["run"]["worker_seconds"]
    assert list(seconds) == ["read", "tokenize", "write", "other"]
    assert all(value > 0 for value in seconds.values())
    assert sum(seconds.values()) <= 2 * summary["run"]["seconds"]


@pytest.mark.slow
def test_no_file_of_a_dataset_holds_times(pipeline, head: Path, tmp_path: Path) -> None:
    assert pipeline("--input", head).code == 0
    for name in ("manifest.json", "plan.json", "_done/00000.json"):
        assert "seconds" not in (tmp_path / "out" / name).read_text()


def test_a_stopwatch_gives_the_rest_to_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow():
        for item in "ab":
            now[0] += 2.0
            yield item

    watch = Stopwatch()
    for _ in watch.each("read", slow()):
        now[0] += 1.0
        with watch.timing("write"):
            now[0] += 3.0
    seconds = watch.stop()
    assert seconds == {"read": 4.0, "write": 6.0, "other": 2.0}
    assert percentages(seconds) == "read 33 %, write 50 %, other 17 %"
    assert percentages({}) == ""


@pytest.mark.exhaustive
def test_a_worker_imports_no_training_library() -> None:
    heavy = ("torch", "webdataset", "deepspeed")
    code = f"import sys, pipelines.execution.graph; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.exhaustive
def test_sentences_are_also_timed_in_segmenting_and_augmenting(
    head: Path, roberta_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--input", head, "--output", tmp_path / "out", "--tokenizer", roberta_tokenizer, "--augment", "del-word"]
    assert main(["sentences", *map(str, words), "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["run"]["worker_seconds"]) == [
        "augment",
        "other",
        "read",
        "segment",
        "tokenize",
        "write",
    ]
