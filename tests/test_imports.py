"""Which way imports go: no circle between files or folders, and none against the order of the house.

Read from the sources, with what functions import when they are called, so that a circle is no less one for being late.
"""

import ast
import graphlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

ALLOWED = {
    f"clearspan.{place}": [f"clearspan.{other}" for other in others.split()]
    for place, others in {
        "common": "common",
        "cli": "cli common",
        "shards": "shards cli common",
        "retrieval": "retrieval shards cli common",
        "serve": "serve retrieval shards cli common",
        "eval": "eval retrieval shards cli common",
        "pipelines.__main__": "pipelines retrieval serve shards cli common",
        "pipelines.augment": "pipelines.augment shards common",
        "pipelines": "pipelines shards cli common",
        "plugins": "plugins pipelines retrieval eval shards common",
        "train": "train shards pipelines.augment retrieval eval cli common",
        "adapt": "adapt train shards pipelines retrieval eval cli common",
    }.items()
}
"""What may be imported from where; the first that fits counts. Plugins are imported by nothing: they are named."""
PACKAGES = [place for place in ALLOWED if place.count(".") == 1]
BEAM = "apache_beam"


def modules_of(package: str) -> dict[str, Path]:
    """A package's files by the name of the module."""
    found = {}
    for path in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, known: set[str]) -> Iterator[str]:
    """What a file imports, its functions too: modules by their full name, of ours those that have the names taken."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: a relative import: write its full name"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in known)
            if not all(name in known for name in inner):
                yield node.module


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle of a graph; empty where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def graph_of(package: str) -> dict[str, set[str]]:
    """Each module of a package, and which others of it it imports."""
    modules = modules_of(package)
    return {
        name: {other for other in imports_of(path, set(modules)) if other in modules} for name, path in modules.items()
    }


def folders_of(package: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between a package's folders, its own top-level files each standing for itself."""
    folders = {name.rpartition(".")[0] for name in graph if name.count(".") > package.count(".") + 1}

    def place(name: str) -> str:
        return next((folder for folder in sorted(folders) if is_within(name, folder)), name)

    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        found.setdefault(place(name), set()).update({place(other) for other in others} - {place(name)})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way_through_the_house(package: str) -> None:
    every = {name for house in PACKAGES for name in modules_of(house)}
    for name, path in modules_of(package).items():
        allowed = next(others for place, others in ALLOWED.items() if is_within(name, place))
        for other in imports_of(path, every):
            ours = any(is_within(other, house) for house in ("clearspan", "tests", "benchmarks"))
            assert not ours or any(is_within(other, house) for house in allowed), f"{name} imports {other}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_between_files(package: str) -> None:
    assert circle(graph_of(package)) == []


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_between_folders(package: str) -> None:
    assert circle(folders_of(package, graph_of(package))) == []


def reached(starts: Iterable[str]) -> dict[str, list[str]]:
    """The modules of ours that these import, and those import in turn, with all that each imports."""
    every = {name: path for house in PACKAGES for name, path in modules_of(house).items()}
    found: dict[str, list[str]] = {}
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in every and name not in found:
            found[name] = list(imports_of(every[name], set(every)))
            waiting += found[name]
    return found


def test_what_the_trainer_imports_of_the_pipelines_needs_no_beam() -> None:
    """Nor does what that imports, nor the package around it."""
    augment = [name for name in modules_of("clearspan.pipelines") if is_within(name, "clearspan.pipelines.augment")]
    found = reached(["clearspan.pipelines", *augment])
    assert found.keys() >= {"clearspan.pipelines.augment.steps", "clearspan.shards.storage"}
    del found["clearspan.shards.storage"]  # the one seam to object stores imports Beam when a path is in one
    assert [name for name, others in found.items() if any(is_within(other, BEAM) for other in others)] == []
