"""`python -m pipelines`: usage, summaries, progress."""

import errno
import importlib.util
import io
import json
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from clearspan.common import files
from clearspan.common.errors import PipelineError
from clearspan.pipelines.errors import InputChangedError, ModelFailedError, carried_error, carrying_errors
from clearspan.pipelines.execution import progress
from clearspan.pipelines.execution.runners import num_processes
from clearspan.pipelines.records import Input, Split
from clearspan.pipelines.text import filters
from clearspan.pipelines.units.plan import Unit, cut
from clearspan.plugins import language


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--unit-bytes", "0"], "--unit-bytes must be at least 1"),
        (["--max-bad-fraction", "1.5"], "--max-bad-fraction must be at most 1"),
        (["--whitespace", "colapse"], "did you mean 'collapse'?"),
        (["--min-token", "5"], "no such option: --min-token; did you mean '--min-tokens'?"),
        (["--direct_num_worker=5"], "no such option: --direct_num_worker; did you mean '--direct_num_workers'?"),
        (["--runner=no.such.Runner"], "--runner no.such.Runner: "),
        (["--runner=FnApiRunner", "--workers", "2"], "--workers is for this machine"),
    ],
)
def test_bad_usage_is_exit_2_and_says_what(
    pipeline, head: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    outcome = pipeline("--input", head, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err and outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["documents", "--language", "de"],
        ["sentences", "--language", "de,en"],
        ["pairs", "--fields", "title,text", "--language", "de"],
        ["triplets", "--columns", "a,b,c", "--language", "de"],
    ],
)
def test_the_missing_extra_of_languages_is_named(
    pipeline, head: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Also where the package has never been installed, and so has no version."""

    def not_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(metadata, "version", not_installed)
    filters.detector.cache_clear()
    language.identifier.cache_clear()
    outcome = pipeline(*words, "--input", head)
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert "--language needs py3langid: in a clone, pip install -c constraints.txt -e '.[language]'" in outcome.err


def test_the_summary_adds_up_and_standard_error_is_silent(pipeline, head: Path, texts: list[str]) -> None:
    outcome = pipeline("--input", head)
    assert (outcome.code, outcome.err) == (0, "")
    num_short = sum(len(text.encode()) < 2048 for text in texts[:40])
    counts = f"read 40 = kept 5, 0 empty, {num_short} short_bytes, {35 - num_short} short_tokens, bad 0"
    assert counts in outcome.out
    assert " MB/s, " in outcome.out and " documents/s" in outcome.out
    bars = [line.split() for line in outcome.out.partition("tokens per example\n")[2].splitlines()[1:]]
    assert sum(int(bar[-1]) for bar in bars) == 5


def test_the_json_summary_is_for_programs(pipeline, head: Path, tmp_path: Path) -> None:
    summary = json.loads(pipeline("--input", head, "--json").out)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {key: summary[key] for key in manifest["counts"]} == manifest["counts"]
    assert (summary["tokens"], summary["bytes"]) == (manifest["totals"]["tokens"], manifest["totals"]["bytes"])
    assert (summary["kind"], summary["shards"], summary["output"]) == ("documents", 1, str(tmp_path / "out"))
    run = summary["run"]
    assert (run["units"], run["input_bytes"], run["records"]) == (1, head.stat().st_size, 40)
    assert run["mb_per_s"] == pytest.approx(run["input_bytes"] / 1e6 / run["seconds"], rel=0.05)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_and_not_with_quiet(
    pipeline, head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    for name, flags in (("bar", []), ("quiet", ["--quiet"])):
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert pipeline("--input", head, "--output", tmp_path / name, *flags).code == 0
        shown[name] = sys.stderr.getvalue()
    assert "100%" in shown["bar"] and "B/s" in shown["bar"]
    assert shown["quiet"] == ""


def test_progress_counts_the_input_of_the_units_that_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    done = tmp_path / "_done"
    done.mkdir()
    (done / "00000.json").touch()
    units = tuple(cut("corpus", [Input("a.parquet", 1000, "parquet", None, "")], 300))
    watched = progress.Progress(str(tmp_path), units, quiet=False)
    assert (watched.n, watched.total, watched.desc) == (0, 700, "3 units")
    (done / "00003.json").touch()
    (done / files.temporary_name("00002.json")).touch()
    (done / "99999.json").touch()
    (done / "notes.json").touch()
    watched.poll()
    watched.poll()
    assert watched.n == 100
    watched.close()


def test_a_run_elsewhere_in_which_nothing_finishes_says_so_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    units = tuple(cut("corpus", [Input("a.parquet", 1000, "parquet", None, "")], 300))
    watched = {where: progress.Progress(str(tmp_path), units, True, where) for where in (True, False)}
    (tmp_path / "_staged").mkdir()
    for seconds, finished, is_told in (
        (599, None, 0),
        (601, None, 1),
        (900, "00000", 0),
        (1499, None, 0),
        (1501, None, 1),
    ):
        now[0] = seconds
        if finished:
            (tmp_path / "_staged" / f"{finished}.json").touch()
        watched[False].poll()
        assert capsys.readouterr().err == ""
        watched[True].poll()
        line = "pipelines: no work unit has finished for 10 min: if a worker's host is gone, stop this command and "
        assert capsys.readouterr().err == f"{line}run it again to continue\n" * is_told
    for bar in watched.values():
        bar.close()


@pytest.mark.parametrize(
    ("workers", "cores", "units", "megabytes", "expected"),
    [
        (4, 2, 9, 0, 4),
        (4, 2, 2, 0, 2),
        (3, 2, 0, 0, 1),
        (None, 2, 1, 10_000, 1),
        (None, 2, 0, 0, 1),
        (None, 2, 2, 100, 1),  # measured: 4.5 s with one, 7.7 s with two
        (None, 2, 6, 700, 2),
        (None, 2, 5, 600, 1),  # one of the two would do three of the five
        (None, 64, 4, 300, 1),
        (None, 64, 4, 450, 4),
        (None, 8, 9, 1_100, 5),  # eight would be no faster: one of them would do two as well
        (None, 64, 1_000, 128_000, 63),  # 16 units each: 64 do no fewer
        (None, 1, 1_000, 128_000, 1),
    ],
)
def test_processes_are_the_fewest_that_are_done_first(
    workers: int | None, cores: int, units: int, megabytes: int, expected: int
) -> None:
    assert num_processes(workers, units, megabytes * 1_000_000, bytes_per_s=70e6, cores=cores) == expected


def test_compressed_input_counts_as_the_text_in_it() -> None:
    inputs = [Input(f"a.{ending}", 1000, "jsonl", ending or None, "") for ending in ("", "zst")]
    assert Unit(0, tuple(Split(entry, 0, 500) for entry in inputs)).text_bytes == 2000


def test_a_workers_error_survives_what_runners_wrap_around_it() -> None:
    message = "a.jsonl:7: «naïve» [clearspan:fake] {json}\n  \udcff"
    with pytest.raises(RuntimeError) as raised, carrying_errors():
        raise PipelineError(message)
    wrapped = RuntimeError(f"Traceback (most recent call last):\n{raised.value!r} [while running 'Process']\n")
    found = carried_error(wrapped)
    assert isinstance(found, PipelineError)
    assert str(found) == "a.jsonl:7: «naïve» [clearspan:fake] {json} \\udcff"


def test_a_changed_input_is_still_one_outside_of_the_worker() -> None:
    with pytest.raises(RuntimeError) as raised, carrying_errors():
        raise InputChangedError.of("a.jsonl")
    found = carried_error(raised.value)
    assert type(found) is InputChangedError and str(found) == str(InputChangedError.of("a.jsonl"))


def test_a_full_disk_is_still_one_outside_of_the_worker() -> None:
    with pytest.raises(RuntimeError) as raised, carrying_errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/vectors-00000-000.tar")
    found = carried_error(raised.value)
    assert type(found) is OSError and "No space left on device: 'out/vectors-00000-000.tar'" in str(found)


def test_a_failed_model_is_still_one_outside_of_the_worker() -> None:
    with pytest.raises(RuntimeError) as raised, carrying_errors():
        raise ModelFailedError("encoder: cannot encode every text (CUDA out of memory)")
    assert type(carried_error(raised.value)) is ModelFailedError


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), carrying_errors():
        raise ZeroDivisionError
    assert carried_error(RuntimeError("ZeroDivisionError: division by zero [while running 'Process']")) is None


def test_field_names_do_not_steer_the_terminal(pipeline, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text('{"\\u001b[2Jbody\\u202e": "Call me Ishmael."}\n')
    outcome = pipeline("--input", tmp_path / "odd.jsonl")
    assert outcome.code == 1
    assert "among \\x1b[2Jbody\\u202e: name the field of the text" in outcome.err
