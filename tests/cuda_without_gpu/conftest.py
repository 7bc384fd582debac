"""The measurements, once for all tests of this folder."""

import pytest

from tests.conftest import IN_CI
from tests.cuda_without_gpu.answers import Row, measured
from tests.cuda_without_gpu.device import NoCompilerError


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest) -> dict[tuple[str, str, str], Row]:
    """Return (name, precision, way) -> measurement. Without a C++ compiler there is none; in CI that is a failure."""
    try:
        return measured(request.config.cache.mkdir("cuda_without_gpu"))
    except NoCompilerError as error:
        if IN_CI:
            pytest.fail(str(error))
        pytest.skip(str(error))
