"""A pipeline on this machine cannot be reached from another."""

import inspect
import os
from pathlib import Path

import apache_beam as beam
import grpc
import pytest

from clearspan.pipelines.execution import runners
from tests import listening


@pytest.mark.exhaustive
def test_a_pipeline_with_two_workers_listens_on_127_0_0_1_alone(tmp_path: Path) -> None:
    code, seen = inspect.getsource(listening), tmp_path / "seen"

    def look(parent: int) -> None:
        """Run in a worker, which lacks the tests' modules."""
        scope: dict = {}
        exec(code, scope)
        seen.write_text("\n".join(scope["addresses"](parent)))

    pipeline = runners.local(2, [])
    pipeline | beam.Create([os.getpid()]) | beam.Map(look)
    runners.run(pipeline)
    hosts = [address.rpartition(":")[0].removeprefix("::ffff:") for address in seen.read_text().splitlines()]
    assert hosts
    assert set(hosts) == {"127.0.0.1"}


def test_beams_servers_are_bound_elsewhere_only_while_a_pipeline_runs() -> None:
    make = grpc.server
    with runners.on_loopback():
        assert grpc.server is not make
    assert grpc.server is make
