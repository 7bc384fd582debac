"""The mutants of a function, and those that nothing needs to notice, with the reason (survivors/)."""

import ast
import difflib
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import parso.tree
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.guarantees import ROOT, Function
from tests.mutation.operators import operators

SURVIVORS = Path(__file__).with_name("survivors")
"""A file for each guarantee: mutants that may survive, and why."""


class Mutant(NamedTuple):
    """A function with one change.

    Attributes:
        function: where it is.
        change: the lines that differ, `- before` and `+ after`, without indentation.
        source: the whole file with the change.
    """

    function: Function
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.function}\n{self.change}"


def of_function(function: Function) -> list[Mutant]:
    """Return all mutants of a function, each once, in the order of its lines; an error if it does not exist."""
    source = (ROOT / function.path).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    first, last = place(function, source)
    text = "".join(lines[first:last])
    class_above = "class _:\n" if text[0].isspace() else ""
    mutants: dict[str, Mutant] = {}
    for changed in changes(class_above + text):
        changed = changed.removeprefix(class_above)
        mutated = "".join([*lines[:first], changed, *lines[last:]])
        if changed != text and _compiles(mutated):
            mutants.setdefault(changed, Mutant(function, _difference(text, changed), mutated))
    return sorted(mutants.values(), key=lambda mutant: _first_difference(mutant.source, source))


def changes(text: str) -> Iterator[str]:
    """Yield the code with one change at a time, for all operators; what is raised and decorators stay."""
    nodes = list(ast_nodes(get_ast(text)))
    for operator in operators().values():
        occurrence = -1
        for node in nodes:
            for _ in operator.mutation_positions(node):
                occurrence += 1
                if not _in_message(node) and (changed := mutate_code(text, operator, occurrence)) is not None:
                    yield changed


def reasons(folder: Path = SURVIVORS) -> dict[tuple[str, str], str]:
    """Return why a mutant may survive: (name of the guarantee, the mutant as text) to reason."""
    return {
        (path.stem, "\n".join(line.strip() for line in mutant.strip().splitlines())): entry["reason"]
        for path in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["because"]
        for mutant in entry["mutants"]
    }


def place(function: Function, source: str) -> tuple[int, int]:
    """Return the lines of a function, decorators included: first, and one behind the last."""
    body: list[ast.stmt] = ast.parse(source).body
    for name in function.name.split("."):
        if not (found := [node for node in body if name in _names(node)]):
            raise LookupError(f"{function}: no such function, class or constant")
        node = found[-1]
        body = getattr(node, "body", [])
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)]) - 1, node.end_lineno or node.lineno


def _names(node: ast.stmt) -> list[str]:
    """Return what a statement defines."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [getattr(node, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))]


def _in_message(node: parso.tree.NodeOrLeaf) -> bool:
    """Return whether the node is a part of what is raised, or of a decorator."""
    return node.parent is not None and (node.parent.type in ("raise_stmt", "decorator") or _in_message(node.parent))


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _difference(before: str, after: str) -> str:
    compared = difflib.ndiff(
        [line.strip() for line in before.splitlines()], [line.strip() for line in after.splitlines()]
    )
    return "\n".join(line for line in compared if line[:2] in ("- ", "+ ") and line[2:])


@functools.cache
def _lines(source: str) -> list[str]:
    return source.splitlines()


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one.splitlines(), _lines(other), strict=False))
    return next((index for index, (left, right) in pairs if left != right), 0)
