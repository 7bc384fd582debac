"""Beam runners: by default FnApiRunner on this machine, in this process or with worker processes.

DirectRunner is not used, because it first looks for another runner on the network, and then runs Python on one core.
"""

import contextlib
import math
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import environments

from clearspan.common.answers import Failure, report
from clearspan.pipelines.errors import carried_error
from clearspan.pipelines.execution import dask_cluster, job_service
from clearspan.shards.command import PREFIX

START_S = 4.0
"""Start-up time of worker processes (Beam's imports, the tokenizer) in seconds; work in this process has no such time.
Measured on 100 MB of documents: 7.7 s with two workers on two cores, and 4.5 s in this process, of which 1.5 s was
work. Workers start in parallel, each on its own core, so the time does not depend on their number. A faster machine is
faster at both start and work.
"""
ADDRESS = "127.0.0.1"
_leaving = threading.Lock()


def num_processes(workers: int | None, num_units: int, num_bytes: int, bytes_per_s: float, cores: int) -> int:
    """Return the number of worker processes to use; 1 means to work in this process.

    There are never more processes than work units. Beam assigns the units to processes before the processes start, so
    the process with the most units decides the run time.

    Args:
        workers: the number that the user chose; None for the number with the shortest estimated run time, at most
            `cores`.
        num_units: the number of work units to process.
        num_bytes: the size of these units in bytes.
        bytes_per_s: the number of input bytes that one process handles per second.
        cores: the number of CPU cores.
    """
    if not num_units:
        return 1
    unit_s = num_bytes / num_units / bytes_per_s

    def seconds(processes: int) -> float:
        return (START_S if processes > 1 else 0.0) + unit_s * math.ceil(num_units / processes)

    return min(workers, num_units) if workers else min(range(1, min(cores, num_units) + 1), key=seconds)


def local(processes: int, arguments: Sequence[str]) -> beam.Pipeline:
    """Return an empty pipeline for this machine.

    Args:
        processes: the number of worker processes; 1 to work in this process.
        arguments: the user's options for Beam.
    """
    if processes > 1:
        words = ["exec", sys.executable, "-m", "clearspan.pipelines.execution.worker", str(os.getpid())]
        runner = FnApiRunner(environments.SubprocessSDKEnvironment.from_command_string(shlex.join(words)))
    else:
        runner = FnApiRunner()
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    flags = ["--runner=FnApiRunner", f"--direct_num_workers={processes}", "--no_save_main_session", *arguments]
    return beam.Pipeline(runner, PipelineOptions(flags))


def named(arguments: Sequence[str]) -> beam.Pipeline:
    """Return an empty pipeline for the Beam runner that the user names.

    No files are staged, not even Beam's list of the installed packages, because a job server and its workers would need
    a shared folder for staged files.

    Args:
        arguments: the user's options for Beam, which include `--runner`.
    """
    nothing_staged = ["--no_save_main_session", "--experiments=disable_logging_submission_environment"]
    return beam.Pipeline(options=PipelineOptions([*nothing_staged, *arguments]))


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Context manager that binds every gRPC server that this process creates to 127.0.0.1.

    Beam's local runner uses gRPC without authentication, and would bind its servers to every network interface. Anyone
    who can reach the host could then read every file that the user can read. Beam has no option for the address.
    """
    make = grpc.server

    def server(*arguments: Any, **options: Any) -> grpc.Server:
        instance = make(*arguments, **options)
        bind = instance.add_insecure_port
        instance.add_insecure_port = lambda address: bind(f"{ADDRESS}:{address.rpartition(':')[2]}")
        return instance

    grpc.server = server
    try:
        yield
    finally:
        grpc.server = make


def run(pipeline: beam.Pipeline) -> bool:
    """Run the pipeline to its end. The servers of Beam's local runner listen only on 127.0.0.1.

    If a local worker dies, this process exits too, because Beam would wait for the worker forever.

    Returns:
        True if the pipeline ran; False if the options only request a description of the job (a dry run or a template).

    Raises:
        PipelineError, OSError: a worker raised an expected error, for example about a damaged input or a full disk. The
            error has the same message.
    """
    threading.excepthook = _thread_failed
    options = pipeline.options
    try:
        with on_loopback(), job_service.without_tracebacks():
            with job_service.taking_the_job(job_service.endpoint(options)):
                result = pipeline.run()
            if options.view_as(GoogleCloudOptions).template_location or options.view_as(TestOptions).dry_run:
                return False
            dask_cluster.wait(result) if dask_cluster.is_of_dask(result) else result.wait_until_finish()
        return True
    except Exception as error:
        if expected := carried_error(error) or job_service.failure(error, options):
            raise expected from None
        if job_service.WORKER_LOST in str(error):
            _leave()
        raise


def _thread_failed(arguments: threading.ExceptHookArgs) -> None:
    if "Worker subprocess exited" in str(arguments.exc_value):
        _leave()


def _leave() -> None:
    _leaving.acquire()
    message = "a worker process was killed or could not start: run again, with fewer workers if memory ran out"
    report(Failure(PREFIX, message))
    os._exit(1)
