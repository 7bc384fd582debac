"""How commands read names and numbers, and what they say of one that is mistyped."""

import difflib

import pytest

from clearspan.cli.catalog import COMMANDS
from clearspan.common.parsing import closest, did_you_mean, finite_number, whole_number
from clearspan.common.terminal import hanging, one_line, shortened


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
