"""Decide whether a trained model searches a dataset better than BM25 and models that need no training.

    queries: held-out titles, crops, or a user's questions ─┐
    documents: all texts of the dataset ────────────────────┼──> reciprocal ranks ──> bootstrap ──> Verdict
    systems: BM25, the models, and each model with BM25 ────┘

A system is a way to search that a user can choose: BM25, an untrained model, the trained model, or one of the models
combined with BM25. The verdict compares the best system that has the trained model with the best of the others.

The held-out texts are halved. One half, by which training also chooses checkpoints, selects BM25's k1 and b, the
weights of the combinations and the two systems to compare. The scores are computed on the other half. A user's
questions are halved too: each half is scored with the k1, b, weights and share of the trained weights that were
selected on the other half, and all questions together select the two systems. All intervals come from the same
bootstrap samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from clearspan.common.compute import AUTO, Compute, resolve
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.progress import counted, duration
from clearspan.eval.data import heldout_data
from clearspan.eval.data.heldout_folders import held_out_part
from clearspan.eval.data.questions import read_questions
from clearspan.eval.models.lexical import BM25_NAME, Lexical
from clearspan.eval.models.load import load_encoder
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.scores import MIN_DECIDING, Examples, difference, figure, interval
from clearspan.eval.tasks.queries import few
from clearspan.retrieval.comparison import WITH_BM25, Chosen, RankedSystem, SystemComparison, Words, combined_vectors
from clearspan.retrieval.ranks import Chunks
from clearspan.retrieval.scoring import EARLIER_B, EARLIER_K1, Scoring
from clearspan.retrieval.stemming import NO_STEMMER

Cut = Callable[[Encoder, str, Sequence[str]], Chunks]
"""Function of a model, its prompt for documents, and documents, which cuts the documents into chunks."""
Word = Literal["better", "worse", "no difference"]
Task = Literal["titles", "crops", "questions"]
BM25 = "BM25"
WITHOUT_MODEL = "the words of the query alone, without a model"
TRAINED = "trained"
"""The name of the trained model if there is only one. `Verdict.sentence` calls it `the trained model`."""
SAID_S = 30
"""`judge` announces the embedding of a model that is expected to take longer than this, in seconds."""
NUM_EXAMPLES = 3
"""The most examples that the trained system wins, and the most examples that it loses."""
QUERIES: dict[Task, str] = {"titles": "held-out title", "crops": "held-out text", "questions": "question"}
"""Task -> noun for one of its queries."""


@dataclass(frozen=True)
class Candidate:
    """A model that takes part in a verdict. BM25 always takes part, and needs no `Candidate`.

    Attributes:
        name: the name of the model in the verdict, such as `all-MiniLM-L6-v2` or `trained`; it has no comma.
        model: the model's folder, or any other value of `clearspan eval --model`.
        about: a description in one line.
        is_trained: whether the model was trained on this dataset.
        share: the share of the trained weights in the model, if the queries choose it: candidates of one name, which
            differ in their shares, are one system. None if they do not choose it.
    """

    name: str
    model: str
    about: str
    is_trained: bool = False
    share: float | None = None


class Gain(NamedTuple):
    """The MRR of a system minus the MRR of BM25, in percentage points.

    Attributes:
        value: the difference.
        low, high: the ends of its 95 % interval.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


@dataclass(frozen=True)
class System:
    """A way to search, with its score: BM25, a model, or a model combined with BM25.

    Attributes:
        name: the name, such as `BM25`, `all-MiniLM-L6-v2`, `trained` or `trained + BM25`; it has no comma.
        about: a description in one line.
        is_trained: whether the system's model was trained on this dataset.
        weight: the weight of the model's score, from 0 to 1, in the sum with BM25's score; None for a model alone or
            BM25 alone.
        mrr: the mean reciprocal rank of the relevant document, in percent.
        low, high: the ends of the 95 % interval of `mrr`.
        gain: what the system finds more than BM25; None for BM25 itself.
        share: the share of the trained weights that the queries chose; None if they had no choice.
    """

    name: str
    about: str
    is_trained: bool
    weight: float | None
    mrr: float
    low: float
    high: float
    gain: Gain | None = None
    share: float | None = None


@dataclass(frozen=True)
class Example:
    """A query for which the best trained and the best untrained system give different ranks to the relevant document.

    Attributes:
        query: the query.
        text: the relevant document, which a search with the query should rank first.
        rank: the rank that the trained system gives the relevant document, from 1.
        rank_untrained: the rank that the untrained system gives the relevant document, from 1.
        first: the text that the trained system ranks first.
        first_untrained: the text that the untrained system ranks first.
    """

    query: str
    text: str
    rank: int
    rank_untrained: int
    first: str
    first_untrained: str


@dataclass(frozen=True)
class Verdict:
    """The scores of all systems, the comparison of the best trained with the best untrained system, and the winner.

    Attributes:
        task: the type of the queries: `titles`, `crops` or `questions`.
        num_queries: the number of queries that are scored.
        num_texts: the number of texts that are ranked.
        num_collection: the number of texts in the dataset; larger than `num_texts` only if a sample is ranked.
        systems: the systems with their scores, best first.
        winner: the name of the system to use. This is the best trained system if `word` is `better`. Otherwise it is
            BM25, or the best untrained system if the 95 % interval of its MRR minus BM25's MRR is above 0.
        best_trained, best_untrained: the names of the two systems that are compared.
        difference: the MRR of the best trained system minus the MRR of the best untrained system, in percentage points.
        low, high: the ends of the 95 % interval of `difference`.
        word: `better` if the whole interval is above 0, `worse` if the whole interval is below 0. Otherwise, and always
            if there are fewer than 20 queries (`MIN_DECIDING`), it is `no difference`; the sentence then says that
            they are too few to decide.
        sentence: the outcome in one sentence.
        k1, b: BM25's parameters in all systems that have BM25 (`retrieval.scoring`), as the dev queries chose them; a
            verdict of an earlier version has 1.5 and 0.75.
        num_dev: the number of the dev queries that chose them; 0 if none did.
        notes: remarks on how reliable the scores are, such as a warning that there are few queries.
        examples: first, queries for which the best trained system ranks the relevant document higher than the best
            untrained system; then, queries for which it ranks the relevant document lower.
    """

    task: Task
    num_queries: int
    num_texts: int
    num_collection: int
    systems: tuple[System, ...]
    winner: str
    best_trained: str
    best_untrained: str
    difference: float
    low: float
    high: float
    word: Word
    sentence: str
    k1: float = EARLIER_K1
    b: float = EARLIER_B
    num_dev: int = 0
    notes: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Return whether there are too few queries to decide, although the two systems do not find the same."""
        return self.num_queries < MIN_DECIDING and not self.low == self.high == 0

    def system(self, name: str) -> System:
        """Return a system by its name."""
        return next(system for system in self.systems if system.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as dicts, tuples and plain values that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Verdict":
        """Return a verdict from the result of `to_json`, or from that result after it was written and read as JSON."""
        systems = tuple(System(**{**each, "gain": each["gain"] and Gain(*each["gain"])}) for each in values["systems"])
        examples = tuple(Example(**example) for example in values["examples"])
        return cls(**{**values, "systems": systems, "examples": examples, "notes": tuple(values["notes"])})


def judge(
    candidates: Sequence[Candidate],
    data: Path,
    queries: Path | None = None,
    *,
    prompt_name: tuple[str, ...] = (),
    stemmer: str | None = None,
    cut: Cut | None = None,
    cache: Path | None = None,
    compute: Compute | None = None,
    batch_tokens: int | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Search a dataset with BM25, with each model, and with each model combined with BM25, and return the verdict.

    Args:
        candidates: the models, of which at least one is trained.
        data: the folder of a dataset with a held-out part (`validation/`).
        queries: a file of questions (`common.queries`) to search with; None to search with the dataset's held-out
            titles, or with crops of its held-out texts if it has no titles.
        prompt_name: the name of one prompt for every text, or the names of two prompts, for queries and for documents;
            () for each model's own prompts.
        stemmer: the language whose word endings BM25 ignores, such as `german`; None to compare whole words.
        cut: a function of a model, its prompt for documents and the documents, which cuts the documents into chunks. A
            document then has the score of its best chunk, and BM25 alone ranks the chunks of the first model that is
            not trained. None to rank whole documents, whose ends a model may not read.
        cache: the folder of cached embeddings; None for no cache.
        compute: the device and the precision; None for fp32 on the GPU, or on the CPU if there is no GPU.
        batch_tokens: the most tokens in a batch of texts to embed; None for each model's own number.
        progress: whether to show progress bars.
        say: a function that prints a line for the user. It is called before a model embeds the texts if that is
            expected to take more than half a minute.

    Raises:
        DataError: the dataset or the file is malformed, or has too few held-out texts.
        MissingDataError: `queries` is given, and `data` is not a dataset.
        EncoderError: a model cannot be used.
    """
    if queries is None:
        held = heldout_data.read(held_out_part(data))
        comparison = SystemComparison.of_halves(held.collection, held.required_dev())
        task: Task = "titles" if held.are_titles else "crops"
    else:
        held = read_questions(queries, data)
        comparison = SystemComparison.of_questions(held.collection)
        task = "questions"
    compute = compute or resolve(AUTO, "fp32")
    queried, documents = comparison.collection.queries, comparison.collection.documents
    # BM25 alone ranks the chunks of this model, so k1 and b are chosen among them.
    reference = next((each for each in candidates if not each.is_trained), candidates[0])
    lexical = Lexical(f"{BM25_NAME}:{stemmer or NO_STEMMER}")
    scoring: Chosen[Scoring] | None = None
    words: dict[tuple[str, ...] | None, Chosen[Words]] = {}
    alone: RankedSystem | None = None
    results: dict[str, dict[float | None, tuple[RankedSystem, RankedSystem]]] = {}
    warnings = [f"questions {name}: {number:,}" for name, number in held.counts.items()] if queries else []
    remarks: dict[str, list[str]] = {}
    for candidate in sorted(candidates, key=lambda each: cut is not None and each is not reference):
        model = load_encoder(candidate.model, None, compute.precision, compute.device)
        similarity = Prompted.of(model, prompt_name, cache, batch_tokens, progress)
        chunks = cut(model, similarity.prompts.document, documents) if cut else None
        texts = chunks.texts if chunks else documents
        key = tuple(texts) if chunks else None
        if key not in words:
            counts = lexical.counts(texts)
            scoring = scoring or comparison.choose_scoring(counts, chunks)
            words[key] = comparison.words(counts, scoring)
        of_words = words[key]
        alone = alone or comparison.lexical(BM25, WITHOUT_MODEL, of_words, chunks)
        if (seconds := similarity.expected_s(texts)) > SAID_S:
            say(f"{candidate.name}: embedding {len(texts):,} texts takes about {duration(seconds)}")
        vectors = similarity.ranking(queried, texts)
        kind = (candidate.name, candidate.about, candidate.is_trained)
        results.setdefault(candidate.name, {})[candidate.share] = (
            comparison.uncombined(*kind, vectors, chunks),
            comparison.combined(*kind, combined_vectors(vectors, of_words, chunks)),
        )
        remarks[candidate.name] = [f"{candidate.name}: {line}" for line in similarity.warnings()]
    assert alone is not None and scoring is not None
    names = list(dict.fromkeys(each.name for each in candidates))
    every = [alone, *(result for name in names for result in _systems(results[name], comparison))]
    warnings += [line for name in names for line in remarks[name]]
    warnings += [
        f"{result.name}: has {result.share:g} of the trained weights, which is best for these queries"
        for result in every
        if result.share is not None
    ]
    verdict = decide(every, comparison, task, held.num_texts, warnings)
    num_dev = len(np.unique(comparison.dev))
    return replace(verdict, k1=scoring.final.k1, b=scoring.final.b, num_dev=num_dev)


def _systems(
    by_share: Mapping[float | None, tuple[RankedSystem, RankedSystem]], comparison: SystemComparison
) -> list[RankedSystem]:
    """Return the systems of one name, alone and with BM25, each with the share that the queries choose, if any."""
    systems = []
    for of_shares in zip(*by_share.values(), strict=True):
        known = {share: system for share, system in zip(by_share, of_shares, strict=True) if share is not None}
        systems.append(comparison.best_share(known) if known else of_shares[0])
    return systems


def decide(
    results: Sequence[RankedSystem],
    comparison: SystemComparison,
    task: Task,
    num_collection: int,
    warnings: Sequence[str] = (),
) -> Verdict:
    """Compare the systems, and return the verdict.

    Args:
        results: the ranks that each system gave to the relevant documents. At least one system is trained, and at least
            one is not. Among equally good systems, the first is preferred.
        comparison: the queries and the texts.
        task: the type of the queries.
        num_collection: the number of texts in the dataset, including texts that are not ranked.
        warnings: notes to add to the verdict.

    Raises:
        ValueError: two systems have the same name.
    """
    examples = {result.name: Examples.of("mean", result.reciprocal) for result in results}
    if len(examples) < len(results):
        raise ValueError(f"the systems need different names: {', '.join(result.name for result in results)}")
    systems = [
        System(
            result.name,
            result.about,
            result.is_trained,
            result.weight,
            figure(of),
            *interval(of),
            _gain(name, examples),
            result.share,
        )
        for result, (name, of) in zip(results, examples.items(), strict=True)
    ]
    trained, untrained = (
        max(
            (result for result in results if result.is_trained == side),
            key=lambda result: round(result.dev_mrr, 12),
        )
        for side in (True, False)
    )
    change = difference(examples[untrained.name], examples[trained.name])
    num_queries, num_texts = len(comparison.test), len(comparison.collection.documents)
    notes = [*warnings]
    if task == "questions" and (remark := few(num_queries)):
        notes.insert(0, remark)
    word: Word = "no difference"
    if num_queries >= MIN_DECIDING and change.low > 0:
        word = "better"
    elif num_queries >= MIN_DECIDING and change.high < 0:
        word = "worse"
    by_name = {system.name: system for system in systems}
    winner = trained if word == "better" else _without_training(untrained, results, examples)
    verdict = Verdict(
        task=task,
        num_queries=num_queries,
        num_texts=num_texts,
        num_collection=num_collection,
        systems=tuple(sorted(systems, key=lambda system: -system.mrr)),
        winner=winner.name,
        best_trained=trained.name,
        best_untrained=untrained.name,
        difference=change.value,
        low=change.low,
        high=change.high,
        word=word,
        sentence="",
        notes=tuple(notes),
        examples=tuple(_examples(trained, untrained, comparison)),
    )
    return replace(verdict, sentence=_sentence(verdict, by_name))


def _gain(name: str, examples: Mapping[str, Examples]) -> Gain | None:
    """Return what a system finds more than BM25; None if it is BM25, or if BM25 takes no part."""
    if name == BM25 or BM25 not in examples:
        return None
    change = difference(examples[BM25], examples[name])
    return Gain(change.value, change.low, change.high)


def _without_training(
    best: RankedSystem, results: Sequence[RankedSystem], examples: Mapping[str, Examples]
) -> RankedSystem:
    """Return the best untrained system if the interval of its MRR minus BM25's is above 0; otherwise BM25."""
    words = next((result for result in results if result.name == BM25), best)
    return best if difference(examples[words.name], examples[best.name]).low > 0 else words


def in_words(system: System) -> str:
    """Return a phrase that names a system in a sentence, such as `the trained model with BM25 (weight 0.8)`."""
    name = system.name.removesuffix(WITH_BM25)
    model = "the trained model" if system.is_trained and name == TRAINED else name
    if system.weight == 0:
        return f"{BM25} alone (weight 0 for {model})"
    return model if system.weight is None else f"{model} with {BM25} (weight {system.weight:g})"


def _sentence(verdict: Verdict, systems: Mapping[str, System]) -> str:
    trained, untrained = in_words(systems[verdict.best_trained]), in_words(systems[verdict.best_untrained])
    among = f"{verdict.num_texts:,} texts"
    if verdict.num_collection > verdict.num_texts:
        among = f"a sample of {verdict.num_texts:,} of {verdict.num_collection:,} texts"
    queries = counted(verdict.num_queries, QUERIES[verdict.task])
    place = f"among {among}, {queries}"
    interval = f"95 % interval [{verdict.low:+.1f}, {verdict.high:+.1f}]"
    points = f"{abs(verdict.difference):.1f} MRR {'below' if verdict.difference < 0 else 'above'}"
    if verdict.word == "better":
        return f"take {trained}: it is {points} {untrained}, the best without training, {interval}, {place}"
    if verdict.low == verdict.high == 0:  # weight 0, or training kept the model that it began with
        same = "the same" if verdict.winner == verdict.best_untrained else f"what {untrained} finds"
        return f"take {in_words(systems[verdict.winner])}: training brought nothing: {trained} finds {same}, {place}"
    if verdict.is_undecided:
        too_few = f"too few to decide ({queries}, {MIN_DECIDING} are needed)"
        compared = f"{trained} is {points} {untrained}, {interval}, among {among}"
        return f"take {in_words(systems[verdict.winner])}: {too_few}: {compared}"
    noise = "" if verdict.word == "worse" else ", which may be chance"
    if verdict.winner != verdict.best_untrained:
        other = f"{untrained}, the best without training, may find no more"
        return f"take {verdict.winner}: {other}; {trained} is {points} that, {interval}{noise}, {place}"
    return f"take {untrained}: {trained} is {points} it, {interval}{noise}, {place}"


def _examples(trained: RankedSystem, untrained: RankedSystem, comparison: SystemComparison) -> list[Example]:
    """Return up to three queries that the trained system ranks most higher, then up to three most lower."""
    gain = trained.reciprocal - untrained.reciprocal
    texts, rows = comparison.collection, comparison.test
    order = np.argsort(-gain, kind="stable")
    won = [row for row in order[:NUM_EXAMPLES] if gain[row] > 0]
    lost = [row for row in order[::-1][:NUM_EXAMPLES] if gain[row] < 0]
    return [
        Example(
            texts.queries[rows[row]],
            texts.documents[texts.relevant[rows[row]][0]],
            int(trained.ranks.ranks[row]),
            int(untrained.ranks.ranks[row]),
            texts.documents[trained.ranks.first[row]],
            texts.documents[untrained.ranks.first[row]],
        )
        for row in [*won, *lost]
    ]
