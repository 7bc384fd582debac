"""The device and the precision that `auto` chooses, on this machine and on others."""

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from clearspan.common.compute import Compute, batch_tokens_on, resolve, resolve_device
from clearspan.common.encoder.sentence_encoder import Encoder


@pytest.mark.parametrize(("is_there", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_a_gpu_if_there_is_one(is_there: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    assert resolve_device("auto") == device and resolve_device("cuda:1") == "cuda:1"


def test_a_machine_without_torch_only_starts_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    auto = Compute("cpu", "fp32", "`precision` auto: fp32: torch is not installed here")
    assert resolve("auto", "auto") == auto and resolve("cuda", "bf16") == Compute("cuda", "bf16")


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A CPU with AVX-512-BF16, whatever this one is."""
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": False}, raising=False)
    return monkeypatch


def test_auto_is_bf16_on_a_cpu_that_multiplies_it(capable: pytest.MonkeyPatch) -> None:
    chosen = Compute("cpu", "bf16", "training.bf16 auto: bf16: this CPU has avx512_bf16")
    assert resolve("cpu", "auto", "training.bf16") == chosen


@pytest.mark.parametrize("asked", ["auto", "bf16"])
def test_a_gpu_of_workers_elsewhere_is_not_asked(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    line = "`precision` auto: fp32: this machine has no cuda:1 to ask"
    expected = Compute("cuda:1", "fp32", line) if asked == "auto" else Compute("cuda:1", "bf16")
    assert resolve("cuda:1", asked) == expected


@pytest.mark.parametrize(("device", "precision"), [("cuda:0", "fp32"), ("cuda:1", "bf16")])
def test_the_gpu_that_is_used_is_asked_and_not_the_current_one(
    device: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two GPUs, the second one has bfloat16."""
    current = [0]

    @contextlib.contextmanager
    def used(of: torch.device) -> Iterator[None]:
        current.append(of.index)
        yield
        current.pop()

    for name, function in {
        "device": used,
        "device_count": lambda: 2,
        "get_device_name": lambda of: f"GPU {of.index}",
        "is_bf16_supported": lambda including_emulation: current[-1] == 1,
    }.items():
        monkeypatch.setattr(torch.cuda, name, function)
    found = resolve(device, "auto")
    assert (found.device, found.precision) == (device, precision) and f"GPU {device[-1]} " in found.message
    assert current == [0]


def test_bf16_on_a_cpu_without_it_says_how_slow_it_is_and_what_to_set(capable: pytest.MonkeyPatch) -> None:
    capable.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    choice = resolve("cpu", "bf16", "training.bf16", "training.bf16=false")
    assert (choice.precision, choice.slow) == ("bf16", True)
    assert "times slower than fp32: set training.bf16=false for fp32" in choice.message


class Embedding(Encoder):
    """An encoder that notes the tokens of its batches."""

    dim, fingerprint = 1, None

    def __init__(self) -> None:
        self.asked: list[int] = []

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> np.ndarray:
        self.asked.append(batch_tokens)
        return np.zeros((len(texts), 1), np.float32)


def test_a_model_has_batches_of_its_own_size_unless_a_caller_gives_another(monkeypatch: pytest.MonkeyPatch) -> None:
    memories = [80, 24]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(memories))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=memories[number] << 30)
    )
    model = Embedding()
    for device in ("cpu", "cuda", "cuda:1", "cuda:2"):
        model.batch_tokens = batch_tokens_on(device)
        model.encode(["an owl"])
        model.encode("an owl", 8)
    assert model.asked == [16384, 8, 65536, 8, 16384, 8, 16384, 8]


def test_the_private_functions_of_this_torch_answer() -> None:
    assert isinstance(torch.ops.mkldnn._is_mkldnn_bf16_supported(), bool)
    assert "avx2" in torch.cpu.get_capabilities() or "neon" in torch.cpu.get_capabilities()
