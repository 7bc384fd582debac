"""Show that two checkouts make the same of the same inputs: `python -m benchmarks.equality BEFORE [AFTER]`.

    docstrings of installed packages, pictures, tones -> every command of CASES, in each checkout -> file by file

For a change that should change nothing: datasets of each kind, mined negatives, weights of a static encoder and of a
transformer with all objectives, scores, vectors and hits. Files are compared byte by byte, those of JSON without the
fields in LEFT_OUT, which tell time, place or version. Each checkout runs in this process's environment, on one thread,
in a folder of the same name. Prints how many files of each case are equal, and each one that is not. Exit code 1 if a
file differs.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.docstrings import modules, write_corpus, write_pairs, write_retrieval
from clearspan.common import terminal

MODULES, QUERIES = 1200, 200
TOKENIZED = ["--tokenizer", "sentences/tokenizer", "--unit-bytes", "400000", "--holdout-fraction", "0.1"]
ALL = ["documents", "sentences", "images", "audio"]
CASES: dict[str, tuple[str, list[str]]] = {
    "vocabulary": ("tokenizer", ["vocabulary", "--input", "corpus.jsonl", "--size", "4096", "--output", "tokenizer"]),
    "sentences": (
        "sentences",
        [
            *("sentences", "--input", "corpus.jsonl", "--tokenizer", "tokenizer", "--augment", "del-span"),
            *("--limit", "3000", "--output", "sentences"),
        ],
    ),
    "documents": (
        "documents",
        [
            *("documents", "--input", "corpus.jsonl", *TOKENIZED, "--min-tokens", "300", "--dedup"),
            *("--near-dedup", "0.8", "--output", "documents"),
        ],
    ),
    "pairs": ("pairs", ["pairs", "--input", "pairs.jsonl", *TOKENIZED, "--output", "pairs"]),
    "images": ("images", ["images", "--input", "pictures", "--size", "40", "--output", "images"]),
    "audio": ("audio", ["audio", "--input", "tones", "--output", "audio"]),
    "train, static": (
        "static/model",
        [
            *("train", "--recipe", "static", "data.text.path=documents", "data.text.validation=documents/validation"),
            *("training.max_steps=20", "training.eval_data=heldout", "training.eval_steps=10", "output=static"),
        ],
    ),
    "mine": ("mined", ["mine", "pairs", "--model", "static/model", "--bm25", "1", "--output", "mined"]),
    "train, all objectives": (
        "combined/model",
        [
            *("train", "--recipe", "combined-demo", *(f"data.{name}.path={name}" for name in ALL)),
            *(f"data.{name}.batch_size=4" for name in ALL),
            *("training.max_steps=3", "training.eval_data=null", "output=combined"),
        ],
    ),
    "embed": (
        "vectors",
        ["embed", "--input", "pairs.jsonl", "--model", "combined/model", "--keep-text", "--output", "vectors"],
    ),
    "eval": (
        "scores",
        [
            *("eval", "--model", "static/model", "--model", "combined/model", "--model", "hybrid:static/model"),
            *("--tasks", "retrieval", "--data", ".", "--cache", "none", "--output", "scores"),
        ],
    ),
    "search": (
        "hits",
        ["search", "vectors", "--model", "combined/model", "--queries", "queries.txt", "--hybrid", "--json"],
    ),
}
"""Name of a case -> (what its command writes, the words of the command). What `search` prints is written to `hits`."""
NO_RESULT = {".clearspan", ".html"}
"""Folder that tells how a run went; pages, which show the day."""
LEFT_OUT = {"environment", "seconds", "run", "code", "versions", "clearspan", "command", "sha256"}
"""Fields of JSON that are not compared, at any depth."""


def write_inputs(folder: Path) -> None:
    """Write the inputs of all commands."""
    documented = modules()[:MODULES]
    write_corpus(documented, folder / "corpus.jsonl")
    write_pairs(documented, folder / "pairs.jsonl")
    write_retrieval(documented, folder / "retrieval" / "docstrings", QUERIES)
    titles = [json.loads(line)["title"] for line in (folder / "pairs.jsonl").read_text().splitlines()]
    (folder / "queries.txt").write_text("\n".join(titles[::50]))
    draws = np.random.default_rng(1)
    for number in range(24):
        picture, tone = folder / f"pictures/{number % 3}/{number}.png", folder / f"tones/{number % 3}/{number}.wav"
        for path in (picture, tone):
            path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (48, 40, 3), np.uint8)).save(picture)
        samples = 9000 * np.sin(np.arange(24_000) * (number + 5) / 60) + draws.normal(0, 900, 24_000)
        with wave.open(str(tone), "wb") as file:
            file.setparams((1, 2, 16_000, len(samples), "NONE", ""))
            file.writeframes(samples.astype("<i2").tobytes())


def run(checkout: Path, inputs: Path, work: Path, cases: list[str]) -> None:
    """Run the commands of all cases in a new folder `work`."""
    shutil.copytree(inputs, work)
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for case in cases:
        terminal.notice(f"{checkout}: {case}")
        command = [sys.executable, "-m", "clearspan", *CASES[case][1]]
        ended = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(
                f"{checkout}: {' '.join(CASES[case][1])}: exit code {ended.returncode}: {ended.stderr[-800:]}"
            )
        if case == "search":
            (work / CASES[case][0]).write_text(ended.stdout)


def compared(folder: Path) -> dict[str, str]:
    """Return a hash of what is compared of each file below a path, by the file's path below it."""
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and NO_RESULT.isdisjoint((*path.parts, path.suffix))
    )
    paths = [folder] if folder.is_file() else paths
    return {str(path.relative_to(folder)): hashlib.sha256(_content(path)).hexdigest() for path in paths}


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        return json.dumps(_without(json.loads(data))).encode()
    except ValueError:
        return data


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(held) for key, held in value.items() if key not in LEFT_OUT}
    return [_without(held) for held in value] if isinstance(value, list) else value


def differences(before: Path, after: Path, cases: list[str]) -> Iterator[tuple[str, int, list[str]]]:
    """Yield (case, number of its equal files, names of those that differ or are only in one folder)."""
    for case in cases:
        first, second = (compared(folder / CASES[case][0]) for folder in (before, after))
        unequal = sorted(name for name in first.keys() | second if first.get(name) != second.get(name))
        yield case, len(first.keys() | second) - len(unequal), unequal


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.equality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a checkout")
    parser.add_argument("after", type=Path, nargs="?", default=Path(), metavar="AFTER", help="default: this folder")
    parser.add_argument("--until", choices=[*CASES], help="leave out the cases behind this one")
    options = parser.parse_args()
    cases = [*CASES][: [*CASES].index(options.until) + 1] if options.until else [*CASES]
    with tempfile.TemporaryDirectory() as folder:
        inputs, work = Path(folder, "inputs"), Path(folder, "work")
        inputs.mkdir()
        write_inputs(inputs)
        for name, checkout in (("before", options.before), ("after", options.after)):
            run(checkout, inputs, work, cases)
            work.rename(Path(folder, name))
        found = list(differences(Path(folder, "before"), Path(folder, "after"), cases))
    rows = [[case, str(equal), ", ".join(unequal[:6]) or "-"] for case, equal, unequal in found]
    print(terminal.table(["case", "equal files", "different"], rows))
    return 1 if any(unequal for _, _, unequal in found) else 0


if __name__ == "__main__":
    sys.exit(main())
