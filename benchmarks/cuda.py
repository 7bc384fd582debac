"""All checks that need a GPU, in one command of less than eight minutes.

    python -m benchmarks.cuda --output benchmarks/results

Each part is a process of its own with a time limit; a part that fails or hangs does not affect the others:

    machine   the rate of bf16 matrix products
    tests     all tests with the marker `cuda`
    static    ten steps of different lengths with compiled layers: the number of graphs, and whether the host waited
    head      the masked-LM loss of a step as in the trainer, and by torch's chunked linear_cross_entropy
    step      `benchmarks.train_step`: packed beside plain transformers and sentence-transformers' trainer

This needs torch, transformers, sentence-transformers and the imports of `train`, but not DeepSpeed, Beam, webdataset or
gigatoken; sentence-transformers' trainer needs `datasets`. Exit code: 0; 1 if a part failed; 2 without a CUDA device.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from benchmarks.report import machine, timed, write
from clearspan.common import terminal

ROOT = Path(__file__).resolve().parents[1]
LIMITS_S = {"machine": 30, "tests": 170, "static": 90, "head": 20, "step": 160}
STEPS = 10
SIDE = 8192
"""The side of the square matrices whose product is measured."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "flash-attn", "datasets", "deepspeed")


def driver() -> str:
    """Return the version of the NVIDIA driver."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        return subprocess.run(query, capture_output=True, text=True).stdout.partition("\n")[0].strip() or "unknown"
    return "unknown"


def versions() -> dict[str, str]:
    """Return the versions of everything that affects the figures; packages that are not installed are omitted."""
    known = {"cuda": str(torch.version.cuda), "driver": driver()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    return known


def rate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the rate of bf16 products of random matrices."""
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    rounds = 20
    seconds, _ = timed(lambda: [left @ right for _ in range(rounds)][-1], torch.cuda.synchronize)
    flops = 2 * SIDE**3 * rounds / seconds.clock
    return {"said": f"{flops / 1e12:,.0f} TFLOP/s in bf16", "bf16_flops": flops}


def marked() -> list[Path]:
    """Return the test files that mention the marker: others may need packages that are not installed."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.cuda" in path.read_text())


def tests(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the marked tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "cuda", "-rs", "-p", "no:cacheprovider", f"--junitxml={report}", *map(str, marked())]
        code = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT).returncode
        if not report.is_file():
            raise SystemExit(f"pytest gave no report, exit code {code}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    outcomes = {case.attrib["name"]: next((each.tag for each in case), "passed") for case in cases}
    bad = [name for name, outcome in outcomes.items() if outcome != "passed"]
    passed = len(outcomes) - len(bad)
    summary = f"{passed} passed" + (f", {len(bad)} not: {', '.join(bad)}" if bad else "")
    return {"said": summary, "ok": code == 0 and not bad and passed > 0, "tests": outcomes}


def static(arguments: argparse.Namespace) -> dict[str, Any]:
    """Count the graphs that ten steps compile; after the first step, the host must not wait for the device."""
    from torch._dynamo.utils import counters

    from benchmarks.span_step import budget, build, documents
    from benchmarks.train_step import DEFAULTS, Loop, ahead, packed_loss
    from clearspan.train.options import ALL

    device, size = torch.device(arguments.device), DEFAULTS[arguments.device]
    count = arguments.documents or size["documents"]
    learner = build(arguments.layers or size["layers"], arguments.hidden or size["hidden"], 0.1, False).to(device)
    learner.budgets = {ALL: budget(learner, count)}
    learner.encoder.compile_static("inductor" if device.type == "cuda" else "eager")
    host = [documents(count, number) for number in range(STEPS)]
    step = Loop(learner, packed_loss(learner, ahead(host, device)), device).step
    counters.clear()
    step(bf16=True)
    waits = ""
    with contextlib.ExitStack() as stack:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
            stack.callback(torch.cuda.set_sync_debug_mode, "default")
        try:
            for _ in range(STEPS - 1):
                step(bf16=True)
        except RuntimeError as error:
            waits = str(error).partition("\n")[0]
    graphs = int(counters["stats"]["unique_graphs"])
    end = f"stopped: {waits}" if waits else "no waiting"
    summary = f"{graphs} graph{'s' * (graphs != 1)} in {STEPS} steps, {end}"
    return {"said": summary, "ok": graphs == 1 and not waits, "graphs": graphs, "waits": waits}


def head(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure time, memory and rounding of two implementations of the masked-LM loss and its gradient."""
    import torch.nn.functional as F

    from benchmarks.synthetic import VOCABULARY, wait_for
    from clearspan.train.losses import masked_lm

    if not hasattr(F, "linear_cross_entropy"):
        return {"said": "this torch has no linear_cross_entropy"}
    device, (tokens, hidden) = torch.device(arguments.device), arguments.head
    torch.manual_seed(0)
    states = torch.randn(tokens, hidden, device=device, requires_grad=True)
    weight = (0.02 * torch.randn(VOCABULARY, hidden, device=device)).requires_grad_()
    labels = torch.randint(VOCABULARY, (tokens,), device=device)

    def ours() -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return masked_lm(F.linear(states, weight), labels)

    def chunked() -> torch.Tensor:
        options, half = torch.nn.LinearCrossEntropyOptions(), (states.bfloat16(), weight.bfloat16())
        return F.linear_cross_entropy(*half, labels, reduction="none", options=options).float().mean()

    def with_gradient(loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        states.grad = weight.grad = None
        value = loss()
        value.backward()
        return value.detach()

    figures = {}
    for name, loss in (("ours", ours), ("chunked", chunked)):
        taken, gb = [], 0.0
        for _ in range(arguments.rounds):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, value = timed(lambda loss=loss: with_gradient(loss), lambda: wait_for(device))
            taken.append(seconds.clock)
            gb = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0.0
        norm = torch.nn.utils.get_total_norm([states.grad, weight.grad])
        figures[name] = {"ms": 1e3 * min(taken), "gb": gb, "loss": value.item(), "gradient_norm": norm.item()}
    summary = "; ".join(
        f"{name} {v['ms']:.1f} ms, {v['gb']:.1f} GB, loss {v['loss']:.4f}" for name, v in figures.items()
    )
    return {"said": summary, "tokens": tokens, "hidden": hidden, **figures}


def step(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark of a step."""
    from benchmarks import train_step

    result = train_step.measure(arguments)
    table = train_step.table(result)
    (figures,) = result["precisions"].values()
    ratios = "; ".join(f"{pair} {times['times']:.2f}x" for pair, times in figures["times"].items())
    mfu = figures["rows"]["packed"]["mfu"]
    return {"said": f"{ratios}; MFU {'unknown' if mfu is None else f'{mfu:.1%}'}", "table": table, **result}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "machine": rate,
    "tests": tests,
    "static": static,
    "head": head,
    "step": step,
}


def run(name: str, options: list[str], limit_s: float) -> dict[str, Any]:
    """Run a part in a process of its own; return its result with `ok`, a summary (`said`), `seconds`, and on failure
    the end of its output (`log`).
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "part.json", Path(folder) / "log"
        words = [sys.executable, "-m", "benchmarks.cuda", *options, "--part", name, "--output", str(file)]
        with log.open("w") as out:
            process = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
            try:
                code = process.wait(limit_s)
                problem = f"exit code {code}" if code else ""
            except subprocess.TimeoutExpired:
                problem = f"took more than {limit_s:.0f} s"
            with contextlib.suppress(ProcessLookupError):  # including its workers
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        result = json.loads(file.read_text()) if file.is_file() and not problem else {"said": problem}
        result["ok"] = bool(result.get("ok", not problem))
        if not result["ok"]:
            result["log"] = log.read_text(errors="replace")[-6000:]
    return {**result, "seconds": round(time.perf_counter() - start, 1)}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    parts, known = result["parts"], ", ".join(f"{name} {value}" for name, value in result["versions"].items())
    lines = [f"{result['gpu']}, {result['memory_gb']:.0f} GB, {result['date']}; {known}"]
    for name, part in parts.items():
        lines.append(f"{name:<8} {'ok' if part['ok'] else 'FAILED':<7} {part['seconds']:>6.1f} s  {part['said']}")
    lines += [f"\n{part['table']}" for part in parts.values() if "table" in part]
    lines += [f"\n--- {name}: the end of its output\n{part['log']}" for name, part in parts.items() if "log" in part]
    return "\n".join(lines)


def main() -> int:
    parser = terminal.Parser(prog="python -m benchmarks.cuda", description=__doc__)
    default = Path("benchmarks/results")
    parser.add_argument(
        "--output", type=Path, default=default, metavar="DIR", help=f"folder for cuda.json (default {default})"
    )
    parser.add_argument("--documents", type=int, metavar="N", help="documents a step (default 32; fewer save memory)")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.set_defaults(device="cuda", layers=None, hidden=None, batches=None, steps=None, precisions=None)
    parser.set_defaults(dropout=0.1, rounds=5, head=(8192, 768))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.cuda: no CUDA device here: run it where nvidia-smi lists one", file=sys.stderr)
        return 2
    if arguments.part:
        write(PARTS[arguments.part](arguments), arguments.output)
        return 0
    options = ["--documents", str(arguments.documents)] if arguments.documents else []
    properties = torch.cuda.get_device_properties(0)
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": properties.name,
        "memory_gb": round(properties.total_memory / 1e9, 1),
        "versions": versions(),
        "machine": machine(),
        "parts": {name: run(name, options, limit_s) for name, limit_s in LIMITS_S.items()},
    }
    print(table(result))
    write(result, arguments.output / "cuda.json")
    return 0 if all(part["ok"] for part in result["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
