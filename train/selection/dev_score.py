"""The score on `training.eval_data` during training.

SentEval's folder, a file of pairs ──> embeddings ──> Spearman correlation of cosines with scores
`heldout`: data.NAME.validation ─────> embeddings ──> MRR: given a title or a crop of a text, find the text or another
           crop, among the right ones and those that BM25 finds near (`hard_candidates`)

Texts have the prompts of the exported model: pairs of texts its default, queries and documents theirs.
"""

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clearspan.common.encoder.embedder import Encode
from clearspan.common.encoder.prompts import Sides
from clearspan.eval.data import heldout
from clearspan.eval.data.crops import crops
from clearspan.eval.data.dataset_texts import DatasetTexts
from clearspan.eval.data.retrieval import Collection
from clearspan.eval.files import DataError, MissingDataError
from clearspan.eval.models.embed import Embedder
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.tasks.heldout import mean_mrr
from clearspan.eval.tasks.sts import pairs_spearman, read_stsb_dev
from clearspan.shards import Dataset
from clearspan.train.config.keys import naming
from clearspan.train.learner import Learner
from clearspan.train.model.encoder import encode_texts
from clearspan.train.options import HELD_OUT, Recipe
from clearspan.train.selection.hard_candidates import fewer, with_hard_candidates

QUERIES, NEAR = 300, 2
"""Most queries of a dataset, and the near texts of each: few, since an evaluation embeds them all."""
FIRST = 20_000
"""Number of first examples of the training part that are looked at for near ones."""
DevScore = Callable[[Learner], float]
"""Function of a learner; higher is better."""
Encoded = Callable[[str], Encode]
"""Function of a prompt that returns what encodes texts with it."""


def evaluator(recipe: Recipe, datasets: Mapping[str, Dataset], tokenizer: Any, quiet: bool) -> DevScore | None:
    """Return what scores the encoder on `eval_data` during training, or None without it.

    Raises:
        RecipeError: there are no held-out texts, or the data cannot be read, or all pairs have the same score.
    """
    data = recipe.training.eval_data
    if not data:
        return None
    with naming(f"training.eval_data{' heldout' if data == HELD_OUT else ''}", MissingDataError):
        scored = _on_held_out(recipe, datasets) if data == HELD_OUT else _on_pairs(data)

    def score(learner: Learner) -> float:
        def encoded(prompt: str) -> Encode:
            return functools.partial(encode_texts, learner.encoder, tokenizer, quiet=quiet, prompt=prompt)

        return scored(encoded, learner.encoder.inference.sides)

    return score


def _on_pairs(data: str) -> Callable[[Encoded, Sides], float]:
    """Return the score on scored pairs."""
    pairs = read_stsb_dev(data)
    if len(set(pairs.gold)) < 2:
        raise DataError(
            f"{data}: all pairs have the same score, so no correlation exists: give pairs with different scores"
        )
    return lambda encoded, prompts: pairs_spearman(encoded(prompts.other), pairs)


def _on_held_out(recipe: Recipe, datasets: Mapping[str, Dataset]) -> Callable[[Encoded, Sides], float]:
    """Return the score on the held-out texts."""
    held = {name: data.validation for name, data in recipe.data.items() if data.validation}
    folders = {folder: recipe.data[name].path for name, folder in held.items() if datasets[name].kind.has_tokens}
    if not folders:
        raise DataError("no dataset of text has held-out examples: set data.NAME.validation")
    collections = [to_pick_by(*each) for each in folders.items()]
    return lambda encoded, prompts: mean_mrr(Prompted(prompts, lambda prompt: Embedder(encoded(prompt))), collections)


def to_pick_by(folder: str, training: str) -> Collection:
    """Return the queries that pick checkpoints, with the texts that are ranked: the right ones, and near ones.

    Args:
        folder: the held-out part. training: the dataset that is trained on, whose texts are ranked too.
    """
    queries = fewer(heldout.read_dataset(folder, QUERIES, picking=True).collection, QUERIES)
    return with_hard_candidates(queries, _documents(training), NEAR)


def _documents(folder: str) -> Iterator[str]:
    """Yield the texts that titles should find, or a crop of each text without a title, of the first examples."""
    for number, parts in itertools.islice(DatasetTexts(folder, sys.maxsize), FIRST):
        pair = parts if len(parts) > 1 else crops(parts[0], number)
        if pair and pair[1]:
            yield pair[1]
