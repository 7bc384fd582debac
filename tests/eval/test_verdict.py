"""The verdict: recomputed by plain numpy, among all texts, with weights that other queries chose, by one bootstrap."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bm25s import BM25

from clearspan import make_dataset
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.plugins import load_function
from clearspan.common.records import DataError
from clearspan.eval.data import heldout_data
from clearspan.eval.data.dataset_texts import DatasetTexts
from clearspan.eval.data.heldout_data import HeldOutTexts
from clearspan.eval.scores import Difference, Examples, interval, resampled
from clearspan.eval.verdict import Candidate, Cut, Verdict, decide, judge
from clearspan.retrieval.comparison import RankedSystem
from clearspan.retrieval.hybrid import WEIGHTS
from clearspan.retrieval.ranks import Chunks, Ranks
from clearspan.retrieval.retrieval_set import is_of_dev_half
from clearspan.retrieval.scoring import GRID
from clearspan.retrieval.stemming import PLAIN
from tests.retrieval.compared import QUERIES, TEXTS, comparison

LETTERS = """
import zlib
import numpy as np
LETTERS = "abcdefghijklmnopqrstuvwxyz"
def embed(texts):
    return np.array([[text.lower().count(letter) for letter in LETTERS] for text in texts], np.float32)
def pairs(texts):
    both = [left + right for left in LETTERS for right in LETTERS]
    return np.array([[text.lower().count(pair) for pair in both] for text in texts], np.float32) + 1e-3
def constant(texts):
    return np.ones((len(texts), 3), np.float32)
def broken(texts):
    return np.full((len(texts), 3), np.nan, np.float32)
def noise(texts):
    return np.array([np.random.default_rng(zlib.crc32(text.encode())).standard_normal(64) for text in texts])
"""
ABOUT = "counts"


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[dict[str, str]]:
    """300 sentences of Wikipedia: the first words, and the whole in another order."""
    lines = (shared_data / "sentences/wiki1m_head_11914.txt").read_text("utf-8").splitlines()
    cut = [line.split() for line in lines if len(line.split()) > 16][:300]
    return [{"title": " ".join(each[2:9:2]), "text": " ".join(each[1:])} for each in cut]


@pytest.fixture(scope="module")
def dataset(rows: list[dict[str, str]], shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = shared_data / "tokenizers/bert-base-uncased"
    options = {"tokenizer": tokenizer, "fields": ["title", "text"], "holdout_fraction": 0.5, "quiet": True}
    make_dataset("pairs", folder / "rows.jsonl", folder / "shards", **options)
    return folder / "shards"


@pytest.fixture
def models(own_module: Callable[[str], str]) -> Iterator[str]:
    yield own_module(LETTERS)


def candidates(module: str, trained: str, untrained: str) -> list[Candidate]:
    return [
        Candidate("trained", f"{module}:{trained}", ABOUT, is_trained=True),
        Candidate(untrained, f"{module}:{untrained}", ABOUT),
    ]


def function_of(spec: str) -> Callable[[list[str]], np.ndarray]:
    return load_function(spec, "a function")


def z(scores: np.ndarray) -> np.ndarray:
    centered = scores - scores.mean(axis=1, keepdims=True)
    deviation = scores.std(axis=1, keepdims=True)
    return np.divide(centered, deviation, out=np.zeros_like(centered), where=deviation > 0)


def reciprocal(scores: np.ndarray, right: list[int], texts: list[str]) -> np.ndarray:
    """Return reciprocal ranks; of equal scores, the text with the higher hash is first."""
    own = scores[np.arange(len(right)), right][:, None]
    names = np.array([hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in texts])
    is_equal = np.abs(scores - own) < 5e-7
    return 1 / (1 + ((scores > own) & ~is_equal | is_equal & (names > names[right][:, None])).sum(axis=1))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def best_of(scores: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.maximum.reduceat(scores, starts, axis=1)


def halves(text: str) -> list[str]:
    split = text.split()
    return [" ".join(split[: len(split) // 2]), " ".join(split[len(split) // 2 :])]


def cut_in_halves(_: Encoder, prompt: str, documents: Sequence[str]) -> Chunks:
    assert prompt == ""
    return Chunks([half for text in documents for half in halves(text)], np.arange(0, 2 * len(documents), 2))


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.slow
@pytest.mark.parametrize("cut", [None, cut_in_halves])
def test_plain_numpy_over_all_texts_gives_the_same_verdict(dataset: Path, models: str, cut: Cut | None) -> None:
    """If texts are cut, all scores are of their parts, and a text has the score of its best part."""
    verdict = judge(candidates(models, "pairs", "embed"), dataset, cut=cut)
    held, trained = (dict(DatasetTexts(folder, 10_000)) for folder in (dataset / "validation", dataset))
    texts = [parts[1] for parts in (*held.values(), *trained.values())]
    picks = np.array([is_of_dev_half(title) for title, _ in held.values()])
    titles = [title for title, _ in held.values()]
    assert (verdict.num_texts, verdict.num_queries) == (len({*texts}), (~picks).sum())
    assert 250 < verdict.num_texts == verdict.num_collection and 40 < verdict.num_queries < 110
    right = list(range(len(titles)))
    parts = [part for text in texts for part in (halves(text) if cut else [text])]
    starts = np.arange(0, len(parts), len(parts) // len(texts))
    of_grid = []
    for k1, b in GRID:
        index = BM25(k1=k1, b=b)
        index.index([PLAIN(part) for part in parts], show_progress=False)
        of_grid.append(np.array([index.get_scores(PLAIN(title)) for title in titles]))
    on_dev = [reciprocal(best_of(each, starts), right, texts)[picks] for each in of_grid]
    default, highest = GRID.index((1.2, 0.75)), max(range(16), key=lambda place: on_dev[place].mean().round(9))
    gains = on_dev[highest] - on_dev[default]
    is_sure = gains.mean() > 1.64 * gains.std(ddof=1) / len(gains) ** 0.5
    by_words = of_grid[highest if is_sure else default]
    assert (verdict.k1, verdict.b) == GRID[highest if is_sure else default] and verdict.num_dev == picks.sum()
    scores = {"BM25": (best_of(by_words, starts), None)}
    for name, function in (("trained", function_of(f"{models}:pairs")), ("embed", function_of(f"{models}:embed"))):
        cosines = unit(function(titles)) @ unit(function(parts)).T
        mixed = [best_of(weight * z(cosines) + (1 - weight) * z(by_words), starts) for weight in WEIGHTS]
        means = [reciprocal(each, right, texts)[picks].mean() for each in mixed]
        best = max(range(len(WEIGHTS)), key=lambda place, means=means: (round(means[place], 9), -abs(place - 7)))
        scores |= {name: (best_of(cosines, starts), None), f"{name} + BM25": (mixed[best], WEIGHTS[best])}
    values = {name: reciprocal(each, right, texts) for name, (each, _) in scores.items()}
    assert {system.name for system in verdict.systems} == {*values}
    for system in verdict.systems:
        assert system.weight == scores[system.name][1], system.name
        assert system.mrr == pytest.approx(100 * values[system.name][~picks].mean(), abs=0.005), system.name
    chosen = [
        max(names, key=lambda name: values[name][picks].mean())
        for names in (["trained", "trained + BM25"], ["BM25", "embed", "embed + BM25"])
    ]
    assert chosen == [verdict.best_trained, verdict.best_untrained]
    gain = 100 * (values[chosen[0]] - values[chosen[1]])[~picks].mean()
    assert verdict.difference == pytest.approx(gain, abs=0.005)
    assert verdict == Verdict.from_json(json.loads(json.dumps(verdict.to_json())))


@pytest.mark.guarantee("chosen-apart")
@pytest.mark.slow
def test_questions_choose_the_share_of_the_training_for_each_other(
    dataset: Path, rows: list[dict[str, str]], models: str, tmp_path: Path
) -> None:
    """Three models of one name are one system: on each half of the questions, the best one for the other half."""
    questions = [{"query": row["title"], "text": row["text"]} for row in rows[:120]]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    of_shares = {0.5: "noise", 0.25: "embed", 1.0: "pairs"}
    trained = [
        Candidate("trained", f"{models}:{name}", f"{share:g} of it", True, share) for share, name in of_shares.items()
    ]
    base = Candidate("base", f"{models}:noise", ABOUT)
    verdict = judge([*trained, base], dataset, tmp_path / "questions.jsonl")
    alone = [judge([replace(each, share=None), base], dataset, tmp_path / "questions.jsonl") for each in trained]
    assert [system.name for system in verdict.systems if system.is_trained] == ["trained + BM25", "trained"]
    for name in ("trained", "trained + BM25"):
        found, every = (
            verdict.system(name),
            {each.share: one.system(name) for each, one in zip(trained, alone, strict=True)},
        )
        assert found.share in of_shares and found.weight == every[found.share].weight
        assert found.about.startswith(f"{found.share:g} of it")
        assert found.mrr <= max(system.mrr for system in every.values()), (
            "a half may choose what is worse for the other"
        )
    assert verdict.system("trained").share == 1.0 and verdict.system("trained").mrr == alone[2].system("trained").mrr
    assert verdict.system("base").share is None and verdict.k1 == alone[0].k1
    assert "trained: has 1 of the trained weights, which is best for these queries" in verdict.notes
    assert verdict == Verdict.from_json(json.loads(json.dumps(verdict.to_json())))
    ours = Verdict.from_json(
        {**verdict.to_json(), "systems": [{k: v for k, v in vars(s).items() if k != "share"} for s in verdict.systems]}
    )
    assert {system.share for system in ours.systems} == {None}, "a file of an earlier version has none"


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.slow
def test_a_model_that_wins_among_few_texts_and_loses_among_all_is_not_taken(
    dataset: Path, own_module: Callable[[str], str], tmp_path: Path
) -> None:
    """A title is nearer to its text than to any other held-out text, and nearer to all texts of the training part."""
    held = dict(DatasetTexts(dataset / "validation", 10_000))
    places = {text: place for place, parts in enumerate(held.values()) for text in parts[:1]}
    rights = {parts[1]: place for place, parts in enumerate(held.values())}
    (tmp_path / "places.json").write_text(json.dumps([places, rights]))
    module = own_module(f"""
import json, numpy as np
TITLES, TEXTS = json.load(open({str(tmp_path / "places.json")!r}))
def embed(texts):
    rows = np.zeros((len(texts), len(TEXTS) + 1), np.float32)
    for row, text in zip(rows, texts):
        if text in TITLES:
            row[TITLES[text]], row[-1] = 0.6, 0.8
        else:
            row[TEXTS.get(text, -1)] = 1
    return rows
""")
    few = heldout_data.read_dataset(dataset / "validation")
    part = few.collection
    embed = function_of(f"{module}:embed")
    right = [int(each[0]) for each in part.relevant]
    alone = reciprocal(embed(part.queries) @ embed(part.documents).T, right, part.documents)
    assert alone.mean() == 1
    verdict = judge([Candidate("trained", f"{module}:embed", "remembers", is_trained=True)], dataset)
    assert verdict.system("trained").mrr < 2 and verdict.word != "better"
    assert verdict.winner == "BM25" and verdict.sentence.startswith("take BM25: the trained model")
    assert f"among {verdict.num_texts:,} texts, {verdict.num_queries:,} held-out titles" in verdict.sentence


@pytest.mark.slow
def test_a_text_without_a_title_is_found_by_a_crop_among_crops_of_all(
    wikitext_shards: Path, models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.eval.verdict.SAID_S", 0)
    said: list[str] = []
    verdict = judge(candidates(models, "embed", "pairs"), wikitext_shards, say=said.append)
    held, trained = (dict(DatasetTexts(folder, 10_000)) for folder in (wikitext_shards / "validation", wikitext_shards))
    num_texts = len(held) + len(trained)
    num_queries = sum(not is_of_dev_half(text) for (text,) in held.values())
    assert [line[: line.index(" takes about ")] for line in said] == [
        f"{name}: embedding {num_texts} texts" for name in ("trained", "pairs")
    ]
    assert (verdict.task, verdict.num_texts, verdict.num_queries) == ("crops", num_texts, num_queries)
    assert num_texts > 110 and f"among {num_texts} texts, {num_queries} held-out texts" in verdict.sentence


# What follows judges ranks that are given.


def result(name: str, ranks: list[int], dev_mrr: float = 0.5, weight: float | None = None) -> RankedSystem:
    found = Ranks(np.array(ranks), np.zeros(len(ranks), np.int64))
    return RankedSystem(name, ABOUT, name.startswith("trained"), weight, dev_mrr, found)


def test_intervals_of_table_and_difference_are_of_the_same_samples() -> None:
    generator = np.random.default_rng(1)
    one, other = (generator.integers(1, 9, 20).tolist() for _ in range(2))
    verdict = decide([result("BM25", one), result("trained", other)], comparison(), "titles", TEXTS)
    before, after = (Examples.of("mean", 1 / np.array(each)) for each in (one, other))
    for name, examples in (("BM25", before), ("trained", after)):
        system = verdict.system(name)
        assert (system.low, system.high) == interval(examples)
        assert system.mrr == pytest.approx(100 * examples.predicted.mean())
    gains = resampled(after) - resampled(before)
    assert [verdict.low, verdict.high] == pytest.approx(np.quantile(gains, (0.025, 0.975)).tolist())
    assert verdict.difference == pytest.approx(verdict.system("trained").mrr - verdict.system("BM25").mrr)
    assert verdict.system("trained").gain == (verdict.difference, verdict.low, verdict.high)
    assert verdict.system("BM25").gain is None
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


@pytest.mark.guarantee("chosen-apart")
def test_the_compared_systems_are_those_that_the_other_half_chose() -> None:
    good, bad = [1] * 20, [2, 3, 4, 5] * 5
    found = [
        result("BM25", bad, 0.3),
        result("as it is", good, 0.2),
        result("trained", good, 0.2),
        result("trained + BM25", bad, 0.4, 0.7),
    ]
    verdict = decide(found, comparison(), "titles", TEXTS)
    assert (verdict.best_trained, verdict.best_untrained) == ("trained + BM25", "BM25")
    assert (verdict.difference, verdict.word, verdict.winner) == (0, "no difference", "BM25")
    assert [system.name for system in verdict.systems][:2] == ["as it is", "trained"], "best first"


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (0.0, "BM25 alone (weight 0 for the trained model)"),
        (0.3, "the trained model with BM25 (weight 0.3)"),
        (None, "the trained model"),
    ],
)
def test_training_that_changes_no_rank_is_said_to_have_brought_nothing(weight: float | None, said: str) -> None:
    name = "trained" if weight is None else "trained + BM25"
    verdict = decide([result("BM25", [2] * 20), result(name, [2] * 20, weight=weight)], comparison(), "titles", TEXTS)
    assert verdict.word == "no difference"
    assert verdict.sentence.startswith(f"take BM25: training brought nothing: {said} finds the same, among 60 texts")


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    ("before", "after", "word", "start"),
    [
        (
            [4] * 20,
            [1] * 20,
            "better",
            "take the trained model: it is 75.0 MRR above BM25, the best without training, 95 % interval [",
        ),
        ([1] * 20, [4] * 20, "worse", "take BM25: the trained model is 75.0 MRR below it, 95 % interval ["),
        (
            [1, 2] * 10,
            [2, 1] * 10,
            "no difference",
            "take BM25: the trained model is 0.0 MRR above it, 95 % interval [",
        ),
    ],
)
def test_the_word_and_the_winner_follow_the_interval(
    before: list[int], after: list[int], word: str, start: str
) -> None:
    verdict = decide([result("BM25", before), result("trained", after)], comparison(), "titles", 5 * TEXTS)
    assert verdict.word == word and verdict.winner == ("trained" if word == "better" else "BM25")
    assert verdict.sentence.startswith(start)
    assert verdict.sentence.endswith("among a sample of 60 of 300 texts, 20 held-out titles")
    won = [each for each in verdict.examples if each.rank < each.rank_untrained]
    lost = [each for each in verdict.examples if each.rank > each.rank_untrained]
    assert (len(won), len(lost)) == {"better": (3, 0), "worse": (0, 3), "no difference": (3, 3)}[word]


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(("of_model", "winner"), [([2, 9] * 10, "BM25"), ([1] * 20, "MiniLM")])
def test_a_model_that_may_find_no_more_than_bm25_is_not_taken(of_model: list[int], winner: str) -> None:
    """Even if it was the best one among the titles that choose, which is noise where no system finds anything."""
    systems = [result("BM25", [3] * 20), result("MiniLM", of_model, dev_mrr=0.6), result("trained", [4] * 20)]
    verdict = decide(systems, comparison(), "titles", TEXTS)
    assert (verdict.best_untrained, verdict.winner) == ("MiniLM", winner)
    assert verdict.sentence.startswith(f"take {winner}: ")


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(("of_bm25", "best"), [(0.66, "BM25"), (0.62, "MiniLM"), (0.6399, "MiniLM")])
def test_the_best_untrained_system_is_the_best_on_the_dev_queries_by_any_difference(of_bm25: float, best: str) -> None:
    systems = [result("BM25", [3] * 20, of_bm25), result("MiniLM", [2] * 20, 0.64), result("trained", [4] * 20)]
    assert decide(systems, comparison(), "titles", TEXTS).best_untrained == best


@pytest.mark.guarantee("verdict-among-all")
def test_few_questions_do_not_decide_and_are_said() -> None:
    """One query's bootstrap interval has no width."""
    rows = np.arange(QUERIES)
    one = comparison([(rows[:0], rows[:1])])
    verdict = decide([result("BM25", [4]), result("trained", [1])], one, "questions", TEXTS)
    assert (verdict.low, verdict.word, verdict.winner) == (75, "no difference", "BM25")
    assert verdict.sentence == (
        "take BM25: too few to decide (1 question, 20 are needed): the trained model is 75.0 MRR above BM25, "
        "95 % interval [+75.0, +75.0], among 60 texts"
    )
    assert verdict.notes[0].startswith("Only 1 question")
    with pytest.raises(ValueError, match="the systems need different names: BM25, BM25"):
        decide([result("BM25", [4]), result("BM25", [1])], one, "questions", TEXTS)


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(("number", "after"), [(12, [4] * 12), (19, [1, 4] * 10), (12, [1] * 12)])
def test_a_few_queries_are_too_few_to_decide_whatever_their_interval(number: int, after: list[int]) -> None:
    """An interval below, around and above 0; with 20 queries each of them has its own word."""
    for count, said in (number, True), (20, False):
        few = comparison([(np.arange(count, QUERIES), np.arange(count))])
        ranks = (after * 2)[:count]
        verdict = decide([result("BM25", [2] * count), result("trained", ranks)], few, "questions", TEXTS)
        assert (f": too few to decide ({count} questions, 20 are needed): the trained" in verdict.sentence) == said
        assert verdict.is_undecided == said and ("chance" not in verdict.sentence or not said)
        assert verdict.word == "no difference" or not said


@pytest.mark.guarantee("verdict-among-all")
def test_all_queries_decide_however_many_there_are_and_the_last_as_much_as_the_first() -> None:
    same, gained, lost = [2] * 1020, [1] * 80, [4] * 80
    rows = np.arange(1100) % 20
    for before, after, word in (
        (same + lost, same + gained, "better"),
        (gained + same, same + gained, "no difference"),
    ):
        found = [result("BM25", before), result("trained", after)]
        verdict = decide(found, comparison([(rows[20:40], rows)]), "titles", TEXTS)
        assert (verdict.word, verdict.num_queries) == (word, 1100)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [10, 20])
def test_of_equal_systems_few_are_called_better(number: int) -> None:
    """2.5 % should be, of each word; with few queries, the intervals are a little too narrow."""
    generator = np.random.default_rng(4)
    few = comparison([(np.arange(number, QUERIES), np.arange(number))])
    words = []
    for _ in range(600):
        ranks = np.exp(generator.exponential(2, (2, number))).astype(int).clip(1, TEXTS).tolist()
        words.append(decide([result("BM25", ranks[0]), result("trained", ranks[1])], few, "titles", TEXTS).word)
    for word in ("better", "worse"):
        assert words.count(word) <= 0.045 * len(words), word


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["constant", "broken", "noise"])
def test_a_model_that_knows_nothing_is_not_taken(trained: str, dataset: Path, models: str) -> None:
    verdict = judge(candidates(models, trained, "embed"), dataset)
    assert verdict.word != "better" and not verdict.system(verdict.winner).is_trained
    assert verdict.system("trained").mrr < 10
    warned = {"constant": "(nearly) constant", "broken": "hold a NaN or an infinity", "noise": ""}[trained]
    assert warned in " ".join(verdict.notes) and bool(verdict.notes) == bool(warned)


@pytest.mark.slow
def test_questions_of_the_user_are_judged_among_all_texts(
    dataset: Path, rows: list[dict[str, str]], models: str, tmp_path: Path
) -> None:
    path = tmp_path / "questions.jsonl"
    asked = [{"query": f"who is {row['title']}?", "text": row["text"].upper() + "  "} for row in rows[:30]]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*asked, {"query": "where?", "text": "nowhere"}]))
    verdict = judge(candidates(models, "pairs", "embed"), dataset, path)
    assert (verdict.task, verdict.num_queries) == ("questions", 30) and verdict.num_texts > 250
    assert verdict.notes[0].startswith("Only 30 questions: the interval is wide")
    path.write_text(json.dumps({"query": "where?", "text": "nowhere"}))
    with pytest.raises(DataError, match=r"no answer is a text of .* \(.*questions.jsonl:1\)"):
        judge(candidates(models, "pairs", "embed"), dataset, path)
    path.write_text(json.dumps({"query": "where?", "id": "7"}))
    with pytest.raises(
        DataError, match=r"questions.jsonl:1: names a text by its id, but a dataset of tokens stores no ids"
    ):
        judge(candidates(models, "pairs", "embed"), dataset, path)
    path.write_text(json.dumps({"query": "where?"}))
    with pytest.raises(DataError, match=r"questions.jsonl:1: names no relevant document"):
        judge(candidates(models, "pairs", "embed"), dataset, path)


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    ("low", "high", "word", "winner"),
    [
        (0.0, 1.0, "no difference", "BM25"),
        (0.25, 1.0, "better", "trained"),
        (-1.0, 0.0, "no difference", "BM25"),
        (-1.0, -0.25, "worse", "BM25"),
        (-1.0, 0.25, "no difference", "BM25"),
    ],
)
def test_an_interval_that_touches_zero_decides_nothing(
    low: float, high: float, word: str, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.eval.verdict.difference", lambda *_: Difference(0.1, low, high, 0.01))
    found = [result("trained", [1] * 20), result("BM25", [2] * 20, 0.7)]
    verdict = decide(found, comparison(), "titles", TEXTS, ["a note"])
    assert (verdict.word, verdict.winner, verdict.notes) == (word, winner, ("a note",))


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(("low", "winner"), [(0.0, "BM25"), (0.25, "as it is")])
def test_a_model_is_recommended_without_training_if_it_surely_finds_more_than_bm25(
    low: float, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, gains = [1] * 20, {(0, 1): Difference(0.1, low, 1.0, 0.01)}
    found = [result("trained", ranks, 0.1), result("as it is", ranks, 0.9), result("BM25", [2] * 20, 0.2)]
    monkeypatch.setattr(
        "clearspan.eval.verdict.difference",
        lambda first, second: gains[0, 1] if first.predicted[0] < second.predicted[0] else Difference(0, -1, 1, 0.9),
    )
    assert decide(found, comparison(), "titles", TEXTS).winner == winner
    assert decide(found[:2], comparison(), "titles", TEXTS).winner == "as it is", "where BM25 takes no part"


@pytest.mark.guarantee("chosen-apart")
def test_of_systems_that_are_equal_on_the_dev_queries_the_first_is_compared() -> None:
    found = [result(name, [rank] * 20) for name, rank in (("MiniLM", 3), ("BM25", 1), ("trained", 4), ("trained 2", 2))]
    verdict = decide(found, comparison(), "titles", TEXTS)
    assert (verdict.best_untrained, verdict.best_trained) == ("MiniLM", "trained")


@pytest.mark.guarantee("chosen-apart")
@pytest.mark.parametrize("number", [None, 0, 9])
def test_too_few_dev_texts_are_one_line(number: int | None) -> None:
    texts = comparison().collection
    dev = None if number is None else texts.select(range(number))
    held = HeldOutTexts(texts, dev, TEXTS, (Path("shards/validation/manifest.json"),))
    with pytest.raises(DataError, match=r"shards/validation: too few texts .*10 are needed"):
        held.required_dev()
    enough = HeldOutTexts(texts, texts.select(range(10)), TEXTS, held.files)
    assert enough.required_dev() is enough.dev
