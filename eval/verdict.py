"""The verdict on a trained model: which system finds the texts of a collection best, and by how much.

    a dataset's held-out titles (or crops, or a user's questions) ─┐
    all texts of the dataset ──────────────────────────────────────┼──> reciprocal ranks ──> one bootstrap ──> Verdict
    BM25, untrained models, the trained one; each beside BM25 ─────┘

The systems are what a user could take instead: BM25, each model as it is, the trained one, and each model beside BM25.
Every weight beside BM25, and the trained and the untrained system to compare, is chosen on the half of the held-out
texts that picks checkpoints. The figures are of the other half. Their intervals, and that of the difference, come from
the same bootstrap samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from clearspan.common.compute import Compute

Word = Literal["better", "worse", "no difference"]


@dataclass(frozen=True)
class Entrant:
    """A model that takes part, besides BM25, which always does.

    Attributes:
        name: its name in the verdict, without commas, such as `all-MiniLM-L6-v2` or `trained`.
        model: a folder, or anything else that `clearspan eval --model` takes.
        about: what it is, in a line.
        is_trained: whether it was trained on this dataset.
    """

    name: str
    model: str
    about: str
    is_trained: bool = False


@dataclass(frozen=True)
class System:
    """A way to search, with its score.

    Attributes:
        name: without commas: `BM25`, `all-MiniLM-L6-v2`, `all-MiniLM-L6-v2 + BM25`, `trained`, `trained + BM25`.
        about: what it is, in a line.
        is_trained: whether its model was trained on this dataset.
        weight: the weight of the model's scores beside BM25's, from 0 to 1; None: the model or BM25 alone.
        mrr: mean reciprocal rank of the right text, in percent; low, high: its 95 % interval.
    """

    name: str
    about: str
    is_trained: bool
    weight: float | None
    mrr: float
    low: float
    high: float


@dataclass(frozen=True)
class Example:
    """A query that the two compared systems answer differently.

    Attributes:
        query: the query. text: the right text.
        rank, rank_untrained: rank of the right text by the trained system, and by the untrained one.
        first, first_untrained: the text that each ranks first.
    """

    query: str
    text: str
    rank: int
    rank_untrained: int
    first: str
    first_untrained: str


@dataclass(frozen=True)
class Verdict:
    """The outcome.

    Attributes:
        task: what finds the texts: `titles`, `crops` or `questions`.
        num_queries: number of queries that the figures are of.
        num_texts: number of texts that are ranked.
        num_collection: number of different texts in the collection; more than `num_texts` if a sample is ranked.
        systems: best first.
        winner: name of the system to take: the best trained one if `word` is `better`, else the best untrained one.
        best_trained, best_untrained: names of the two systems that are compared.
        difference: the best trained one's MRR minus the best untrained one's, in points; low, high: its 95 % interval.
        word: `better` if the interval is above 0, `worse` if it is below, else `no difference`.
        sentence: the outcome in words.
        notes: remarks on how far the figures carry, such as few queries.
        examples: queries that the compared systems answer differently: some that the trained one wins, some it loses.
    """

    task: Literal["titles", "crops", "questions"]
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
    notes: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    def system(self, name: str) -> System:
        """Return a system by its name."""
        return next(system for system in self.systems if system.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Verdict":
        """Return the verdict of the result of `to_json`, also if it was written as JSON and read back."""
        systems = tuple(System(**each) for each in values["systems"])
        examples = tuple(Example(**each) for each in values["examples"])
        return cls(**{**values, "systems": systems, "examples": examples, "notes": tuple(values["notes"])})


def judge(
    entrants: Sequence[Entrant],
    data: Path,
    queries: Path | None = None,
    *,
    prompt_name: tuple[str, ...] = (),
    cached: Path | None = None,
    compute: Compute | None = None,
    batch_tokens: int = 16384,
    progress: bool = False,
) -> Verdict:
    """Compare trained with untrained models, and BM25, in finding the texts of a dataset.

    Args:
        entrants: the models; at least one of them is trained.
        data: a dataset with a held-out part (`validation/`).
        queries: a file of questions (`common.queries`), which are judged instead of the dataset's held-out titles.
        prompt_name: as of `clearspan eval`.
        cached: folder of cached embeddings; None: no cache.
        compute: device and precision (default: the GPU if there is one, fp32).

    Raises:
        DataError: the dataset or the file is malformed, or has too few held-out texts.
        EncoderError: a model cannot be used.
    """
    raise NotImplementedError
