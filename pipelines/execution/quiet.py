"""Suppression of Beam's log. This module does not import Beam, because Beam logs as soon as it is imported."""

import contextlib
import logging
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_beam() -> Iterator[None]:
    """Suppress logging and the tracebacks of Beam's threads within the context.

    The command itself tells the user of a failure, in one line.
    """
    hook, level = threading.excepthook, logging.root.manager.disable
    threading.excepthook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.disable(level)
