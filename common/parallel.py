"""Run several commands at a time, so that small runs share a device that a single run would leave partly idle.

    items -> a thread each, at most `at_once` -> `run_module`, a process each -> results in the order of the items

If the caller is interrupted (Ctrl-C), every process is interrupted, too. Each saves its work as if it ran alone.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from clearspan.common.child_commands import processes

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS = "OMP_NUM_THREADS"


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], at_once: int = 1) -> list[Result]:
    """Return `work(item)` for each item, in order, with `at_once` calls at a time.

    After an exception, no further call begins; the exception is raised when the calls that have begun have ended.

    Args:
        work: function that runs commands as child processes (`run_module`), one after the other.
        at_once: number of calls at a time. If it is more than 1, the CPU cores are divided equally between the
            child processes, unless the user has set OMP_NUM_THREADS.

    Raises:
        KeyboardInterrupt: the user interrupted this process; the child processes were interrupted, too.
    """
    if at_once == 1:
        return [work(item) for item in items]
    is_shared = THREADS not in os.environ
    if is_shared:
        from joblib import cpu_count  # takes a fifth of a second

        os.environ[THREADS] = str(max(1, cpu_count() // at_once))
    pool = ThreadPoolExecutor(at_once)
    try:
        futures = [pool.submit(work, item) for item in items]
        for future in as_completed(futures):
            future.result()
        return [future.result() for future in futures]
    except KeyboardInterrupt:
        processes.interrupt()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        processes.resume()
        if is_shared:
            del os.environ[THREADS]
