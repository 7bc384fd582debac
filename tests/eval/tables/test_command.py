"""`python -m clearspan.eval.tables`: published rows and one's own, in three forms; what is missing is named."""

import json
from pathlib import Path

import pytest

from clearspan.common.checksummed import dump_checksummed
from clearspan.eval.results import Results
from clearspan.eval.tables.__main__ import main
from clearspan.eval.tables.averages import averages
from tests.conftest import exit_code
from tests.eval.tables.test_averages import SENTEVAL

ENVIRONMENT = {"versions": {}, "protocol": "full", "embedding_dim": 384}


def write(folder: Path, model: str = "mine", scores: dict | None = None, **environment: object) -> Path:
    """An evaluation's folder as `python -m clearspan.eval` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(model, scores=SENTEVAL if scores is None else scores, environment={**ENVIRONMENT, **environment})
    (folder / "results.json").write_text(results.to_json())
    return folder


def output(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def complaint(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    assert exit_code(main, *map(str, arguments)) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_yours_stands_under_the_published_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "declutr-2", write(tmp_path)).splitlines()
    rows = {line.split("  ")[0]: line.split() for line in lines}
    assert lines[0] == "DeCLUTR (Giorgi et al., ACL 2021), Table 2: SentEval's downstream tasks, test set"
    assert rows["GloVe"][-2:] == ["65.47", "-13.63"]
    average = (668 + 75 + 78 + 72 + 50 + 300) / 17
    assert rows["mine"][1:9] == ["80.00", "81.00", "82.00", "83.00", "84.00", "85.00", "86.00", "70.00/80.00"]
    assert rows["mine"][-2:] == [f"{average:.2f}", f"{average - 79.10:.2f}"]
    assert list(rows).index("DeCLUTR-base") < list(rows).index("[Yours]") < list(rows).index("mine")
    assert "acc/f1: MRPC; spearman: SICK-R (SICKRelatedness-finetune), STS-B (STSBenchmark-finetune)" in lines[-1]


def test_a_missing_cell_is_empty_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {task: metrics for task, metrics in SENTEVAL.items() if task not in ("CR", "STS13")}
    out = json.loads(output(capsys, "declutr-2", write(tmp_path, scores=scores), "--json"))
    cells = dict(zip(out["header"][1:], out["lines"][-1]["cells"], strict=True))
    assert [head for head, cell in cells.items() if not cell] == ["CR", "STS13", "Avg.", "∆"]
    assert out["notes"][-2:] == [
        "mine: no CR acc, STS13 spearman_mean",
        "mine: no Avg. (downstream_declutr) without CR, STS13",
    ]


@pytest.mark.guarantee("coco-captions")
def test_declutrs_average_has_captions_where_they_were_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without them alone, the average is over the others, and both the table and the results say so."""
    without = {task: metrics for task, metrics in SENTEVAL.items() if task != "ImageCaptionRetrieval"}
    noted = "without COCO's captions, the published ones with them: add `tasks` captions"
    for scores, average, notes in ((SENTEVAL, 1243 / 17, 0), (without, 1193 / 16, 1)):
        out = json.loads(output(capsys, "declutr-2", write(tmp_path, scores=scores), "--json"))
        cells = dict(zip(out["header"][1:], out["lines"][-1]["cells"], strict=True))
        assert cells["Avg."] == f"{average:.2f}" and [noted in note for note in out["notes"]].count(True) == notes
    assert averages(without)["downstream_declutr"]["missing"] == ["ImageCaptionRetrieval"]


def test_undefined_scores_and_the_fast_protocol_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {**SENTEVAL, "STS12": {"spearman_all": float("nan")}}
    out = output(capsys, "nonling-1", write(tmp_path, scores=scores, protocol="fast"))
    (row,) = [line.split() for line in out.splitlines() if line.startswith("mine ")]
    assert row[1] == row[-1] == "undefined"
    assert "note: mine: scored by the fast protocol, the paper's by the full one" in out


def test_dimensions_come_from_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "declutr-1", write(tmp_path)).splitlines()[-1].split() == ["mine", "384"]


def test_results_are_files_folders_or_folders_of_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "one", "first")
    write(tmp_path / "both" / "second", "second")
    write(tmp_path / "both" / "third", "first")
    out = json.loads(output(capsys, "nonling-h1", one / "results.json", tmp_path / "both", "--json"))
    names = [line["name"] for line in out["lines"] if line["group"] == "Yours"]
    assert names == [f"first ({one})", "second", f"first ({tmp_path / 'both' / 'third'})"]


def test_markdown_is_a_table_whose_cells_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = output(
        capsys, "nonling-5", write(tmp_path, "a|b_c", {"stsb/de": {"spearman_dev": 71.236}}), "--format", "markdown"
    )
    lines = [line.replace(" ", "") for line in out.splitlines() if line.startswith("|")]
    assert lines[0] == "|Model|German|Chinese|French|Russian|"
    assert lines[3] == "|VisualCSE|69.87|70.05|72.52|77.48|"
    assert lines[-1] == "|a\\|b\\_c|71.24||||"


def test_latex_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "nonling-3", write(tmp_path, "50%_{new}&[x]\\"), "--format", "latex")
    assert r"SimCSE-RoBERTa-base & 76.36 & 0.18 & \ensuremath{<}0.0001 \\" in " ".join(out.split())
    assert r"50\%\_\{new\}\&[x]\textbackslash{}" in out and out.startswith("% NonLing-CSE")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not a results.json of `clearspan eval`: not JSON: "),
        (b"[]", "not a results.json"),
        (b"{}", "its content does not match its sha256: damaged or edited"),
        (dump_checksummed({}), "model: Field required"),
        (dump_checksummed({"model": "x", "environment": {}, "scores": []}), "scores: Input should be an object"),
        (
            dump_checksummed({"model": "x", "environment": {}, "scores": {"MR": {"acc": "80"}}}),
            "scores: MR: acc: Input should be a valid number",
        ),
    ],
)
def test_what_is_no_results_json_is_said_to_be_none(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_bytes(content)
    err = complaint(capsys, 1, "declutr-2", tmp_path)
    assert message in err and str(tmp_path / "results.json") in err


def test_bad_arguments_are_held_to_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no table 'declutr-9'; choose from clear-1, " in complaint(capsys, 2, "declutr-9")
    assert "; did you mean 'nonling-e1'?" in complaint(capsys, 2, "nonlinge1")
    assert "name a table" in complaint(capsys, 2)
    assert "results.json: no such file: give an --output folder" in complaint(capsys, 1, "clear-1", tmp_path)
    assert "no such file" in complaint(capsys, 1, "clear-1", tmp_path / "nowhere")
    assert "invalid choice: 'word'" in complaint(capsys, 2, "clear-1", "--format", "word")
