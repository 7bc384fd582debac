"""Runs of a sweep are ranked by a loss only if all of them compute the same loss."""

import pytest

from clearspan.train.config.options import Recipe
from clearspan.train.recipe import load_recipe
from clearspan.train.sweeps.report import Ranking, differing, expected, is_loss, ranking

NEGATIVES = " (a contrastive loss depends on the number of in-batch negatives)"
REMEDY = (
    ": rank by a score: training.eval_data=heldout (or a file of scored pairs) with training.eval_steps, or `tasks` "
    "with `data`"
)
SCORED = "training.eval_data=pairs.csv training.eval_steps=10"
TWO = (
    "objectives.spans.data=text objectives.mlm.data=text data.more.path=b "
    "data.more.batch_size=16 objectives.more.type=spans objectives.more.data=more"
)


def recipes(*changes: str) -> dict[str, Recipe]:
    """Return a recipe for each text of overrides."""
    first = ["data.text.path=a", "output=x", "model.path=m"]
    return {f"{i}": load_recipe("demo", [*first, *change.split()]) for i, change in enumerate(changes)}


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize(
    ("figure", "loss"),
    [
        ("loss", True),
        ("spans/loss", True),
        ("text/mlm/loss", True),
        ("loss/spans", False),
        ("dev_score", False),
        ("my_loss", False),
        ("score", False),
    ],
)
def test_losses_are_told_from_scores_by_their_names(figure: str, loss: bool) -> None:
    assert is_loss(figure) is loss and Ranking(figure).more_is_better is not loss


@pytest.mark.guarantee("losses-not-ranked")
def test_what_differs_has_all_its_values_in_their_order() -> None:
    mappings = [{"path": "a", "size": 2, "dims": []}, {"size": 2, "path": "b"}, {"path": "a", "size": 2, "seed": 0}]
    expected = {"path": ["a", "b"], "dims": ["[]", "none"], "seed": ["none", "0"]}
    assert list(differing(mappings).items()) == list(expected.items())
    assert differing(mappings[:1]) == differing([]) == differing([{"a": 1}, {"a": "1"}]) == {}


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        (["", "data.text.batch_size=16"], f"data.text.batch_size (48, 16) cannot be compared{NEGATIVES}"),
        (["", "", "data.text.path=b"], "data.text.path (a, b) cannot be compared"),
        (["", "data.text.share=0.5"], "data.text.share (1.0, 0.5) cannot be compared"),
        (["", "data.text.short_documents=error"], "data.text.short_documents (skip, error) cannot be compared"),
        (
            ["training.eval_steps=9 data.text.validation=u", "training.eval_steps=9 data.text.validation=v"],
            "data.text.validation (u, v) cannot be compared",
        ),
        (["", "objectives.mlm.probability=0.3"], "objectives.mlm.probability (0.15, 0.3) cannot be compared"),
        (["", "objectives.spans.sampler.num_anchors=1"], "objectives.spans.sampler.num_anchors (2, 1) cannot"),
        (["", "objectives.mlm.weight=2"], "objectives.mlm.weight (1.0, 2.0) cannot be compared"),
        (["", "objectives.spans.temperature=0.0501"], "objectives.spans.temperature (0.05, 0.0501) cannot be compared"),
        (["", "objectives.mlm.weight=1.0001"], "objectives.mlm.weight (1.0, 1.0001) cannot be compared"),
        (["", "data.text.share=0.9999"], "data.text.share (1.0, 0.9999) cannot be compared"),
        (["", "objectives.mlm=null"], "objectives.mlm.type (, none) and "),
        ([TWO, TWO + " data.more.path=c"], "data.more.path (b, c) cannot be compared"),
        ([TWO, TWO + " data.more.batch_size=8"], f"data.more.batch_size (16, 8) cannot be compared{NEGATIVES}"),
        (
            ["", "data.text.path=b data.text.batch_size=16"],
            f"data.text.batch_size (48, 16) and data.text.path (a, b) cannot be compared{NEGATIVES}",
        ),
        (
            ["", "training.gradient_accumulation_steps=3"],
            f"data.text.batch_size (48, 16) cannot be compared{NEGATIVES}",
        ),
    ],
)
@pytest.mark.parametrize("figure", ["loss", "spans/loss"])
def test_losses_of_other_settings_rank_nothing(changes: list[str], differs: str, figure: str) -> None:
    ranked = ranking(recipes(*changes), [figure, "score"])
    assert ranked.figure == "" and ranked.reason.startswith(f"losses of other {differs}")
    assert ranked.reason.endswith(REMEDY) and (NEGATIVES in ranked.reason) is (NEGATIVES in differs)


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize(
    ("changes", "figures", "ranked"),
    [
        (["", "optimizer.learning_rate=1e-3 training.seed=4"], ["loss", "score"], Ranking("loss")),
        (["", "data.text.shuffle_shards=5 training.max_steps=9"], ["spans/loss"], Ranking("spans/loss")),
        (
            ["", "training.gradient_accumulation_steps=3 training.gradient_caching=true"],
            ["loss"],
            Ranking("loss"),
        ),
        (["", "data.text.batch_size=16"], ["score", "loss"], Ranking("score")),
        ([SCORED, SCORED + " data.text.batch_size=16 data.text.path=b"], ["dev_score", "loss"], Ranking("dev_score")),
        (
            [SCORED, SCORED.replace("pairs", "other")],
            ["dev_score"],
            Ranking("", f"dev scores of other training.eval_data (pairs.csv, other.csv) cannot be compared{REMEDY}"),
        ),
        ([SCORED, SCORED.replace("pairs", "other")], ["loss"], Ranking("loss")),
        ([SCORED, SCORED.replace("pairs", "other")], ["score"], Ranking("score")),
        ([], ["loss"], Ranking("loss")),
        (["", "data.text.path=b"], [], Ranking("", "there is nothing to rank")),
    ],
)
def test_the_first_figure_ranks_runs_if_it_means_the_same_in_each(
    changes: list[str], figures: list[str], ranked: Ranking
) -> None:
    assert ranking(recipes(*changes), figures) == ranked


@pytest.mark.guarantee("losses-not-ranked")
def test_a_further_dataset_means_other_negatives_whatever_else_differs() -> None:
    reason = ranking(recipes("", f"{TWO} data.text.path=b"), ["loss"]).reason
    assert reason.startswith("losses of other data.text.path (a, b) and data.more.batch_size (none, 16)")
    assert f" cannot be compared{NEGATIVES}: rank by a score" in reason


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize(
    ("pairs", "steps", "figure"), [("", 10, "loss"), ("p.csv", 0, "loss"), ("p.csv", 10, "dev_score")]
)
def test_a_dev_score_needs_pairs_and_steps_at_which_they_are_scored(pairs: str, steps: int, figure: str) -> None:
    runs = recipes(SCORED, SCORED)
    runs["1"].training.eval_data, runs["1"].training.eval_steps = pairs, steps
    runs["0"].training.eval_data = "p.csv"
    assert expected(runs, False).figure == figure


@pytest.mark.guarantee("losses-not-ranked")
def test_dev_scores_of_other_held_out_texts_rank_nothing() -> None:
    held_out = "training.eval_data=heldout training.eval_steps=10 data.text.validation="
    ranked = ranking(recipes(held_out + "a", held_out + "b"), ["dev_score"])
    assert ranked.reason == f"dev scores of other data.text.validation (a, b) cannot be compared{REMEDY}"


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize(
    ("changes", "is_evaluated", "figure"),
    [
        (["", ""], True, "score"),
        ([SCORED, SCORED], True, "score"),
        ([SCORED, SCORED], False, "dev_score"),
        ([SCORED, ""], False, "loss"),
        (["", SCORED], False, "loss"),
        (["", ""], False, "loss"),
        ([SCORED, SCORED + " data.text.batch_size=16"], False, "dev_score"),
        (["", "data.text.batch_size=16"], True, "score"),
        (["", SCORED + " data.text.batch_size=16"], False, ""),
    ],
)
def test_it_is_known_before_the_runs_what_will_rank_them(changes: list[str], is_evaluated: bool, figure: str) -> None:
    assert expected(recipes(*changes), is_evaluated).figure == figure


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize(
    ("changes", "contrasted"),
    [
        ("", 48),
        ("data.text.batch_size=64 training.gradient_accumulation_steps=4", 16),
        ("data.text.batch_size=64 training.gradient_accumulation_steps=4 training.gradient_caching=true", 64),
    ],
)
def test_in_batch_negatives_are_those_of_a_micro_batch_or_with_caching_of_a_step(changes: str, contrasted: int) -> None:
    assert recipes(changes)["0"].contrasted("text") == contrasted


LONG = "/owls/of/the/northern/woods" * 20


@pytest.mark.guarantee("losses-not-ranked")
@pytest.mark.parametrize("number", [2, 12])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("wiki/shards", "web/shards"),
        ("wiki/shards", "Wiki/shards"),
        ("wiki/shards", "wiki/shards2"),
        ("wiki-2024-01", "wiki-2024-02"),
        ("café", "cafe\u0301"),
        (f"{LONG}/a", f"{LONG}/b"),
        (f"a{LONG}", f"b{LONG}"),
    ],
)
def test_folders_whose_paths_are_not_the_same_are_other_data(one: str, other: str, number: int) -> None:
    """If only the last run has it, too."""
    of = recipes(*[f"data.text.path={one}"] * (number - 1), f"data.text.path={other}")
    for found in (ranking(of, ["loss"]), expected(of, is_evaluated=False)):
        assert found == Ranking("", f"losses of other data.text.path ({one}, {other}) cannot be compared{REMEDY}")
