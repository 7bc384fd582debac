"""`python -m clearspan.eval.compare`: differences of two models that exceed noise, and what is not compared and why."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.eval import scores
from clearspan.eval.compare import main
from clearspan.eval.results import Results, examples_bytes
from clearspan.eval.scores import Difference, Examples, TaskScores, figure, holm
from tests.conftest import exit_code

GENERATOR = np.random.default_rng(3)
GOLD = GENERATOR.integers(0, 2, 1000)
WEAK = np.where(GENERATOR.random(1000) < 0.70, GOLD, 1 - GOLD)
STRONG = np.where(GENERATOR.random(1000) < 0.25, GOLD, WEAK)  # right wherever WEAK is, and on a quarter of the rest
OTHER = np.concatenate([1 - WEAK[:1], WEAK[1:]])  # as good as WEAK but for one example
ENVIRONMENT = {"versions": {}, "protocol": "full", "seed": 1111, "precision": "fp32", "pooling": None}


def write(
    folder: Path, tasks: dict[str, dict[str, Examples]], model: str = "", data: str = "", **environment: object
) -> Path:
    """Write an output folder of `python -m clearspan.eval`; `data` goes into the checksums of its data files."""
    folder.mkdir(parents=True)
    results = Results(model or folder.name, environment={**ENVIRONMENT, **environment})
    scored = {}
    for task, examples in tasks.items():
        figures = {metric: figure(one) for metric, one in examples.items()}
        scored[task] = TaskScores(figures, next(iter(figures), ""), (), {}, examples=examples)
        results.scores[task] = figures or {"pearson": 1.0}
        results.data[task] = {f"/anywhere/{folder.name}/{task}.txt": f"checksum{data}"}
    content = examples_bytes(scored)
    results.examples = hashlib.sha256(content).hexdigest()
    (folder / "results.json").write_text(results.to_json())
    (folder / "examples.npz").write_bytes(content)
    return folder


def accuracy(predicted: np.ndarray) -> dict[str, Examples]:
    return {"acc": Examples.of("accuracy", predicted, GOLD)}


def compared(capsys: pytest.CaptureFixture[str], a: Path, b: Path) -> dict:
    assert main([str(a), str(b), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    comparison: dict = json.loads(out)
    return comparison


def complaint(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    assert exit_code(main, *map(str, arguments)) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.mark.guarantee("compare-noise")
def test_a_sure_difference_exceeds_noise_and_a_slight_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", {"MR": accuracy(WEAK), "CR": accuracy(WEAK)})
    b = write(tmp_path / "b", {"MR": accuracy(STRONG), "CR": accuracy(OTHER)})
    comparison = compared(capsys, a, b)
    sure, slight = comparison["rows"]
    assert (sure["task"], sure["metric"], sure["exceeds_noise"]) == ("MR", "acc", True)
    assert sure["a"] == pytest.approx(100 * np.mean(WEAK == GOLD))
    assert sure["difference"] == pytest.approx(100 * (np.mean(STRONG == GOLD) - np.mean(WEAK == GOLD)))
    assert 0 < sure["low"] < sure["difference"] < sure["high"]
    assert slight["exceeds_noise"] is False and slight["low"] <= 0 <= slight["high"]
    assert [sure["p_holm"], slight["p_holm"]] == holm([sure["p"], slight["p"]]), "over the figures of all tasks"
    assert sure["p_holm"] == 2 * sure["p"]
    assert (comparison["a"], comparison["b"], comparison["not_compared"], comparison["notes"]) == ("a", "b", {}, [])


@pytest.mark.guarantee("compare-noise")
def test_holm_is_the_step_down_correction() -> None:
    """By hand: .01 x 4, .02 x 3, .03 x 2, each at least the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    undefined = holm([float("nan"), 0.01])
    assert np.isnan(undefined[0]) and undefined[1] == pytest.approx(0.02)
    assert holm([]) == []


@pytest.mark.guarantee("compare-noise")
def test_a_difference_at_the_level_itself_is_noise_and_so_is_one_that_was_not_corrected() -> None:
    assert Difference(1.0, 0.1, 2.0, 0.01, p_holm=0.0499).exceeds_noise
    assert not Difference(1.0, 0.1, 2.0, 0.01, p_holm=0.05).exceeds_noise
    assert not Difference(1.0, 0.1, 2.0, 0.01).exceeds_noise


@pytest.mark.guarantee("compare-noise")
def test_a_difference_that_is_found_alone_is_noise_among_several() -> None:
    """Ten examples more are right, and two less: p is about 0.02, and Holm's correction multiplies it by three."""
    wrong, right = np.flatnonzero(WEAK != GOLD), np.flatnonzero(WEAK == GOLD)
    better = WEAK.copy()
    better[[*wrong[:10], *right[:2]]] ^= 1
    pairs = [(accuracy(WEAK)["acc"], accuracy(each)["acc"]) for each in (better, OTHER, WEAK)]
    (alone,), (among, *_) = scores.tested(pairs[:1]), scores.tested(pairs)
    assert alone.p == among.p and 0.05 / 3 < among.p < 0.05
    assert alone.exceeds_noise and not among.exceeds_noise
    assert among.p_holm == pytest.approx(3 * among.p)
    equal = scores.tested([pairs[0]] * 4)
    assert [each.p_holm for each in equal] == pytest.approx([4 * alone.p] * 4), "equal figures are counted each"
    assert not any(each.exceeds_noise for each in equal)


@pytest.mark.guarantee("compare-noise")
def test_figures_that_are_equal_or_of_few_examples_are_counted_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = np.ones(25)
    before, after = np.array([0.0] * 7 + [1.0] * 18), gold
    tasks = [
        {"MR": Examples.of("accuracy", each, gold)}
        | {f"same{number}": Examples.of("accuracy", gold, gold) for number in range(60)}
        | {f"few{number}": Examples.of("accuracy", each[:5], gold[:5]) for number in range(3)}
        for each in (before, after)
    ]
    a, b = (
        write(tmp_path / name, {task: {"acc": one} for task, one in each.items()})
        for name, each in zip("ab", tasks, strict=True)
    )
    rows = compared(capsys, a, b)["rows"]
    assert [row["p_holm"] for row in rows] == holm([row["p"] for row in rows]) and len(rows) == 64


@pytest.mark.guarantee("compare-noise")
def test_examples_in_groups_are_counted_together_and_once() -> None:
    gold = np.ones(38)
    for number, is_enough in ((19, False), (20, True), (38, True)):
        groups = np.arange(number) % 5
        before, after = (Examples.of("accuracy", each[:number], gold[:number], groups) for each in (0 * gold, gold))
        (change,) = scores.tested([(before, after)])
        assert change.p_holm < 0.05 and change.exceeds_noise == is_enough == (not change.has_few)


@pytest.mark.guarantee("compare-noise")
@pytest.mark.parametrize(("number", "cell"), [(19, "too few"), (20, "yes")])
def test_few_examples_decide_nothing(
    number: int, cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = np.ones(number)
    a, b = (
        write(tmp_path / name, {"MR": {"acc": Examples.of("accuracy", predicted, gold)}})
        for name, predicted in (("a", 0 * gold), ("b", gold))
    )
    (row,) = compared(capsys, a, b)["rows"]
    assert row["p_holm"] < 0.05 and row["exceeds_noise"] == (cell == "yes") and row["num_examples"] == number
    assert main([str(a), str(b)]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"\b{cell}$", out, re.MULTILINE) and ("fewer than 20 examples" in out) == (cell == "too few")


@pytest.mark.slow
@pytest.mark.guarantee("compare-noise")
def test_among_many_figures_a_sure_difference_still_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With 1,000 samples p is at least 0.002, which Holm's correction over 60 figures raises above 0.1."""
    names = [f"task{number}" for number in range(60)]
    a = write(tmp_path / "a", {name: accuracy(WEAK) for name in names})
    b = write(tmp_path / "b", {name: accuracy(STRONG if name == "task7" else OTHER) for name in names})
    comparison = compared(capsys, a, b)
    assert comparison["resamples"] == 4 * 2 * 60 / 0.05
    assert [row["task"] for row in comparison["rows"] if row["exceeds_noise"]] == ["task7"]


def test_the_table_says_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a", {"MR": accuracy(WEAK), "CR": accuracy(WEAK)}, "first\nmodel")
    b = write(tmp_path / "b", {"MR": accuracy(STRONG), "CR": accuracy(OTHER)}, seed=7, protocol="fast")
    assert main([str(a), str(b)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["A: first\\nmodel", "B: b"]
    assert " ".join(lines[2].split()) == "task metric A B B - A 95 % interval p p (Holm) exceeds noise"
    assert lines[3].startswith("MR") and lines[3].endswith("yes")
    assert lines[4].startswith("CR") and not lines[4].endswith("yes")
    assert lines[5].startswith("1 of 2 differences exceed noise: p corrected by Holm over all 2 figures, below 0.05;")
    assert lines[6:] == ["note: protocol: full in A, fast in B", "note: seed: 1111 in A, 7 in B"]


@pytest.mark.guarantee("prompts-recorded")
def test_other_prompts_are_told_also_beside_results_from_before_there_were_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = {"query": "query: ", "document": "passage: ", "other": ""}
    a = write(tmp_path / "a", {"MR": accuracy(WEAK)})
    b = write(tmp_path / "b", {"MR": accuracy(STRONG)}, prompts=prompts)
    used = "'query: ' before queries, 'passage: ' before documents, no prompt before other texts"
    assert compared(capsys, a, b)["notes"] == [f"prompts: no prompt before every text in A; {used} in B"]
    assert compared(capsys, b, b)["notes"] == []


def test_another_pooling_is_told_and_its_name_in_version_0_1_is_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_0_1, today, mean = (
        write(tmp_path / str(pooling), {"MR": accuracy(WEAK)}, pooling=pooling)
        for pooling in ("cls-before-head", "cls", None)
    )
    assert compared(capsys, of_0_1, today)["notes"] == []
    assert compared(capsys, of_0_1, mean)["notes"] == ["pooling: cls in A, None in B"]


def test_tasks_of_one_alone_and_other_data_are_named_and_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", {"MR": accuracy(WEAK), "SST2": accuracy(WEAK), "STS12": {}})
    b = write(tmp_path / "b", {"MR": accuracy(STRONG), "TREC": accuracy(WEAK), "STS12": {}})
    comparison = compared(capsys, a, b)
    assert [row["task"] for row in comparison["rows"]] == ["MR"]
    assert comparison["not_compared"] == {
        "SST2": "only in A", "STS12": "no figure has examples in both", "TREC": "only in B",
    }  # fmt: skip
    changed = write(tmp_path / "c", {"MR": accuracy(STRONG)}, data="2")
    err = complaint(capsys, 1, a, changed)
    assert "MR: its data differs: MR.txt; evaluate both on the same files" in err


def test_figures_of_other_examples_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = {"acc": Examples.of("accuracy", WEAK[:-1], GOLD[:-1])}
    a = write(tmp_path / "a", {"MR": accuracy(WEAK), "CR": accuracy(WEAK)})
    b = write(tmp_path / "b", {"MR": shorter, "CR": accuracy(STRONG)})
    comparison = compared(capsys, a, b)
    assert comparison["not_compared"] == {"MR": "the figures are not of the same examples by the same metric"}
    assert [row["task"] for row in comparison["rows"]] == ["CR"]


def test_an_undefined_figure_is_shown_as_undefined_and_exceeds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = np.arange(50.0)
    a = write(tmp_path / "a", {"STS-B": {"spearman": Examples.of("spearman", np.ones(50), gold)}})
    b = write(tmp_path / "b", {"STS-B": {"spearman": Examples.of("spearman", gold, gold)}})
    (row,) = compared(capsys, a, b)["rows"]
    assert (row["a"], row["difference"], row["p"], row["p_holm"], row["exceeds_noise"]) == (None,) * 4 + (False,)
    assert main([str(a), str(b)]) == 0
    assert "undefined   100.00   undefined" in capsys.readouterr().out


def rehashed(folder: Path, other: Path) -> None:
    """Write the results.json of another folder to a folder, with the hash of the folder's examples.npz."""
    record = load_checksummed((other / "results.json").read_bytes())
    record["examples"] = hashlib.sha256((folder / "examples.npz").read_bytes()).hexdigest()
    (folder / "results.json").write_bytes(dump_checksummed(record))


def test_bad_input_is_held_to_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a", {"MR": accuracy(WEAK)})
    assert "the following arguments are required: B" in complaint(capsys, 2, a)
    assert "no such file: give an --output folder of `clearspan eval`" in complaint(capsys, 1, a, tmp_path / "nowhere")
    b = write(tmp_path / "b", {"CR": accuracy(WEAK)})
    assert "share no figure that can be compared (MR: only in A; CR: only in B)" in complaint(capsys, 1, a, b)
    other = write(tmp_path / "other", {"MR": accuracy(STRONG)})
    rehashed(other, a)
    assert "different runs: evaluate B again" in complaint(capsys, 1, a, other)
    (b / "examples.npz").write_bytes(b"no archive")
    assert "examples.npz: missing, damaged, or not of the same run" in complaint(capsys, 1, a, b)
    rehashed(b, b)
    assert "examples.npz: not an examples.npz of `clearspan eval`" in complaint(capsys, 1, a, b)
    (b / "examples.npz").unlink()
    assert "examples.npz: no such file" in complaint(capsys, 1, a, b)
    (b / "results.json").write_text("[1]")
    assert "not a results.json of `clearspan eval`" in complaint(capsys, 1, a, b)
