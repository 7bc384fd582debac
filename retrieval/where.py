"""Conditions on stored fields, such as `--where "year > 2020 and lang = 'de'"`. A condition is never run as code.

    text -> SQL's words and operators replaced by Python's -> syntax tree (`ast`) -> only a few types of nodes are
         allowed -> functions of Arrow on columns

Examples of what a condition may contain; `draft` is a field of truth values:

    year >= 2020   lang = 'de'   lang != 'de'   2000 < year <= 2020   lang in ('de', 'fr')   url is not null   draft
    not ...        ... and ...   ... or ...     (...)                 `a field's name`       true, false

As in SQL, a comparison with a field that a record lacks is neither true nor false; the same holds for its negation. A
record is a hit only if the condition is true. Two texts are equal only if all their characters are. Integers and floats
are compared by their exact values. A quote in a text is doubled, as in 'it''s'.

sqlglot was tried in place of `ast`: its import takes 0.09 s of CPU time (`ast` 0.006 s), it reads comments, joins
'a' 'b' and refuses fields named `key` or `case`, so that the checks below would stay.
"""

import ast
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clearspan.common.parsing import closest
from clearspan.common.typed import short_repr
from clearspan.shards.schema import FIELD

MAX_CHARACTERS = 10_000
MAX_DEPTH = 100
NAME = r"[^\W\d]\w*(?:\.\w+)*"
"""Regular expression for names that need no backticks, unless they are in WORDS or CONSTANTS."""
TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|`(?P<field>[^`]+)`|"""
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|"
    rf"(?P<word>{NAME})|(?P<sign><>|[<>=!]=|[<>=(),\[\]-])|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
"""Regular expression for a token. Its group says what the token is: a text, a field's name in backticks, a number, a
word (a field's name, or one of WORDS or CONSTANTS), an operator or bracket, white space, or a character that no
condition has outside a text."""
WORDS = {"and", "or", "not", "in", "is"}
CONSTANTS = {"null": "None", "none": "None", "true": "True", "false": "False"}
SIGNS = {"=": "==", "<>": "!="}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
"""Names of Arrow's functions for comparisons."""
EXACT: dict[str, Callable[[Any, Any], bool]] = {
    "equal": eq,
    "not_equal": ne,
    "less": lt,
    "less_equal": le,
    "greater": gt,
    "greater_equal": ge,
}
"""Name of Arrow's function -> Python's, which compares integers and floats of any size by their exact values."""
EXAMPLE = "write, for example, year > 2020 and lang = 'de'"


class ConditionError(ValueError):
    """A condition cannot be used. The message says why and what to do."""


def quoted_name(field: str) -> str:
    """Return a field's name as it must be written in a condition: in backticks if necessary."""
    is_plain = re.fullmatch(NAME, field) and field.lower() not in {*WORDS, *CONSTANTS}
    return field if is_plain else f"`{field}`"


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on the fields that a collection stores (`--keep-fields`). Create one with `Condition.parse`.

    Attributes:
        text: the condition as the user wrote it.
        fields: the names of the fields in the condition.
        _tree: the condition as a syntax tree of Python, in which the fields are called f0, f1, ...
        _names: the names of these fields: item i is the name of f<i>.
    """

    text: str
    fields: frozenset[str]
    _tree: ast.expr
    _names: Sequence[str]

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Parse a text such as "year > 2020 and lang = 'de'" as a condition.

        Raises:
            ConditionError: the text is not a condition, or is too long.
        """
        if len(text) > MAX_CHARACTERS:
            raise ConditionError(f"has {len(text):,} characters: at most {MAX_CHARACTERS:,} are read")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ConditionError("is not valid UTF-8: write it in a terminal or a file whose encoding is UTF-8")
        names: list[str] = []
        try:
            tree = ast.parse(_python(text, names), mode="eval").body
            _check(tree)
        except ConditionError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConditionError(f"{text[:60]!r} is not a condition: {EXAMPLE}") from None
        used = {_field(node, names) for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return cls(text, frozenset(used), tree, names)

    def check_fields(self, known: Sequence[str]) -> None:
        """Check that a collection stores all fields of the condition.

        Args:
            known: the names of the fields that the collection stores.

        Raises:
            ConditionError: a field of the condition is not among them.
        """
        for name in sorted(self.fields - set(known)):
            if not known:
                raise ConditionError(
                    f"no field {name!r}: the vectors were stored without fields: run embed again with "
                    f"`keep_fields` {name}"
                )
            near = closest(name, known, 0)
            raise ConditionError(f"no field {name!r}: did you mean {near!r}? The stored fields are {', '.join(known)}")

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return a mask, (rows,) bool: true for each row of a batch that fulfills the condition.

        Raises:
            ConditionError: a field is compared with a value of a different type; or a field that does not hold truth
                values stands alone, as `year` does in `year and lang = 'en'`.
        """
        columns = {name: batch.column(FIELD + name) for name in self.fields if FIELD + name in batch.schema.names}
        made = _truth(_evaluate(self._tree, columns, self._names, batch.num_rows), self._tree, self._names)
        return np.asarray(made.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _python(text: str, names: list[str]) -> str:
    """Translate a condition into Python code, which is parsed to a syntax tree but never run.

    No name of the condition is part of the code: Python's parser normalizes names (NFKC), and f0 must mean one field.

    Args:
        text: the condition.
        names: an empty list, to which the name of each field is added. Item i becomes f<i>, such as f0.

    Raises:
        ConditionError: a character has no meaning in a condition, or a text follows a text, which Python would join.
    """
    code: list[str] = []
    last = ""
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match[match.lastgroup or 0]
        if kind == "space":
            continue
        if kind == "other":
            raise ConditionError(
                f"holds {token!r}: {EXAMPLE}; a text stands in quotes, a name with other characters in backticks"
            )
        if kind == "text":
            value = token[1:-1].replace(2 * token[0], token[0])
            if last == "text":
                raise ConditionError(f"holds no comma before {short_repr(value)}: write FIELD in ('a', 'b')")
            code.append(repr(value))
        elif kind == "word" and token.lower() in WORDS:
            code.append(token.lower())
        elif kind == "word" and token.lower() in CONSTANTS:
            code.append(CONSTANTS[token.lower()])
        elif kind in ("word", "field"):
            code.append(f"f{len(names)}")
            names.append(token)
        else:
            code.append(SIGNS.get(token, token))
        last = kind or ""
    return " ".join(code)


def _check(node: ast.expr, depth: int = 0) -> None:
    """Raise ConditionError if a syntax node, or a node below it, is not allowed in conditions.

    Args:
        depth: the number of nodes above this node.
    """
    if depth > MAX_DEPTH:
        raise ConditionError(f"is nested more than {MAX_DEPTH} deep: write it with in (...), or simpler")
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                _check(value, depth + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check(operand, depth + 1)
        case ast.Name() | ast.Constant(value=bool()):
            pass
        case ast.Compare(left=left, ops=ops, comparators=others):
            for operator, before, after in zip(ops, [left, *others], others, strict=False):
                _check_comparison(operator, before, after)
        case _:
            raise ConditionError(f"holds {_shown(node)}, which does not compare a field: {EXAMPLE}")


def _check_comparison(operator: ast.cmpop, left: ast.expr, right: ast.expr) -> None:
    if isinstance(operator, ast.Is | ast.IsNot):
        if not isinstance(left, ast.Name) or not (isinstance(right, ast.Constant) and right.value is None):
            raise ConditionError("is and is not compare a field with null: write FIELD is null, or FIELD is not null")
    elif isinstance(operator, ast.In | ast.NotIn):
        if not isinstance(left, ast.Name) or not isinstance(right, ast.Tuple | ast.List | ast.Constant):
            raise ConditionError("in asks a field for values: write FIELD in ('a', 'b')")
        for each in _listed(right):
            _constant(each)
    else:
        if not any(isinstance(side, ast.Name) for side in (left, right)):
            raise ConditionError(
                f"compares {_shown(left)} with {_shown(right)}, neither of which is a field: {EXAMPLE}"
            )
        for side in (left, right):
            if not isinstance(side, ast.Name):
                _constant(side)


def _listed(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def _constant(node: ast.expr) -> Any:
    """Return the value of a syntax node that is a text, a number or a truth value.

    Raises:
        ConditionError: the node is something else, or a number that no float can hold.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        if type(value) in (int, float):
            return -value
    elif isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        if not isinstance(node.value, str) and not abs(node.value) <= sys.float_info.max:
            raise ConditionError("holds a number above 1.8e308, which no field can hold: write a smaller one")
        return node.value
    elif isinstance(node, ast.Constant) and node.value is None:
        raise ConditionError("nothing equals null: write FIELD is null, or FIELD is not null")
    raise ConditionError(f"holds {_shown(node)}, which is neither a text nor a number: {EXAMPLE}")


def _field(node: ast.Name, names: Sequence[str]) -> str:
    return names[int(node.id[1:])]


def _shown(node: ast.expr) -> str:
    return short_repr(node.value) if isinstance(node, ast.Constant) else f"a {type(node).__name__.lower()}"


def _evaluate(node: ast.expr, columns: Mapping[str, pa.Array], names: Sequence[str], num_rows: int) -> Any:
    """Return the value of a syntax node: an array with one item per row, or a scalar if the node is a constant.

    Args:
        node: a node that `_check` allows.
        columns: name of a field -> the field's values. A field that is not in it is null in every row.
        names: the names of the fields, which the node calls f0, f1, ...
        num_rows: the number of rows.
    """

    def value(each: ast.expr) -> Any:
        if isinstance(each, ast.Name):
            column = columns.get(_field(each, names))
            return pa.nulls(num_rows) if column is None else column
        return _constant(each)

    def truth(each: ast.expr) -> Any:
        return _truth(_evaluate(each, columns, names, num_rows), each, names)

    match node:
        case ast.BoolOp(op=op, values=values):
            join = "and_kleene" if isinstance(op, ast.And) else "or_kleene"
            made = truth(values[0])
            for each in values[1:]:
                made = _call(join, made, truth(each))
            return made
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _call("invert", truth(operand))
        case ast.Compare(left=left, ops=ops, comparators=others):
            made = None
            for operator, before, after in zip(ops, [left, *others], others, strict=False):
                one = _compared(operator, value, before, after, names)
                made = one if made is None else _call("and_kleene", made, one)
            return made
        case ast.Constant(value=bool() as constant):
            return pa.array([constant] * num_rows, pa.bool_())
    return value(node)


def _compared(
    operator: ast.cmpop, value: Callable[[ast.expr], Any], left: ast.expr, right: ast.expr, names: Sequence[str]
) -> Any:
    if isinstance(operator, ast.Is | ast.IsNot):
        is_null = value(left).is_null()
        return is_null if isinstance(operator, ast.Is) else _call("invert", is_null)
    if isinstance(operator, ast.In | ast.NotIn):
        made = None
        for each in _listed(right):
            one = _related("equal", value(left), _constant(each), _field_of(left, names))
            made = one if made is None else _call("or_kleene", made, one)
        if made is None:
            raise ConditionError("in asks a field for values: write FIELD in ('a', 'b')")
        return made if isinstance(operator, ast.In) else _call("invert", made)
    name = _field_of(left, names) or _field_of(right, names)
    return _related(COMPARISONS[type(operator)], value(left), value(right), name)


def _call(name: str, *values: Any) -> Any:
    """Call the function of Arrow with this name, such as "less", and return its result."""
    import pyarrow.compute as pc  # takes a tenth of a second

    return pc.call_function(name, list(values))


def _field_of(node: ast.expr, names: Sequence[str]) -> str:
    return _field(node, names) if isinstance(node, ast.Name) else ""


def _related(compare: str, left: Any, right: Any, name: str) -> Any:
    """Compare two values, of which at least one is a column; return an array of truth values.

    Args:
        compare: the name of the function of Arrow that compares, such as "less".
        name: the name of the field, for the error message.

    Raises:
        ConditionError: the values have different types, such as a text and a number.
    """
    kinds = [_kind(side) for side in (left, right)]
    if "nothing" in kinds:
        column = left if isinstance(left, pa.Array) else right
        return pa.nulls(len(column), pa.bool_())
    if kinds[0] != kinds[1]:
        column = kinds[0] if isinstance(left, pa.Array) else kinds[1]
        mends = {
            "a text": f"write the value in quotes, or run embed with `keep_fields` {name}:int64",
            "a number": "write the number without quotes",
        }
        mend = f": {mends[column]}" if column in mends and {*kinds} == {*mends} else ""
        raise ConditionError(f"{name!r} is compared with another type: {kinds[0]} with {kinds[1]}{mend}")
    try:
        return _call(compare, *(side if isinstance(side, pa.Array) else pa.scalar(side) for side in (left, right)))
    except (pa.ArrowInvalid, OverflowError):  # an integer and a float that Arrow cannot compare without rounding
        rows = (side.to_pylist() if isinstance(side, pa.Array) else itertools.repeat(side) for side in (left, right))
        made = (None if None in pair else EXACT[compare](*pair) for pair in zip(*rows, strict=False))
        return pa.array(made, pa.bool_())


def _kind(value: Any) -> str:
    if isinstance(value, pa.Array):
        if pa.types.is_null(value.type):
            return "nothing"
        if pa.types.is_boolean(value.type):
            return "a truth value"
        return "a text" if pa.types.is_string(value.type) else "a number"
    if isinstance(value, bool):
        return "a truth value"
    return "a text" if isinstance(value, str) else "a number"


def _truth(made: Any, node: ast.expr, names: Sequence[str]) -> Any:
    """Return the value of a condition, or of an operand of `and`, `or` or `not`, as an array of truth values.

    Args:
        made: the value, an array with one item per row: truth values; null in every row; or the values of a field that
            stands alone, such as `year` in `year and lang = 'en'`.
        node: the syntax node of the condition or operand. If it is a field, the error message names this field.
        names: the names of the fields, which the node calls f0, f1, ...

    Raises:
        ConditionError: the value is a field alone that does not hold truth values.
    """
    if pa.types.is_null(made.type):
        return made.cast(pa.bool_())
    if not pa.types.is_boolean(made.type):
        raise ConditionError(f"{_field_of(node, names)!r} alone is not a condition: compare the field with a value")
    return made
