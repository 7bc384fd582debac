"""Damage to a run's files at random places (seeded): it is detected, the file is named, and intact files are used.

A run of six steps that saves every second one keeps steps 4 and 6.
"""

import errno
import json
import os
import pickle
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.checksummed_folder import NAME as MANIFEST
from clearspan.common.checksummed_folder import read_manifest, write_manifest
from clearspan.common.files import TEMPORARY
from clearspan.train.config.options import Recipe
from clearspan.train.curves import lines_up_to
from clearspan.train.engine import checkpoint
from clearspan.train.engine.checkpoint import STATES, CheckpointError, Checkpoints, safe_load, write_states
from clearspan.train.engine.display import Display
from clearspan.train.engine.tracking import Tracker
from clearspan.train.export import DATA, _trained, export, main, save_skeleton
from clearspan.train.run_folder import METRICS
from tests.train.ranks import train_alone, train_on_ranks
from tests.train.runs import last_weights, same_weights

SAVING = ["training.save_steps=2", "training.zero_stage=1"]
FILES = (STATES, MANIFEST)
FIRST, LAST = "step-00000004", "step-00000006"
PORT = 28110 + os.getpid() % 300


@pytest.fixture(scope="module")
def whole(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("damage") / "whole"
    train_alone(*tiny, *SAVING, f"output={run}")
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be damaged."""
    return shutil.copytree(whole, tmp_path / "run")


def damaged(content: bytes, draws: random.Random) -> bytes:
    """Return the content with a bit flipped, or cut off, at a random place."""
    place = draws.randrange(len(content))
    if draws.random() < 0.3:
        return content[:place]
    return content[:place] + bytes([content[place] ^ 1 << draws.randrange(8)]) + content[place + 1 :]


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_flip_or_a_cut_anywhere_in_the_last_checkpoint_leaves_the_one_before(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, draws = run / "checkpoints" / LAST / name, random.Random(name)
    content = path.read_bytes()
    for _ in range(100):
        path.write_bytes(damaged(content, draws))
        assert Checkpoints(run).last()[0] == FIRST
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and str(path) in said and f"using {FIRST}" in said
    path.unlink()
    assert Checkpoints(run).last()[0] == FIRST
    path.write_bytes(content)
    assert (
        Checkpoints(run).last()[0] == LAST
        and capsys.readouterr().err == f"train: {path}: missing: using {FIRST}, which is complete\n"
    )


@pytest.mark.guarantee("bit-equal-resume", "full-disk")
def test_the_two_last_are_kept_and_the_best_of_each(tmp_path: Path) -> None:
    """A replaced best checkpoint stays until both remaining manifests name the new one; other files are not deleted."""
    checkpoints, kept = Checkpoints(tmp_path), []
    for step in range(1, 9):
        tag = f"step-{step:08d}"
        checkpoints.write(step, {"step": step}, best=step in (2, 5))
        kept.append([int(tag[-1]) for tag in checkpoints.tags()])
        if step == 1:
            (checkpoints.folder / tag / "notes").touch()
    assert kept == [[1], [2, 1], [3, 2, 1], [4, 3, 2, 1], [5, 4, 2, 1], [6, 5, 1], [7, 6, 5, 1], [8, 7, 5, 1]]
    assert [path.name for path in (checkpoints.folder / "step-00000001").iterdir()] == ["notes"]
    assert checkpoints.last()[:2] == ("step-00000008", "step-00000005")


@pytest.mark.guarantee("output-kept")
def test_of_a_runs_checkpoints_only_its_own_files_are_deleted(tmp_path: Path) -> None:
    """The user's files stay, whether beside the checkpoints, inside them, or behind a link."""
    checkpoints = Checkpoints(tmp_path / "run")
    names = [f"{TEMPORARY}mine/notes", f"{TEMPORARY}step-00000001/notes", "step-00000001/other.pt"]
    own = [tmp_path / "elsewhere" / STATES, *(checkpoints.folder / name for name in names)]
    for path in own:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    (checkpoints.folder / "step-00000002").symlink_to(tmp_path / "elsewhere")
    for step in range(1, 6):
        checkpoints.write(step + 2, {"step": step}, best=False)
    assert [path.read_text() for path in own] == ["mine"] * 4
    assert checkpoints.tags() == ["step-00000007", "step-00000006", "step-00000002", "step-00000001"]


@pytest.mark.guarantee("output-kept")
def test_an_export_deletes_nothing_but_an_export(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It deletes no file outside the folder that a manifest lists, and no hidden file of others."""
    out, hidden, beside = tmp_path / "out", tmp_path / "out" / f"{TEMPORARY}mine" / "notes", tmp_path / "notes"
    hidden.parent.mkdir(parents=True)
    for path in (hidden, beside):
        path.write_text("mine")
    (out / "model.safetensors").touch()
    write_manifest(out, "model")
    record = load_checksummed((out / MANIFEST).read_bytes())
    record["files"] = {"../notes": record["files"]["model.safetensors"]}
    (out / MANIFEST).write_bytes(dump_checksummed(record))
    assert main([str(run), str(out)]) == 1
    assert 'it lists "../notes", which is outside the folder' in capsys.readouterr().err
    (out / MANIFEST).unlink()
    (out / "model.safetensors").unlink()
    assert main([str(run), str(out)]) == 0
    assert hidden.read_text() == beside.read_text() == "mine"


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.slow
def test_where_no_checkpoint_is_whole_nothing_is_lost_on_advice(
    run: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from clearspan.train.run import main as train

    for tag in (FIRST, LAST):
        (run / "checkpoints" / tag / MANIFEST).unlink()
    with pytest.raises(
        CheckpointError, match=f"{LAST}/{MANIFEST}: missing; .*: no checkpoint is complete: restore one"
    ):
        Checkpoints(run).last()
    assert train(["--recipe", "demo", *tiny, *SAVING, f"output={run}", "--quiet"]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "checkpoints" / LAST / STATES).is_file()


def best_of(run: Path, tag: str) -> None:
    """Make a step the best of the run in its last manifest."""
    last = run / "checkpoints" / LAST
    write_manifest(last, "checkpoint", {"best": tag})


@pytest.mark.slow
def test_a_damaged_best_checkpoint_is_an_error_that_names_the_last(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best_of(run, FIRST)
    assert str(export(run, tmp_path / "best")) == "the best checkpoint, that of step 4"
    assert str(export(run, tmp_path / "best", "last")) == "the last checkpoint, that of step 6"
    (run / "checkpoints" / FIRST / STATES).write_bytes(b"")
    assert main([str(run), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{FIRST}/{STATES}: damaged" in error and "--checkpoint last" in error
    assert main([str(run), str(tmp_path / "out"), "--checkpoint", "last"]) == 0
    (run / "checkpoints" / LAST / MANIFEST).write_bytes(b"{}")
    (run / "checkpoints" / FIRST).rename(run / "checkpoints" / "step-00000003")
    assert main([str(run), str(tmp_path / "none")]) == 1 and not (tmp_path / "none").exists()


def inputs_of_an_export(run: Path) -> Iterator[Path]:
    yield run / "recipe.yaml"
    yield from sorted((run / "encoder").iterdir())


@pytest.mark.slow
def test_damage_to_what_an_export_needs_is_named(
    whole: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = random.Random(5)
    for path in inputs_of_an_export(run):
        content = path.read_bytes()
        for other in (*(damaged(content, draws) for _ in range(10)), b"", b"\0\xff", b"[" * 100_000, b"{}", b"5"):
            path.write_bytes(other)
            if path.name == MANIFEST and other != b"" and same_json(other, content):
                continue
            assert main([str(run), str(tmp_path / "out")]) == 1
            error = capsys.readouterr().err
            assert error.count("\n") == 1 and str(path) in error and "--resume" in error
        path.write_bytes(content)
    assert not (tmp_path / "out").exists()
    assert main([str(run), str(tmp_path / "out")]) == 0
    assert same_weights(run, whole)


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("name", ["added_tokens.json", "special_tokens_map.json", "additional_chat_templates/a.jinja"])
def test_a_file_added_to_what_an_export_loads_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = run / "encoder" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"[NEW]": 7}')
    assert main([str(run), str(tmp_path / "out")]) == 1
    assert f"{path}: is not a file of this folder: move added files away" in capsys.readouterr().err
    path.unlink()
    assert main([str(run), str(tmp_path / "out")]) == 0


def test_what_an_export_needs_is_written_anew_without_the_old_and_never_lists_a_strangers_file(run: Path) -> None:
    folder = run / "encoder"
    encoder, tokenizer, _ = _trained(run, last_weights(run))
    written = read_manifest(folder, "encoder")
    (folder / "vocab.txt").touch()
    write_manifest(folder, "encoder")
    (folder / "added_tokens.json").write_text("{}")
    save_skeleton(encoder, tokenizer, folder, json.loads((folder / DATA).read_text()))
    assert read_manifest(folder, "encoder") == written
    assert {path.name for path in folder.iterdir()} == {*written[1], MANIFEST, "added_tokens.json"}


def same_json(ours: bytes, theirs: bytes) -> bool:
    """Return whether both are the same JSON: the hash covers a manifest's content, not its layout."""
    try:
        return bool(json.loads(ours) == json.loads(theirs))
    except (ValueError, RecursionError):
        return False


def test_weights_that_are_not_finite_are_not_exported(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = run / "checkpoints" / LAST
    states = safe_load(last / STATES)
    name = next(name for name in states["module"] if name.endswith("layer.1.output.dense.weight"))
    states["module"][name][3, 5] = torch.nan
    write_states(states, last / STATES)
    write_manifest(last, "checkpoint")
    assert main([str(run), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "encoder.layer.1.output.dense.weight and 0 other weights" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.guarantee("full-disk")
@pytest.mark.slow
def test_a_disk_that_fills_up_while_saving_leaves_the_checkpoint_before(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the second of two ranks too: neither waits for the other, and one of them reports the error."""
    monkeypatch.setenv("FULL_AT", "4")
    monkeypatch.setenv("LIMIT_BYTES", "300000")
    run = tmp_path / "run"
    arguments = [*tiny, *SAVING, f"output={run}"]
    stopped = train_on_ranks(2, *arguments, script="tests/train/full_at.py", port=PORT, code=1)
    told = [line for line in stopped.stderr.splitlines() if line.startswith("train: ")]
    assert len(told) == 1 and "File too large: '" in told[0] and ".pt'" in told[0] and "--resume" in told[0]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000002"]
    assert Checkpoints(run).last()[0] == "step-00000002"


@pytest.mark.guarantee("full-disk")
def test_what_torch_makes_of_a_full_disk_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / STATES
    states = {"module": {"weight": torch.zeros(1000, 100)}}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda path, mode: open("/dev/full", "wb"))  # noqa: PTH123
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            write_states(states, path)
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", lambda states, stream: "half a tensor" + 1)  # type: ignore[operator]
        with pytest.raises(TypeError):
            write_states(states, path)

    def failing(states: object, stream: object) -> None:
        raise RuntimeError("a tensor on another device")

    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):

        def failing_as_torch_does(states: object, stream: object, code: int = code) -> None:
            try:
                raise OSError(code, os.strerror(code))
            except OSError:
                raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904

        with monkeypatch.context() as patch:
            patch.setattr(torch, "save", failing_as_torch_does)
            with pytest.raises(OSError, match=f"{os.strerror(code)}: '{path}'"):
                write_states(states, path)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", failing)
        with pytest.raises(RuntimeError, match=r"^a tensor on another device$"):
            write_states(states, path)
    write_states(states, path)
    assert safe_load(path)["module"]["weight"].shape == (1000, 100) and list(tmp_path.iterdir()) == [path]


@pytest.mark.guarantee("full-disk")
@pytest.mark.parametrize("filled", ["write_states", "write_manifest"])
def test_a_checkpoint_that_a_full_disk_ended_is_gone_and_written_when_there_is_room(
    tmp_path: Path, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)

    def full(folder: object, *_: object) -> None:
        part = next((tmp_path / "checkpoints").glob(f"{TEMPORARY}*"))
        (part / STATES).write_bytes(b"half")
        raise OSError(28, "No space left on device", "a file")

    for step, remedy in ((3, "run it again"), (4, "continue with `resume` from the step before it")):
        tag = f"step-{step:08d}"
        for left in ("step-00000001", tag, "step-00000009"):  # by a run that was killed during a save
            (tmp_path / "checkpoints" / f"{TEMPORARY}{left}").mkdir(parents=True)
            (tmp_path / "checkpoints" / f"{TEMPORARY}{left}" / STATES).write_bytes(b"half")
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, filled, full)
            said = f"{tag}: could not be saved ([Errno 28] No space left on device: 'a file'): make room and {remedy}"
            with pytest.raises(CheckpointError, match=f"{re.escape(said)}$"):
                checkpoints.write(step, {"module": {"step": step}}, best=True)
        left_over = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        assert left_over == ["step-00000003"][: step - 3]
        checkpoints.write(step, {"module": {"step": step}}, best=step == 3)
        assert Checkpoints(tmp_path).last() == (tag, "step-00000003")
        assert safe_load(tmp_path / "checkpoints" / tag / STATES)["module"] == {"step": step}


@pytest.mark.guarantee("full-disk")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("filled", ["write_states", "write_manifest"])
def test_every_earlier_checkpoint_stays_as_it_was_when_a_disk_is_full(
    tmp_path: Path, filled: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best one, the last two, and what a user put beside them; however often it is tried again."""
    checkpoints = Checkpoints(tmp_path)
    for step in range(1, 5):
        checkpoints.write(step, {"module": {"step": step}}, best=step == 2)
    (checkpoints.folder / "step-00000003" / "notes").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert checkpoints.tags() == ["step-00000004", "step-00000003", "step-00000002"]

    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), "a file")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, filled, full)
        for step, best in ((5, True), (5, False), (6, True)):
            with pytest.raises(CheckpointError, match=f"step-0000000{step}: could not be saved "):
                checkpoints.write(step, {"module": {}}, best=best)
            assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            assert Checkpoints(tmp_path).last() == ("step-00000004", "step-00000002")
    checkpoints.write(5, {"module": {}}, best=False)
    assert Checkpoints(tmp_path).last() == ("step-00000005", "step-00000002")


@pytest.mark.guarantee("full-disk", "output-kept")
def test_what_a_user_put_into_an_unfinished_checkpoint_stays(tmp_path: Path) -> None:
    notes = tmp_path / "checkpoints" / f"{TEMPORARY}step-00000001" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    Checkpoints(tmp_path).write(1, {"module": {}}, best=False)
    assert [path.read_text() for path in tmp_path.rglob("notes.txt")] == ["mine"]
    assert Checkpoints(tmp_path).last() == ("step-00000001", None)


@pytest.mark.guarantee("full-disk")
def test_a_checkpoint_gets_its_name_when_it_is_whole_and_replaces_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, folder = Checkpoints(tmp_path), tmp_path / "checkpoints"
    checkpoints.write(1, {"module": {}}, best=False)
    assert checkpoints.last() == ("step-00000001", None)
    (folder / "step-00000002").mkdir()
    (folder / "step-00000002" / STATES).write_bytes(b"half")
    synced: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(checkpoint, "sync", lambda path: synced.append((path.name, checkpoints.tags())))
    rename = Path.rename

    def checked(source: Path, target: Path) -> Path:
        assert sorted(path.name for path in source.iterdir()) == [MANIFEST, STATES] and not target.exists()
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", checked)
    checkpoints.write(2, {"module": {"step": 2}}, best=True)
    checkpoints.write(3, {"module": {"step": 3}}, best=False)
    assert synced == [
        ("checkpoints", ["step-00000002", "step-00000001"]),
        ("checkpoints", ["step-00000003", "step-00000002", "step-00000001"]),
    ]
    assert Checkpoints(tmp_path).last() == ("step-00000003", "step-00000002")
    assert safe_load(folder / "step-00000002" / STATES)["module"] == {"step": 2}


@pytest.mark.guarantee("full-disk")
def test_a_full_disk_names_the_file_of_figures(tmp_path: Path) -> None:
    tracker = Tracker(Recipe(str(tmp_path)), Display(1, 0, quiet=True))
    (tmp_path / METRICS).unlink()
    (tmp_path / METRICS).symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/metrics\.jsonl'"):
        tracker.log(1, {"loss": 1.0})


@pytest.mark.guarantee("full-disk")
def test_a_full_disk_names_the_folder_of_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_space() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.close", lambda writer: without_space())
    tracker = Tracker(Recipe(str(tmp_path)), Display(1, 0, quiet=True))
    with pytest.raises(OSError, match=r"No space left on device: '.*/tensorboard'"):
        tracker.close()


def test_odd_lines_among_the_figures_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\0\xff\n' + b"[" * 100_000 + b'\n5\n{"step": "x"}\n{"step": 2}\n{"step": 3}\n')
    assert lines_up_to(path, 2) == ['{"step": 1}', '{"step": 2}']


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize(
    "content", [["owls"], {"optimizer": {}}, {"module": [torch.ones(2)]}, {"module": None}, torch.ones(2)]
)
def test_a_checkpoint_without_weights_is_named(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "states.pt")
    with pytest.raises(CheckpointError, match=r"states\.pt: holds no weights$"):
        safe_load(tmp_path / "states.pt")


@pytest.mark.guarantee("no-foreign-code")
def test_weights_and_plain_values_of_a_checkpoint_are_loaded(tmp_path: Path) -> None:
    torch.save({"module": {"owls": torch.arange(3)}, "clearspan": {"step": 7}}, tmp_path / "states.pt")
    states = safe_load(tmp_path / "states.pt")
    assert states.keys() == {"module", "clearspan"} and states["clearspan"] == {"step": 7}
    assert states["module"]["owls"].tolist() == [0, 1, 2]


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize("error", [OSError, RuntimeError, EOFError, ValueError, IndexError, pickle.UnpicklingError])
@pytest.mark.parametrize(
    ("message", "reason"), [("Ran out of owls\nand of mice", "Ran out of owls"), (" \n", ""), ("", "")]
)
def test_why_a_checkpoint_cannot_be_read_is_one_line(
    error: type[Exception], message: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error(message)

    monkeypatch.setattr(torch, "load", fails)
    with pytest.raises(CheckpointError) as raised:
        safe_load(tmp_path / "states.pt")
    assert str(raised.value).endswith(f"states.pt: cannot be read as a checkpoint ({reason or error.__name__})")


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize("has_manifest", [False, True])
@pytest.mark.parametrize("is_zip", [False, True])
@pytest.mark.parametrize("key", ["module", "optimizer", "clearspan"])
def test_a_checkpoint_cannot_run_code(tmp_path: Path, key: str, is_zip: bool, has_manifest: bool) -> None:
    """In torch's new and in its old format, in any part, and with a manifest that fits, which anyone can write."""

    class Harmful:
        def __reduce__(self) -> tuple:
            return (Path(tmp_path / "harmed").touch, ())

    states = {"module": {"weight": torch.zeros(2)}, "optimizer": {}, "clearspan": {}, key: {"more": Harmful()}}
    torch.save(states, tmp_path / STATES, _use_new_zipfile_serialization=is_zip)
    if has_manifest:
        write_manifest(tmp_path, checkpoint.KIND)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"states\.pt"):
            safe_load(tmp_path / STATES)
        assert not (tmp_path / "harmed").exists()


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize("best", [False, True])
def test_a_save_replaces_what_a_killed_one_left_and_a_damaged_checkpoint_of_its_step(
    best: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(checkpoint, "sync", synced.append)
    folder = Checkpoints(tmp_path).folder
    for name in (f"{TEMPORARY}step-00000002", f"{TEMPORARY}step-00000003", f"{TEMPORARY}step-00000004"):
        (folder / name).mkdir(parents=True)
        (folder / name / STATES).write_bytes(b"half")
    (folder / f"{TEMPORARY}step-00000003" / "notes").write_text("mine")
    (folder / "step-00000003").mkdir()
    for name in FILES:
        (folder / "step-00000003" / name).write_bytes(b"damaged")
    weights = {"weight": torch.full((2,), 1 / 3, dtype=torch.float64), "seen": torch.tensor(1 << 40)}
    moments = {"all": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]}}
    states = {"module": weights, "optimizer": moments, "clearspan": {"step": 3}}
    Checkpoints(tmp_path).write(3, states, best)
    assert [path.name for path in folder.iterdir()] == ["step-00000003"]
    assert Checkpoints(tmp_path).states("step-00000003")[1] == {"step": 3}
    assert Checkpoints(tmp_path).last() == ("step-00000003", "step-00000003" if best else None)
    kept = safe_load(folder / "step-00000003" / STATES)
    assert kept["optimizer"] == moments and kept["module"].keys() == weights.keys()
    for name, value in weights.items():
        assert torch.equal(kept["module"][name], value) and kept["module"][name].dtype == value.dtype
    assert synced[-1] == folder


@pytest.mark.guarantee("bit-equal-resume")
def test_after_a_resume_the_checkpoint_before_and_its_best_stay(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path)
    for step in (1, 2, 3, 4):
        first.write(step, {"step": step}, best=step == 1)
    resumed = Checkpoints(tmp_path)
    resumed.latest = [resumed.last()]
    resumed.write(5, {"step": 5}, best=False)
    assert resumed.tags() == [f"step-{step:08d}" for step in (5, 4, 1)]
    assert resumed.latest == [("step-00000004", "step-00000001"), ("step-00000005", "step-00000001")]
    resumed.write(6, {"step": 6}, best=True)
    assert resumed.tags() == [f"step-{step:08d}" for step in (6, 5, 1)]


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize(
    ("before", "remedy"),
    [
        (0, "run it again"),
        (1, "continue with `resume` from the step before it"),
        (4, "continue with `resume` from the step before it"),
    ],
)
def test_a_save_that_fails_leaves_only_the_checkpoints_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, remedy: str
) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in range(before):
        checkpoints.write(step + 1, {"step": step}, best=step == 0)
    latest, kept = list(checkpoints.latest), checkpoints.tags()

    def full(states: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_states", full)
    said = (
        f"{checkpoints.folder}/step-00000009: could not be saved ([Errno 28] No space left on device): make room and "
    )
    with pytest.raises(CheckpointError, match=f"^{re.escape(said + remedy)}$"):
        checkpoints.write(9, {"step": 2}, best=True)
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == kept[::-1]
    assert len(kept) == min(before, 3) and checkpoints.latest == latest


@pytest.mark.guarantee("bit-equal-resume")
def test_damaged_checkpoints_are_all_named_before_the_newest_whole_one_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=f"^{checkpoints.folder}: no checkpoint here; is it the folder of a run?"):
        checkpoints.last()
    for step in (1, 2, 3):
        checkpoints.write(step, {"step": step}, best=step == 1)
    assert checkpoints.last() == ("step-00000003", "step-00000001") and capsys.readouterr() == ("", "")
    paths = [checkpoints.folder / f"step-0000000{step}" / STATES for step in (3, 2, 1)]
    for at, path in enumerate(paths):  # as of a copy that was made in another order
        os.utime(path.parent, (at, at))
    assert checkpoints.last()[0] == "step-00000003"
    for path in paths[:2]:
        path.write_bytes(b"\x1b[2J")
    assert Checkpoints(tmp_path).last()[0] == "step-00000001"
    output, error = capsys.readouterr()
    assert output == "" and error.startswith(f"train: {paths[0]}: ") and f"; {paths[1]}: " in error
    assert error.endswith(": using step-00000001, which is complete\n")
    paths[2].unlink()
    with pytest.raises(CheckpointError, match="no checkpoint is complete") as refused:
        Checkpoints(tmp_path).last()
    assert all(str(path) in str(refused.value) for path in paths) and capsys.readouterr() == ("", "")


@pytest.mark.guarantee("no-foreign-code")
def test_a_checkpoint_cannot_run_code_by_a_function_of_torch(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple:
            return torch.hub._load_local, (str(tmp_path), "entry")

    (tmp_path / "hubconf.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('harmed').touch()\nentry = dict\n"
    )
    torch.save({"module": {}, "more": Harmful()}, tmp_path / "states.pt")
    with pytest.raises(CheckpointError, match=r"states\.pt"):
        safe_load(tmp_path / "states.pt")
    assert not (tmp_path / "harmed").exists()
