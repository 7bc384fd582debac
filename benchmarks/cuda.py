"""All checks that need a GPU, as two commands that each take less than eight minutes.

    python -m benchmarks.cuda --parts tests step layers
    python -m benchmarks.cuda --parts runs

    tests     all tests with the marker `cuda`
    step      `benchmarks.train_step`: packed beside plain transformers and sentence-transformers' trainer
    layers    `benchmarks.encode_layers`: a batch of `encode` as it is, compiled, and with one product for q, k and v
    runs      `benchmarks.cuda_runs`: encode beside its peer, embed, runs of each objective and option, adapt, eval

Each part is a process of its own with a time limit. What is timed runs alone. Exit code: 0; 1 if a part failed; 2
without a CUDA device, or without a package that a part imports: then one line has the command that downloads it.
"""

import contextlib
import importlib.metadata
import importlib.util
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks import cuda_runs
from benchmarks.report import command, machine, write

ROOT = Path(__file__).resolve().parents[1]
LIMITS_S = {"tests": 250, "step": 160, "layers": 45, "runs": 455}
START_S = 25
"""Seconds in which a process imports torch and transformers where nothing has read them before."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "flash-attn", "datasets", "deepspeed")
ASSUMED = (
    "torch",
    "transformers",
    "sentence-transformers",
    "accelerate",
    "charset-normalizer",
    "cloudpickle",
    "einops",
)
ASSUMED += ("hypothesis", "jinja2", "joblib", "markdown-it-py", "msgpack", "ninja", "pillow", "psutil", "py-cpuinfo")
ASSUMED += ("pyarrow", "pytest", "regex", "rich", "tabulate", "tensorboard", "typer")
"""What a machine for deep learning has, with what these require."""
NEEDED = {
    "annotated_types": "annotated-types",
    "awkward": "awkward",
    "awkward_cpp": "awkward_cpp",
    "_cffi_backend": "cffi",
    "cykooz_resizer": "cykooz-resizer",
    "deepspeed": "deepspeed",
    "gigatoken": "gigatoken",
    "hjson": "hjson",
    "orjson": "orjson",
    "pydantic": "pydantic",
    "pydantic_core": "pydantic_core",
    "pytrec_eval": "pytrec-eval-terrier",
    "sentencex": "sentencex",
    "simplejpeg": "simplejpeg",
    "soundfile": "soundfile",
    "soxr": "soxr",
    "typing_inspection": "typing-inspection",
    "zstandard": "zstandard",
}
"""Import -> the package, of all others that the parts import. `step` leaves out sentence-transformers' trainer if
`datasets` is not installed."""
TARGET = "--python-version 3.12 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64"
"""Of the wheels that the help names: the Python and platform of the machine with the GPU."""
SOURCES = ("deepspeed",)
"""Packages without published wheels; they have nothing to compile."""


def pinned(names: Iterable[str]) -> list[str]:
    """Return the packages with the versions of constraints.txt."""
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    return [f"{name}=={pins[name]}" for name in names]


def download(names: Iterable[str]) -> str:
    """Return the command that puts the wheels of packages into a folder, on any machine with pip and torch."""
    names = sorted(names)
    sources = pinned(name for name in names if name in SOURCES)
    made = f"DS_BUILD_OPS=0 pip wheel --no-deps --no-build-isolation -w wheels {' '.join(sources)}"
    wheels = pinned(name for name in names if name not in SOURCES)
    fetched = f"pip download --only-binary=:all: --no-deps {TARGET} -d wheels {' '.join(wheels)}"
    return " && ".join([*([fetched] if wheels else []), *([made] if sources else [])])


def missing() -> list[str]:
    """Return the packages that the parts import and that are not installed here."""
    return [package for name, package in NEEDED.items() if importlib.util.find_spec(name) is None]


def wheels_help() -> str:
    """Return the end of the help: what is assumed, and what a machine with this lacks."""
    machine = (
        f"A machine with Python, torch for CUDA, {', '.join(ASSUMED[1:])}, and what these require, lacks packages of "
    )
    machine += (
        "23 MB. This downloads them elsewhere, for that machine's Python and platform; a part that starts without "
    )
    machine += "one prints the command for those that are missing:"
    install = "There: pip install --no-deps --no-index wheels/*.whl"
    return "\n\n".join(
        [textwrap.fill(machine, 100, break_on_hyphens=False), f"    {download(NEEDED.values())}", install]
    )


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
    parser.epilog = wheels_help()
    parser.add_argument("--documents", default="32", metavar="N", help="documents a step (default 32)")
    parser.add_argument("--parts", nargs="+", default=list(LIMITS_S), choices=list(LIMITS_S), help="default: all")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, those of `runs` in full; run none")
    arguments = parser.parse_args()
    names = ("train_step_cuda", "encode_layers", "cuda_runs")
    step, layers, runs = (arguments.output.with_name(f"{name}.json") for name in names)
    parts = {
        "tests": ["pytest", "-m", "cuda", "-rs", "-p", "no:cacheprovider", *map(str, marked())],
        "step": ["benchmarks.train_step", "--device=cuda", "--documents", arguments.documents, f"--output={step}"],
        "layers": ["benchmarks.encode_layers", "--device=cuda", f"--output={layers}"],
        "runs": ["benchmarks.cuda_runs", f"--output={runs}", f"--limit={LIMITS_S['runs'] - START_S}"],
    }
    parts = {name: words for name, words in parts.items() if name in arguments.parts}
    if absent := missing():
        print(f"benchmarks.cuda: not installed: {', '.join(absent)}: {download(absent)}", file=sys.stderr)
    if arguments.dry_run:
        print("\n".join(f"{name}: python -m {shlex.join(words)}" for name, words in parts.items()), flush=True)
        listed = cuda_runs.main(["--dry-run"]) if "runs" in parts else 0
        return 2 if absent else listed
    if absent:
        return 2
    if not torch.cuda.is_available():
        print("benchmarks.cuda: no CUDA device here: run it where nvidia-smi lists one", file=sys.stderr)
        return 2
    done = {name: run(words, LIMITS_S[name]) for name, words in parts.items()}
    gpu = torch.cuda.get_device_name()
    write({"gpu": gpu, "versions": versions(), "machine": machine(), "parts": done}, arguments.output)
    return 0 if all(part["ok"] for part in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
