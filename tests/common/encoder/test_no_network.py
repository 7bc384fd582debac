"""No command looks for a model, a tokenizer or a part of one in the network, whatever the environment says."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from clearspan.__main__ import main
from clearspan.eval.api import load_model
from tests.conftest import exit_code


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The hosts whose address was asked for, where libraries may download."""
    hosts: list[Any] = []

    def refuse(host: Any, *_: Any, **__: Any) -> None:
        hosts.append(host)
        raise OSError("no network in tests")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield hosts


@pytest.mark.guarantee("no-network")
@pytest.mark.slow
def test_a_folder_that_could_be_a_hubs_name_is_read_from_the_disk_alone(
    minilm: Path, looked_up: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(minilm, "owls/hunt")
    for name in ("README.md", "sentence_bert_config.json", "special_tokens_map.json"):
        Path("owls/hunt", name).unlink(missing_ok=True)
    assert load_model("owls/hunt").encode(["an owl"]).shape == (1, 384)
    assert not looked_up


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--model", "owls/hunt", "--tasks", "sts", "--data", "data", "--output", "out"],
        ["embed", "--input", "text.txt", "--model", "owls/hunt", "--output", "out"],
        ["documents", "--input", "text.txt", "--tokenizer", "owls/hunt", "--output", "out"],
        ["distill", "--model", "owls/hunt", "--output", "out"],
        ["adapt", "--input", "text.txt", "--model", "owls/hunt", "--output", "out"],
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_is_no_folder_is_an_error_and_no_download(
    words: list[str],
    looked_up: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("An owl hunts at night.\n")
    assert exit_code(main, *words) in (1, 2)
    assert "owls/hunt" in capsys.readouterr().err
    assert not looked_up
