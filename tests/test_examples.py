"""Every example runs as it stands, on small inputs."""

import csv
import itertools
import json
import os
import sys
from pathlib import Path

import pytest

import clearspan
from tests.conftest import ROOT
from tests.processes import environment, run_commands

pytestmark = pytest.mark.exhaustive
EXAMPLES = ROOT / "examples"


def run(script: str, *words: str | Path) -> str:
    """Run an example; return what it printed."""
    done = run_commands([f"examples/{script}", *map(str, words)], [environment()])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def some_lines(source: Path, target: Path, number: int) -> Path:
    with source.open("rb") as lines:
        target.write_bytes(b"".join(itertools.islice(lines, number)))
    return target


def test_own_domain_on_a_cpu(shared_data: Path, tmp_path: Path) -> None:
    corpus = some_lines(shared_data / "text" / "peps.jsonl", tmp_path / "peps.jsonl", 200)
    words = ("--output", tmp_path / "out", "--steps", "2", "--batch-size", "4", "--vocabulary", "1000")
    printed = run("own_domain_cpu.py", corpus, *words)
    scores = [line.split(": the right passage is first for ") for line in printed.splitlines()[-3:]]
    assert [model for model, _ in scores] == [str(tmp_path / "out" / "run" / "model"), "tfidf", "bm25"]
    assert all(score.endswith("% of the held-out texts") for _, score in scores)


def test_one_gpu(shared_data: Path, minilm: Path, tmp_path: Path) -> None:
    """A dry run: the machine of the tests has no GPU."""
    corpus = some_lines(shared_data / "text" / "openwebtext_sample.jsonl", tmp_path / "text.jsonl", 250)
    places = ("--data", shared_data / "senteval", "--output", tmp_path / "out")
    printed = run("one_gpu.py", corpus, "--model", minilm, *places, "--dry-run")
    assert "memory estimate" in printed and not (tmp_path / "out" / "run").exists()


def test_own_language(shared_data: Path, tmp_path: Path) -> None:
    pairs = some_lines(shared_data / "stsb_multi_mt" / "stsb-de-dev.csv", tmp_path / "pairs.csv", 100)
    with (shared_data / "stsb_multi_mt" / "stsb-de-train.csv").open(encoding="utf-8") as file:
        sentences = [row[0] for row in itertools.islice(csv.reader(file), 300)]
    (tmp_path / "german.txt").write_text("\n".join(sentences), encoding="utf-8")
    words = ("--language", "de", "--dev", pairs, "--test", pairs, "--output", tmp_path / "out")
    printed = run("own_language.py", tmp_path / "german.txt", *words, "--steps", "1", "--vocabulary", "800")
    assert "'pairs/pairs': {'spearman'" in printed.splitlines()[-1]
    assert (tmp_path / "out" / "scores" / "report.html").is_file()


def test_own_loop(shared_data: Path, minilm: Path, tmp_path: Path) -> None:
    """The last line has a loss below that of chance, and the model can be evaluated."""
    corpus = some_lines(shared_data / "sentences" / "wiki1m_head_11914.txt", tmp_path / "wiki.txt", 200)
    words = ("--model", minilm, "--output", tmp_path / "out", "--batch-size", "8", "--steps", "2")
    last = run("own_loop.py", corpus, *words).splitlines()[-1]
    step, loss = last.split(": loss ")
    assert step == "step 2" and 0 <= float(loss) < 2
    assert clearspan.load_model(tmp_path / "out" / "model").encode("An owl hunts by ear.").shape == (384,)


def test_the_tour_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    """The code cells in one namespace, as a kernel runs them; they need no shared data."""
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "tour.py").write_text("\n\n".join(cells), encoding="utf-8")
    inside = f"import os, runpy; os.chdir({str(tmp_path)!r}); runpy.run_path('tour.py', run_name='__main__')"
    done = run_commands(["-c", inside], [environment(TMPDIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path))])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows packed" in done.stdout and "95 % interval" in done.stdout
