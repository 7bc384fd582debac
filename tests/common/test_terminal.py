"""How commands read names and numbers, and what they say of one that is mistyped."""

import pytest

from clearspan.common.parsing import closest, did_you_mean, finite_number, whole_number
from clearspan.common.terminal import OutputClosedError, Parser, UsageError, run


@pytest.mark.guarantee("nearest-name")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *[("transfr", "transfer"), ("STS", "sts"), ("retreival", "retrieval"), ("--poling", "--pooling"), ("x", None)],
        *[("straße", "STRASSE"), ("ßß", "SSSS"), ("transport", "transfer")],
    ],
)
def test_a_mistyped_name_has_a_nearest_one(name: str, meant: str | None) -> None:
    known = ["sts", "transfer", "TRANSFER", "retrieval", "--pooling", "STRASSE", "SSSS"]
    assert closest(name, known) == meant
    assert did_you_mean(name, known) == (f"; did you mean {meant!r}?" if meant else "")


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


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run("tool", lambda: 1 // 0, (OSError,))


@pytest.mark.parametrize("text", ["1_0", "nan", "inf", "-Infinity", "1e999", "", " ", "1e", "1 0", "\uff11", "0x10"])
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    for read in (whole_number, finite_number):
        with pytest.raises(ValueError):
            read(text)
