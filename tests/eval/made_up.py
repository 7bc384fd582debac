"""Evaluations with made-up scores, to test what shows them: many tasks, long names, undefined figures, neighbors."""

import numpy as np

from clearspan.eval.details import Details, Table
from clearspan.eval.results import Results, Scored, environment
from clearspan.eval.scores import Difference, Examples, TaskScores, figure

FAMILIES = {
    "sts": ["STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness"],
    "transfer": ["MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment", "SNLI"],
    "probing": ["Length", "WordContent", "TopConstituents", "CoordinationInversion"],
    "geometry": ["geometry"],
    "retrieval": ["retrieval/flickr8k"],
    "pairs": ["pairs/customer_support_tickets_2026-10_human_annotated_final_v2"],
}
SUBSETS = ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")
CAPTIONS = (
    "A bus with people on it .",
    "A large orange bus is stopped on the street , and a red one passes by it .",
    "The blue bus passes pedestrians on a busy city street .",
    "A yellow van driving down crowded city street .",
)
QUERY = "Query: A double decker red bus moving along the street ."
UNDEFINED = "WordContent"


def task(name: str, family: str, seed: int) -> TaskScores:
    """Return a task's made-up scores, keyed by the seed."""
    generator = np.random.default_rng([seed, *name.encode()])
    examples = Examples.of("mean", generator.random(60) < 0.8)
    value = float("nan") if name == UNDEFINED else figure(examples)
    tables: list[Table] = []
    headline: tuple[str, ...] = ("acc", "devacc")
    if family == "sts" and name.startswith("STS1"):
        headline = ("spearman_all", "spearman_mean", "spearman_wmean")
        tables = [Table(("subset", "pairs", "Spearman"), [(s, 750, value - i) for i, s in enumerate(SUBSETS)])]
    elif family in ("sts", "pairs"):
        headline = ("spearman", "spearman_dev")
    elif family == "geometry":
        headline = ("alignment", "uniformity")
    elif family == "retrieval":
        headline = ("ndcg@10", "mrr")
        nearest = [CAPTIONS[(k + seed) % len(CAPTIONS)] for k in (1, 2, 3)]
        tables = [Table(("relevant at rank", "nearest", "second", "third"), [(1, *nearest)], QUERY, names=0)]
    scores = {metric: value - i for i, metric in enumerate(headline)}
    if family == "geometry":
        scores = {"alignment": 0.2 + seed / 100, "uniformity": -2.0 - seed / 10}
    return TaskScores(
        scores=scores,
        main=headline[0],
        headline=headline,
        counts={"pairs": 60},
        details=Details(tables=tables),
        examples={} if family == "geometry" else {headline[0]: examples},
        settings={"l2": [1e-5, 1e-4]} if family == "transfer" else {},
    )


def difference(value: float, exceeds_noise: bool) -> Difference:
    """Return a difference of that value, with an interval around it."""
    return Difference(value, value - 1, value + 1, 0.01, p_holm=0.02 if exceeds_noise else 0.5)


def scored(name: str, seed: int = 1, families: tuple[str, ...] = tuple(FAMILIES)) -> Scored:
    """Return one model's made-up evaluation."""
    results = Results(name, spec=f"runs/{name}/model", environment=environment("cpu", protocol="full", seed=1111))
    results.environment["dim"] = 384 * seed
    tasks, family_of = {}, {}
    for family in families:
        for each in FAMILIES[family]:
            tasks[each], family_of[each] = task(each, family, seed), family
            results.add(each, tasks[each])
            results.data[each] = {f"/data/senteval/{each}/test.txt": f"{seed:064x}"}
    results.averages["sts_simcse"] = {"value": 81.576, "tasks": FAMILIES["sts"][:5], "missing": FAMILIES["sts"][5:]}
    results.averages["transfer"] = {"value": 80.0 + seed, "tasks": FAMILIES["transfer"], "missing": []}
    results.skipped["Depth"] = "no file /data/senteval/probing/tree_depth.txt"
    return Scored(results, tasks, family_of)
