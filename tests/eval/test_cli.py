"""The command: exit codes, one-line errors, and results for programs and people."""

import json
import re
import shutil
from pathlib import Path

import pytest

from clearspan.eval.__main__ import Evaluate, main
from clearspan.eval.tasks.sts import YEARS
from tests.conftest import exit_code
from tests.processes import run_module

NUM_ROWS = 12


@pytest.fixture
def data(shared_data: Path, tmp_path: Path) -> Path:
    """A SentEval folder with the first rows of STS12 and of STS-B's test split, and nothing else."""
    real = shared_data / "senteval" / "downstream" / "STS"
    files = ["STSBenchmark/sts-test.csv"]
    files += [f"STS12-en-test/STS.{kind}.{subset}.txt" for kind in ("input", "gs") for subset in YEARS["STS12"]]
    for file in files:
        rows = (real / file).read_bytes().split(b"\n")[:NUM_ROWS]
        target = tmp_path / "data" / "downstream" / "STS" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"\n".join(rows) + b"\n")
    return tmp_path / "data"


@pytest.fixture
def arguments(data: Path, minilm: Path, tmp_path: Path) -> list[str]:
    output = tmp_path / "runs" / "eval"
    given = ["--model", str(minilm), "--tasks", "sts", "--data", str(data), "--output", str(output), "--device", "cpu"]
    return [*given, "--cache", str(tmp_path / "cache"), "--allow-missing"]


def replaced(arguments: list[str], option: str, value: object) -> list[str]:
    return [
        str(value) if before == option else given for before, given in zip(["", *arguments], arguments, strict=False)
    ]


def failure(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code and the last line of stderr; only lines about skipped tasks may precede it."""
    code = exit_code(main, *arguments)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    *before, last = err.splitlines()
    assert all(line.startswith("skipped ") for line in before)
    return code, last


@pytest.mark.exhaustive
def test_a_model_is_scored_and_the_results_are_written(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    results = json.loads((tmp_path / "runs/eval/results.json").read_text())
    assert set(results) == {
        "model", "spec", "scores", "intervals", "subsets", "counts", "settings", "data", "averages", "skipped",
        "truncated", "warnings", "environment", "examples", "sha256",
    }  # fmt: skip
    assert set(results["scores"]) == {"STS12", "STSBenchmark"}
    assert results["counts"]["STS12"] == {"pairs": NUM_ROWS * 5}
    assert results["averages"]["sts_simcse"]["missing"] == ["STS13", "STS14", "STS15", "STS16", "SICKRelatedness"]
    assert set(results["skipped"]) == {
        "STS13", "STS14", "STS15", "STS16", "STSBenchmark dev", "SICKRelatedness",
    }  # fmt: skip
    (cut,) = results["warnings"]
    assert "STSBenchmark (sts-test.csv: 12 rows, not 1,379)" in cut and f"warning: {cut}" in out
    assert {"date", "device", "platform", "versions"} <= set(results["environment"])
    assert results["environment"]["embedding_dim"] == 384
    spearman = results["scores"]["STS12"]["spearman_all"]
    assert re.search(rf"^STS12 +spearman_all +{spearman:.2f} \[", out, re.MULTILINE)
    assert re.search(r"^skipped STS13: .*STS13-en-test", out, re.MULTILINE)
    assert f"{spearman:.2f}" in (tmp_path / "runs/eval/report.html").read_text()
    assert "%|" not in err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--tasks", "sts,sst9", "unknown task 'sst9'; choose from sts, transfer, "),
        ("--tasks", "retreival", "captions; did you mean 'retrieval'?"),
        ("--model", "bm25:germn", "no stemmer 'germn'; did you mean 'german'?"),
        ("--model", "no/such/model", "no such folder or file, nor a baseline (bow, tfidf, bm25): no/such"),
        ("--data", "no/such/data", "--data: no such folder: no/such/data"),
        ("--output", __file__, f"--output {__file__}: {__file__} is a file, not a folder: name a new"),
        ("--device", "abacus", "--device: 'abacus' cannot be used here"),
    ],
)
def test_bad_usage_exits_2_with_one_line(
    arguments: list[str], option: str, value: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = replaced(arguments, option, value) if option in arguments else [*arguments, option, value]
    code, line = failure(given, capfd)
    assert code == 2
    assert message in line


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.slow
def test_code_that_comes_with_a_model_is_never_run_whatever_stdin_says(
    arguments: list[str], minilm: Path, tmp_path: Path
) -> None:
    model, proof = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(minilm, model, ignore=shutil.ignore_patterns("model.safetensors"))
    auto = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    (model / "config.json").write_text(json.dumps({"model_type": "own-kind", "auto_map": auto}))
    (model / "own.py").write_text(f"open({str(proof)!r}, 'w')\n")
    done = run_module("eval", *replaced(arguments, "--model", model), text="y\ny\n")
    assert (done.returncode, done.stdout, proof.exists()) == (1, "", False)
    assert "model_type 'own-kind' is unknown" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("place", ["/proc", f"{__file__}/below-a-file"])
def test_an_output_that_cannot_be_written_is_found_before_any_work(
    arguments: list[str], data: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output is checked before the model: `--model` names a folder without a model."""
    given = replaced(arguments, "--output", data / place)
    code, line = failure(replaced(given, "--model", data), capfd)
    assert code in (1, 2)
    assert place in line


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.json", '{"scores": {}}'),
        ("results.json", "[" * 10**5),
        ("report.html", "<html>"),
        ("examples.npz", "mine"),
    ],
)
def test_a_file_that_no_evaluation_wrote_is_not_overwritten(
    arguments: list[str], data: Path, tmp_path: Path, name: str, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs" / "eval" / name
    file.parent.mkdir(parents=True)
    file.write_text(content)
    code, line = failure(replaced(arguments, "--model", data), capfd)
    assert code == 1
    assert f"its {name} is not a file of this command" in line
    assert file.read_text() == content


ODD = "é\x1b[31m\n\udc80$_{"  # an escape sequence, a new line, a byte that is not UTF-8, half a formula


@pytest.mark.exhaustive
def test_odd_names_are_scored_and_reach_the_terminal_written_out(
    arguments: list[str], data: Path, minilm: Path, tmp_path: Path
) -> None:
    collection = data / "retrieval" / ODD
    (collection / "qrels").mkdir(parents=True)
    (collection / "corpus.jsonl").write_text('{"_id": "d", "text": "an owl"}\n')
    (collection / "queries.jsonl").write_text('{"_id": "q", "text": "a bird"}\n')
    (collection / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    model = tmp_path / ODD.replace("\udc80", "")
    shutil.copytree(minilm, model, ignore=shutil.ignore_patterns("model.safetensors"))
    (model / "model.safetensors").symlink_to(minilm / "model.safetensors")
    given = replaced(replaced(arguments, "--tasks", "retrieval"), "--model", model)
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for option in ([], ["--json"]):
        done = run_module("eval", *given, "--quiet", *option, variables=ascii_only)
        assert done.returncode == 0, done.stderr
        shown = done.stdout
        assert shown.isascii()
        assert "\x1b" not in shown
        if option:
            assert list(json.loads(shown)["scores"]) == [f"retrieval/{ODD}"]
        else:
            assert "retrieval/\\xe9\\x1b[31m\\n\\udc80$_{" in shown
    assert (tmp_path / "runs/eval/report.html").read_text("utf-8")


def test_embeddings_are_in_the_cache_of_all_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    given = ["--model", "bow", "--pairs", "pairs.csv", "--output", str(tmp_path)]
    assert Evaluate.parsed(given).cached == tmp_path / "cache" / "embeddings"
