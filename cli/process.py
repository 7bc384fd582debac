"""Answer a call of `common.spawned` in the process that it has started: run the function, and write its result."""

import inspect
import json
import os
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearspan.cli.command import Command
from clearspan.cli.run import Work, run
from clearspan.common import plugins
from clearspan.common.answers import ANSWER, append, records
from clearspan.common.plain_json import to_json, typed


def main() -> int:
    """Answer the request of `common.spawned.call`; return the exit code."""
    function, path = sys.argv[1], os.environ[ANSWER]
    request = next(records(Path(path)))
    expected = tuple(map(plugins.resolve, request["expected"]))
    work = Work(function.rpartition(":")[2], lambda: _answered(function, request["options"], path), expected)
    return run(work, prints_flags=request["is_command"])


def _answered(function: str, options: Sequence[Any], path: str) -> int | Work:
    """Call the function, and write its result to the answer; return the exit code, or the work of a command."""
    called = plugins.load_function(function, "a function")
    hints, given = typing.get_type_hints(called, include_extras=True), inspect.signature(called).bind(*options)
    result = called(*(typed(hints.get(name, Any), value) for name, value in given.arguments.items()))
    if isinstance(result, Command):
        return result.own_work()
    if isinstance(result, int):
        return result
    append(path, {"result": json.loads(to_json(result))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
