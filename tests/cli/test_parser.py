"""A mistake on a command line is one line, which names the nearest option or choice."""

import pytest

from clearspan.cli.parser import Parser


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
        ("mak --input a", "'mak' (choose from 'make'); did you mean 'make'?"),
        ("make --input a --unit wrod", "(choose from 'token', 'word'); did you mean 'word'?"),
        ("make --inptu a", "no such option: --inptu; did you mean '--input'?"),
        ("make --input a --lim 3", "tool: no such option: --lim"),
        ("make --input a --limit 1_0", "tool make: argument --limit:"),
        ("make --input a --share nan", "tool make: argument --share:"),
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
