"""Names and docstrings that a newcomer reads once: one class name, one owner, and first lines in plain English."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.conftest import ROOT

PACKAGES = ("common", "cli", "shards", "pipelines", "retrieval", "serve", "eval", "train", "adapt", "plugins")
CLASSES: set[str] = set()
"""Public classes that have several owners still; no name may join them."""
MODULES: set[str] = set()
"""Names that several modules of one package have still; none may join them."""
DOCSTRINGS: set[str] = set()
"""First lines that read heavily still, as "FILE NAME"; none may join them."""
CONVENTIONS = {"__init__", "__main__"}
HEAVY = re.compile(r"^(What|How|Whether|Of|Where|So many|Who|Which|Why|When)\b|\b(that of|those of|besides)\b")
"""Beginnings and turns that make a sentence be read twice."""
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sources(package: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield (path, syntax tree) of each file of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))


def shared(owners: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in owners.items() if len(places) > 1}


def test_a_public_class_name_has_one_owner() -> None:
    owners = defaultdict(list)
    for package in PACKAGES:
        for path, tree in sources(package):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    owners[node.name].append(path)
    several = shared(owners)
    assert several.keys() == CLASSES, f"two owners: {several}"


def test_a_module_name_is_one_in_its_package() -> None:
    owners = defaultdict(list)
    for package in PACKAGES:
        for path, _ in sources(package):
            if (stem := Path(path).stem) not in CONVENTIONS:
                owners[f"{package} {stem}"].append(path)
    several = shared(owners)
    assert several.keys() == MODULES, f"two modules: {several}"


def test_first_lines_of_docstrings_are_plain() -> None:
    heavy = {}
    for package in PACKAGES:
        for path, tree in sources(package):
            for node in ast.walk(tree):
                text = ast.get_docstring(node) if isinstance(node, Documented) else None
                if text and HEAVY.search(first := text.split("\n")[0]):
                    heavy[f"{path} {getattr(node, 'name', '')}".strip()] = first
    assert heavy.keys() == DOCSTRINGS, f"see docs/architecture.md, and CONTRIBUTING.md: {heavy}"
