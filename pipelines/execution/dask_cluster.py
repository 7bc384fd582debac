"""A run on a Dask cluster: a line when a worker is lost, and an error when the scheduler is.

    scheduler ──events: workers that join and leave──> client of this process ──> a line on stderr

If a worker is lost, Dask repeats its tasks on others, and says so only in its own log. If the scheduler is lost, Beam's
runner takes the run for finished. This module imports nothing of Dask, which not every user has installed.
"""

import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import Any

from clearspan.common.errors import PipelineError
from clearspan.common.progress import counted
from clearspan.common.terminal import one_line, warn
from clearspan.pipelines.errors import CONTINUE
from clearspan.shards.command import PREFIX

CLOSE_S = 5.0
"""Seconds that the client may take to close. It waits for an answer of the scheduler, which may be lost."""


def is_of_dask(result: Any) -> bool:
    """Return whether Beam's Dask runner made the result of a pipeline."""
    return type(result).__module__ == "apache_beam.runners.dask.dask_runner"


class Workers:
    """The workers of a cluster. It prints a line when one is lost, and when none is left or one joins again.

    Args:
        scheduler: the address of the scheduler.
        addresses: the addresses of the workers at the beginning.
    """

    def __init__(self, scheduler: str, addresses: set[str]) -> None:
        self.addresses = addresses
        self._lock = threading.Lock()
        if not addresses:
            warn(f"{PREFIX}: {scheduler} has no workers: the run waits for one")

    def on_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Note an event of the scheduler, which is a pair of the time and the content; other events pass."""
        _, content = event
        action, address = content.get("action"), str(content.get("worker"))
        with self._lock:
            if action == "add-worker":
                if not self.addresses:
                    warn(f"{PREFIX}: worker {address} joined: the run goes on")
                self.addresses.add(address)
            elif action == "remove-worker":
                self.addresses.discard(address)
                left = f"{counted(len(self.addresses), 'worker')} left"
                next_ = f"{left}, to do its work again" if self.addresses else "none is left: the run waits for one"
                how = "left" if content.get("expected") else "was lost (killed, out of memory or cut off)"
                warn(f"{PREFIX}: worker {address} {how}: {next_}")


def wait(result: Any) -> None:
    """Wait until a run on a Dask cluster has ended, and close its client.

    Args:
        result: the result of the pipeline, from Beam's Dask runner.

    Raises:
        PipelineError: the scheduler was lost, or several workers one after another at the same task.
    """
    client = result.client
    scheduler = client.scheduler.address
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # tracebacks of a lost connection
    try:
        # Not `scheduler_info`, whose result a timer of the client replaces by one without workers.
        identity = client.sync(client.scheduler.identity, n_workers=-1)
        workers = Workers(scheduler, set(identity["workers"]))
        client.subscribe_topic("all", workers.on_event)
        result.wait_until_finish()
        is_finished = all(future.status == "finished" for future in result.futures)
    except Exception as error:
        if type(error).__name__ != "KilledWorker":
            raise
        raise PipelineError(
            f"{one_line(error)}: probably its memory ran out: start workers with fewer threads, {CONTINUE}"
        ) from None
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=CLOSE_S)
    if not is_finished:
        raise PipelineError(
            f"the connection to Dask's scheduler {scheduler} was lost: start the scheduler and its workers, {CONTINUE}"
        )
