"""Resuming: a run ends with the same bytes, however often it is interrupted and however many workers it has."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from clearspan.common import files
from clearspan.common.errors import PipelineError
from clearspan.pipelines.__main__ import main
from clearspan.pipelines.units import decisions
from tests.pipelines.conftest import KILLING
from tests.processes import environment, run_commands, run_module

UNIT_BYTES = "1000000"


@pytest.fixture(scope="module")
def words(openwebtext: Path, roberta_tokenizer: Path) -> list[str]:
    """Command without --output: eight units."""
    inputs = ["--input", str(openwebtext), "--tokenizer", str(roberta_tokenizer)]
    return ["documents", *inputs, "--unit-bytes", UNIT_BYTES]


@pytest.fixture(scope="module")
def finished(words: list[str], tree, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of an uninterrupted run with one worker."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    assert main([*words, "--output", str(folder), "--workers", "1"]) == 0
    return tree(folder)


def workers_of(driver: int) -> list[psutil.Process]:
    """Return the running worker processes of a driver."""
    ours = ["clearspan.pipelines.execution.worker", str(driver)]
    return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[-2:] == ours]


@pytest.mark.guarantee("killed-run")
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("workers", "when", "name"), [("1", "after", "documents-00003-000.tar"), ("2", "before", "documents-00004-000.tar")]
)
def test_killed_and_run_again_it_does_the_rest_and_ends_with_the_same_bytes(
    words: list[str],
    finished: dict[str, str],
    tree,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    workers: str,
    when: str,
    name: str,
) -> None:
    folder = tmp_path / "out"
    command = [*words, "--output", str(folder)]
    killing = [KILLING, workers, when, name, str(tmp_path / "wrapper"), *command]
    assert run_commands(killing, [environment()]).returncode == -signal.SIGKILL
    if workers == "2":
        driver = int((tmp_path / "driver").read_text())
        _, alive = psutil.wait_procs(workers_of(driver), timeout=30)
        assert not alive, "a worker outlives its driver"
    assert "manifest.json" not in tree(folder)
    assert when == "after" or list(folder.rglob(f"{files.TEMPORARY}*"))
    done = {path: path.stat().st_mtime_ns for path in folder.glob("_done/0*.json")}
    capsys.readouterr()
    assert main([*command, "--workers", "1", "--json"]) == 0
    assert tree(folder) == finished
    assert not list(folder.rglob(f"{files.TEMPORARY}*"))
    left = json.loads(capsys.readouterr().out)["run"]["units"]
    # The worker that outlives its driver, for half a second at most, may finish a unit more.
    assert left == 8 - len(done) or (workers == "2" and left == 7 - len(done))
    assert all(path.stat().st_mtime_ns == time for path, time in done.items())


@pytest.mark.exhaustive
def test_a_worker_that_dies_ends_the_run_with_a_line(
    words: list[str], finished: dict[str, str], tree, tmp_path: Path
) -> None:
    command = [*words, "--output", str(tmp_path / "out")]
    name = "documents-00004-000.tar"
    killing = [KILLING, "2 alone", "before", name, str(tmp_path / "wrapper"), *command]
    ended = run_commands(killing, [environment()])
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("pipelines: a worker process was killed or could not start: run again")
    assert main(command) == 0
    assert tree(tmp_path / "out") == finished


@pytest.mark.exhaustive
def test_workers_that_cannot_start_are_told_not_waited_for(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.executable = '/bin/false'\n"
        "from clearspan.pipelines.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    ended = run_commands(["-c", code, *words, "--output", str(tmp_path / "out"), "--workers", "2"], [environment()])
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("pipelines: a worker process was killed or could not start: run again")


@pytest.mark.exhaustive
def test_an_error_in_a_worker_process_is_one_line(words: list[str], tmp_path: Path) -> None:
    ended = run_module("pipelines", *words, "--output", tmp_path / "out", "--workers", "2", "--text-field", "body")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert 'no field "body" among id, source, n_gpt2_tokens, text: ' in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_finished_dataset_is_left_as_it_is(pipeline, head: Path, tmp_path: Path, monkeypatch) -> None:
    os.utime(head, ns=(10**18, 10**18))  # the status of a new file is not trusted, and is recorded by a later run
    assert pipeline("--input", head).code == 0
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    monkeypatch.setattr("clearspan.pipelines.run._run_beam", lambda *_: pytest.fail("started Beam"))
    again = pipeline("--input", head)
    assert again.code == 0
    assert "was already finished: nothing to do" in again.out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == times


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["finished", "unfinished"])
def test_other_options_or_inputs_are_refused_by_name(
    pipeline, head: Path, tmp_path: Path, shared_data: Path, tree, begun: str
) -> None:
    assert pipeline("--input", head).code == 0
    if begun == "unfinished":
        (tmp_path / "out" / "manifest.json").unlink()
    before = tree(tmp_path / "out")
    gpt2 = shared_data / "tokenizers" / "gpt2"
    for arguments, field in (
        (["--min-tokens", "1024"], "options.min_tokens: 2048 there, 1024 now"),
        (["--tokenizer", gpt2], "tokenizer.vocab_size: 50265 there, 50257 now"),
        (["--unit-bytes", "1000"], "options.unit_bytes: 128000000 there, 1000 now"),
    ):
        outcome = pipeline("--input", head, *arguments)
        assert outcome.code == 1
        assert field in outcome.err and f"choose another --output, or delete {tmp_path / 'out'}" in outcome.err
    with head.open("ab") as file:
        file.write(b'{"text": "one more"}\n')
    assert "inputs[head.jsonl]" in pipeline("--input", head).err
    assert tree(tmp_path / "out") == before


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"shards": [], "counts": {}, "held": [], "files": {}}', b"\xff"],
)
def test_a_damaged_result_is_none_and_its_unit_is_done_again(
    direct, head: Path, tmp_path: Path, tree, damage: bytes
) -> None:
    assert direct("--input", head, "--unit-bytes", "60000").code == 0
    finished, result = tree(tmp_path / "out"), tmp_path / "out" / "_done" / "00001.json"
    result.write_bytes(damage)
    again = direct("--input", head, "--unit-bytes", "60000", "--json")
    assert json.loads(again.out)["run"]["units"] == 1
    assert tree(tmp_path / "out") == finished


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize("name", ["manifest.json", "validation/manifest.json"])
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_lost_manifest_is_written_again_from_the_results(
    direct, head: Path, tmp_path: Path, tree, monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    command = ("--input", head, "--holdout-fraction", "0.5", "--min-tokens", "300")
    assert direct(*command).code == 0
    finished, path = tree(tmp_path / "out"), tmp_path / "out" / name
    path.unlink() if damage == "missing" else path.write_bytes(b"")
    monkeypatch.setattr("clearspan.pipelines.run._run_beam", lambda *_: pytest.fail("started Beam"))
    assert direct(*command).code == 0
    assert tree(tmp_path / "out") == finished


@pytest.mark.parametrize("damage", [b"", b"[" * 100_000, b'{"fingerprint": 3, "inputs": [], "units": []}'])
def test_a_damaged_plan_is_one_line(direct, head: Path, tmp_path: Path, damage: bytes) -> None:
    assert direct("--input", head).code == 0
    (tmp_path / "out" / "plan.json").write_bytes(damage)
    outcome = direct("--input", head)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert f"choose another --output, or delete {tmp_path / 'out'}" in outcome.err


@pytest.mark.guarantee("killed-run")
@pytest.mark.slow
@pytest.mark.parametrize("results", ["swapped", "copied", "another run's"])
def test_a_result_of_another_unit_or_plan_is_none(direct, head: Path, tmp_path: Path, tree, results: str) -> None:
    command = ("--input", head, "--unit-bytes", "60000")
    assert direct(*command).code == 0
    finished, folder = tree(tmp_path / "out"), tmp_path / "out"
    first, second = (folder / "_done" / f"0000{unit}.json" for unit in (0, 1))
    if results == "swapped":
        datas = first.read_bytes(), second.read_bytes()
        second.write_bytes(datas[0])
        first.write_bytes(datas[1])
    elif results == "copied":
        first.write_bytes(second.read_bytes())
    else:
        assert direct(*command, "--min-tokens", "300", "--output", tmp_path / "other").code == 0
        for name in ("_done/00000.json", "documents-00000-000.tar"):
            (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    (folder / "manifest.json").unlink()
    assert direct(*command).code == 0
    assert tree(folder) == finished


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.slow
@pytest.mark.parametrize("sort", ["keys", "duplicates", "candidates", "codes", "similar"])
def test_a_damaged_file_of_decisions_is_made_again_when_a_run_continues(
    direct, openwebtext: Path, tmp_path: Path, tree, monkeypatch, capsys: pytest.CaptureFixture[str], sort: str
) -> None:
    """Flipped bits and cuts, after a stop between the decisions and the marks."""
    lines = openwebtext.read_bytes().splitlines(keepends=True)[:60]
    near = [line.replace(b" the ", b" a ", 2) for line in lines[20:40]]
    (tmp_path / "lines.jsonl").write_bytes(b"".join([*lines, *lines[:20], *near]))
    command = ("--input", tmp_path / "lines.jsonl", "--dedup", "--near-dedup", "0.7", "--min-tokens", "50")
    command = (*command, "--unit-bytes", "100000")
    assert direct(*command, "--output", tmp_path / "whole").code == 0

    def stop(*_: object) -> None:
        raise PipelineError("stopped here")

    for damage in (lambda data: data[:-1], lambda data: data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]):
        folder = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        with monkeypatch.context() as patch:
            patch.setattr(decisions, "put_together", stop)
            assert "stopped here" in direct(*command, "--output", folder).err
        path = sorted((folder / "_staged").glob(f"{sort}-*.rows"))[0]
        path.write_bytes(damage(path.read_bytes()))
        continued = direct(*command, "--output", folder)
        assert continued.code == 0 and tree(folder) == tree(tmp_path / "whole")
        assert sort == "keys" or f"{path}: damaged since it was written: made again" in continued.err
