"""The device and the precision that `auto` is."""

import sys

import pytest
import torch

from clearspan.common.compute import Compute, resolve, resolve_device


@pytest.mark.parametrize(("is_there", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_a_gpu_if_there_is_one(is_there: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    assert resolve_device("auto") == device and resolve_device("cuda:1") == "cuda:1"


def test_a_machine_without_torch_only_starts_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    auto = Compute("cpu", "fp32", "--precision auto: fp32: torch is not installed here")
    assert resolve("auto", "auto") == auto and resolve("cuda", "bf16") == Compute("cuda", "bf16")
