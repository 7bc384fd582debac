"""What a careless rewriting does to code, as operators of Cosmic Ray.

Cosmic Ray's own operators move a boundary, a number or a truth value. These add the changes that a rewriting makes: a
branch or a handler dropped, the first item only, an argument, an operand or the field of a key left out, an order or a
normalization lost, a statement forgotten.
"""

import builtins
import itertools
import re
from collections.abc import Iterator

import parso
from cosmic_ray.operators.number_replacer import NumberReplacer
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import OPERATOR_PROVIDERS
from parso.tree import Leaf, NodeOrLeaf

CORE = [
    *(f"ReplaceComparisonOperator_{change}" for change in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"ReplaceComparisonOperator_{change}" for change in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
]
"""Operators of Cosmic Ray that stand for a careless change."""
KEYED = re.compile(r"key|hash|digest|fingerprint|draw|sha\d|update|join")
"""Functions of which each argument may be a field of a key."""
NORMALIZERS = {"strip", "lstrip", "rstrip", "lower", "upper", "casefold", "resolve", "absolute", "copy"}
MAX_ELEMENTS = 6


class Rewriting(Operator):
    """Operator that replaces an expression or a statement by other code."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        """Yield the code that may stand in the node's place."""
        raise NotImplementedError

    def mutation_positions(self, node: NodeOrLeaf) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        return [(node.start_pos, node.end_pos)] * len(list(self.rewritten(node)))

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        return parso.parse(node.get_first_leaf().prefix + list(self.rewritten(node))[index])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return ()


def code(*nodes: NodeOrLeaf) -> str:
    """Return the source of nodes that follow each other, without what stands before the first."""
    return "".join(node.get_code(include_prefix=index > 0) for index, node in enumerate(nodes))


def follows(node: NodeOrLeaf, word: str, *parents: str) -> bool:
    """Return whether the node stands behind a keyword in a statement or an expression of one of these types."""
    siblings = node.parent.children if node.parent is not None and node.parent.type in parents else []
    return any(
        before.type == "keyword" and before.value == word and after is node
        for before, after in itertools.pairwise(siblings)
    )


def separated(nodes: list[NodeOrLeaf]) -> list[str]:
    """Return the source of what stands between the commas."""
    parts: list[list[NodeOrLeaf]] = [[]]
    for node in nodes:
        if isinstance(node, Leaf) and node.value == ",":
            parts.append([])
        else:
            parts[-1].append(node)
    return [code(*part) for part in parts if part]


def without_each(parts: list[str], most: int = MAX_ELEMENTS) -> Iterator[list[str]]:
    """Yield the parts without one of them."""
    if 2 <= len(parts) <= most:
        yield from (parts[:index] + parts[index + 1 :] for index in range(len(parts)))


def call_of(node: NodeOrLeaf) -> tuple[list[NodeOrLeaf], list[NodeOrLeaf]] | None:
    """Return the nodes of the function and of the arguments of a call; None for another node."""
    if node.type not in ("atom_expr", "power") or node.children[-1].type != "trailer":
        return None
    opening, *arguments, _ = node.children[-1].children
    if opening.value != "(":
        return None
    return node.children[:-1], arguments[0].children if arguments and arguments[0].type == "arglist" else arguments


class NumberRaised(NumberReplacer):
    """Add one to a number."""

    def mutation_positions(self, node: NodeOrLeaf) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        return list(super().mutation_positions(node))[:1]


def display_of(node: NodeOrLeaf) -> tuple[str, list[str], str] | None:
    """Return opening, elements and closing of a tuple, list, set or dictionary that is written out, not assigned to."""
    if (
        node.type != "atom"
        or len(node.children) != 3
        or node.children[1].type not in ("testlist_comp", "dictorsetmaker")
    ):
        return None
    opening, elements, closing = node.children
    is_target = node.parent.type in ("expr_stmt", "exprlist") and node.parent.children[0] is node
    if is_target or any(child.type in ("comp_for", "sync_comp_for") for child in elements.children):
        return None
    return opening.value, separated(elements.children), f",{closing.value}" if opening.value == "(" else closing.value


class BranchDropped(Rewriting):
    """Take a branch always, or never."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        parents = ("if_stmt", "test", "comp_if")
        if follows(node, "if", *parents) or follows(node, "elif", *parents):
            yield from ("True", "False")


class HandlerDropped(Rewriting):
    """Handle no exception where one is handled."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if follows(node, "except", "except_clause"):
            yield "()"


class FirstItemOnly(Rewriting):
    """Look at the first item of a loop or a comprehension alone."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if follows(node, "in", "for_stmt", "sync_comp_for", "comp_for"):
            yield f'__import__("itertools").islice(({code(node)}), 1)'


class OperandDropped(Rewriting):
    """Leave out one operand of `and` and `or`, or the `not`."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if node.type in ("and_test", "or_test"):
            word = f" {node.children[1].value} "
            yield from (word.join(rest) for rest in without_each([code(each) for each in node.children[::2]]))
        elif node.type == "not_test" and not follows(node, "if", "if_stmt", "test", "comp_if"):
            yield code(*node.children[1:])


class ArgumentLeftOut(Rewriting):
    """Leave out a named argument, the last of several, or one that may be the field of a key."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        call = call_of(node)
        if call is None:
            return
        function, arguments = code(*call[0]), separated(call[1])
        named = re.compile(
            r"(\w+\s*=(?!=|\s*(True|False)$)|\*\*)", re.DOTALL
        )  # True and False are changed into each other
        places = [index for index, each in enumerate(arguments) if named.match(each)]
        positional = [index for index, each in enumerate(arguments) if not re.match(r"(\w+\s*=(?!=)|\*)", each)]
        if len(positional) > 1:
            places += positional if KEYED.search(function.rsplit(".", 1)[-1]) else positional[-1:]
        for place in sorted(places)[:MAX_ELEMENTS]:
            yield f"{function}({', '.join(arguments[:place] + arguments[place + 1 :])})"


class FieldLeftOut(Rewriting):
    """Leave out one element of a tuple, a list, a set or a dictionary that is written out."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if (written := display_of(node)) is not None:
            opening, elements, closing = written
            yield from (f"{opening}{', '.join(rest)}{closing}" for rest in without_each(elements))


class OrderLost(Rewriting):
    """Leave out a sorting, take the other end, or write a table in the other order."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if node.parent is not None and node.parent.type == "expr_stmt" and (written := display_of(node)) is not None:
            opening, elements, closing = written
            yield f"{opening}{', '.join(reversed(elements))}{closing}"
        call = call_of(node)
        if call is None or not call[1]:
            return
        function, arguments = code(*call[0]), separated(call[1])
        if function in ("sorted", "reversed"):
            yield f"list({arguments[0]})"
        elif function in ("min", "max"):
            yield f"{'max' if function == 'min' else 'min'}({', '.join(arguments)})"


class NormalizationLost(Rewriting):
    """Leave out a method that normalizes, or a function of one value; write `lower` for `casefold`."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        call = call_of(node)
        if call is None:
            return
        function, arguments = call
        if function[-1].type == "trailer" and function[-1].children[0].value == ".":
            method = function[-1].children[1].value
            if method in NORMALIZERS:
                yield code(*function[:-1])
            if method == "casefold":
                yield f"{code(*function[:-1])}.lower()"
        elif len(function) == len(arguments) == 1 and arguments[0].type != "argument":
            name = code(*function)
            if name.lstrip("_")[:1].islower() and not hasattr(builtins, name):
                yield f"({code(*arguments)})"


class PartOfSlice(Rewriting):
    """Take the whole of what is sliced."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if node.type in ("atom_expr", "power") and node.children[-1].type == "trailer":
            opening, *inner = node.children[-1].children
            if opening.value == "[" and (inner[0].type == "subscript" or code(inner[0]) == ":"):
                yield code(*node.children[:-1])


class StatementForgotten(Rewriting):
    """Leave out a call, a `raise`, a `continue`, an update of an object, or the `with` around a block."""

    def rewritten(self, node: NodeOrLeaf) -> Iterator[str]:
        if node.parent is not None and node.parent.type == "simple_stmt" and node.parent.children[0] is node:
            is_continue = isinstance(node, Leaf) and node.value == "continue"
            if is_continue or call_of(node) is not None or node.type in ("raise_stmt", "del_stmt", "yield_expr"):
                yield "pass"
            elif node.type == "expr_stmt":
                target, sign = node.children[:2]
                if target.type in ("atom_expr", "power") or (sign.type == "operator" and sign.value != "="):
                    yield "pass"
        elif follows(node, "with", "with_stmt") and node.type != "with_item":
            yield '__import__("contextlib").nullcontext()'


OPERATORS = {
    operator.__name__: operator
    for operator in (
        *(BranchDropped, HandlerDropped, FirstItemOnly, OperandDropped, ArgumentLeftOut, FieldLeftOut),
        *(OrderLost, NormalizationLost, PartOfSlice, StatementForgotten, NumberRaised),
    )
}


def operators() -> dict[str, Operator]:
    """Return all operators by name."""
    core = OPERATOR_PROVIDERS["core"]
    return {name: core[name]() for name in CORE} | {name: operator() for name, operator in OPERATORS.items()}
