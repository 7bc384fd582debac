"""Beam on this machine without its log: apart from the imports, as Beam begins to log when it is imported."""

import contextlib
import logging
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_beam() -> Iterator[None]:
    """No log, no traceback of Beam's threads: a failure reaches the user as one line."""
    hook, level = threading.excepthook, logging.root.manager.disable
    threading.excepthook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.disable(level)
