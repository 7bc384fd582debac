"""What eval's commands share: one-line errors, exit codes, and output that arrives or is missed.

Exit codes: 0 done; 1 the work failed, or standard output could not be written; 2 bad usage; 130 interrupted (Ctrl-C).
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence

from clearspan.common.terminal import Parser, printable
from clearspan.eval.files import DataError


class UsageError(Exception):
    """Arguments that do not go together."""


def run(
    parser: Parser,
    argv: Sequence[str] | None,
    work: Callable[[argparse.Namespace], tuple[str, int]],
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Parses `argv` (default: the process's arguments), does the work and returns the exit code.

    Args:
        work: gives what goes to standard output, and the exit code.
        failures: exceptions besides DataError and OSError whose message is for the user.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show every character
    for_user: tuple[type[Exception], ...] = (DataError, OSError, *failures)
    code, output = 0, ""
    try:
        args = parser.parse_args(argv)
        # What a model's own code or a library prints must not get among the results.
        with contextlib.redirect_stdout(sys.stderr):
            output, code = work(args)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    except UsageError as error:
        print(f"{parser.prog}: {printable(str(error))} (see --help)", file=sys.stderr)
        code = 2
    except for_user as error:
        for name, reason in getattr(error, "skipped", {}).items():
            print(printable(f"skipped {name}: {reason}"), file=sys.stderr)
        print(f"{parser.prog}: {printable(str(error))}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        code = 130
    return _print(parser.prog, output) or code


def _print(prog: str, text: str) -> int:
    """Prints all that goes to stdout; 1 where it does not get there, unless its reader has left, having seen enough."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python itself writes again when it ends
        if isinstance(error, BrokenPipeError):
            return 0
        print(f"{prog}: standard output cannot be written ({error.strerror})", file=sys.stderr)
        return 1
    return 0
