"""The operators of mutation tests, and the list of mutants that may survive."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from cosmic_ray.mutating import mutate_code

from tests import guarantees
from tests.mutation import copies, mutants
from tests.mutation.operators import OPERATORS, operators

MODULE = """
import functools

class Bell:
    @property
    def sound(self):
        return "quiet"

    @classmethod
    def kind(cls):
        return "quiet"

    @functools.cache
    def ring(self):
        return "quiet"

def outer():
    def inner():
        return "quiet"
    return inner

def hours(number=6):
    return number
"""
CHANGES = [
    ("BranchDropped", "if a:\n    b()\n", ["if True:\n    b()\n", "if False:\n    b()\n"]),
    ("BranchDropped", "x = a if b else c\n", ["x = a if True else c\n", "x = a if False else c\n"]),
    ("HandlerDropped", "try:\n    a()\nexcept (B, C) as d:\n    e()\n", ["try:\n    a()\nexcept () as d:\n    e()\n"]),
    ("FirstItemOnly", "for a in b:\n    c()\n", ['for a in __import__("itertools").islice((b), 1):\n    c()\n']),
    ("FirstItemOnly", "x = [a for a in b]\n", ['x = [a for a in __import__("itertools").islice((b), 1)]\n']),
    ("OperandDropped", "x = a and b and c\n", ["x = b and c\n", "x = a and c\n", "x = a and b\n"]),
    ("OperandDropped", "x = not a\n", ["x = a\n"]),
    ("ArgumentLeftOut", "f(a, b, c=d)\n", ["f(a, c=d)\n", "f(a, b)\n"]),
    ("ArgumentLeftOut", "key(a, b, c=True)\n", ["key(b, c=True)\n", "key(a, c=True)\n"]),
    ("FieldLeftOut", "x = (a, b)\n", ["x = (b,)\n", "x = (a,)\n"]),
    ("FieldLeftOut", "x = {a: 1, b: 2}\n", ["x = {b: 2}\n", "x = {a: 1}\n"]),
    ("OrderLost", "x = sorted(a, key=b)\n", ["x = list(a)\n"]),
    ("OrderLost", "x = [a, b, c]\n", ["x = [c, b, a]\n"]),
    ("OrderLost", "x = min(a)\n", ["x = max(a)\n"]),
    ("NormalizationLost", "x = a.casefold()\n", ["x = a\n", "x = a.lower()\n"]),
    ("NormalizationLost", "x = same_text(a)\n", ["x = (a)\n"]),
    ("PartOfSlice", "x = a[:3]\n", ["x = a\n"]),
    ("StatementForgotten", "a.update(b)\nc = 1\n", ["pass\nc = 1\n"]),
    ("StatementForgotten", "a.b = c\nd += 1\n", ["pass\nd += 1\n", "a.b = c\npass\n"]),
    ("StatementForgotten", "with lock(a):\n    b = c\n", ['with __import__("contextlib").nullcontext():\n    b = c\n']),
    ("NumberRaised", "x = 1\n", ["x = 2\n"]),
]
"""Operator, code, and what the operator makes of it."""


def mutated(operator: str, code: str) -> list[str]:
    results = (mutate_code(code, operators()[operator], occurrence) for occurrence in range(9))
    return [result for result in results if result is not None]


@pytest.mark.parametrize(("operator", "code", "changed"), CHANGES)
def test_an_operator_makes_one_change_at_a_time(operator: str, code: str, changed: list[str]) -> None:
    assert mutated(operator, code) == changed


def test_every_operator_has_an_example() -> None:
    assert {operator for operator, _, _ in CHANGES} == set(OPERATORS)


def test_what_is_raised_and_the_targets_of_an_assignment_are_left_as_they_are() -> None:
    code = textwrap.dedent("""
        def f(a):
            (b, c) = a
            raise ValueError(message(a, b=1))
    """)
    assert {changed.strip().splitlines()[-1].strip() for changed in mutants.changes(code)} == {"pass"}


def test_functions_in_memory_take_the_code_of_a_changed_file(tmp_path: Path) -> None:
    file = tmp_path / "changed.py"
    file.write_text(MODULE)
    module: dict[str, Any] = {}
    exec(compile(MODULE, str(file), "exec"), module)
    changed = MODULE.replace("quiet", "loud").replace("6", "7")
    copies.exchange(copies.functions_in(tmp_path)[str(file)], compile(changed, str(file), "exec"))
    bell = module["Bell"]()
    assert (bell.sound, module["Bell"].kind(), bell.ring(), module["outer"]()()) == ("loud", "loud", "loud", "loud")
    assert module["hours"]() == 6, "a default is a part of the import: a run alone sees its change"


@pytest.mark.exhaustive
def test_each_listed_survivor_is_a_mutant_of_its_guarantee_and_has_a_reason() -> None:
    kept = {guarantee.name: guarantee for guarantee in guarantees.read()[0]}
    listed = mutants.reasons()
    functions = {function for name, _ in listed for function in kept[name].mechanism}
    texts = {function: set(map(str, mutants.of_function(function))) for function in functions}
    for (name, text), reason in listed.items():
        assert any(text in texts[function] for function in kept[name].mechanism), f"{name}: no such mutant: {text}"
        assert reason.strip(), text
