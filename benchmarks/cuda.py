"""All checks that need a GPU, as two commands that each take less than eight minutes.

    python -m benchmarks.cuda --parts tests step
    python -m benchmarks.cuda --parts runs

    tests     all tests with the marker `cuda`
    step      `benchmarks.train_step`: packed beside plain transformers and sentence-transformers' trainer
    runs      `benchmarks.cuda_runs`: whole runs of each objective, --resume, ZeRO, adapt, eval, encode beside its peer

Each part is a process of its own with a time limit. This needs torch, transformers, sentence-transformers and the
imports of `train`, but not Beam, webdataset or gigatoken; sentence-transformers' trainer needs `datasets`, `runs` needs
DeepSpeed. Exit code: 0; 1 if a part failed; 2 without a CUDA device.
"""

import contextlib
import importlib.metadata
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks import cuda_runs
from benchmarks.report import command, machine, write

ROOT = Path(__file__).resolve().parents[1]
LIMITS_S = {"tests": 290, "step": 180, "runs": 475}
PACKAGES = ("torch", "transformers", "sentence-transformers", "flash-attn", "datasets", "deepspeed")


def versions() -> dict[str, str]:
    """Return the versions of everything that affects the figures; packages that are not installed are omitted."""
    known = {"cuda": str(torch.version.cuda)}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    return known


def marked() -> list[Path]:
    """Return the test files that mention the marker: others may need packages that are not installed."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.cuda" in path.read_text())


def run(words: list[str], limit_s: float) -> dict[str, Any]:
    """Run a command of Python and print its output; return whether it succeeded, and its output."""
    with tempfile.TemporaryFile("w+") as log:
        try:
            code = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, stdout=log, stderr=log, timeout=limit_s)
            ok = code.returncode == 0
        except subprocess.TimeoutExpired:
            ok = False
            log.write(f"took more than {limit_s:.0f} s\n")
        log.seek(0)
        output = log.read()
    print(output)
    return {"ok": ok, "output": output}


def main() -> int:
    parser = command(__doc__, "cuda")
    parser.add_argument("--documents", default="32", metavar="N", help="documents a step (default 32)")
    parser.add_argument("--parts", nargs="+", default=list(LIMITS_S), choices=list(LIMITS_S), help="default: all")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, those of `runs` in full; run none")
    arguments = parser.parse_args()
    step, runs = (arguments.output.with_name(f"{name}.json") for name in ("train_step_cuda", "cuda_runs"))
    parts = {
        "tests": ["pytest", "-m", "cuda", "-rs", "-p", "no:cacheprovider", *map(str, marked())],
        "step": ["benchmarks.train_step", "--device=cuda", "--documents", arguments.documents, f"--output={step}"],
        "runs": ["benchmarks.cuda_runs", f"--output={runs}"],
    }
    parts = {name: words for name, words in parts.items() if name in arguments.parts}
    if arguments.dry_run:
        print("\n".join(f"{name}: python -m {shlex.join(words)}" for name, words in parts.items()), flush=True)
        return cuda_runs.main(["--dry-run"]) if "runs" in parts else 0
    if not torch.cuda.is_available():
        print("benchmarks.cuda: no CUDA device here: run it where nvidia-smi lists one", file=sys.stderr)
        return 2
    done = {name: run(words, LIMITS_S[name]) for name, words in parts.items()}
    gpu = torch.cuda.get_device_name()
    write({"gpu": gpu, "versions": versions(), "machine": machine(), "parts": done}, arguments.output)
    return 0 if all(part["ok"] for part in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
