"""A run on a job service: Beam's own, or the one of a Flink or Spark cluster.

    this process ──the job──> job service ──> workers, on hosts of which this process knows nothing
                 <─messages, state──

A message about a failure is a traceback of many lines, and the job's end tells the failure again. This module leaves
out the message, and makes one line of the failure.
"""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from clearspan.common.errors import PipelineError
from clearspan.common.terminal import MAX_SAID, one_line, warn
from clearspan.pipelines.errors import CONTINUE, carried_error
from clearspan.shards.command import PREFIX

ANSWER_S = 10.0
"""Seconds after which a line says that the job service has not taken the job."""
WORKER_LOST = "Channel closed prematurely"
"""Beam's message when the connection to a worker has ended."""
_DETAILS = re.compile(r'details = "(.*)"')


def endpoint(options: PipelineOptions) -> str:
    """Return the address of the job service that the user names; "" if there is none."""
    return str(options.view_as(PortableOptions).job_endpoint or "")


@contextlib.contextmanager
def taking_the_job(address: str) -> Iterator[None]:
    """Context manager for the start of a job: after 10 seconds, print a line that says what it waits for."""
    text = f"{PREFIX}: the job service at {address} has not taken the job yet: check its address if it takes longer"
    timer = threading.Timer(ANSWER_S, warn, [text])
    timer.daemon = True
    if address:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def without_tracebacks() -> Iterator[None]:
    """Context manager that leaves out the messages of a job that are tracebacks of failures that end the job."""
    logging.root.addFilter(_is_shown)
    try:
        yield
    finally:
        logging.root.removeFilter(_is_shown)


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR or _failure(RuntimeError(record.getMessage()), "") is None


def failure(error: Exception, options: PipelineOptions) -> Exception | None:
    """Return the error to raise for one that has ended a run on a job service; None if it is unexpected."""
    address = endpoint(options)
    return _failure(error, address) if address else None


def _failure(error: Exception, address: str) -> Exception | None:
    text = str(error)
    if expected := carried_error(error):
        return expected
    if WORKER_LOST in text:
        return PipelineError(
            "a worker was killed or cut off: run the same command again to continue, with fewer workers a host if "
            "memory ran out"
        )
    if isinstance(error, grpc.FutureTimeoutError):
        return PipelineError(f"no job service answers at {address}: start it, or check its address, {CONTINUE}")
    details = _DETAILS.findall(text)
    said = details[-1][:MAX_SAID] if details else one_line(error, MAX_SAID)
    if isinstance(error, grpc.RpcError):
        return PipelineError(f"the connection to the job service at {address} was lost ({said}): start it, {CONTINUE}")
    if "grpc." in text and "StatusCode.UNAVAILABLE" in text:
        return PipelineError(f"the job service does not reach its workers ({said}): start them, {CONTINUE}")
    return None
