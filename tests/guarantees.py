"""docs/guarantees.md as data: each guarantee with its text, its tests and the functions that are its mechanism."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/guarantees.md"
DROPPED = "No longer"
ENTRY = re.compile(r"^- \*\*([a-z0-9-]+)\*\*:? (.+?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
MECHANISM = re.compile(r"Mechanism:((?:\s+`[\w/]+\.py::[\w.]+`)+)")
FUNCTION = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


class Function(NamedTuple):
    """A function, a method, a class or a constant of the product: its file, from the root, and its qualified name."""

    path: str
    name: str

    def __str__(self) -> str:
        return f"{self.path}::{self.name}"


class Guarantee(NamedTuple):
    """An entry of the page."""

    name: str
    text: str
    tests: list[str]
    mechanism: list[Function]


def read(page: Path = ROOT / PAGE) -> tuple[list[Guarantee], list[Guarantee]]:
    """Return the guarantees that hold, and those that were dropped."""
    kept, _, dropped = page.read_text(encoding="utf-8").partition(f"\n## {DROPPED}\n")
    return parse(kept), parse(dropped)


def parse(text: str) -> list[Guarantee]:
    """Return the entries of a part of the page: `- **name**: Text. `tests/a.py::test_b` Mechanism: `a.py::f``."""
    guarantees = []
    for name, body in ENTRY.findall(text):
        functions = [Function(*each) for part in MECHANISM.findall(body) for each in FUNCTION.findall(part)]
        words = " ".join(TEST.sub("", MECHANISM.sub("", body)).split())
        guarantees.append(Guarantee(name, words, TEST.findall(body), functions))
    return guarantees
