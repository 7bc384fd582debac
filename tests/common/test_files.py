"""Local files are written completely or not at all, and nothing else is touched."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearspan.common import files


@pytest.mark.guarantee("full-disk")
def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shard.tar"
    files.write_bytes(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.guarantee("full-disk")
def test_nothing_has_the_final_name_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = [], os.fsync

    def watched(number: int) -> None:
        seen.append([path.name for path in tmp_path.iterdir()])
        real(number)

    monkeypatch.setattr(os, "fsync", watched)
    files.write_bytes(tmp_path / "manifest.json", b"data")
    before, after = seen
    assert [name.startswith(files.TEMPORARY) for name in before] == [True]
    assert after == ["manifest.json"]


@pytest.mark.guarantee("full-disk")
@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "owls.tar"),
        (OSError(errno.ENOSPC, "No space left on device", "part-owls"), "owls.tar"),
        (OSError(errno.EIO, "Input/output error", Path("part-owls")), "owls.tar"),
        (OSError(errno.ENOENT, "No such file or directory", "corpus.jsonl"), None),
        (OSError("owls.tar: no room"), None),
        (ValueError("No space left on device"), None),
    ],
    ids=["no name", "temporary", "temporary as path", "another file", "a sentence", "no error of files"],
)
def test_an_error_without_a_name_or_with_a_temporary_one_gets_the_name_of_the_file(
    error: Exception, named: str | None
) -> None:
    with pytest.raises(type(error)) as caught, files.path_in_errors("owls.tar", written_as=Path("part-owls")):
        raise error
    if named is None:
        assert caught.value is error
    else:
        assert isinstance(error, OSError) and isinstance(caught.value, OSError)
        assert caught.value.args == (error.errno, error.strerror) and caught.value.filename == named
    with files.path_in_errors("owls.tar"):
        pass


@pytest.mark.guarantee("full-disk")
@pytest.mark.parametrize("filled", ["open", "write", "close", "rename"])
def test_a_full_disk_is_named_by_the_file_and_leaves_what_was_there(
    tmp_path: Path, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "folder" / "owls.tar"
    files.write_bytes(path, b"old")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(path: Path, mode: str) -> None:
        raise OSError(*full.args, str(path))

    with monkeypatch.context() as patch:
        if filled == "rename":
            patch.setattr(Path, "replace", lambda source, target: source.rename("/proc/owls.tar"))
        elif filled == "open":
            patch.setattr(Path, "open", refuse)
        else:
            patch.setattr(Path, "open", lambda path, mode: open("/dev/full", "wb"))  # noqa: PTH123
        with pytest.raises(OSError) as caught, files.atomic_write(path) as stream:
            stream.write(b"new" * (10 if filled == "close" else 100_000))
    assert caught.value.filename == str(path)
    assert filled == "rename" or caught.value.args == full.args
    assert path.read_bytes() == b"old" and list(path.parent.iterdir()) == [path]
    files.write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and list(path.parent.iterdir()) == [path]


@pytest.mark.guarantee("full-disk")
def test_what_is_being_written_has_a_temporary_name_beside_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "owls.tar"
    files.write_bytes(path, b"old")
    with files.atomic_write(path) as stream:
        stream.write(b"new")
        (other,) = set(tmp_path.iterdir()) - {path}
        assert other.name.startswith(files.TEMPORARY) and path.read_bytes() == b"old"
        assert files._TEMPORARY_NAME.fullmatch(other.name)
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt), files.atomic_write(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.guarantee("full-disk")
def test_a_file_is_moved_after_it_is_on_disk_or_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, path = tmp_path / "spool", tmp_path / "owls.tar"
    steps: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(files, "sync", lambda path: steps.append(f"sync {path.name}"))
    monkeypatch.setattr(Path, "replace", lambda source, to: (steps.append("replace"), replace(source, to))[1])
    spool.write_bytes(b"whole")
    files.move(spool, path)
    assert steps == ["sync spool", "replace", f"sync {tmp_path.name}"]
    assert path.read_bytes() == b"whole" and not spool.exists()
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError) as caught:
        files.move(spool, path)
    assert caught.value.filename == str(path) and path.read_bytes() == b"whole"


@pytest.mark.guarantee("output-kept")
def test_temporaries_of_killed_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    theirs = [tmp_path / name for name in (f"{files.TEMPORARY}mine", f"{files.TEMPORARY}1-a.tar", "a.tar", ".a.part")]
    for folder in theirs:
        folder.mkdir()
        (folder / "notes").touch()
    linked = tmp_path / files.temporary_name("link")
    linked.symlink_to(theirs[0])
    (tmp_path / files.temporary_name("documents-00000-000.tar")).write_bytes(b"half")
    spool = tmp_path / files.temporary_name("spool")
    spool.mkdir()
    (spool / "documents-00000-001.tar").write_bytes(b"half")
    files.remove_temporaries(tmp_path)
    files.remove_temporaries(tmp_path / "absent")
    assert sorted(tmp_path.iterdir()) == sorted([*theirs, linked])
    assert all((folder / "notes").is_file() for folder in theirs)


def test_fresh_temporaries_of_other_processes_stay(tmp_path: Path) -> None:
    fresh, old = (tmp_path / files.temporary_name(name) for name in ("fresh", "old"))
    for path in (fresh, old):
        path.touch()
    os.utime(old, (0, 0))
    files.remove_temporaries(tmp_path, older_than_s=3600)
    assert list(tmp_path.iterdir()) == [fresh]


@pytest.mark.guarantee("one-run-a-folder")
def test_a_folder_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    again = files.locked(tmp_path / "run")
    with files.locked(tmp_path / "run"), pytest.raises(files.InUseError, match=f"{tmp_path / 'run'}: another run"):
        again.__enter__()
    with files.locked(tmp_path / "run"):
        pass
    with pytest.raises(ValueError), files.locked(tmp_path / "run"):
        raise ValueError("the run failed")
    with files.locked(tmp_path / "run"), files.locked(tmp_path / "other"):
        pass


@pytest.mark.guarantee("one-run-a-folder")
@pytest.mark.parametrize("content", ["nothing", "files", "files of a day ago"])
def test_a_folder_is_locked_whatever_it_holds_and_however_it_is_named(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may write nothing for hours, and a second one may name its folder by a link or relative to its own place.

    After any number of refused runs, the first one still has the folder, and what it holds is as it was.
    """
    folder = tmp_path / "Owls" / "run"
    (tmp_path / "Owls" / "other").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "Owls")
    monkeypatch.chdir(tmp_path / "Owls" / "other")
    names = [
        folder,
        str(folder),
        f"{folder}/",
        "../run",
        Path("../run"),
        tmp_path / "link" / "run",
        f"{tmp_path}/./Owls/run",
    ]
    for first in names:
        with files.locked(first):
            if content != "nothing":
                (folder / "plan.json").write_text("{}")
                (folder / files.temporary_name("manifest.json")).write_text("half of it")
                (folder / files.temporary_name("spool")).mkdir()
            if content == "files of a day ago":
                for path in (folder / "plan.json", folder):
                    os.utime(path, (time.time() - 100_000,) * 2)
            before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
            for second in [*names, *names]:
                with pytest.raises(files.InUseError, match=f"^{second}".rstrip("/")):
                    files.locked(second).__enter__()
            assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.guarantee("one-run-a-folder")
def test_an_output_folder_is_made_with_all_above_it_and_locked(tmp_path: Path) -> None:
    folder = tmp_path / "corpora" / "owls" / "run"
    with files.locked(str(folder)), pytest.raises(files.InUseError, match="wait for that run, or stop it"):
        files.locked(folder).__enter__()
    assert list(tmp_path.rglob("*")) == [tmp_path / "corpora", tmp_path / "corpora" / "owls", folder]


@pytest.mark.guarantee("one-run-a-folder")
def test_a_file_system_without_locks_is_no_error_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(number: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", refused)
    with files.locked(tmp_path):
        pass
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"{tmp_path}: ") and "No locks available" in told
    with files.locked(tmp_path):
        assert capsys.readouterr().err == f"{told}\n", "at each run"
    monkeypatch.undo()
    with files.locked(tmp_path), pytest.raises(files.InUseError):  # locks were lacking for a while
        files.locked(tmp_path).__enter__()


def test_the_cache_is_where_the_first_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "own"))
    assert files.cache_folder() == tmp_path / "own"
    monkeypatch.setenv("CLEARSPAN_CACHE", "")
    assert files.cache_folder() == tmp_path / "xdg" / "clearspan"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert files.cache_folder() == tmp_path / ".cache" / "clearspan"


def test_without_a_home_folder_the_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> Path:
        raise RuntimeError("no home")

    for name in ("CLEARSPAN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lacking)
    with pytest.raises(OSError, match="CLEARSPAN_CACHE"):
        files.cache_folder()


LIMITED = """import resource, signal, sys
from clearspan.common.files import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # a write has room for a part, as on a disk that fills up
try:
    write_bytes(sys.argv[1], bytes(5000))
except OSError as error:
    print(error)
"""


@pytest.mark.guarantee("full-disk")
@pytest.mark.slow
@pytest.mark.parametrize("old", [b"old", None])
def test_a_disk_that_fills_up_amid_a_write_leaves_no_part_of_it(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "file"
    if old:
        path.write_bytes(old)
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True)
    assert done.stdout == f"[Errno 27] File too large: {str(path)!r}\n", done.stderr
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([old] if old else [])
