"""The error that ends a run with one line for the user, and its way from a Beam worker back to the driver.

Runners wrap a worker's exception in text of their own (tracebacks, step names, retries); the line travels inside that
text, encoded so that nothing on the way can alter it.
"""

import base64
import contextlib
import re
from collections.abc import Iterator

from clearspan.common.terminal import one_line
from clearspan.shards.manifest import ManifestError
from clearspan.shards.reader import ShardError

_CARRIED = re.compile(r"\[clearspan:([A-Za-z0-9+/=]*)\]")


class PipelineError(Exception):
    """The run cannot go on. The message says what was found, where, and what to do."""


EXPECTED = (PipelineError, ManifestError, ShardError, OSError)
"""What a user or a disk can cause: shown as one line. Anything else is a defect and keeps its traceback."""


@contextlib.contextmanager
def carrying() -> Iterator[None]:
    """Around a worker's work: expected errors leave it in a form that `carried` recognises."""
    try:
        yield
    except EXPECTED as error:
        message = one_line(error)
        code = base64.b64encode(message.encode("utf-8", "backslashreplace")).decode()
        raise RuntimeError(f"{message} [clearspan:{code}]") from None


def carried(error: BaseException) -> PipelineError | None:
    """The worker's own error inside the runner's, if there is one."""
    codes = _CARRIED.findall(str(error))
    return PipelineError(base64.b64decode(codes[-1]).decode()) if codes else None
