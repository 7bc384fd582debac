"""The end of a command: an expected error is one line and an exit code, a signal says how to go on."""

import os
import signal
import sys
from pathlib import Path

import pytest

from clearspan.cli.run import Work, run
from clearspan.common import answers, spawned
from clearspan.common.terminal import OutputClosedError, UsageError


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("--a and --b"), 2, "tool: --a and --b\n"),
        (OSError(28, "No space left", "standard\noutput"), 1, "tool: [Errno 28] No space left: 'standard\\noutput'\n"),
        (UsageError("--a\n and \x1b[31m--b"), 2, "tool: --a and \\x1b[31m--b\n"),
        (TimeoutError(), 1, "tool: TimeoutError\n"),
        (KeyboardInterrupt(), 130, "tool: stopped: run the same command again to continue\n"),
        (OutputClosedError(), 0, ""),
    ],
)
def test_an_error_for_the_user_is_one_line_and_an_exit_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        raise error

    assert run(Work("tool", work, (OSError,))) == code
    assert capsys.readouterr() == ("", line)


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    ("error", "code", "types"),
    [
        (UsageError("--a"), 2, ("UsageError", "ValueError")),
        (TimeoutError("--a"), 1, ("TimeoutError", "OSError")),
        (KeyboardInterrupt(), 130, ()),
    ],
)
def test_a_caller_is_told_code_and_types(
    error: BaseException, code: int, types: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> int:
        raise error

    with answers.answer() as path:
        monkeypatch.setenv(answers.ANSWER, str(path))
        assert run(Work("tool", work, (OSError,))) == code
        assert [(each.code, each.types) for each in answers.failures(path)] == [(code, types)]


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("remedy", ["", "run it again"])
def test_only_with_a_remedy_a_signal_ends_the_process_at_once(remedy: str) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> int:
        return 3 if (signal.getsignal(signal.SIGTERM) is before) == (not remedy) else 4

    assert run(Work("tool", work, (), remedy)) == 3 and signal.getsignal(signal.SIGTERM) is before


@pytest.mark.guarantee("one-line-errors")
def test_each_mistake_is_told_whole_each_time_it_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    """In one process, with all its lines and parts, nothing that steers the terminal, and the same code again."""
    advice = "write --output NEW, or add --overwrite"
    pages = "\n\n".join(f"{number}: the shard is damaged\t({number})" for number in range(400))
    errors: list[tuple[BaseException, int, str]] = [
        (UsageError(f"--output data:\nis not empty:\r\n  {advice}"), 2, f"--output data: is not empty: {advice}"),
        (ValueError("texts.csv", 3, advice), 1, f"('texts.csv', 3, '{advice}')"),
        (
            FileNotFoundError(2, "No such file", "a\x1b[2Jé\u2028b.csv"),
            1,
            r"[Errno 2] No such file: 'a\x1b[2Jé\u2028b.csv'",
        ),
        (ValueError(f"{pages}\n{advice}"), 1, f"{' '.join(pages.split())} {advice}"),
        (ValueError("owls\x07\x9b31m\u202e\x00"), 1, r"owls\x07\x9b31m\u202e\x00"),
        (OSError(), 1, "OSError"),
        (BrokenPipeError(32, "Broken pipe", "hdfs://owls"), 1, "[Errno 32] Broken pipe: 'hdfs://owls'"),
        (KeyboardInterrupt("now"), 130, "stopped: run the same command again to continue"),
    ]

    def ended(error: BaseException) -> int:
        def work() -> int:
            raise error

        return run(Work("tool", work, (ValueError, OSError)))

    for error, code, line in [*errors, *errors[::-1]]:
        assert ended(error) == code
        assert capsys.readouterr() == ("", f"tool: {line}\n")
    assert [run(Work("tool", lambda code=code: code, (ValueError, OSError))) for code in (0, 1, 2, 3, 130)] == [
        0,
        1,
        2,
        3,
        130,
    ]
    assert capsys.readouterr() == ("", "")


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("rank", [None, "0", "1"])
def test_a_stopped_command_says_what_to_do_and_ends_with_130(
    number: int, rank: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once for all ranks; and what the process did at this signal before, it does again afterwards."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.delenv("RANK", raising=False) if rank is None else monkeypatch.setenv("RANK", rank)
    seen: list[int] = []
    before = signal.signal(number, lambda number, frame: seen.append(number))
    try:
        with pytest.raises(SystemExit) as ended:
            run(Work("tool", lambda: signal.raise_signal(number) or 0, (), "run it again with --resume"))
        line = f"\ntool: stopped by {signal.Signals(number).name}: run it again with --resume\n"
        assert ended.value.code == 130 and capfd.readouterr() == ("", "" if rank == "1" else line)
        signal.raise_signal(number)
        assert seen == [number]
    finally:
        signal.signal(number, before)


@pytest.mark.guarantee("one-line-errors")
def test_a_deleted_working_folder_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run(Work("tool", lambda: 0)) == 1
    assert capsys.readouterr() == ("", "tool: the working folder has been deleted: change to another folder\n")
    with pytest.raises(FileNotFoundError, match="the working folder has been deleted"):
        spawned.call("json:loads", "1")


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run(Work("tool", lambda: 1 // 0, (OSError,)))


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_the_user_has_closed_takes_everything(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, closed, None)

    def work() -> int:
        print("done", file=getattr(sys, closed))
        assert not getattr(sys, closed).isatty()
        raise UsageError("`a` and `b`")

    assert run(Work("tool", work)) == 2
