"""Strict parsing of numbers that users type, comparison of names, and suggestion of a known name for a mistyped one."""

import difflib
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

MIN_SIMILARITY = 0.6
"""Least similarity, from 0 to 1, at which an unknown name counts as a mistyped known name."""


def closest(name: str, known: Iterable[str], min_similarity: float = MIN_SIMILARITY) -> str | None:
    """Return the known name that is most similar to `name`, ignoring case; None if none is similar enough.

    Args:
        min_similarity: the least similarity that is enough, from 0, for any name, to 1.
    """
    folded = {candidate.casefold(): candidate for candidate in reversed(list(known))}  # of equal names the first stays
    near = difflib.get_close_matches(name.casefold(), folded, 1, min_similarity)
    return folded[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: "; did you mean 'x'?", or "" if no known name is similar."""
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def whole_number(text: str) -> int:
    """Parse an integer: ASCII digits, optionally with a sign and with surrounding spaces. Unlike `int`, reject `1_0`.

    Raises:
        ValueError: the text is not such an integer, or has more than 1,000 digits.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,1000}", text.strip()):
        raise ValueError(f"not an integer: {text!r}")
    return int(text)


def finite_number(text: str) -> float:
    """Parse a number in decimal or scientific notation, optionally with a sign and with surrounding spaces.

    Unlike `float`, reject `1_0`, `nan` and `inf`.

    Raises:
        ValueError: the text is not such a number, or the number is too large for a float.
    """
    value = float(text) if re.fullmatch(r"[0-9.eE+-]+", text.strip()) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"not a finite number: {text!r}")
    return value


def exact_number(text: str) -> float | Decimal:
    """Parse a number in decimal or scientific notation without losing a digit.

    The result is a float if the float, written with as many digits as the text has, is the same number, as 0.1 and
    0.10000000000000001 are. Otherwise it is a Decimal, as for 0.1234567890123456789.

    Raises:
        ValueError: the text is not such a number, or its exponent is too large for a Decimal.
    """
    value = float(text)
    if repr(value) == text and math.isfinite(value):  # almost all fractions, as programs write them
        return value
    if not re.fullmatch(r"[0-9.eE+-]+", text):
        raise ValueError(f"not a number: {text[:40]!r}")
    try:
        exact = Decimal(text)
        digits = len(exact.as_tuple().digits)
        is_float = math.isfinite(value) and Decimal(f"{value:.{digits - 1}e}") == exact
    except InvalidOperation:
        raise ValueError(f"not a number of a possible size: {text[:40]!r}") from None
    return value if is_float else exact


NUMBERS: dict[Any, Callable[[str], Any]] = {int: whole_number, float: finite_number}
"""The function that reads a number of each type."""


def normalized_name(name: str) -> str:
    """Return the name of a column or field in lower case and without surrounding spaces."""
    return name.strip().casefold()
