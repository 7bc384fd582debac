"""docs/troubleshooting.md quotes errors as commands print them: each word of one is in the code, or the user's.

The texts are looked for in the sources: an f-string of the code is a pattern, whose fields may be anything. A word of a
quoted error that no pattern covers must stand in the quoted command or be a whole string of the code, such as a reason.
"""

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from clearspan.cli.flags import command_line
from clearspan.common.terminal import as_printed
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^```\n\$ (.+)\n(?:\w+): (.+)\n```$", PAGE, re.MULTILINE)
ROOMS = ("adapt", "cli", "clearspan", "common", "eval", "pipelines", "retrieval", "serve", "shards", "train")
SHORTEST = 8
"""Fewest letters of a text that counts as a sentence of an error."""
USERS = {"body", "line"}
"""Names in the user's files, and units of them."""


def strings() -> Iterator[tuple[str, ...]]:
    """The texts in the code: a string as a whole, or the parts between the fields of an f-string or a format string."""
    for room in ROOMS:
        folder = ROOT / room
        for path in sorted(folder.glob("*.py") if room == "clearspan" else folder.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    yield tuple(map(text_of, node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
                    yield tuple(re.sub(r"^\{\w+\}$", "", part) for part in re.split(r"(\{\w+\})", printed(node.value)))


def text_of(part: ast.expr) -> str:
    """A part of an f-string if it is constant, as a command prints it; "" if it is a field."""
    return printed(str(part.value)) if isinstance(part, ast.Constant) else ""


def printed(text: str) -> str:
    with command_line():
        return as_printed(text)


@functools.cache
def texts() -> frozenset[tuple[str, ...]]:
    return frozenset(strings())


def uncovered(error: str, command: str) -> list[str]:
    """The words of a quoted error that are neither a text of the code nor the user's."""
    is_covered = [False] * len(error)
    for parts in texts():
        if sum(map(len, parts)) < SHORTEST or not all(part in error for part in parts):
            continue
        pattern = "".join(f"({re.escape(part)})" if part else "(?:.*?)" for part in parts)
        if found := re.search(pattern, error):
            for number in range(1, found.re.groups + 1):
                start, end = found.span(number)
                is_covered[start:end] = [True] * (end - start)
    rest = "".join(" " if covered else letter for letter, covered in zip(error, is_covered, strict=True))
    whole = {parts[0] for parts in texts() if len(parts) == 1}
    own = set(re.findall(r"\w+", command)) | USERS
    return [word for word in re.findall(r"[^\W\d]\w*", rest) if word not in whole and word not in own]


def test_the_page_has_ten_errors() -> None:
    assert len(re.findall("^## ", PAGE, re.MULTILINE)) == 10
    assert len(QUOTED) == PAGE.count("```\n$ ") >= 10


@pytest.mark.slow
@pytest.mark.parametrize(("command", "error"), QUOTED, ids=[error[:40] for _, error in QUOTED])
def test_a_quoted_error_is_one_of_the_code(command: str, error: str) -> None:
    assert uncovered(error, command) == []


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("no field", "no column"), ("pass --model", "give --model")])
def test_another_wording_would_be_noticed(old: str, new: str) -> None:
    command, error = next((command, error) for command, error in QUOTED if old in error)
    assert uncovered(error.replace(old, new), command) != []
