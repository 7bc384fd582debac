"""The measurements, once for all tests of this folder."""

import dataclasses
import fcntl
import json
import os
from pathlib import Path

import pytest

from tests.conftest import IN_CI
from tests.cuda_without_gpu.answers import Row, measured
from tests.cuda_without_gpu.device import NoCompilerError


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Row]:
    """Return (name, precision, way) -> measurement. Without a C++ compiler there is none; in CI that is a failure.

    The workers of xdist measure once for all of them.
    """
    folder = request.config.cache.mkdir("cuda_without_gpu")
    try:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return measured(folder)
        return shared(folder, tmp_path_factory.getbasetemp().parent / "cuda_without_gpu.json")
    except NoCompilerError as error:
        if IN_CI:
            pytest.fail(str(error))
        pytest.skip(str(error))


def shared(folder: Path, answers: Path) -> dict[tuple[str, str, str], Row]:
    """Return the measurements from the file `answers`, which the first worker writes."""
    with answers.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answers.exists():
            answers.write_text(json.dumps([dataclasses.asdict(row) for row in measured(folder).values()]))
        return {row.key: row for row in (Row(**each) for each in json.loads(answers.read_text()))}
