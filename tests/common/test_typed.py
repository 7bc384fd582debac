"""A value against an annotation: what it becomes, and what is said of one that does not fit."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pytest
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MinLen

from clearspan.common.checksummed import build
from clearspan.common.terminal import UsageError
from clearspan.common.typed import MismatchError, check_argument, checked, conform

Share = Annotated[float, Ge(0), Le(1)]
Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, float, 3.0),
        (np.float32(0.5), Share | None, 0.5),
        (None, Annotated[float | None, Gt(0)], None),
        (1, int | float, 1),
        ([0, 1], list[Share], [0.0, 1.0]),
        (("a", 2), tuple[str, float], ("a", 2.0)),
        ({"a": [1]}, Mapping[str, Sequence[float]], {"a": [1.0]}),
        ((each for each in "ab"), Iterable[str], ["a", "b"]),
        (np.int64(2), Literal[0, 1, 2], 2),
        ("auto", Literal["auto", True], "auto"),
        ({1: object}, dict, {1: object}),
        (5, Annotated[int, Interval(ge=1, lt=6)], 5),
        ((1 << 63) - 1, int, (1 << 63) - 1),
        (-(1 << 63), int, -(1 << 63)),
        (10**30, float, 1e30),
        (10**20, int | float, 10**20),
        (["a", 2], tuple[str, float], ("a", 2.0)),
        ((1, 2), list[float], [1.0, 2.0]),
        ((1, 2), Sequence[float], (1.0, 2.0)),
        (((1,),), Sequence[list[float]], ([1.0],)),
        (((1,),), tuple[list[float], ...], ([1.0],)),
        (["a", 1], Sequence, ["a", 1]),
        ([1, 2], tuple[float, ...], (1.0, 2.0)),
        ({"a": 1, "b": 2}, dict[str, float], {"a": 1.0, "b": 2.0}),
        ({np.int64(1): 2}, dict[int, int], {1: 2}),
        ({1: "a"}, Mapping, {1: "a"}),
        ({3}, Iterable[int], [3]),
        (True, bool | str, True),
        (np.True_, bool, True),
        (True, object, True),
        (PurePosixPath("a"), PurePath, PurePosixPath("a")),
        (len, Callable[[Any], int], len),
        (3, TypeVar("T"), 3),
    ],
)
def test_a_value_that_fits_is_converted(value: object, hint: Any, expected: object) -> None:
    found = conform(value, hint)
    assert found == expected and type(found) is type(expected) and repr(found) == repr(expected)


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, float, "`x` must be a number"),
        (3.0, int, "`x` must be an integer"),
        (10**400, float, "`x` must be a number"),
        (1.5, Share | None, "`x` must be at most 1"),
        ("1", Share | None, "`x` must be a number"),
        (math.nan, Finite, "`x` must be finite"),
        (0, Annotated[float, Gt(0), Lt(math.inf)], "`x` must be above 0"),
        ([0.5, 2], list[Share], "`x`.1 must be at most 1"),
        ({"a": [1, "b"]}, dict[str, list[int]], "`x`.a.1 must be an integer"),
        ([["a"], ["b", 1]], list[list[str]], "`x`.1.1 must be a text"),
        ([{"a": 1}, {"a": "b"}], list[dict[str, int]], "`x`.1.a must be an integer"),
        (("gas", "wod"), Sequence[Literal["gas", "wood"]], "`x`.1 wod: choose gas, wood; did you mean 'wood'?"),
        ({1: 2}, dict[str, int], "`x`.1 must be a text"),
        ({"a"}, Sequence[str], "`x` must be a list"),
        (3, Callable[[], int], "`x` must be a Callable"),
        (SimpleNamespace(shape=()), int, "`x` must be an integer"),
        (b"a", PurePath, "`x` must be"),
        ("a", bool, "`x` must be"),
        (["a", b"b"], str | list[str], "`x` must be a text"),
        ("ab", list[str], "`x` must be a list"),
        ([1], dict[str, int], "`x` must be a mapping"),
        ((1, 2, 3), tuple[int, int], "`x` must be of length 2 or less"),
        ([1], Annotated[list[int], Len(2, 2)], "`x` must be of length 2 or more"),
        ([], Annotated[list[int], Len(1, 3)], "`x` must be of length 1 or more"),
        ("", Annotated[str, MinLen(1)], "`x` must be of length 1 or more"),
        ("wod", Literal["gas", "wood"], "`x` wod: choose gas, wood; did you mean 'wood'?"),
        ("", Literal["gas", "wood"], '`x` "": choose gas, wood'),
        ("a\nb", Literal["", "c"], '`x` a\\nb: choose "", c'),
        (np.zeros(2), Literal["gas"], "`x` array([0., 0.]): choose gas"),
        ("cpu", Literal["auto"] | int, "`x` cpu: choose auto"),
    ],
)
def test_a_value_that_does_not_is_named_with_what_it_must_be(value: object, hint: Any, message: str) -> None:
    with pytest.raises(MismatchError) as raised:
        conform(value, hint)
    said = raised.value.message("`x`")
    assert said.startswith(message) and "\n" not in said
    assert [*map(str, raised.value.place)] == message.partition(" ")[0].split(".")[1:]


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize(
    ("value", "hint"), [(np.float32(0.5), Any), ([np.int64(1)], object), (np.array(3), np.ndarray)]
)
def test_a_value_of_any_type_and_one_of_exactly_the_type_stay_as_they_are(value: object, hint: Any) -> None:
    assert conform(value, hint) is value


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize("value", [np.int64(3), [np.int64(3)]])
def test_where_numbers_are_exact_a_number_of_numpy_is_none(value: object) -> None:
    with pytest.raises(MismatchError):
        conform(value, int | list[int], exact=True)


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (1 << 63, int, "`x` must be at most 9,223,372,036,854,775,807"),
        (-(1 << 63) - 1, int | None, "`x` must be at least -9,223,372,036,854,775,808"),
        (10**20, bool | int | float, "`x` must be at most 9,223,372,036,854,775,807"),
        (10**400, Annotated[int, Ge(1)], "`x` must be at most 9,223,372,036,854,775,807"),
        (
            [1, [10**5000]],
            list[int | list[int]],
            "`x`.1.0 must be at most 9,223,372,036,854,775,807, not a",
        ),
    ],
)
def test_a_whole_number_of_an_argument_fits_into_64_bits(value: object, hint: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        check_argument("x", hint, value)


INTEGERS: dict[type, type] = {int: int, np.int64: int, np.uint8: int}
REALS: dict[type, type] = {float: float, np.float32: float, np.float64: float}
KINDS: dict[Any, tuple[Any, dict[type, type]]] = {
    int: (7, INTEGERS),
    float: (0.5, {**dict.fromkeys(INTEGERS, float), **REALS}),
    bool: (True, {bool: bool, np.bool_: bool}),
    int | None: (None, INTEGERS),
    int | float: (7, {**INTEGERS, **REALS}),
    bool | str: ("owls", {bool: bool, np.bool_: bool}),
    str | Path: ("owls", {}),
}
"""Annotation -> a value that it allows, and of which types it allows a one: type -> the type that a function gets."""
ONES = [kind(1) for kind in (int, bool, float, np.int64, np.float64, np.bool_, np.uint8, np.float32)]


def weighing(hint: Any, calls: list[tuple[Any, ...]]) -> Callable[..., None]:
    """Return a function that takes arguments of one type in each way in which Python takes arguments."""

    @checked
    def weigh(first: hint, *several: hint, each: Sequence[hint], named: Mapping[str, hint], **more: hint) -> None:
        calls.append((first, several, each, named, more))

    return weigh


@pytest.mark.guarantee("typed-arguments")
def test_equal_values_are_judged_each_by_its_own_type_wherever_they_stand() -> None:
    """In any order, and also of functions of the same name whose arguments have other types."""
    calls: list[tuple[Any, ...]] = []
    for hint, (right, kinds) in [*KINDS.items(), *list(KINDS.items())[:2]]:
        weigh = weighing(hint, calls)
        for one in ONES:
            rest = {"each": [], "named": {}}
            ways: dict[str, tuple[list[Any], dict[str, Any], Callable[..., Any]]] = {
                "first": ([one], rest, lambda first, *_: first),
                "several": ([right, right, one], rest, lambda _, several, *__: several[1]),
                "each.0": ([right], rest | {"each": (one, right)}, lambda *got: got[2][0]),
                "each.1099": ([right], rest | {"each": [right] * 1099 + [one]}, lambda *got: got[2][1099]),
                "named.b": ([right], rest | {"named": {"a": right, "b": one}}, lambda *got: got[3]["b"]),
                "further": ([right], rest | {"any": right, "further": one}, lambda *got: got[4]["further"]),
            }
            for name, (given, options, found) in ways.items():
                if type(one) not in kinds:
                    argument, dot, place = name.partition(".")
                    with pytest.raises(UsageError, match=rf"^`{argument}`{re.escape(dot + place)} must be "):
                        weigh(*given, **options)
                    assert not calls, "nothing is done"
                    continue
                weigh(*given, **options)
                got = found(*calls.pop())
                assert got == 1 and type(got) is kinds[type(one)]


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize("several", [list, tuple])
def test_each_whole_number_of_many_fits_into_64_bits(several: type) -> None:
    given = several([0] * 1500 + [1 << 63])
    with pytest.raises(UsageError, match=r"^`x`\.1500 must be at most 9,223,372,036,854,775,807"):
        check_argument("x", Sequence[int], given)
    with pytest.raises(UsageError, match=r"^`x`\.1\.1500 must be at most 9,223,372,036,854,775,807"):
        check_argument("x", Sequence[Sequence[int]], [several([0]), given])


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize(
    "value", ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab"), {"a": 1}, {"a": 1}.keys(), {1, 2}, iter("ab"), 3, None]
)
def test_a_list_of_values_is_no_text_no_bytes_and_no_mapping(value: object) -> None:
    for hint in (Sequence[int], list[str], tuple[int, ...], tuple[str, str], Sequence[Any]):
        with pytest.raises(UsageError, match=r"^`x` must be a list"):
            check_argument("x", hint, value)


@dataclass
class Sums:
    total: int
    mean: Annotated[float, Ge(0)] | None = None
    by_name: dict[str, list[float]] = field(default_factory=dict)


@pytest.mark.parametrize("record", [{"total": 1 << 90}, {"total": 0, "mean": 0.5, "by_name": {"a": [1.0]}}])
def test_a_checksummed_record_may_hold_an_exact_sum_of_any_size(record: dict[str, Any]) -> None:
    assert asdict(build(Sums, record)) == {"mean": None, "by_name": {}, **record}


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"total": 1.0}, "Sums: total must be an integer"),
        ({"total": True}, "Sums: total must be an integer"),
        ({"total": 1, "mean": 1}, "Sums: mean must be a number"),
        ({"total": 1, "mean": -0.5}, "Sums: mean must be at least 0"),
        ({"total": 1, "by_name": {"a": [1.0, 2]}}, "Sums: by_name.a.1 must be a number"),
    ],
)
def test_a_number_of_another_type_in_a_checksummed_record_is_damage(record: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build(Sums, record)


def test_arguments_have_the_limits_of_their_annotations() -> None:
    @checked
    def weigh(share: Share, *paths: Path, mode: Literal["fast", "slow"] = "fast", **others: int) -> Any:
        return share, paths, mode, others

    assert weigh(1, mode="slow", n=np.int8(2)) == (1.0, (), "slow", {"n": 2})
    for arguments, message in (
        ({"share": 2}, "`share` must be at most 1, not 2"),
        ({"share": 1, "mode": "slo"}, "`mode` slo: choose fast, slow; did you mean 'slow'"),
        ({"share": 1, "n": "2"}, "`n` must be an integer, not '2'"),
    ):
        with pytest.raises(UsageError, match=message):
            weigh(**arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`paths` must be a Path, not 'a'"):
        weigh(1, "a")  # type: ignore[arg-type]
