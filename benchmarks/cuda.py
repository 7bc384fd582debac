"""All that needs a GPU, in one command of less than eight minutes: it says which of the claims about one hold there.

    python -m benchmarks.cuda --output benchmarks/results

Each part is a process of its own with a time limit; one that fails or hangs leaves the others alone:

    machine   bf16 matrix products a second
    tests     every test that bears the marker `cuda`
    static    ten steps of other lengths, layers compiled: how many graphs that made, and whether the host had to wait
    head      the masked-LM loss of a step as the trainer has it, and by torch's chunked linear_cross_entropy
    step      `benchmarks.train_step`: packed beside plain transformers and sentence-transformers' trainer

It wants torch, transformers, sentence-transformers and what `train` imports, but not DeepSpeed, Beam, webdataset or
gigatoken; sentence-transformers' trainer wants `datasets`. Exit code: 0, 1 where a part failed, 2 without a CUDA
device.
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

from benchmarks.report import machine, write

ROOT = Path(__file__).resolve().parents[1]
LIMITS_S = {"machine": 30, "tests": 170, "static": 90, "head": 20, "step": 160}
STEPS = 10
SIDE = 8192
"""Of the square matrices that the rate is measured with."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "flash-attn", "datasets", "deepspeed")


def driver() -> str:
    """The driver's version."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        return subprocess.run(query, capture_output=True, text=True).stdout.partition("\n")[0].strip() or "unknown"
    return "unknown"


def versions() -> dict[str, str]:
    """Of what has a part in the figures; a package that is not there is left out."""
    found = {"cuda": str(torch.version.cuda), "driver": driver()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def rate(arguments: argparse.Namespace) -> dict[str, Any]:
    """What bf16 matrix products of random numbers attain."""
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    torch.cuda.synchronize()
    start, rounds = time.perf_counter(), 20
    for _ in range(rounds):
        left @ right
    torch.cuda.synchronize()
    flops = 2 * SIDE**3 * rounds / (time.perf_counter() - start)
    return {"said": f"{flops / 1e12:,.0f} TFLOP/s in bf16", "bf16_flops": flops}


def marked() -> list[Path]:
    """The test files that speak of the marker: others may want packages that are not here."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.cuda" in path.read_text())


def tests(arguments: argparse.Namespace) -> dict[str, Any]:
    """How many tests passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "cuda", "-rs", "-p", "no:cacheprovider", f"--junitxml={report}", *map(str, marked())]
        code = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT).returncode
        if not report.is_file():
            raise SystemExit(f"pytest gave no report, exit code {code}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    outcome = {case.attrib["name"]: next((one.tag for one in case), "passed") for case in cases}
    passed = sum(one == "passed" for one in outcome.values())
    bad = [name for name, one in outcome.items() if one != "passed"]
    said = f"{passed} passed" + (f", {len(bad)} not: {', '.join(bad)}" if bad else "")
    return {"said": said, "ok": code == 0 and not bad and passed > 0, "tests": outcome}


def static(arguments: argparse.Namespace) -> dict[str, Any]:
    """Counts the graphs of ten steps, all but the first of which must not wait for the device."""
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
    with contextlib.ExitStack() as ended:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
            ended.callback(torch.cuda.set_sync_debug_mode, "default")
        try:
            for _ in range(STEPS - 1):
                step(bf16=True)
        except RuntimeError as error:
            waits = str(error).partition("\n")[0]
    graphs = int(counters["stats"]["unique_graphs"])
    said = f"{graphs} graph{'s' * (graphs != 1)} in {STEPS} steps, " + (f"stopped: {waits}" if waits else "no waiting")
    return {"said": said, "ok": graphs == 1 and not waits, "graphs": graphs, "waits": waits}


def head(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds, memory and rounding of the two ways to a loss, and its gradient, of so many masked tokens."""
    import torch.nn.functional as F

    from benchmarks.fresh import VOCABULARY
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

    found = {}
    for name, loss in (("ours", ours), ("chunked", chunked)):
        wait, taken, gb = torch.cuda.synchronize if device.type == "cuda" else lambda: None, [], 0.0
        for _ in range(arguments.rounds):
            states.grad = weight.grad = None
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            wait()
            start = time.perf_counter()
            value = loss()
            value.backward()
            wait()
            taken.append(time.perf_counter() - start)
            gb = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0.0
        norm = torch.nn.utils.get_total_norm([states.grad, weight.grad])
        found[name] = {"ms": 1e3 * min(taken), "gb": gb, "loss": value.item(), "gradient_norm": norm.item()}
    said = [f"{name} {one['ms']:.1f} ms, {one['gb']:.1f} GB, loss {one['loss']:.4f}" for name, one in found.items()]
    return {"said": "; ".join(said), "tokens": tokens, "hidden": hidden, **found}


def step(arguments: argparse.Namespace) -> dict[str, Any]:
    """The table of a step."""
    from benchmarks import train_step

    result = train_step.measure(arguments)
    table = train_step.table(result)
    (found,) = result["precisions"].values()
    said = "; ".join(f"{pair} {one['times']:.2f}x" for pair, one in found["times"].items())
    mfu = found["rows"]["packed"]["mfu"]
    return {"said": f"{said}; MFU {'unknown' if mfu is None else f'{mfu:.1%}'}", "table": table, **result}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "machine": rate,
    "tests": tests,
    "static": static,
    "head": head,
    "step": step,
}


def run(name: str, options: list[str], limit_s: float) -> dict[str, Any]:
    """A part's result, with whether it is `ok`, what is `said` of it and its seconds; what it prints comes through
    where it fails.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        kept, log = Path(folder) / "part.json", Path(folder) / "log"
        words = [sys.executable, "-m", "benchmarks.cuda", *options, "--part", name, "--output", str(kept)]
        with log.open("w") as out:
            process = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
            try:
                code = process.wait(limit_s)
                problem = f"exit code {code}" if code else ""
            except subprocess.TimeoutExpired:
                problem = f"took more than {limit_s:.0f} s"
            with contextlib.suppress(ProcessLookupError):  # its own workers, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = json.loads(kept.read_text()) if kept.is_file() and not problem else {"said": problem}
        found["ok"] = bool(found.get("ok", not problem))
        if not found["ok"]:
            found["log"] = log.read_text(errors="replace")[-6000:]
    return {**found, "seconds": round(time.perf_counter() - start, 1)}


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    parts, known = result["parts"], ", ".join(f"{name} {value}" for name, value in result["versions"].items())
    lines = [f"{result['gpu']}, {result['memory_gb']:.0f} GB, {result['date']}; {known}"]
    for name, part in parts.items():
        lines.append(f"{name:<8} {'ok' if part['ok'] else 'FAILED':<7} {part['seconds']:>6.1f} s  {part['said']}")
    lines += [f"\n{part['table']}" for part in parts.values() if "table" in part]
    lines += [
        f"\n--- {name}: the end of what it printed\n{part['log']}" for name, part in parts.items() if "log" in part
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path("benchmarks/results")
    parser.add_argument("--output", type=Path, default=default, metavar="DIR", help=f"of cuda.json (default {default})")
    parser.add_argument("--documents", type=int, metavar="N", help="of a step (default 32; less where memory is short)")
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
