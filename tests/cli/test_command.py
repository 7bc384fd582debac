"""Commands: options composed of parts, words that are passed on, results with a failure, groups."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

import pytest
from annotated_types import Ge

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.cli.group import Group
from clearspan.cli.main import main as clearspan_main
from clearspan.common.options import Flag, Json, Options, from_keywords
from clearspan.common.plugins import PluginError
from clearspan.common.terminal import OutputClosedError, UsageError
from tests.conftest import exit_code


@dataclass(frozen=True, kw_only=True)
class Oven(Options):
    """A part whose flags are written as those of the oven's maker."""

    heading: ClassVar[str] = "the oven's options"
    underscores: ClassVar[bool] = True

    max_heat: Annotated[int, Flag("N"), Ge(1)] = 200
    """Degrees."""
    fan: Annotated[bool, Flag()] = False
    """Blow."""


@dataclass(frozen=True, kw_only=True)
class Passed(Options):
    """A part that takes all words that are no option of the command."""

    others: Annotated[tuple[str, ...], Flag(rest=True)] = ()
    """Words for somebody else."""


@dataclass(frozen=True, kw_only=True)
class Bake(Command):
    """Command with parts."""

    summary: ClassVar[str] = "bake a cake"
    example: ClassVar[str] = "bake plum \\\n    --max_heat 180\nbake fig"
    notes: ClassVar[str] = "Let it cool."
    expected: ClassVar[Errors] = (OSError,)

    cake: Annotated[str, Flag("CAKE", positional=True)]
    """Which cake."""
    tin_size: Annotated[int, Flag("N")] = 26
    """Centimeters."""
    json: Json = False
    """Print JSON instead of text."""
    oven: Oven
    passed: Passed = Passed()

    def run(self) -> Result:
        if self.cake == "burnt":
            raise OSError("the cake is burnt")
        code = int(self.cake == "half")
        return Printed(f"{self.cake} at {self.oven.max_heat}", json.dumps(asdict(self)), code, "half baked" * code)


@pytest.mark.parametrize(("code", "expected"), [(0, 1), (None, 1), (3, 3)])
def test_a_part_that_calls_sys_exit_is_no_success(
    code: int | None, expected: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bake, "run", lambda _: sys.exit(code))
    assert exit_code(Bake.main, "plum") == expected
    assert ("called sys.exit before the work was done" in capsys.readouterr().err) == (expected == 1)


@dataclass(frozen=True, kw_only=True)
class Eat(Command):
    """Command without options."""

    summary: ClassVar[str] = "eat a cake"

    def run(self) -> Result:
        return Printed("eaten")


def test_the_flags_of_a_part_are_flags_of_the_command() -> None:
    made = Bake.parsed(["--max_heat=180", "plum", "--fan", "--tin-size", "20"])
    assert made == Bake(cake="plum", tin_size=20, oven=Oven(max_heat=180, fan=True))
    assert made == from_keywords(Bake, {"cake": "plum", "max_heat": "180", "fan": True, "tin_size": 20})


@pytest.mark.usefixtures("command_line")
def test_words_that_are_no_option_go_to_the_field_that_takes_them() -> None:
    assert Bake.parsed(["--runner=x", "fig", "--y"]).passed.others == ("--runner=x", "--y")
    assert from_keywords(Bake, {"cake": "fig", "others": ["--y=1"]}).passed.others == ("--y=1",)
    with pytest.raises(UsageError, match="no such option: --y"):
        Eat.parsed(["--y"], raises=True)


@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plum", "--max_heat", "0"], "`max_heat` must be at least 1"),
        (["plum", "--tin-size", "x"], "argument --tin-size: not an integer: 'x'"),
    ],
)
def test_a_wrong_value_of_a_part_is_named_by_its_flag(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Bake.parsed(words, raises=True)


def test_a_part_with_a_heading_is_a_group_of_the_help_and_examples_are_counted() -> None:
    shown = Bake.parser("bake").format_help()
    assert shown.index("--tin-size") < shown.index("the oven's options:\n  --max_heat N") and "--others" not in shown
    assert shown.endswith("\nexamples:\n  bake plum \\\n      --max_heat 180\n  bake fig\n\nLet it cool.\n")
    assert Bake.parser().prog == f"python -m {__name__}"


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["plum"], 0, "plum at 200\n", ""),
        (["half"], 1, "half at 200\n", "bake: half baked\n"),
        (["burnt"], 1, "", "bake: the cake is burnt\n"),
    ],
)
def test_a_result_is_printed_and_its_failure_after_it(
    words: list[str], code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Bake.main(words, "bake") == code
    assert tuple(capsys.readouterr()) == (out, err)
    if not err:
        assert Bake.main([*words, "--json"], "bake") == 0
        assert json.loads(capsys.readouterr().out)["oven"]["max_heat"] == 200


@dataclass(frozen=True)
class Eaten(Result):
    """A result whose class has the fields of its base class again."""

    code: int = 0
    failure: str = ""

    def __str__(self) -> str:
        return "eaten"


class Burnt(Result):
    """A result that sets its exit code as an attribute."""

    def __init__(self) -> None:
        self.code = 3

    def __str__(self) -> str:
        return "burnt"


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Eaten(), 0),
        (Eaten(failure="too hot"), 1),
        (Eaten(4, "too hot"), 4),
        (Burnt(), 3),
        (Printed(), 0),
        (Printed(failure="too hot"), 1),
        (Printed(code=130), 130),
        (Printed(code=2, failure="too hot"), 2),
    ],
)
def test_a_failure_exits_with_1_unless_the_result_names_a_code(
    result: Result, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bake, "run", lambda _: result)
    assert Bake.main(["honey"], "bake") == code


def test_a_failure_is_reported_although_nobody_reads_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(text: str) -> None:
        raise OutputClosedError

    monkeypatch.setattr("clearspan.common.terminal.say", closed)
    Bake.main(["half"], "bake")
    assert capsys.readouterr().err == "bake: half baked\n"


def load(spec: str) -> type[Command]:
    if spec == "mine:Eat":
        return Eat
    raise PluginError(f"{spec}: not a cake")


KITCHEN = Group({"bake": Bake, "eat": Eat}, prog="kitchen", description="Cakes.", load=load)


def test_the_first_word_chooses_a_command_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert KITCHEN.main(["bake", "fig"]) == 0 and KITCHEN.main(["eat"]) == 0 and KITCHEN.main(["mine:Eat"]) == 0
    assert capsys.readouterr().out == "fig at 200\neaten\neaten\n"
    assert KITCHEN.parsed(["bake", "fig", "--fan"]) == Bake(cake="fig", oven=Oven(fan=True))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["bak", "fig"], "kitchen: argument command: invalid choice: 'bak'"),
        ([], "kitchen: the following arguments are required: command"),
        (["yours:Eat"], "kitchen: yours:Eat: not a cake (see --help)"),
        (["eat", "--fast"], "kitchen eat: no such option: --fast (see --help)"),
        (["--tin-size=3", "bake", "fig"], "kitchen bake: --tin-size must come after 'bake' (see --help)"),
        (["bake", "fig", "--tin-size=x"], "kitchen bake: argument --tin-size: not an integer: 'x' (see --help)"),
    ],
)
def test_a_wrong_line_of_a_group_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(KITCHEN.main, *words) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(line) and err.count("\n") == 1


def test_the_help_of_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(KITCHEN.main, "--help") == 0
    out = capsys.readouterr().out
    assert "Cakes." in out and "    bake      bake a cake\n" in out


@dataclass(frozen=True, kw_only=True)
class Shop(Command):
    """The command `shop`."""

    items: Annotated[tuple[str, ...], Flag()] = field(default_factory=lambda: ("flour",))
    """Items."""

    def run(self) -> Result:
        return Printed(" ".join(self.items))


def test_a_field_with_a_factory_of_its_default_may_be_left_out() -> None:
    assert Shop.parsed([]).items == ("flour",)
    assert Shop.parsed(["--items", "eggs"]).items == ("eggs",)


OWN = """
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal
from annotated_types import Ge
from clearspan.cli.command import Command, Printed
from clearspan.common.options import Flag

class Bare(Command):
    x: Annotated[int, Flag()] = 3

    def run(self):
        return Printed(str(self.x))


@dataclass(frozen=True, kw_only=True)
class Half(Command):
    share: Annotated[float, Flag()] = 0.5
    "How much, e.g. 50% or 50 %(of all) of %(default)s."
    letters: Annotated[Sequence[str], Flag(parse=list)] = ()
    sizes: Annotated[tuple[Annotated[int | None, Ge(1)], ...], Flag()] = ()
    box: Annotated[tuple[int, int], Flag()] = (1, 1)
    number: Annotated[int | str, Flag(parse=lambda word: int(word) if word.isdigit() else word)] = 0

    def run(self):
        return Printed(f"half {self.letters} {self.number!r} {self.sizes} {self.box}", failure="no more flour")


@dataclass(frozen=True, kw_only=True)
class Percent(Command):
    description = "run %(prog)s at 50% %s"
    notes = "not %(prog)s at 30%"
    amount: Annotated[str, Flag("N%")] = "7%"
    cut: Annotated[Literal["5%", "b"] | None, Flag()] = None

    def run(self):
        return Printed(str(self.cut))


@dataclass(frozen=True, kw_only=True)
class Long(Command):
    size: Annotated[int, Flag("N  of\\n" + "many " * 20)]

    def run(self):
        return Printed(str(self.size))


@dataclass(frozen=True, kw_only=True)
class Positional(Command):
    eggs: Annotated[int, Flag("EGGS", positional=True)] = 3
    "How many."
    heat: Annotated[Literal["5%", "b"], Flag(positional=True)] = "5%"
    "Heat, %(default)s by default."

    def run(self):
        return Printed(f"{self.eggs!r} {self.heat!r}")


@dataclass(frozen=True, kw_only=True)
class Choices(Command):
    tins: Annotated[tuple[Literal["round", "square"], ...], Flag(positional=True)] = ()
    eggs: Annotated[Literal[1, 2, "many"], Flag()] = 1
    heat: Annotated[tuple[Literal[180, 200] | None, ...], Flag(commas=True)] = ()
    sugar: Annotated[int | None, Flag(choices=(1, 2))] = None

    def run(self):
        return Printed(f"{self.tins} {self.eggs!r} {self.heat} {self.sugar!r}")


@dataclass(frozen=True, kw_only=True)
class Usage(Percent):
    usage = "--cut 5%s [%(prog)s]"
"""
ODD = """
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from clearspan.cli.command import Command, Printed
from clearspan.common.options import Flag

@dataclass(frozen=True, kw_only=True)
class Odd(Command):
    {}

    def run(self):
        return Printed(str(self.x))
"""


def test_a_command_of_ones_own_that_is_no_dataclass_is_refused(
    own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(OWN)}:Bare"
    assert exit_code(clearspan_main, spec, "--x", "4") == 2
    assert f"{spec}: not a dataclass: add @dataclass(frozen=True, kw_only=True)" in capsys.readouterr().err


def test_a_failure_of_a_command_of_ones_own_is_no_success_and_its_help_may_have_percent_signs(
    own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(OWN)}:Half"
    words = ["--letters=ab", "--number=3", "--sizes=4", "--sizes=5", "--box=2", "--box=3"]
    assert exit_code(clearspan_main, spec, *words) == 1
    assert tuple(capsys.readouterr()) == ("half ('a', 'b') 3 (4, 5) (2, 3)\n", f"clearspan {spec}: no more flour\n")
    assert exit_code(clearspan_main, spec, "--help") == 0
    assert "How much, e.g. 50% or 50 %(of all) of 0.5" in " ".join(capsys.readouterr().out.split())


def test_a_long_metavar_with_any_spaces_is_wrapped_in_the_usage(
    own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(clearspan_main, f"{own_module(OWN)}:Long", "--help") == 0
    assert f"--size N of {('many ' * 20).strip()}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ([], "() 1 () None\n"),
        (["round", "--eggs", "2", "square"], "('round', 'square') 2 () None\n"),
        (["--eggs=many", "--heat=200,180", "--sugar=2"], "() 'many' (200, 180) 2\n"),
        (["roud"], "argument tins: invalid choice: 'roud' (choose from 'round', 'square'); did you mean 'round'?"),
        (["--eggs=3"], "argument --eggs: invalid choice: '3' (choose from 1, 2, 'many')"),
        (["--heat=180,190"], "--heat.1 190: choose 180, 200; did you mean '180'?"),
        (["--sugar=3"], "argument --sugar: invalid choice: '3' (choose from 1, 2)"),
    ],
)
def test_a_choice_of_any_type_is_given_by_its_text_alone_or_in_a_tuple(
    words: list[str], out: str, own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(OWN)}:Choices"
    if out.endswith("\n"):
        assert exit_code(clearspan_main, spec, *words) == 0 and capsys.readouterr().out == out
    else:
        assert exit_code(clearspan_main, spec, *words) == 2
        assert capsys.readouterr().err == f"clearspan {spec}: {out} (see --help)\n"


def test_positional_options_may_have_defaults_which_the_help_shows(
    own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(OWN)}:Positional"
    for words, out in (([], "3 '5%'\n"), (["4"], "4 '5%'\n"), (["4", "b"], "4 'b'\n")):
        assert exit_code(clearspan_main, spec, *words) == 0 and capsys.readouterr().out == out
    assert exit_code(clearspan_main, spec, "--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "EGGS How many (default 3) {5%,b} Heat, 5% by default" in out


@pytest.mark.parametrize(
    ("name", "usage"), [("Percent", "[-h] [--version] [--amount N%] [--cut {5%,b}]"), ("Usage", "--cut 5%s [%(prog)s]")]
)
def test_a_percent_sign_is_itself_in_all_texts_of_the_help_of_a_command_of_ones_own(
    name: str, usage: str, own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(OWN)}:{name}"
    assert exit_code(clearspan_main, spec, "--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(f"usage: clearspan {spec} {usage} run %(prog)s at 50% %s options: ")
    assert "--amount N% (default 7%) --cut {5%,b} not %(prog)s at 30%" in out
    assert exit_code(clearspan_main, spec, "--cut", "5%") == 0 and capsys.readouterr().out == "5%\n"
    assert exit_code(clearspan_main, spec, "--cut", "5") == 2 and "(choose from '5%', 'b')" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("annotation", "line"),
    [
        (
            "Annotated[list[str], Flag()]",
            "an option with several values is a tuple, e.g. tuple[str, ...], not list[str]",
        ),
        ("Annotated[set | None, Flag()]", "an option with several values is a tuple, e.g. tuple[str, ...], not set"),
        ("Annotated[tuple, Flag()]", "an option with several values is a tuple, e.g. tuple[str, ...], not tuple"),
        ("Annotated[int | str, Flag()]", "an option has one type, not int | str: choose one, or parse the word by"),
        (
            "Annotated[tuple[int | str, ...], Flag()]",
            "an option has one type, not tuple[int | str, ...]: choose one, or parse the word by Flag(parse=...)",
        ),
        ("Annotated[tuple[int, str] | None, Flag()]", "an option has one type, not tuple[int, str]: choose one, or"),
        ("Annotated[tuple[list[str], ...], Flag()]", "an option with several values is a tuple, e.g. tuple[str, "),
        (
            "Annotated[tuple[bool, ...], Flag()]",
            "a bool is a switch, --NAME: it has one value, and",
        ),
        (
            "Annotated[bool, Flag(positional=True)]",
            "a bool is a switch, --NAME: it has one value, and",
        ),
        ("Annotated[Callable[[], int], Flag()]", "no word can be read as collections.abc.Callable[[], int]: cho"),
        (
            "Annotated[str, Flag(commas=True)]",
            "Flag(commas=True) and Flag(many=True) need a tuple, e.g. tuple[str, ...]",
        ),
        ("Annotated[int, Flag(choices=('1', '2'))]", "each choice must be an integer, not '1'"),
        ("Annotated[int, Flag()] | None", "write Annotated[... | None, Flag(...)], with None inside"),
    ],
)
def test_a_type_that_no_option_can_have_is_one_line_for_the_author(
    annotation: str, line: str, own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(ODD.format(f'x: {annotation} = None'))}:Odd"
    for words in ([], ["--x=ab"], ["--help"]):
        assert exit_code(clearspan_main, spec, *words) == 2
        out, err = capsys.readouterr()
        assert not out and err.startswith(f"clearspan {spec}: Odd.x: {line}") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            "help: Annotated[str, Flag()] = ''",
            "Odd.help: another option is --help: choose another flag by Flag(name=...)",
        ),
        (
            "version: Annotated[str, Flag()] = ''",
            "Odd.version: another option is --version: choose another flag by Flag(name=...)",
        ),
        (
            "a: Annotated[str, Flag()] = ''; b: Annotated[str, Flag(name='--a')] = ''",
            "Odd.b: another option is --a: choose another flag by Flag(name=...)",
        ),
        ("a: Annotated[str, Flag(name='a')] = ''", "Odd.a: dest supplied twice for positional argument"),
        ("a: int", "Odd.a: add a default, or a Flag to make it an option"),
    ],
)
def test_fields_that_cannot_be_options_together_are_one_line_for_the_author(
    fields: str, line: str, own_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{own_module(ODD.format(fields))}:Odd"
    for words in ([], ["--help"]):
        assert exit_code(clearspan_main, spec, *words) == 2
        assert tuple(capsys.readouterr()) == ("", f"clearspan {spec}: {line}\n")
