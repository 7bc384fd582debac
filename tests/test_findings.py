"""The findings benchmark: verdicts on made-up numbers, the planner, the page, and a killed run that ends as another."""

import json
import random
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from benchmarks.findings import __main__ as command
from benchmarks.findings import claims, execution, page, plan, positives, preparation, results, verdicts
from benchmarks.findings.plan import Inputs, Plan
from benchmarks.findings.scales import SCALES
from benchmarks.findings.stages import Stage
from benchmarks.findings.stages import stages as stages_of
from benchmarks.findings.systems import systems
from benchmarks.findings.verdicts import NOISE, OPPOSITE, REPRODUCED, Run, Sampled
from clearspan.common.commands import UsageError
from clearspan.eval.scores import Examples, difference, resampled
from clearspan.pipelines.augment.steps import DEL, Augmentation, Augmenter
from clearspan.shards.ragged import Ragged
from clearspan.train.config.recipe import load
from clearspan.train.model.mlm_head import HEAD
from tests.end_to_end.test_whole_way import some_sts
from tests.processes import environment, run_commands

GROUP = (("A", "acc"), ("B", "acc"))


def runs(*figures: float, spread: float = 0.0) -> list[Run]:
    """A run for each figure; resampling moves all of them by the same noise, as the same examples do."""
    noise = np.random.default_rng(7).normal(0.0, spread, 1000) if spread else np.zeros(1000)
    return [{score: Sampled(figure, figure + noise) for score in GROUP} for figure in figures]


@pytest.mark.parametrize(
    ("low", "high", "margin", "word"),
    [
        (0.1, 2.0, None, REPRODUCED),
        (0.0, 2.0, None, NOISE),
        (-1.0, 2.0, None, NOISE),
        (-2.0, -0.1, None, OPPOSITE),
        (-0.9, 1.0, 1.0, REPRODUCED),
        (-0.9, 1.1, 1.0, NOISE),
        (1.1, 3.0, 1.0, OPPOSITE),
        (-3.0, -1.1, 1.0, OPPOSITE),
        (float("nan"), float("nan"), None, NOISE),
    ],
)
def test_a_verdict_is_where_the_interval_lies(low: float, high: float, margin: float | None, word: str) -> None:
    assert verdicts.judge(low, high, margin) == word


def test_noise_that_two_systems_share_does_not_count() -> None:
    verdict = verdicts.compare(runs(50, 51, 52, spread=5), runs(49.5, 50.5, 51.5, spread=5), GROUP)
    assert verdict is not None and verdict.word == REPRODUCED
    assert (verdict.difference, verdict.low, verdict.high) == pytest.approx((0.5, 0.5, 0.5))


def test_seeds_that_disagree_are_noise_even_if_every_example_agrees() -> None:
    verdict = verdicts.compare(runs(50, 51, 60), runs(51, 52, 50), GROUP)
    assert verdict is not None and verdict.difference == pytest.approx(8 / 3) and verdict.word == NOISE
    assert (verdict.low, verdict.high) == pytest.approx((-1.0, 10.0))


def test_a_system_without_seeds_is_compared_with_every_seed() -> None:
    verdict = verdicts.compare(runs(40, 41, 42), runs(45), GROUP)
    assert verdict is not None and (verdict.low, verdict.high, verdict.word) == (-5.0, -3.0, OPPOSITE)


def test_only_scores_that_all_runs_have_count_and_none_is_no_verdict() -> None:
    partial = [{GROUP[0]: Sampled(50.0, np.full(1000, 50.0))}]
    verdict = verdicts.compare(runs(60), partial, GROUP)
    assert verdict is not None and verdict.difference == 10
    assert verdicts.compare(runs(60), [{}], GROUP) is None and verdicts.compare(runs(60), [], GROUP) is None


def test_resampled_figures_are_those_of_the_paired_difference() -> None:
    generator = np.random.default_rng(3)
    gold = generator.integers(0, 6, 200)
    first, second = (Examples.of("spearman", gold + generator.normal(0, noise, 200), gold) for noise in (3, 1))
    changes = resampled(second) - resampled(first)
    expected = difference(first, second)
    assert np.quantile(changes, (0.025, 0.975)) == pytest.approx((expected.low, expected.high))


def a_plan(data: Path, seeds: int = 2, chosen: Sequence[str] = (), work: Path | None = None, **inputs: Any) -> Plan:
    given = Inputs(("docs.jsonl",), ("sentences.txt",), data, **inputs)
    return plan.make("tiny", given, work or data, seeds, chosen)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "downstream").mkdir()
    return tmp_path


def test_systems_without_their_data_are_left_out_with_the_reason(data: Path) -> None:
    made = a_plan(data, images=("images",))
    assert made.skipped["audiocse"] == "needs --audio" and "visualcse" in made.names
    assert made.skipped["clear-subs"] == "needs --synonyms" and made.skipped["simcse-sup"] == "needs --nli"
    assert set(made.names) | set(made.skipped) == set(systems(SCALES["tiny"]))
    with pytest.raises(UsageError, match="--systems simsce: no such system; choose from mlm, declutr"):
        a_plan(data, chosen=["simsce"])
    with pytest.raises(UsageError, match="none can be trained: needs --audio"):
        a_plan(data, chosen=["audiocse"])


def test_every_stage_comes_after_what_it_needs_and_those_that_take_all_cores_are_alone(data: Path) -> None:
    everything = {"nli": ("n",), "images": ("i",), "audio": ("a",), "vectors": data, "synonyms": data}
    waiting = stages_of(a_plan(data, **everything))
    assert len({stage.name for stage in waiting}) == len(waiting)
    done: set[str] = set()
    running: list[Stage] = []
    while waiting or running:
        while (stage := execution._next(waiting, done, running, jobs=2)) is not None:
            assert set(stage.needs) <= done
            waiting.remove(stage)
            running.append(stage)
            assert len(running) == 1 or (len(running) == 2 and not any(one.alone for one in running))
        done.add(running.pop(0).name)
    assert {"pretrained", "declutr, seed 2", "scores of combined, seed 2", "scores of glove, seed 1"} <= done


@pytest.mark.parametrize("scale", SCALES)
def test_every_systems_recipe_loads(scale: str, data: Path) -> None:
    made = plan.make(scale, Inputs((), (), data, ("n",), ("i",), ("a",), data, data), data, 1)
    for name, system in preparation.all_recipes(made).items():
        options = preparation.recipe(system, made.scale, data, data, 10, 1e-3)
        (data / "recipe.yaml").write_text(yaml.safe_dump(options))
        loaded = load(str(data / "recipe.yaml"), ["output=run"])
        assert loaded.objectives.keys() == system.objectives.keys(), name


def test_clear_contrasts_cls_and_means_and_its_control_deletes_one_token(data: Path) -> None:
    made = systems(SCALES["cpu"])
    options = {name: system.objectives["clear"] for name, system in made.items() if name.startswith("clear-")}
    for name in (name for name in options if not name.endswith("-mean")):
        assert {**options[name], "pool": "mean"} == options[f"{name}-mean"] and options[name]["pool"] == "first"
    augmentation = Augmentation.parse("del-word", del_word=options["clear-1-token"]["del_word"])
    augmenter = Augmenter(augmentation, Tokenizer(WordLevel({"a": 0, DEL: 1}, "a")))
    sentences = Ragged.of([np.zeros(length, np.int64) for length in (2, 30, 62)], "int32")
    views = augmenter(sentences, np.arange(3))
    assert views.lengths.tolist() == [2, 30, 62] and [(view == 1).sum() for view in views] == [1, 1, 1]


def test_positives_lack_a_tenth_of_the_words_or_are_a_run_of_the_others() -> None:
    sentence = "A sentence of which a tenth of all words will go , and in which the others stay as they were"
    words = sentence.split()
    for seed in range(20):
        draws = random.Random(seed)
        left, crop = positives.deleted(words, draws), positives.cropped(words, draws)
        assert len(left) == len(crop) == len(words) - 2
        assert any(crop == words[start : start + len(crop)] for start in range(3))
        remaining = iter(words)
        assert all(word in remaining for word in left)


def test_a_work_folder_belongs_to_one_set_of_options(data: Path) -> None:
    with pytest.raises(UsageError, match="holds something else"):
        plan.fix(a_plan(data))
    work = data / "work"
    plan.fix(a_plan(data, work=work))
    plan.fix(a_plan(data, work=work, seeds=3))
    with pytest.raises(UsageError, match="its run has another --images"):
        plan.fix(a_plan(data, work=work, images=("i",)))


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_what_is_no_file_of_the_benchmark_is_one_line(content: str, data: Path) -> None:
    (data / "plan.json").write_text(content)
    with pytest.raises(UsageError, match=r"is not a file of this benchmark|has another --"):
        plan.fix(a_plan(data))
    given = command.parser().parse_args(["--write-docs", "--output", str(data / "plan.json")])
    with pytest.raises(UsageError, match="is not a result of this benchmark"):
        command.work(given)


def test_glue_is_scored_where_one_of_its_two_sets_is(data: Path) -> None:
    made = plan.make("gpu", Inputs((), (), data), data, 1, ("clear-del-word",))
    for folder, stages in (("SST-2", []), ("RTE", ["GLUE of clear-del-word, seed 1"])):
        (data / "glue" / folder).mkdir(parents=True)
        assert [stage.name for stage in stages_of(made) if stage.name.startswith("GLUE")] == stages


def test_what_is_done_is_not_done_again_and_a_failure_takes_only_what_needs_it(data: Path) -> None:
    made = a_plan(data)
    files = {name: data / name for name in "abcd"}
    files["a"].touch()
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).touch()"
    works = {"a": "raise SystemExit(5)", "b": "raise SystemExit('no shards')", "c": program, "d": program}
    needs = {"b": ("a",), "c": ("b",), "d": ("a",)}
    stages = [
        Stage(name, ("-c", works[name], str(path)), path.is_file, needs.get(name, ())) for name, path in files.items()
    ]
    assert sorted(execution.run(made, stages, execution.Processes())) == ["b", "c"]
    assert files["d"].is_file() and not files["c"].exists()
    assert (data / "logs" / "b.log").read_text() == "no shards\n"
    assert execution.run(made, [stages[0], stages[3]], execution.Processes()) == []
    assert [json.loads(line)["stage"] for line in (data / "journal.jsonl").read_text().splitlines()].count("d") == 1


def test_a_stage_that_starts_while_the_run_stops_is_told_to_end(data: Path) -> None:
    processes = execution.Processes()
    processes.stop()
    endless = Stage("endless", ("-c", "import signal; signal.pause()"), lambda: False)
    assert processes(a_plan(data), endless) != 0


def made_up(name: str, value: float, seeds: int) -> dict[str, Any]:
    figures = [value + seed for seed in range(seeds)]
    scores = {"STSBenchmark": {"spearman": figures}}
    averages = {"STS": figures, "transfer": [], "GLUE": [], "held-out retrieval": []}
    training = [{"steps": 5, "tokens": 999}] * seeds
    seeds_of = list(range(1, seeds + 1))
    return {
        "title": f"<{name}>",
        "paper": "CLEAR",
        "equal_tokens": True,
        "seeds": seeds_of,
        "training": training,
        "averages": averages,
        "scores": scores,
    }


def test_the_page_has_every_finding_and_the_plot_every_seed() -> None:
    compared = [results._claim(claim, {}) for claim in claims.CLAIMS]
    compared[0]["verdict"] = {"difference": -1.25, "low": -2.0, "high": -0.5, "word": OPPOSITE}
    known = {"one": made_up("one", 40.0, 3), "two": made_up("two", 60.0, 1)}
    result = {
        "commit": "abc",
        "date": "2026-01-01",
        "machine": {"cpu": "a CPU", "cores": 2},
        "versions": {"torch": "2"},
        "hours": 1.5,
        "scale": {"layers": 4, "hidden": 256, "pretraining_tokens": 1, "tokens": 1000, "precision": "fp32"},
        "data": {"documents": {"examples": 3, "tokens": 9}, "held-out documents": {"examples": 2}},
        "systems": known,
        "left_out": {"combined": "needs --audio"},
        "claims": compared,
        "controls": [
            {**results._claim(claims.CONTROLS[0], {}), "verdict": {**compared[0]["verdict"], "difference": -7}}
        ],
        "not_measured": claims.NOT_MEASURED,
    }
    text = page.page(result)
    since, head = "The figures are those of commit abc:", "keeps its masked-LM head"
    assert since not in text and head in text
    earlier = page.page({**result, "claims": compared[1:]})
    assert since in earlier and head not in earlier
    assert all(claim.text in text for claim in claims.CLAIMS) and all(name in text for name in claims.NOT_MEASURED)
    assert "| <one> | 41.0 ± 1.0 | 41.0 ± 1.0 |" in text and "| <two> | **60.0** | **60.0** |" in text
    of_means = next(claim for claim in compared if claim["text"].endswith("contrasting means"))
    of_means["verdict"] = compared[0]["verdict"]
    assert "At this scale STS rewards common words (tf-idf , " in page.page(result) and "rewards common" not in text
    assert "| -7.0 | -2.0 to -0.5 | *worse* |" in text and claims.CONTROLS[0].text not in earlier
    assert "| -1.2 | -2.0 to -0.5 | *opposite* |" in text and "999 to 999" in text and "1 opposite" in text
    drawn = ElementTree.fromstring(page.plot(known))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 4


def test_every_claim_compares_systems_that_there_are() -> None:
    known = {*systems(SCALES["cpu"]), "glove", "pretrained", "untrained"}
    assert all({claim.better, claim.worse} <= known and claim.group in claims.GROUPS for claim in claims.COMPARED)
    assert {claim.paper for claim in claims.CLAIMS} == {"DeCLUTR", "CLEAR", "SimCSE", "NonLing-CSE"}
    fine_tuned = [{claim.better, claim.worse} for claim in claims.CLAIMS if claim.group == "GLUE"]
    assert all(set(scale.glue) in fine_tuned for scale in SCALES.values() if scale.glue)


def start(made: Plan, stage: Stage) -> int:
    """A stage's command in a process that is forked from one that has imported what takes long."""
    assert not callable(stage.work)
    done = run_commands(list(stage.work), [environment()])
    assert done.returncode == 0, done.stderr
    return 0


def start_and_kill(made: Plan, stage: Stage) -> int:
    """The same, but a training is killed at its last save, after it has saved once."""
    assert not callable(stage.work) and stage.work[0] == "train/run.py"
    steps = yaml.safe_load(preparation.recipe_file(made, "declutr").read_text())["training"]["max_steps"]
    killed = ["tests/train/killed_at.py", *stage.work[1:]]
    done = run_commands(killed, [environment(KILLED_AT=str(steps))])
    assert done.returncode != 0
    return 1


@pytest.mark.exhaustive
def test_a_killed_run_ends_with_the_table_of_an_uninterrupted_one(shared_data: Path, tmp_path: Path) -> None:
    texts = {"docs.jsonl": "text/wikitext2_articles.jsonl", "sentences.txt": "sentences/wiki1m_head_11914.txt"}
    for (name, source), number in zip(texts.items(), (60, 300), strict=True):
        lines = (shared_data / source).read_bytes().splitlines(keepends=True)
        (tmp_path / name).write_bytes(b"".join(lines[:number]))
    data = some_sts(shared_data, tmp_path / "data", "STS/STSBenchmark", "SICK", "TREC")
    inputs = Inputs((str(tmp_path / "docs.jsonl"),), (str(tmp_path / "sentences.txt"),), data)
    whole, killed = (plan.make("tiny", inputs, tmp_path / name, 1, ("mlm", "declutr")) for name in ("a", "b"))
    plan.fix(whole)
    assert execution.run(whole, stages_of(whole), start) == []
    assert (whole.model(plan.PRETRAINED, 1) / HEAD).is_file()
    shutil.copytree(whole.work, killed.work, symlinks=True)
    shutil.rmtree(killed.run("declutr", 1))
    shutil.rmtree(killed.scores("declutr", 1))

    assert execution.run(killed, stages_of(killed), start_and_kill) == [
        "declutr, seed 1",
        "scores of declutr, seed 1",
    ]
    assert not killed.exported("declutr", 1).exists()
    assert execution.run(killed, stages_of(killed), start) == []

    first, second = (results.write(made, made.work / "findings.json") for made in (whole, killed))
    assert first["systems"] == second["systems"] and first["claims"] == second["claims"]
    assert page.score_table(first["systems"]) == page.score_table(second["systems"])
    trained = [first["systems"][name]["training"][0] for name in ("mlm", "declutr")]
    assert all(abs(run["tokens"] / whole.scale.tokens - 1) < 0.2 for run in trained), trained
    assert first["claims"][2]["verdict"]["word"] in (REPRODUCED, NOISE, OPPOSITE)
    assert sys.executable not in json.dumps(first) and str(tmp_path) not in json.dumps(first)
