"""Beam's local job service, with two workers a job: of its own accord it takes one, whatever a job's options say."""

import sys
from typing import Any

from apache_beam.runners.portability import local_job_service_main
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

run = FnApiRunner.run_via_runner_api


def on_two_workers(runner: FnApiRunner, *arguments: Any) -> Any:
    runner._num_workers = 2
    return run(runner, *arguments)


FnApiRunner.run_via_runner_api = on_two_workers
local_job_service_main.run(sys.argv[1:])
