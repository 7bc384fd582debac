"""Suppression of Beam's log. This module does not import Beam, because Beam logs as soon as it is imported."""

import contextlib
import logging
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_beam() -> Iterator[None]:
    """Context manager that suppresses all logging, and the tracebacks of exceptions in Beam's threads.

    The command itself reports a failure to the user, in one line.
    """
    hook, level = threading.excepthook, logging.root.manager.disable
    threading.excepthook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.disable(level)
