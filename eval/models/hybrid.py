"""A model combined with BM25, which is scored on tasks that rank documents (`--model hybrid:DIR`).

A task chooses the weight of the model's score on additional queries, which are not scored
(`retrieval.hybrid.best_weight`). If a task has no such queries, the weight is 0.7 (`HYBRID_WEIGHT`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearspan.common.model_forms import HYBRID
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.similarity import Similarity
from clearspan.retrieval.hybrid import HYBRID_WEIGHT, CombinedVectors
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.scoring import DEFAULT, Scoring


class Hybrid(Similarity):
    """A model combined with BM25. It ranks documents by a weighted sum of the two scores.

    Args:
        model: the model, which returns vectors of texts.
        weight: the weight of the model's score, from 0 (BM25 alone) to 1 (the model alone); None to let each task
            choose the weight. A task that cannot choose uses 0.7 (`HYBRID_WEIGHT`).
        scoring: BM25's k1 and b; its words are those of the language of a task's texts.

    Attributes:
        is_weight_given: true if the caller set the weight; a task then does not choose one.
    """

    measure = "hybrid score"

    def __init__(self, model: Similarity, weight: float | None = None, scoring: Scoring = DEFAULT) -> None:
        self.is_weight_given = weight is not None
        self._weight = HYBRID_WEIGHT if weight is None else weight
        self._model = model
        self._words = Lexical("bm25", scoring)

    @property
    def settings(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {**self._words.settings, "hybrid_weight": self._weight}

    def combined_vectors(self, queries: Sequence[str], documents: Sequence[str]) -> CombinedVectors:
        """Return vectors of the texts from the model and from BM25, whose scores can be combined with any weight."""
        return CombinedVectors.of(self._model.ranking(queries, documents), self._words.ranking(queries, documents))

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return float32 vectors of the queries and of the documents, whose dot products are the combined scores.

        The weight of the model's score is the argument `weight` of the constructor, or 0.7 if that is None.
        """
        return self.combined_vectors(queries, documents).vectors(self._weight)


def hybrid_folder(spec: str) -> str | None:
    """Return DIR if a value of `--model` is `hybrid:DIR`, which means the model DIR combined with BM25; otherwise None.

    Args:
        spec: the value of `--model`. If a file or folder with this name exists, the result is None.
    """
    return spec.removeprefix(HYBRID) if spec.startswith(HYBRID) and not Path(spec).exists() else None
