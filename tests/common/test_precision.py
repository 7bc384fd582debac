"""The precision that `auto` chooses, on this CPU and on one without bfloat16."""

import subprocess
import sys

import pytest
import torch

from clearspan.common import precision

LIMITS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""They make of any x86 CPU one without AVX-512."""
ASK = "from clearspan.common.precision import bfloat16; print(bfloat16('cpu').hardware)"


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A CPU with AVX-512-BF16, whatever this one is."""
    monkeypatch.setattr(precision, "_onednn_takes_bfloat16", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": False}, raising=False)
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_auto_is_bf16_on_a_cpu_that_multiplies_it(capable: pytest.MonkeyPatch) -> None:
    choice = precision.choose("auto", "cpu", "training.bf16", "training.bf16=false")

    assert (choice.name, choice.line) == ("bf16", "training.bf16 auto: bf16: this CPU has avx512_bf16")


def test_auto_is_fp32_on_avx_512_without_bf16_which_onednn_emulates(capable: pytest.MonkeyPatch) -> None:
    capable.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, "avx512_bf16": False}, raising=False)

    assert precision.choose("auto", "cpu", "--precision", "--precision fp32").name == "fp32"


@pytest.mark.parametrize(("asked", "bf16"), [("auto", False), ("bf16", True)])
def test_a_gpu_of_workers_elsewhere_is_not_asked(monkeypatch: pytest.MonkeyPatch, asked: str, bf16: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    choice = precision.choose(asked, "cuda:1", "--precision", "--precision fp32")

    assert choice.bf16 is bf16
    assert choice.line == ("" if bf16 else "--precision auto: fp32: this machine has no cuda:1 to ask")


@pytest.mark.parametrize("asked", [True, "bf16"])
def test_bf16_on_a_cpu_without_it_says_how_slow_it_is_and_what_to_set(
    capable: pytest.MonkeyPatch, asked: bool | str
) -> None:
    capable.setattr(precision, "_onednn_takes_bfloat16", lambda: False)

    choice = precision.choose(asked, "cpu", "training.bf16", "training.bf16=false")

    assert (choice.bf16, choice.slow) == (True, True)
    assert "15 to 30 times slower than fp32: set training.bf16=false for fp32" in choice.line


def test_fp32_asks_nothing_of_the_device(capable: pytest.MonkeyPatch) -> None:
    capable.setattr(precision, "bfloat16", None)

    assert precision.choose(False, "cpu", "training.bf16", "") == precision.choose("fp32", "cpu", "", "")


def test_the_private_functions_of_this_torch_answer() -> None:
    assert isinstance(torch.ops.mkldnn._is_mkldnn_bf16_supported(), bool)
    assert "avx2" in torch.cpu.get_capabilities() or "neon" in torch.cpu.get_capabilities()


@pytest.mark.exhaustive
def test_a_process_limited_to_avx2_has_no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)

    assert subprocess.check_output([sys.executable, "-c", ASK], text=True).strip() == "False"
