"""Errors that end a run with one line for the user, and how they get from a Beam worker to the driver.

Runners wrap a worker's exception in other text (tracebacks, step names, retries). The error's message and type are
carried inside that text, base64-encoded so that nothing on the way alters them.
"""

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Self

from clearspan.common.answers import Failure, types_of
from clearspan.common.errors import PipelineError
from clearspan.common.terminal import one_line
from clearspan.shards.command import EXPECTED, PREFIX

CONTINUE = "then run the same command again to continue"
"""End of a line on a run that was stopped by what the user can start again."""
_CARRIED = re.compile(r"\[clearspan:([A-Za-z0-9+/=]*)\]")


class InputChangedError(PipelineError):
    """An input file has changed since the run was planned."""

    @classmethod
    def of(cls, path: str) -> Self:
        """Return the error that says that the input file `path` has changed, with advice for the user."""
        return cls(
            f"{path}: has changed since the run was planned: restore the earlier file, or begin again with another "
            f"`output`"
        )


class ModelFailedError(PipelineError):
    """A model cannot embed texts, for example because its device has no memory left at the moment."""


@contextlib.contextmanager
def carrying_errors() -> Iterator[None]:
    """Context manager for code that runs in a Beam worker: raise its expected errors in a form that reaches the driver.

    An exception of a type in EXPECTED, such as PipelineError, becomes a RuntimeError whose message also holds the
    exception's type and message in encoded form. `carried_error` decodes it.
    """
    try:
        yield
    except EXPECTED as error:
        message = one_line(error)
        record = json.dumps({"message": message, "types": types_of(error)})
        code = base64.b64encode(record.encode()).decode()
        raise RuntimeError(f"{message} [clearspan:{code}]") from None


def carried_error(error: BaseException) -> Exception | None:
    """Return the expected error of a worker, decoded from the message of a runner's exception.

    The result is an InputChangedError, a ModelFailedError or an OSError if the worker raised one, and a PipelineError
    for every other type. It is None if the message holds no such error.
    """
    if not (codes := _CARRIED.findall(str(error))):
        return None
    record = json.loads(base64.b64decode(codes[-1]))
    failure = Failure(PREFIX, record["message"], types=tuple(record["types"]))
    return failure.exception([InputChangedError, ModelFailedError, OSError], PipelineError)
