"""Score how well a model finds held-out texts of a dataset, without labels.

    a dataset's held-out part ──> eval.data.heldout_data ──> RetrievalSet ──> scored like eval.tasks.retrieval

A query is one crop of a held-out text. It should find another crop of the same text among crops of all texts of the
dataset. In a dataset of pairs, a query is the first text of a pair, which should find the second text. Such a dataset
also has a task `NAME/passages`, which uses crops of the second texts instead.

The score measures whether a model distinguishes the texts of a corpus. Compare it with the scores of `--model tfidf`
and `bm25` to see whether the model does more than match words. Training chooses checkpoints by one half of the held-out
texts, and this module scores the other half. Scores on different corpora are not comparable, because they depend on
the number of texts and on how similar the texts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.records import MissingDataError
from clearspan.eval.data import heldout_data
from clearspan.eval.data.dataset_texts import SEED
from clearspan.eval.data.heldout_folders import FOLDER, find
from clearspan.eval.models.hybrid import Hybrid
from clearspan.eval.models.similarity import Similarity
from clearspan.eval.tasks.retrieval import RetrievalTask
from clearspan.eval.tasks.task import Family, Loaded, Task, TaskContext
from clearspan.retrieval.hybrid import MAX_DEV_QUERIES, best_weight
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.ranks import ranks
from clearspan.retrieval.retrieval_set import RetrievalSet

HEADLINE = ("mrr", "recall@1", "recall@10")


@dataclass(frozen=True)
class HeldOutTask(RetrievalTask):
    """A retrieval task whose queries come from held-out texts.

    Attributes:
        dev: the other half of the queries, by which training chooses checkpoints, with the same documents. It is not
            scored. If the model is combined with BM25, the model's weight is chosen on this half. None if the queries
            are not divided into halves.
    """

    dev: RetrievalSet | None = None

    def vectors(self, run: TaskContext) -> tuple[Vectors, Vectors, Mapping[str, Any]]:
        """Return the vectors of the queries, the vectors of the documents, and settings to report.

        If the model is combined with BM25, and the user has not set its weight, the weight is used that gives the
        highest MRR on the queries of `dev` (the first 2,000 if there are more), which are not scored. The settings
        then have this weight. If `dev` is None, the weight is 0.7 (`HYBRID_WEIGHT`).
        """
        if self.dev is None or not isinstance(run.embedder, Hybrid) or run.embedder.is_weight_given:
            return super().vectors(run)
        number = min(MAX_DEV_QUERIES, len(self.dev.queries))
        dev = self.dev.select(range(number))
        combined = run.embedder.combined_vectors([*dev.queries, *self.collection.queries], self.collection.documents)
        weight = best_weight(combined.select(slice(number)).reciprocal_ranks(dev))
        chosen = {"hybrid_weight": weight, "hybrid_weight_chosen_by": f"{number:,} held-out texts that are not scored"}
        return *combined.select(slice(number, None)).vectors(weight), chosen


def load(data: Path) -> Loaded:
    """Read the held-out part of a dataset, or all held-out texts in a data folder, as tasks.

    Args:
        data: the folder of the dataset; or a data folder with a subfolder `heldout/`, which has datasets, and jsonl or
            csv files of texts. If it is neither, there are no tasks, and `Loaded.missing` has the reason.

    Raises:
        DataError: a dataset or file is malformed or has too few texts, or the dataset `data` has no held-out part.
    """
    try:
        parts = find(data)
    except MissingDataError as error:
        return Loaded([], {FOLDER: str(error)})
    tasks: list[Task] = []
    for name, path in parts.items():
        for suffix, held in heldout_data.read_all(path).items():
            settings = {"crop_seed": SEED}
            title = f"{name}{suffix}"
            counts = held.counts
            tasks.append(
                HeldOutTask(title, held.collection, held.files, HEADLINE, counts, held.text, settings, held.dev)
            )
    return Loaded(tasks, {})


FAMILY = Family(
    load, "DIR/validation/, if DIR is a dataset of shards, or DIR/heldout/<name>: a dataset of shards, .jsonl or .csv"
)


def mean_mrr(model: Similarity, collections: Sequence[RetrievalSet]) -> float:
    """Return a model's MRR, in percent: the mean of its values on the collections, which all have equal weight."""
    ranked = [ranks(*model.ranking(collection.queries, collection.documents), collection) for collection in collections]
    return 100 * float(np.mean([result.reciprocal.mean() for result in ranked]))
