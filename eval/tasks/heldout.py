"""Held-out retrieval: given one crop of a held-out text, find the other among those of all texts. Needs no labels.
Of a dataset of pairs, given the first text, find the second; `NAME/passages` are crops of the second texts.

    a dataset's held-out part ──> eval.data.heldout ──> Collection ──> scored as eval.tasks.retrieval

The score says whether a model tells a corpus's own texts apart; beside `--model tfidf` and `bm25`, whether it does more
than compare words. Half of a dataset's held-out part picks checkpoints in training; the other half is scored here. The
score is for comparisons on one corpus: it depends on the number of texts and on how alike they are.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clearspan.eval.data import heldout
from clearspan.eval.data.retrieval import Collection
from clearspan.eval.files import MissingDataError
from clearspan.eval.models.similarity import Similarity
from clearspan.eval.tasks.retrieval import RetrievalTask, search
from clearspan.eval.tasks.task import Family, Loaded, Task

HEADLINE = ("mrr", "recall@1", "recall@10")
LIMIT_IN_TRAINING = 2000
"""Most texts of a dataset that are ranked for each evaluation in training."""


def load(data: Path) -> Loaded:
    """Read the held-out part of the dataset `data`, or every dataset and file in `data/heldout/`.

    Raises:
        DataError: a dataset or file is malformed, holds no text or too few, or has no held-out part.
    """
    try:
        found = heldout.find(data)
    except MissingDataError as error:
        return Loaded([], {heldout.FOLDER: str(error)})
    tasks: list[Task] = []
    for name, path in found.items():
        for suffix, held in heldout.read_all(path).items():
            settings = {"crop_seed": heldout.SEED}
            title, counts = f"{name}{suffix}", held.counts
            tasks.append(RetrievalTask(title, held.collection, held.files, HEADLINE, counts, held.text, settings))
    return Loaded(tasks, {})


FAMILY = Family(
    load, "the validation/ part of DIR, a dataset of shards, or DIR/heldout/<name>: such a dataset, .jsonl or .csv"
)


def mean_mrr(model: Similarity, collections: Sequence[Collection]) -> float:
    """Return the MRR of a model, in percent, as the mean over the collections."""
    ranked = [search(*model.ranking(each.queries, each.documents), each) for each in collections]
    return float(np.mean([each.scores()["mrr"] for each in ranked]))
