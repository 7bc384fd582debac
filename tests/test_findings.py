"""The findings benchmark: verdicts on made-up numbers, its recipes, the stored page, and a whole small study."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.findings import __main__ as command
from benchmarks.findings import claims, collected, datasets, page, study, systems, verdicts
from benchmarks.findings.scales import LARGE, SCALES, SMALL, Scale
from benchmarks.findings.verdicts import NOISE, OPPOSITE, REPRODUCED, Run, Sampled
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.eval.scores import Examples, difference, resampled
from clearspan.train.recipe import load_recipe
from clearspan.train.sweeps.grid import Grid, parse_axis
from tests.conftest import ROOT
from tests.end_to_end.stages import some_sts
from tests.processes import run_module

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


def test_noise_that_systems_share_does_not_count_but_seeds_that_disagree_do() -> None:
    shared = verdicts.compare(runs(50, 51, 52, spread=5), runs(49.5, 50.5, 51.5, spread=5), GROUP)
    assert shared is not None and shared.word == REPRODUCED
    assert (shared.difference, shared.low, shared.high) == pytest.approx((0.5, 0.5, 0.5))
    apart = verdicts.compare(runs(50, 51, 60), runs(51, 52, 50), GROUP)
    assert apart is not None and apart.word == NOISE and (apart.low, apart.high) == pytest.approx((-1.0, 10.0))


def test_a_system_without_seeds_is_compared_with_every_seed_on_the_scores_that_both_have() -> None:
    verdict = verdicts.compare(runs(40, 41, 42), runs(45), GROUP)
    assert verdict is not None and (verdict.low, verdict.high, verdict.word) == (-5.0, -3.0, OPPOSITE)
    partial = verdicts.compare(runs(60), [{GROUP[0]: Sampled(50.0, np.full(1000, 50.0))}], GROUP)
    assert partial is not None and partial.difference == 10
    assert verdicts.compare(runs(60), [{}], GROUP) is None and verdicts.compare(runs(60), [], GROUP) is None


def test_resampled_figures_are_those_of_the_paired_difference() -> None:
    generator = np.random.default_rng(3)
    gold = generator.integers(0, 6, 200)
    first, second = (Examples.of("spearman", gold + generator.normal(0, noise, 200), gold) for noise in (3, 1))
    expected = difference(first, second)
    assert np.quantile(resampled(second) - resampled(first), (0.025, 0.975)) == pytest.approx(
        (expected.low, expected.high)
    )


@pytest.mark.parametrize("scale", SCALES)
def test_every_systems_recipe_loads_and_every_claim_compares_two_of_them(tmp_path: Path, scale: str) -> None:
    known = systems.systems(SCALES[scale], tmp_path)
    for name, system in known.items():
        options = systems.recipe(system, {"path": "base"}, 1e-3, tmp_path)
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(options))
        loaded = load_recipe(str(tmp_path / "recipe.yaml"), ["output=run", "training.max_steps=1"])
        assert loaded.objectives.keys() == system.objectives.keys(), name
    for claim in (*claims.CLAIMS, *claims.CONTROLS):
        assert {claim.better, claim.worse} <= known.keys() | systems.TITLES.keys() and claim.group in claims.GROUPS
    assert known.keys() >= set(SCALES[scale].systems)


def test_positives_lack_a_tenth_of_the_words_or_are_a_run_of_the_others() -> None:
    sentence = "A sentence of which a tenth of all words will go , and in which the others stay as they were"
    words = sentence.split()
    for seed in range(20):
        draws = random.Random(seed)
        left, crop = datasets.deleted(words, draws), datasets.cropped(words, draws)
        assert len(left) == len(crop) == len(words) - 2
        assert any(crop == words[start : start + len(crop)] for start in range(3))
        remaining = iter(words)
        assert all(word in remaining for word in left)


def stored() -> page.Results:
    """The results of the repository, by scale."""
    files = {scale: ROOT / path for scale, path in command.RESULTS.items()}
    return {scale: json.loads(path.read_text()) for scale, path in files.items() if path.is_file()}


def test_the_stored_results_give_the_page_and_its_plots(tmp_path: Path) -> None:
    page.write(stored(), tmp_path)
    for file in tmp_path.iterdir():
        assert file.read_text() == (ROOT / "docs" / file.name).read_text()
    assert len(list(tmp_path.iterdir())) == 1 + len(stored())


def test_the_page_shows_both_scales_side_by_side_or_says_which_one_was_not_run(tmp_path: Path) -> None:
    """The large result is made up: of the small one, some systems, and verdicts on transfer alone."""
    small = stored()[SMALL]
    some = ("pretrained", "mlm-sentences", "clear-del-word", "tfidf")
    verdict = {"better": "clear-del-word", "worse": "pretrained", "group": "transfer", "word": REPRODUCED}
    on_transfer = {**verdict, "worse": "mlm-sentences", "difference": 1.25, "low": 0.5, "high": 2.0}
    made_up = {
        **small,
        "scale": {**small["scale"], "layers": 6},
        "machine": {**small["machine"], "device": "a GPU"},
        "transfer": ["TREC", "MRPC"],
        "systems": {name: small["systems"][name] for name in some},
        "verdicts": [{**verdict, "difference": 2.25, "low": 1.5, "high": 3.0}, on_transfer],
    }
    alone, both = page.page({SMALL: small}), page.page({SMALL: small, LARGE: made_up})
    assert "120,000,000 tokens and trained on 5,000,000 more: not run yet." in alone
    assert "large |" not in alone and "not run yet" not in both
    assert "- **large**: an encoder of 6 layers of 256" in both and "hours on a GPU" in both
    assert "protocol `fast`; large: TREC, MRPC;" in both and "(findings-large.svg)" in both
    lines = both.splitlines()
    assert "| CLEAR, [CLS]: MLM + del-word | -4.3 |  | -4.3 | **+2.2 [+1.5, +3.0]** |" in lines
    number = next(i for i, line in enumerate(lines) if "MLM + del-word > MLM only, [CLS] | STS |" in line)
    assert lines[number].endswith("| opposite: -5.2 [-6.0, -4.4] |  |")
    assert lines[number + 1] == "|  | transfer |  | reproduced: +1.2 [+0.5, +2.0] |"
    page.write({SMALL: small, LARGE: made_up}, tmp_path)
    assert (tmp_path / "findings-large.svg").is_file()


def test_every_pair_is_judged_on_its_own_scores_on_sts_and_on_transfer_once() -> None:
    keys = [claim.key for claim in collected.pairs(["simcse", "mlm"])]
    assert len(keys) == len(set(keys))
    for group in claims.SEPARATE:
        assert {("simcse", "pretrained", group), ("mlm", "pretrained", group)} <= set(keys)
        assert ("clear-del-word", "mlm-sentences", group) in keys
    assert ("declutr", "glove", "STS + transfer") in keys


class Runs:
    """Stands for `run_module` in a study: notes the commands, and leaves the scores of the runs of a sweep.

    Attributes:
        stops: the number of the run at which the time is up.
        fails: the beginning of the name of the runs that fail.
    """

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.scored: list[str] = []
        self.collected: list[Any] = []
        self.stops, self.fails = 0, "none"

    def __call__(self, module: str, line: list[str], *_: object, **__: object) -> None:
        self.commands.append([module, *line])
        if module == "clearspan.train":
            (model := Path(line[2].removeprefix("output=")) / "model").mkdir(parents=True)
            (model / "model.safetensors").touch()
        if module == "clearspan.train.sweep":
            for run in Grid([parse_axis(line[1]), parse_axis(line[3])]).runs():
                results = Path(line[5]) / run.name / "eval" / "tasks" / "results.json"
                if results.exists() or run.name.startswith(self.fails):
                    continue
                if len(self.scored) == self.stops:
                    raise study.TimeUpError
                results.parent.mkdir(parents=True)
                results.touch()
                self.scored.append(run.name)
            if self.fails.removeprefix("recipe=") in line[1]:
                raise CommandError(f"{self.fails} failed", 1)


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A work folder whose data is prepared, as far as a plan looks at it."""
    work = tmp_path / "work"
    for name in ("documents", "sentences"):
        (work / "shards" / name).mkdir(parents=True)
        (work / "shards" / name / "manifest.json").touch()
    for name in ("STS", "TREC"):
        (work / "inputs" / "downstream" / name).mkdir(parents=True)
    (work / datasets.PREPARED).write_text('{"data": "inputs"}')
    return work


@pytest.fixture
def faked(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A study without processes: nothing is trained or scored, and a result is what is collected."""
    made = Runs()
    monkeypatch.setattr(study, "run_module", made)
    monkeypatch.setattr(study, "export_untrained", lambda recipe: None)
    monkeypatch.setattr(study, "load_recipe", lambda *_: None)
    monkeypatch.setattr(study, "collect", lambda *given: made.collected.append(given) or {})

    def write_recipe(self: study.Study, name: str, *_: object) -> Path:
        self.patches[name] = 0
        return self.recipe_file(name)

    monkeypatch.setattr(study.Study, "write_recipe", write_recipe)
    return made


def go_on(faked: Runs, work: Path, stops: int) -> tuple[int, list[str]]:
    """Runs the command until so many runs are scored; returns its exit code and the runs that this call has scored."""
    words = ["--scale", LARGE, "--work", str(work), "--systems", "declutr,simcse", "--at-once", "4", "--minutes", "9"]
    before, faked.stops = len(faked.scored), stops
    code = command.study(command.parser().parse_args(words), work.with_name("result.json"))
    return code, [name.partition(".yaml")[0].removeprefix("recipe=") + name[-1] for name in faked.scored[before:]]


def test_a_study_stops_in_time_keeps_what_is_finished_and_goes_on(
    faked: Runs, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match="no seed is finished for all systems yet"):
        go_on(faked, prepared, 1)
    assert "stopped after 9 minutes: 1 of 6 runs are finished; the same command continues" in capsys.readouterr().out
    assert not faked.collected
    assert go_on(faked, prepared, 5) == (1, ["simcse1", "declutr2", "simcse2", "declutr3"]), "seed by seed"
    _, _, baselines, trained = faked.collected[-1]
    assert [len(each.runs) for each in trained.values()] == [2, 2], "the seeds that both have"
    assert list(baselines) == ["tfidf", "bm25", "untrained", "pretrained"]
    assert go_on(faked, prepared, 9) == (0, ["simcse3"])
    assert [len(each.runs) for each in faked.collected[-1][3].values()] == [3, 3]
    sweeps = [words for words in faked.commands if words[0] == "clearspan.train.sweep"]
    assert sum(words[0] == "clearspan.train" for words in faked.commands) == 1
    assert all(words[words.index("--at-once") + 1] == "4" for words in sweeps)
    assert all("transfer,sts,heldout" in words for words in sweeps), "every system is scored on transfer"
    assert sorted(each.name for each in (prepared / "data" / "downstream").iterdir()) == sorted(SCALES[LARGE].sets)
    with pytest.raises(UsageError, match="holds a study at the scale large"):
        study.Study(command.parser().parse_args(["--work", str(prepared)]), SCALES[SMALL])


def test_a_system_that_fails_does_not_cost_the_others_their_seeds(faked: Runs, prepared: Path) -> None:
    faked.fails = "recipe=declutr"
    with pytest.raises(CommandError, match="recipe=declutr failed; --systems can leave a system out"):
        go_on(faked, prepared, 9)
    assert [name[-6:] for name in faked.scored] == ["seed=1", "seed=2", "seed=3"]
    tried = [words[2] for words in faked.commands if words[0] == "clearspan.train.sweep"]
    assert ["declutr" in words for words in tried] == [True, False, False], "it is not tried with each seed"


def test_the_time_is_up_after_so_many_minutes() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(study.TimeUpError), study.time_limit(1e-4):
        signal.pause()
    with study.time_limit(0):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.parametrize(
    ("words", "said"), [(["--work", "w", "--text", "t"], "give --sentences, --data"), ([], "give --work DIR")]
)
def test_missing_options_are_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command.work(command.parser().parse_args(words))


TINY = """Scale(
    vocabulary=800, layers=1, hidden=32, heads=2, positions=32, max_span=16, documents=4, sentences=8, pairs=4,
    pretraining_factor=2, pretraining_tokens=600, tokens=1_500, systems=("declutr", "simcse"), sets=("STS", "TREC"),
)"""
WITHOUT_BEAM = f"""import sys
from benchmarks.findings import __main__, scales
from benchmarks.findings.scales import Scale
scales.SCALES["large"] = {TINY}
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.exhaustive
def test_a_tiny_study_is_prepared_then_run_without_beam_and_does_nothing_twice(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data in this process; the study as a command, two systems at once, in an environment that has no Beam."""
    words = ["--scale", LARGE, "--work", str(tmp_path / "work"), "--seeds", "1", "--at-once", "2"]
    given = list(words)
    texts = {"text": "text/wikitext2_articles.jsonl", "sentences": "sentences/wiki1m_head_11914.txt"}
    for (name, source), number in zip(texts.items(), (60, 300), strict=True):
        lines = (shared_data / source).read_bytes().splitlines(keepends=True)
        (file := tmp_path / Path(source).name).write_bytes(b"".join(lines[:number]))
        given += [f"--{name}", str(file)]
    data = some_sts(shared_data, tmp_path / "data", "STS/STSBenchmark", "TREC", "MRPC")
    made: list[str] = []

    def run(module: str, line: list[str], **_: object) -> None:
        made.append(module)
        done = run_module(module, *line)
        assert done.returncode == 0, done.stdout + done.stderr

    for each in (datasets, study):
        monkeypatch.setattr(each, "run_module", run)
    tiny = eval(TINY, {"Scale": Scale})
    datasets.prepare(command.parser().parse_args([*given, "--data", str(data)]), tiny, 0.6)
    shutil.rmtree(data)

    (tmp_path / "none" / "sitecustomize.py").parent.mkdir()
    (tmp_path / "none" / "sitecustomize.py").write_text("import sys\nsys.modules['apache_beam'] = None\n")
    path = os.pathsep.join([str(tmp_path / "none"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    file = tmp_path / "findings.json"
    line = [sys.executable, "-c", WITHOUT_BEAM, *words, "--output", str(file)]
    variables = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    first = json.loads(file.read_text())
    assert first["systems"].keys() == {"tfidf", "bm25", "untrained", "pretrained", "declutr", "simcse"}
    assert first["transfer"] == ["TREC"], "of the sets that are there, the scale's"
    assert all(abs(tokens / tiny.tokens - 1) < 0.2 for tokens in first["tokens_read"])
    keys = {(row["better"], row["worse"], row["group"]) for row in first["verdicts"]}
    assert {("simcse", "pretrained", "STS"), ("declutr", "pretrained", "STS + transfer")} <= keys
    assert {("declutr", "pretrained", "STS"), ("declutr", "pretrained", "transfer")} <= keys
    assert str(tmp_path) not in json.dumps(first) and page.page({SMALL: stored()[SMALL], LARGE: first})

    made.clear()
    options = command.parser().parse_args(words)
    monkeypatch.setitem(SCALES, LARGE, tiny)
    assert command.study(options, file) == 0
    again = json.loads(file.read_text())
    assert made == ["clearspan.train.sweep"] and again["systems"] == first["systems"]
    assert again["verdicts"] == first["verdicts"] and again["hours"] > first["hours"]
