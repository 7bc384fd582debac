"""The command: exit codes, one-line errors, and results for programs and people."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clearspan.eval.__main__ import main, make_parser
from clearspan.eval.tasks.sts import YEARS
from tests.conftest import ROOT
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
    code = main(arguments)
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
        "truncated", "warnings", "environment",
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
    assert re.search(rf"^STS12 +60 pairs +spearman_all +{spearman:.2f} \[", out, re.MULTILINE)
    assert re.search(r"^skipped STS13: .*STS13-en-test", out, re.MULTILINE)
    assert f"{spearman:.2f}" in (tmp_path / "runs/eval/report.html").read_text()
    assert "%|" not in err


@pytest.mark.exhaustive
def test_several_models_stand_side_by_side_and_keep_results_of_their_own(
    arguments: list[str], minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--model", str(minilm), "--name", "one", "--name", "other"]) == 0
    out = capsys.readouterr().out
    output = tmp_path / "runs/eval"
    scores = {}
    for name in ("one", "other"):
        results = json.loads((output / name / "results.json").read_text())
        assert (results["model"], results["spec"]) == (name, str(minilm))
        scores[name] = results["scores"]["STS12"]["spearman_all"]
    assert re.search(r"^task +metric +one +other +GloVe", out, re.MULTILINE)
    assert re.search(rf"^STS12 +spearman_all +{scores['one']:.2f} +{scores['other']:.2f}( |$)", out, re.MULTILINE)
    assert "<h1>Evaluation of one, other</h1>" in (output / "report.html").read_text()


@pytest.mark.exhaustive
def test_json_prints_what_results_json_holds(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json", "--quiet"]) == 0
    assert capsys.readouterr().out == (tmp_path / "runs/eval/results.json").read_text()


@pytest.mark.exhaustive
def test_the_token_budget_changes_no_score(arguments: list[str], tmp_path: Path) -> None:
    scores = []
    for budget in ("64", "16384"):
        assert main([*arguments, "--batch-tokens", budget, "--cache", "none"]) == 0
        scores.append(json.loads((tmp_path / "runs/eval/results.json").read_text())["scores"]["STS12"])
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


@pytest.mark.exhaustive
def test_retrieval_runs_beside_sts(arguments: list[str], data: Path, tmp_path: Path) -> None:
    sentences = [
        line.split("\t") for line in (data / "downstream/STS/STSBenchmark/sts-test.csv").read_text().splitlines()
    ]
    folder = data / "retrieval" / "stsb"
    (folder / "qrels").mkdir(parents=True)
    for file, column in (("queries.jsonl", 5), ("corpus.jsonl", 6)):
        rows = [json.dumps({"_id": str(i), "text": row[column]}) + "\n" for i, row in enumerate(sentences)]
        (folder / file).write_text("".join(rows))
    qrels = [f"{i}\t{i}\t1\n" for i in range(NUM_ROWS)]
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(qrels))
    assert main(replaced(arguments, "--tasks", "sts,retrieval")) == 0
    results = json.loads((tmp_path / "runs/eval/results.json").read_text())
    assert set(results["scores"]) == {"STS12", "STSBenchmark", "retrieval/stsb"}
    assert results["counts"]["retrieval/stsb"] == {"queries": NUM_ROWS, "documents": NUM_ROWS}
    assert results["scores"]["retrieval/stsb"]["recall@10"] > 80


def changed_model(minilm: Path, folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Path:
    """Copy the model to `folder` and apply `change` to its weights."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(minilm, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    weights = load_file(minilm / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.exhaustive
def test_a_model_whose_embeddings_are_no_numbers_is_reported_and_not_scored_as_if_they_were(
    arguments: list[str], minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def overflow(weights: dict[str, np.ndarray]) -> None:
        weights["encoder.layer.5.output.LayerNorm.weight"][:] = np.finfo(np.float32).max

    broken = changed_model(minilm, tmp_path / "broken", overflow)
    assert main(replaced(arguments, "--model", broken)) == 0
    results = json.loads((tmp_path / "runs/eval/results.json").read_text())
    assert set(results["scores"]["STSBenchmark"].values()) == {None}
    warning, _ = results["warnings"]
    assert "NaN" in warning
    out = capsys.readouterr().out
    assert f"warning: {warning}" in out
    assert "undefined" in out


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--tasks", "sts,sst9", "unknown task 'sst9'; choose from sts, transfer, "),
        ("--tasks", "retreival", "glue; did you mean 'retrieval'?"),
        ("--tasks", "", "unknown task ''"),
        ("--protcol", "fast", "no such option: --protcol; did you mean '--protocol'?"),
        ("--protocol", "fats", "(choose from 'full', 'fast'); did you mean 'fast'?"),
        (
            "--model",
            "no/such/model",
            "no such folder or file, nor a baseline (bow, tfidf, bm25): no/such",
        ),
        ("--data", "no/such/data", "--data: no such folder: no/such/data"),
        ("--output", __file__, "--output: is a file, not a folder"),
        ("--batch-tokens", "0", "--batch-tokens: must be a whole number above 0, not '0'"),
        ("--pooling", "max", "--pooling: invalid choice: 'max'"),
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


def test_a_missing_option_exits_2(capfd: pytest.CaptureFixture[str]) -> None:
    code, line = failure(["--tasks", "sts"], capfd)
    assert (code, "--model" in line) == (2, True)


def test_a_folder_that_is_no_model_exits_1_and_is_named(
    arguments: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = failure(replaced(arguments, "--model", data), capfd)
    assert code == 1
    assert "--model" in line
    assert str(data) in line


@pytest.mark.slow
def test_a_model_without_a_layer_is_not_scored(
    arguments: list[str], minilm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def lose_a_layer(weights: dict[str, np.ndarray]) -> None:
        for name in [name for name in weights if "layer.5." in name]:
            del weights[name]

    code, line = failure(replaced(arguments, "--model", changed_model(minilm, tmp_path / "cut", lose_a_layer)), capfd)
    assert code == 1
    assert "lacks 16 of its weights: encoder.layer.5.attention.output.LayerNorm.bias, " in line
    assert not (tmp_path / "runs/eval/results.json").exists()


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


@pytest.mark.parametrize("place", ["/proc/no-folder-can-be-here", f"{__file__}/below-a-file", "x" * 300])
def test_an_output_that_cannot_be_written_is_found_before_any_work(
    arguments: list[str], data: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output is checked before the model: `--model` names a folder without a model."""
    given = replaced(arguments, "--output", data / place)
    code, line = failure(replaced(given, "--model", data), capfd)
    assert code in (1, 2)
    assert place in line


def test_an_output_that_takes_no_file_is_found_before_any_work(
    arguments: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = failure(replaced(replaced(arguments, "--output", "/proc"), "--model", data), capfd)
    assert code == 1
    assert line.endswith("'/proc'")


@pytest.mark.parametrize(
    ("name", "content"), [("results.json", '{"scores": {}}'), ("results.json", "[" * 10**5), ("report.html", "<html>")]
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


@pytest.mark.exhaustive
def test_results_are_written_over_those_of_an_earlier_evaluation(arguments: list[str], tmp_path: Path) -> None:
    output = tmp_path / "runs" / "eval"
    assert main(arguments) == 0
    before = {path.name: path.stat().st_ino for path in output.iterdir()}
    assert main(arguments) == 0
    assert before.keys() == {"results.json", "report.html", "examples.npz"}
    assert all(path.stat().st_ino != before[path.name] for path in output.iterdir())


@pytest.mark.exhaustive
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_stdout_that_is_full_is_one_line_and_exit_1(arguments: list[str], option: list[str]) -> None:
    assert_full(run_module("eval", *arguments, "--quiet", *option, stdout=Path("/dev/full")))


@pytest.mark.slow
def test_a_stdout_that_is_full_fails_no_interpreter_at_its_end() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "eval", "--help"]
        assert_full(subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120))


def assert_full(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "python -m clearspan.eval: standard output cannot be written (No space left on device)"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


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
    done = subprocess.run(
        [sys.executable, "-m", "eval", *replaced(given, "--data", f"no\x1b[31m{ODD}")],
        cwd=ROOT, env={**os.environ, **ascii_only}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, b"\x1b" in done.stderr, done.stderr.count(b"\n")) == (2, False, 1)


def test_malformed_data_exits_1_before_the_model_is_loaded(
    arguments: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = data / "downstream/STS/STS12-en-test/STS.gs.MSRvid.txt"
    file.write_text(file.read_text().replace("\n", "\noops", 1))
    code, line = failure(replaced(arguments, "--model", data), capfd)
    assert code == 1
    assert f"{file}:2: " in line


def test_nothing_to_score_exits_1_and_says_what_was_looked_for(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    code, line = failure(replaced(arguments, "--data", empty), capfd)
    assert code == 1
    assert f"--data {empty}: holds no data for --tasks sts" in line
    assert not (tmp_path / "runs/eval/results.json").exists()


@pytest.mark.slow
def test_help_shows_an_example() -> None:
    command = [sys.executable, "-m", "eval", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "clearspan eval --model runs/demo/model --tasks sts,transfer,probing" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_the_command_starts_without_what_takes_long_to_import() -> None:
    slow = {"torch", "transformers", "matplotlib", "scipy.stats"}
    code = f"import sys, clearspan.eval.__main__; sys.exit(str({slow} & {{*sys.modules}} or ''))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.exhaustive
def test_a_plain_folder_is_scored_with_the_pooling_that_is_asked_for(
    arguments: list[str], minilm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "plain"
    model.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (model / name).symlink_to(minilm / name)
    scores = {}
    for option in ([], ["--pooling", "mean"], ["--pooling", "cls"]):
        assert main([*replaced(arguments, "--model", model), *option]) == 0
        scores[" ".join(option)] = json.loads((tmp_path / "runs/eval/results.json").read_text())["scores"]
    assert scores[""] == scores["--pooling mean"] != scores["--pooling cls"]
    capfd.readouterr()
    code, line = failure([*arguments, "--pooling", "cls"], capfd)
    assert (code, "which defines its own pooling" in line) == (1, True)


def test_embeddings_are_in_the_cache_of_all_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    given = ["--model", "bow", "--pairs", "pairs.csv", "--output", str(tmp_path)]
    assert make_parser().parse_args(given).cache == tmp_path / "cache" / "embeddings"
