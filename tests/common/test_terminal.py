"""How commands read names and numbers, and what they say of one that is mistyped."""

import difflib
import os
import signal
import sys
from pathlib import Path

import pytest

from clearspan.common import answers, spawned
from clearspan.common.catalog import COMMANDS
from clearspan.common.parsing import closest, did_you_mean, finite_number, whole_number
from clearspan.common.terminal import OutputClosedError, Parser, UsageError, hanging, one_line, run, shortened


@pytest.mark.guarantee("nearest-name")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *[("transfr", "transfer"), ("STS", "sts"), ("retreival", "retrieval"), ("--poling", "--pooling"), ("x", None)],
        *[("straße", "STRASSE"), ("SSSS", "ßß"), ("ẞẞ", "ßß"), ("transport", "transfer")],
    ],
)
def test_a_mistyped_name_has_a_nearest_one(name: str, meant: str | None) -> None:
    known = ["sts", "transfer", "TRANSFER", "retrieval", "--pooling", "STRASSE", "ßß"]
    assert closest(name, known) == meant
    assert closest(name, known, 0.99) == (meant if name in ("STS", "straße", "SSSS", "ẞẞ") else None)
    assert (closest(name, known, 0.0) is not None) and (meant is None or closest(name, known, 0.0) == meant)
    assert did_you_mean(name, known) == (f"; did you mean {meant!r}?" if meant else "")


NAMES = [
    *(f"field_{number:02}" for number in range(0, 100, 2)),
    *COMMANDS, "--min-tokens", "--max-tokens", "--max-characters-of-a-document", "--Max-Tokens", "training.max_steps",
    "optimizer.betas", "sts", "STS", "ß", "ss", "sss", "İstanbul", "title field", "title_field", "meta.title", "météo",
]  # fmt: skip


def likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other.casefold(), name.casefold()).ratio()


@pytest.mark.guarantee("nearest-name")
def test_of_many_known_names_the_most_similar_one_is_told() -> None:
    """As it is written, whatever was asked before; of those that differ only by case the first."""
    typed = {name[:at] + more + name[at + 1 :] for name in NAMES for at in range(len(name)) for more in ("", "x", "oo")}
    typed |= {word for name in NAMES for word in (name.upper(), name.swapcase(), name[::-1], name[: len(name) // 2])}
    for known in (NAMES, NAMES[::-1], NAMES[: len(NAMES) // 2], NAMES[len(NAMES) // 2 :], [], ["owls"]):
        for name in sorted(typed)[len(known) % 13 :: 53]:
            best = max((likeness(name, each) for each in known), default=0.0)
            near = closest(name, known)
            assert did_you_mean(name, iter(known)) == (f"; did you mean {near!r}?" if near else "")
            if best < 0.6:
                assert near is None, (name, near)
                continue
            assert near in known and likeness(name, near) == best, (name, near)
            assert near == next(each for each in known if each.casefold() == near.casefold())


def parser() -> Parser:
    root = Parser(prog="tool")
    make = root.add_subparsers(dest="command", required=True).add_parser("make")
    make.add_argument("--input", required=True, nargs="+")
    make.add_argument("--limit", type=int)
    make.add_argument("--share", type=float)
    make.add_argument("--unit", choices=("token", "word"))
    return root


@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mak --input a", "tool: argument command: invalid choice: 'mak' (choose from 'make'); did you mean 'make'?"),
        ("make --input a --unit wrod", "(choose from 'token', 'word'); did you mean 'word'?"),
        ("make --inptu a", "are required: --input; no such option: --inptu; did you mean '--input'?"),
        ("make --input a --lim 3", "tool: no such option: --lim"),
        ("make --input a --limit 1_0", "tool make: argument --limit: invalid int value: '1_0'"),
        ("make --input a --share nan", "tool make: argument --share: invalid float value: 'nan'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and line.endswith("(see --help)")


@pytest.mark.usefixtures("command_line")
def test_a_word_that_is_left_over_is_told_with_the_nearest_option() -> None:
    root = Parser(prog="tool make")
    root.add_argument("--limit")
    assert root.unknown(["--lmit=3"]) == "no such option: --lmit; did you mean '--limit'?"
    assert root.unknown(["--runer", "x"], ["--runner"]) == "no such option: --runer; did you mean '--runner'?"
    assert root.unknown(["more"]) == "unexpected argument: more"
    assert root.unknown(["more", "--runner=x"], ["--runner"]) == "--runner must come after 'make'"


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

    assert run("tool", work, (OSError,)) == code
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
        assert run("tool", work, (OSError,)) == code
        assert [(each.code, each.types) for each in answers.failures(path)] == [(code, types)]


@pytest.mark.guarantee("one-line-errors")
def test_an_error_that_cannot_say_what_it_is_is_told_by_its_type() -> None:
    class OwlError(ValueError):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert (one_line(OwlError()), one_line(OwlError("hoo"))) == ("OwlError", "OwlError")


@pytest.mark.guarantee("one-line-errors")
def test_a_line_is_cut_behind_the_limit() -> None:
    assert one_line(ValueError("owls hunt"), 9) == one_line(ValueError("owls hunt")) == "owls hunt"
    assert one_line(ValueError("owls hunt"), 4) == "owls ..."


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("remedy", ["", "run it again"])
def test_only_with_a_remedy_a_signal_ends_the_process_at_once(remedy: str) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> int:
        return 3 if (signal.getsignal(signal.SIGTERM) is before) == (not remedy) else 4

    assert run("tool", work, (), remedy) == 3 and signal.getsignal(signal.SIGTERM) is before


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

        return run("tool", work, (ValueError, OSError))

    for error, code, line in [*errors, *errors[::-1]]:
        assert ended(error) == code
        assert capsys.readouterr() == ("", f"tool: {line}\n")
    assert [run("tool", lambda code=code: code, (ValueError, OSError)) for code in (0, 1, 2, 3, 130)] == [
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
            run("tool", lambda: signal.raise_signal(number) or 0, (), "run it again with --resume")
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
    assert run("tool", lambda: 0) == 1
    assert capsys.readouterr() == ("", "tool: the working folder has been deleted: change to another folder\n")
    with pytest.raises(FileNotFoundError, match="the working folder has been deleted"):
        spawned.call("json:loads", "1")


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run("tool", lambda: 1 // 0, (OSError,))


@pytest.mark.parametrize("text", ["1_0", "nan", "inf", "-Infinity", "1e999", "", " ", "1e", "1 0", "\uff11", "0x10"])
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    for read in (whole_number, finite_number):
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Owls hunt at night.", "Owls hunt at night."), ("Owls  hunt\nat night", "Owls hunt at night"),
     ("Owls hunt at night, and bats", "Owls hunt at ..."), ("a" * 30, "a" * 16 + " ..."),
     ("猫头鹰" * 9, "猫头鹰" * 5 + "猫 ...")],
)  # fmt: skip
def test_a_text_is_cut_after_a_word_or_within_one_that_is_too_long(text: str, shown: str) -> None:
    assert shortened(text, 20) == shown and len(shown) <= 20


def test_paragraphs_are_wrapped_beside_their_label_and_cannot_steer_the_terminal() -> None:
    rows = [("0.9", ["owls.csv", "Owls hunt at night.\x1b[2J"]), ("-0.91", ["bats"])]
    for width in (40, 24, 5, 1):
        assert hanging([*rows, ("1", ["Owls hunt at night, and bats hunt too."])], width).splitlines() == [
            "    0.9   owls.csv",
            "          Owls hunt at night.\\x1b[2J",
            "  -0.91   bats",
            "      1   Owls hunt at night, and bats",
            "          hunt too.",
        ], "in a narrower terminal too, which breaks the lines itself"
