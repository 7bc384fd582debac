"""The findings benchmark: verdicts on made-up numbers, its recipes, the stored page, and a whole small study."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.findings import __main__ as command
from benchmarks.findings import claims, datasets, page, study, systems, verdicts
from benchmarks.findings.verdicts import NOISE, OPPOSITE, REPRODUCED, Run, Sampled
from clearspan.common.commands import UsageError
from clearspan.eval.scores import Examples, difference, resampled
from clearspan.train.config.recipe import load
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


def test_every_systems_recipe_loads_and_every_claim_compares_two_of_them(tmp_path: Path) -> None:
    known = systems.systems(systems.Scale(), tmp_path)
    for name, system in known.items():
        options = systems.recipe(system, {"path": "base"}, 1e-3, tmp_path)
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(options))
        loaded = load(str(tmp_path / "recipe.yaml"), ["output=run", "training.max_steps=1"])
        assert loaded.objectives.keys() == system.objectives.keys(), name
    for claim in (*claims.CLAIMS, *claims.CONTROLS):
        assert {claim.better, claim.worse} <= known.keys() | systems.TITLES.keys() and claim.group in claims.GROUPS


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


def test_the_stored_result_gives_the_page_and_its_plot(tmp_path: Path) -> None:
    page.write(json.loads((ROOT / "benchmarks" / "results" / "findings.json").read_text()), tmp_path)
    for name in ("findings.md", "findings.svg"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize(
    ("words", "said"), [(["--work", "w", "--text", "t"], "give --sentences, --data"), ([], "give --work DIR")]
)
def test_missing_options_are_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command.work(command.parser().parse_args(words))


@pytest.mark.exhaustive
def test_a_small_study_ends_with_verdicts_and_does_nothing_twice(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"text": "text/wikitext2_articles.jsonl", "sentences": "sentences/wiki1m_head_11914.txt"}
    words = ["--work", str(tmp_path / "work"), "--seeds", "1", "--systems", "declutr"]
    for (name, source), number in zip(texts.items(), (60, 300), strict=True):
        lines = (shared_data / source).read_bytes().splitlines(keepends=True)
        (file := tmp_path / Path(source).name).write_bytes(b"".join(lines[:number]))
        words += [f"--{name}", str(file)]
    data = some_sts(shared_data, tmp_path / "data", "STS/STSBenchmark", "TREC")
    options = command.parser().parse_args([*words, "--data", str(data)])
    made: list[str] = []

    def run(module: str, line: list[str], name: str) -> None:
        made.append(name)
        done = run_module(module, *line)
        assert done.returncode == 0, done.stdout + done.stderr

    for each in (datasets, study):
        monkeypatch.setattr(each, "run_module", run)
    small = systems.Scale(800, 1, 32, 2, 32, 16, 4, 8, 4, pretraining_tokens=600, tokens=1_500)
    first = study.Study(options, small, 0.6).run()
    assert made.count("train") == 1 and made.count("python -m clearspan.eval") == 4
    assert first["systems"].keys() == {"tfidf", "bm25", "untrained", "pretrained", "declutr"}
    assert all(abs(tokens / small.tokens - 1) < 0.2 for tokens in first["tokens_read"])
    assert {"better": "declutr", "worse": "pretrained"}.items() <= first["verdicts"][0].items()
    assert str(tmp_path) not in json.dumps(first) and page.page(first)
    made.clear()
    again = study.Study(options, small, 0.6).run()
    assert "train" not in made and again["systems"] == first["systems"] and again["verdicts"] == first["verdicts"]
