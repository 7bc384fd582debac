"""The frame of the evaluator's commands: one-line errors, exit codes, and a check that the output arrives.

Exit codes: 0 done; 1 the work failed, or stdout cannot be written; 2 bad usage; 130 interrupted (Ctrl-C).
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Sequence

from clearspan.common.commands import UsageError
from clearspan.common.cores import share_cores
from clearspan.common.terminal import OutputClosedError, Parser, printable, say
from clearspan.eval.files import DataError


def run(
    parser: Parser,
    argv: Sequence[str] | None,
    work: Callable[[argparse.Namespace], tuple[str, int]],
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Parse `argv` (default: the process's arguments), do the work, print its output and return the exit code.

    Sets OMP_WAIT_POLICY (`share_cores`) before anything imports torch.

    Args:
        work: function that returns the output for stdout and the exit code.
        failures: exceptions besides DataError and OSError whose message is meant for the user.
    """
    share_cores()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for a terminal that lacks some characters
    for_user: tuple[type[Exception], ...] = (DataError, OSError, *failures)
    code, output = 0, ""
    try:
        args = parser.parse_args(argv)
        # Keeps text that a library or the model's own code prints out of the results.
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
    """Print the output; return 1 if stdout cannot be written, but 0 if its reader closed it, as `| head` does."""
    with contextlib.suppress(OutputClosedError):
        try:
            say(text, end="")
        except OSError as error:
            print(f"{prog}: standard output cannot be written ({error.strerror})", file=sys.stderr)
            return 1
    return 0
