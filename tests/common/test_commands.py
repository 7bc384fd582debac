"""A command that another one started: it hands its failure over as data, and advises to repeat the call."""

import json
import os
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import pytest

from clearspan.common.answers import ANSWER, CONTINUED, Failure, answer, continue_with, failures, report
from clearspan.common.spawned import CommandError, _error, call
from clearspan.common.terminal import UsageError


@pytest.mark.guarantee("advice-that-works")
def test_a_started_command_does_not_recommend_an_option_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stopping.py").write_text(
        "from clearspan.common.answers import continue_with as advice\n"
        "def stop(): print('stopped at step 3;', advice('resume'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.delenv(ANSWER, raising=False)
    call("stopping:stop")
    assert capfd.readouterr().out == f"stopped at step 3; {CONTINUED}\n"
    assert continue_with("resume") == "continue with `resume`"
    assert continue_with("resume", "run it again") == "run it again"


@pytest.mark.slow
@pytest.mark.guarantee("advice-that-works")
@pytest.mark.parametrize("quiet", [True, False])
def test_no_process_below_a_started_command_recommends_its_own_options(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the ranks of a training, which a launcher starts; the caller itself advises afterwards as before."""
    (tmp_path / "rank.py").write_text(
        "import pathlib, subprocess, sys\n"
        "from clearspan.common.answers import continue_with as advice\n"
        "def rank(*words):\n"
        "    said = [advice('resume'), advice('resume', 'train again'), advice('update')]\n"
        "    with pathlib.Path('said').open('a') as file: file.write('\\n'.join(said) + '\\n')\n"
        "    if words: subprocess.run([sys.executable, __file__, *words[1:]], check=True)\n"
        "def start(words): rank(*words)\n"
        "if __name__ == '__main__': rank(*sys.argv[1:])\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.delenv(ANSWER, raising=False)
    monkeypatch.chdir(tmp_path)
    own = {"": "continue with `resume`", "train again": "train again"}
    for is_before in (True, False):
        assert {advice: continue_with("resume", advice) for advice in own} == own
        assert continue_with("update") == "continue with `update`"
        if is_before:
            call("rank:start", ["launcher", "rank"], quiet=quiet)
    assert (tmp_path / "said").read_text().splitlines() == ["repeat the same command or call to continue"] * 9


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module `inner` that a command can be written to."""
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.delenv(ANSWER, raising=False)
    return tmp_path / "inner.py"


COMMAND = """
    import os, subprocess, sys
    from clearspan.cli.parser import Parser
    from clearspan.cli.run import Work, run
    from clearspan.common import terminal
    from clearspan.common.answers import Failure, report

    class DiskFullError(OSError): pass

    def work():
        {work}

    if __name__ == "__main__":
        sys.exit(run(Work("inner", work, (OSError,))))
"""


def written(module: Path, work: str) -> None:
    module.write_text(textwrap.dedent(COMMAND.format(work=work)))


@pytest.mark.guarantee("failures-arrive")
@pytest.mark.parametrize(
    ("work", "error", "code", "message"),
    [
        ("raise OSError('disk full:\\nno space')", OSError, None, "disk full: no space"),
        ("print('inner: 3 of 4 done'); raise OSError('the fourth')", OSError, None, "the fourth"),
        ("Parser(prog='inner').parse_args(['--x'])", UsageError, None, "no such option: --x"),
        ("os.kill(os.getpid(), 9)", CommandError, -9, "inner:work ended with exit code -9"),
        (
            "print('inner: 3 of 4 done', flush=True); os._exit(3)",
            CommandError,
            3,
            "inner:work ended with exit code 3",
        ),
        ("report(Failure('a', 'first')); report(Failure('b', 'second')); return 3", CommandError, 3, "first; second"),
        ("return subprocess.call([sys.executable, '-m', 'inner2'])", OSError, None, "below"),
    ],
    ids=[
        "error",
        "a line that looks like one",
        "option",
        "killed",
        "a line before the end",
        "several",
        "a process below",
    ],
)
def test_a_failure_arrives_as_it_was_reported(
    module: Path, work: str, error: type[Exception], code: int | None, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the command prints is no failure, whatever it looks like."""
    written(module.with_name("inner2.py"), "raise OSError('below')")
    written(module, work)
    with pytest.raises(error) as raised:
        call("inner:work", expected=[OSError])
    assert str(raised.value) == message and getattr(raised.value, "code", None) == code
    assert capfd.readouterr().out == ("inner: 3 of 4 done\n" if "print" in work else "")


class DiskFullError(OSError):
    """Type of an exception that a command raises, by its name."""


@pytest.mark.guarantee("failures-arrive")
@pytest.mark.parametrize(
    ("work", "error"),
    [
        ("raise DiskFullError('no space')", DiskFullError),
        ("raise OSError('no space')", OSError),
        ("raise terminal.UsageError('no space')", UsageError),
        ("report(Failure('a', 'no space', types=('DiskFullError', 'OSError'))); return 3", DiskFullError),
        (
            "report(Failure('a', 'no space')); report(Failure('b', 'no space', types=('UsageError',))); return 3",
            UsageError,
        ),
        ("class FullError(DiskFullError): pass\n        raise FullError('no space')", DiskFullError),
        (
            "class A(DiskFullError): pass\n        class B(A): pass\n        class C(B): pass\n"
            "        raise C('no space')",
            DiskFullError,
        ),
        ("return subprocess.call([sys.executable, '-m', 'inner2'])", DiskFullError),
    ],
)
def test_a_failure_is_raised_as_the_documented_type_that_it_had(
    module: Path, work: str, error: type[Exception]
) -> None:
    written(module.with_name("inner2.py"), "raise DiskFullError('no space')")
    written(module, work)
    with pytest.raises(error, match="no space") as raised:
        call("inner:work", expected=[DiskFullError, OSError])
    assert type(raised.value) is error and str(raised.value) == "no space"


SAID = [
    Failure(
        "train",
        "\u2028a line\u2029 that\x85 goes \x1c on\ud800 – 日本語 🦉",
        types=("ShardError", "DataError", "ValueError"),
    ),
    Failure("rank 1", "damaged: " + "wiki/shards/000123.tar, " * 4000 + "all of them", 2, is_refused=True),
    *(Failure(f"rank {rank}", f"cannot read shard {rank}", 3, types=("OSError",)) for rank in range(40)),
    Failure("rank 1", ""),
    Failure("train", "cannot read shard 7", 130, types=("InterruptedError", "OSError")),
]


@pytest.mark.guarantee("failures-arrive")
def test_all_failures_arrive_whole_in_their_order_at_their_own_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they say, also while another thread runs a command."""
    with answer() as one, answer() as other:
        for number, failure in enumerate(SAID):
            monkeypatch.setenv(ANSWER, str((one, other)[number % 2]))
            report(failure)
        assert (failures(one), failures(other)) == (SAID[::2], SAID[1::2])
        with answer() as third:
            assert failures(third) == []
        assert not third.exists() and failures(one) == SAID[::2]
        error = _error("clearspan.train", failures(other), 7, ())
        assert str(error) == "; ".join(dict.fromkeys(failure.message for failure in SAID[1::2]))
    assert isinstance(error, CommandError) and error.code == 7


class DataError(ValueError): ...


class ShardError(DataError): ...


@pytest.mark.guarantee("failures-arrive")
@pytest.mark.parametrize(
    ("raises", "kind"),
    [
        ([DataError, ShardError], ShardError),
        ([ShardError, DataError], ShardError),
        ([ValueError, DataError], DataError),
        ([OSError], OSError),
        ([InterruptedError, ValueError], ValueError),
        ([InterruptedError], InterruptedError),
        ([KeyError], CommandError),
        ([], CommandError),
    ],
)
def test_a_failure_is_of_the_nearest_type_that_the_caller_knows(
    raises: list[type[Exception]], kind: type[Exception]
) -> None:
    assert type(_error("clearspan.train", SAID, 1, raises)) is kind
    assert type(_error("clearspan.train", SAID[2:], 1, [DataError])) is CommandError


@pytest.mark.guarantee("failures-arrive")
def test_lines_that_a_killed_process_left_incomplete_hide_no_other_failure(tmp_path: Path) -> None:
    file = tmp_path / "failures"
    kept = Failure("train", "no GPU", 3, is_refused=True, types=("OSError",))
    lines = [
        json.dumps(asdict(kept)),
        '{"name": "tra',
        "7",
        '{"name": "train"}',
        '{"types": 3}',
        json.dumps(asdict(kept)),
    ]
    file.write_text("\n".join(lines))
    assert failures(file) == [kept, kept] and hash(kept) == hash(failures(file)[0])
    assert kept.line == "train: no GPU (see --help)" and Failure("train", "no GPU").line == "train: no GPU"


@pytest.mark.guarantee("failures-arrive")
def test_a_failure_of_a_command_that_goes_on_is_none(module: Path) -> None:
    written(module, "report(Failure('inner', 'one of several')); return 0")
    call("inner:work", expected=[OSError])


@pytest.mark.guarantee("failures-arrive")
def test_without_a_caller_a_failure_is_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(ANSWER, raising=False)
    report(Failure("train", "no GPU"))
    monkeypatch.setenv(ANSWER, str(tmp_path / "of a caller that has ended"))
    report(Failure("train", "no such option", 2, is_refused=True))
    assert capsys.readouterr().err == "train: no GPU\ntrain: no such option (see --help)\n"


@pytest.mark.guarantee("failures-arrive")
def test_a_failure_that_the_disk_has_no_room_for_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ANSWER, "/dev/full")
    report(Failure("train", "no GPU"))
    assert capsys.readouterr().err == "train: no GPU\n"


@pytest.mark.guarantee("failures-arrive")
def test_a_failure_that_is_written_in_part_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "failures").touch()
    monkeypatch.setenv(ANSWER, str(file))
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, line: write(number, line[:9]))
    report(Failure("train", "no GPU"))
    assert capsys.readouterr().err == "train: no GPU\n" and failures(file) == []
