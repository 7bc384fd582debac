"""docs/guarantees.md and the tests with the marker `guarantee` name each other, and no guarantee is lost unseen."""

import ast
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests import guarantees
from tests.guarantees import PAGE, ROOT, Guarantee
from tests.mutation.mutants import place


def marked() -> Iterator[tuple[str, str]]:
    """(name of the guarantee, test) of each marker `@pytest.mark.guarantee("name")`."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for decorator in getattr(node, "decorator_list", []):
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.guarantee":
                    test = f"{path.relative_to(ROOT)}::{node.name}"
                    assert re.fullmatch(r"tests/(\w+/)*test_\w+\.py::test_\w+", test), f"pytest collects no {test}"
                    yield from ((ast.literal_eval(argument), test) for argument in decorator.args)


@pytest.fixture(scope="module")
def parts() -> tuple[list[Guarantee], list[Guarantee]]:
    """The guarantees that hold, and those that are dropped."""
    return guarantees.read()


def test_the_page_and_the_markers_name_the_same_tests(parts: tuple[list[Guarantee], list[Guarantee]]) -> None:
    on_page = {(guarantee.name, test) for guarantee in parts[0] for test in guarantee.tests}
    assert on_page == set(marked())


def test_each_guarantee_is_short_and_has_a_test_of_its_own(
    parts: tuple[list[Guarantee], list[Guarantee]],
) -> None:
    kept = parts[0]
    assert 0 < len(kept) <= 80
    assert len({guarantee.name for guarantee in kept + parts[1]}) == len(kept + parts[1])
    for guarantee in kept:
        assert guarantee.tests, f"{guarantee.name} names no test"
        assert re.fullmatch(r"[A-Z`][^\n]*?\.", guarantee.text), guarantee
        assert len(re.findall(r"[.!?] [A-Z`]", guarantee.text)) <= 2, f"{guarantee.name}: more than three sentences"
        assert len(guarantee.text.split()) <= 60, f"{guarantee.name}: more than 60 words"


def test_each_guarantee_names_its_mechanism(parts: tuple[list[Guarantee], list[Guarantee]]) -> None:
    for guarantee in parts[0]:
        assert guarantee.mechanism, f"{guarantee.name} names no function that `make mutants` can change"
        for function in guarantee.mechanism:
            place(function, (ROOT / function.path).read_text(encoding="utf-8"))


def test_a_dropped_guarantee_says_why_and_who_misses_it(parts: tuple[list[Guarantee], list[Guarantee]]) -> None:
    for guarantee in parts[1]:
        assert re.search(r"Why: .+ Missed by: .+", guarantee.text), guarantee


def test_a_name_that_was_on_the_page_is_still_on_it(parts: tuple[list[Guarantee], list[Guarantee]]) -> None:
    command = ["git", "log", "--format=", "--patch", "--unified=0", "--", PAGE]
    history = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if history.returncode:
        pytest.skip("no history of the page here: this is not a clone")
    once = set(re.findall(r"^\+- \*\*([a-z0-9-]+)\*\*", history.stdout, re.MULTILINE))
    assert once <= {guarantee.name for guarantee in parts[0] + parts[1]}
