"""The benchmark command for GPUs on a machine without one, and the inputs of the benchmark of a step."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from benchmarks import cuda, peer_trainer, report
from benchmarks.span_step import build, documents, padded, padded_loss, plain
from clearspan.common import precision
from clearspan.train.objectives import spans
from tests.conftest import ROOT

ABSENT = ("deepspeed", "apache_beam", "webdataset", "gigatoken")
"""Packages that a borrowed machine may lack."""
ALONE = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.exhaustive
def test_without_a_cuda_device_one_line_says_so() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.cuda"], cwd=ROOT, env=ALONE, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "benchmarks.cuda: no CUDA device here: run it where nvidia-smi lists one\n"


@pytest.mark.exhaustive
def test_all_parts_load_and_the_tests_for_cuda_are_collected_where_much_is_not_installed() -> None:
    assert [path.name for path in cuda.marked()] == ["test_cuda.py"]
    words = ["-m", "cuda", "-rs", "-p", "no:cacheprovider", str(cuda.marked()[0])]
    program = f"""import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
import pytest
from benchmarks import cuda, train_step
sys.exit(pytest.main({words!r}))"""
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=ALONE, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "no CUDA device here: `python -m benchmarks.cuda` runs this test where there is one" in found.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize(("limit_s", "said"), [(60.0, "exit code 2"), (0.01, "took more than 0 s")])
def test_a_part_that_fails_or_hangs_is_told(limit_s: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = cuda.run("machine", [], limit_s)
    assert not found["ok"] and found["said"] == said and "log" in found


def test_a_part_that_fails_ends_no_other_and_the_command_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, options: list[str], limit_s: float) -> dict[str, Any]:
        return {"ok": name != "tests", "said": f"{name} of {options}", "seconds": 1.0}

    monkeypatch.setattr(cuda, "run", run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(name="A GPU", total_memory=80e9))
    monkeypatch.setattr(sys, "argv", ["cuda", "--output", str(tmp_path), "--documents", "8"])
    assert cuda.main() == 1
    kept = json.loads((tmp_path / "cuda.json").read_text())
    assert list(kept["parts"]) == ["machine", "tests", "static", "head", "step"] and kept["gpu"] == "A GPU"
    assert {"torch", "transformers", "driver"} <= kept["versions"].keys() and kept["date"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:2] == ["tests", "FAILED"] and lines[5].endswith("step of ['--documents', '8']")


def test_all_parts_together_take_less_than_eight_minutes() -> None:
    assert sum(cuda.LIMITS_S.values()) < 8 * 60 and cuda.LIMITS_S.keys() == cuda.PARTS.keys()


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", ["static", "step"])
def test_a_part_does_on_a_cpu_what_it_is_to_do_on_a_gpu(part: str) -> None:
    sizes = {"documents": 2, "layers": 1, "hidden": 64, "batches": 1, "steps": 1, "rounds": 1}
    found = cuda.PARTS[part](argparse.Namespace(device="cpu", dropout=0.1, precisions=["bf16"], **sizes))
    if part == "static":
        assert found["ok"] and found["said"] == "1 graph in 10 steps, no waiting"
    else:
        assert found["said"].startswith("packed / padded ") and found["said"].endswith("MFU unknown")
        assert found["inputs"]["packed"]["sequences"] == 6 * 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(functional, "linear_cross_entropy"), reason="torch has one way only")
def test_both_ways_to_the_masked_lm_loss_are_one_loss() -> None:
    found = cuda.head(argparse.Namespace(device="cpu", head=(64, 32), rounds=1))
    assert found["ours"]["loss"] == pytest.approx(found["chunked"]["loss"], rel=0.01)
    assert found["ours"]["gradient_norm"] == pytest.approx(found["chunked"]["gradient_norm"], rel=0.01)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whole", [False, True])
def test_a_padded_step_has_the_loss_of_the_packed_one_it_was_made_from(whole: bool) -> None:
    learner = build(1, 64, 0.0, pairs=False).eval()
    given = documents(2)
    made = padded(learner, given)
    loss, metrics = learner(given)
    assert made.tokens == metrics["tokens"] < made.rows and made.sequences == 2 * 6
    other = padded_loss(plain(learner).eval(), made, spans.Config().temperature, whole)
    torch.testing.assert_close(other, loss, atol=0.0, rtol=1e-4)


def test_sentence_transformers_own_trainer_steps_over_prepared_pairs() -> None:
    pytest.importorskip("datasets", reason="sentence-transformers' trainer wants it: extra `benchmarks`")
    learner = build(1, 64, 0.0, pairs=True)
    made = padded(learner, documents(2))
    model = peer_trainer.sentence_transformer(plain(learner), 1, "cpu")
    before = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters())
    trainer = peer_trainer.PeerTrainer(model, [(made.anchors, made.positives)], optimizer, 0.05, 1.0, lambda: None)
    seconds, _ = trainer.seconds(2, bf16=False)
    assert seconds > 0 and not peer_trainer.unpads(model)
    steps = {int(state["step"]) for state in optimizer.state.values()}
    assert steps == {3} and any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(("hardware", "measured"), [(True, ["fp32", "bf16"]), (False, ["fp32"])])
def test_bf16_is_measured_where_the_device_multiplies_it(
    hardware: bool, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(precision, "bfloat16", lambda device: precision.Bfloat16(hardware, "this CPU"))
    assert report.resolved_precisions(["fp32", "auto"], "cpu") == measured
    assert capsys.readouterr().err == f"--precisions auto: {measured[-1]}: this CPU\n"
