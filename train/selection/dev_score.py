"""The score on `training.eval_data` during training.

SentEval's folder, a file of pairs ──> embeddings ──> Spearman correlation of cosines with scores
`heldout`: data.NAME.validation ─────> titles, or crops ─┐
           data.NAME.path, validation ─> hard texts ─────┴──> embeddings ──> MRR: given a title, find its text

The ranked texts are the right texts of the titles, and distractors that BM25 ranks near to them, from both parts of the
dataset. They are the hard cases of a search in all texts, at a bounded cost (`training.eval_texts`).

Texts have the prompts of the exported model: pairs of texts its default, queries and documents theirs.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from clearspan.common.encoder.embedder import Encode
from clearspan.common.encoder.prompts import Sides
from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data import heldout_data
from clearspan.eval.data.narrowed import narrowed
from clearspan.eval.data.retrieval_data import RetrievalSet
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.tasks.heldout import mean_mrr
from clearspan.eval.tasks.sts import pairs_spearman, read_stsb_dev
from clearspan.shards import Dataset
from clearspan.train.config.keys import naming
from clearspan.train.config.options import HELD_OUT, Recipe
from clearspan.train.model.embedding import encode_texts
from clearspan.train.step.learner import Learner

MOST_LOOKED_AT = 50_000
"""Maximum number of a dataset's texts that are searched for hard texts."""
DevScore = Callable[[Learner], float]
"""Function of a learner; higher is better."""
Encoded = Callable[[str], Encode]
"""Function of a prompt that returns an encoder of texts with this prompt."""


def evaluator(recipe: Recipe, datasets: Mapping[str, Dataset], tokenizer: Any, quiet: bool) -> DevScore | None:
    """Return the function that scores the encoder on `training.eval_data`; None if that key is empty.

    Raises:
        RecipeError: there are no held-out texts, the data cannot be read, or all pairs have the same score.
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
    """Return the function that scores an encoder on pairs with scores."""
    pairs = read_stsb_dev(data)
    if len(set(pairs.gold)) < 2:
        raise DataError(
            f"{data}: all pairs have the same score, so no correlation exists: give pairs with different scores"
        )
    return lambda encoded, prompts: pairs_spearman(encoded(prompts.other), pairs)


def _on_held_out(recipe: Recipe, datasets: Mapping[str, Dataset]) -> Callable[[Encoded, Sides], float]:
    """Return the function that scores an encoder on the held-out texts."""
    held = {name: (data.path, data.validation) for name, data in recipe.data.items() if data.validation}
    folders = [both for name, both in held.items() if datasets[name].kind.has_tokens]
    if not folders:
        raise DataError("no dataset of text has held-out examples: set data.NAME.validation")
    for _, validation in folders:
        # Complains before training of what cannot be ranked.
        heldout_data.read_dataset(validation, picking=True, most_ranked=MOST_LOOKED_AT)

    @functools.cache  # read by the rank that evaluates, when it first does
    def collections() -> list[RetrievalSet]:
        return [picking(*each, recipe.training.eval_texts) for each in folders]

    return lambda encoded, prompts: mean_mrr(
        Prompted(prompts, lambda prompt: EmbeddingSimilarity(encoded(prompt))), collections()
    )


def picking(path: str, validation: str, most: int) -> RetrievalSet:
    """Return the queries by which checkpoints are chosen, at most `most` / 2, and the texts to rank, at most `most`.

    Args:
        path, validation: folders of the training part and of the held-out part.

    Raises:
        DataError: a dataset is damaged, or has too few held-out texts.
    """
    held = heldout_data.read_dataset(validation, max(most // 2, heldout_data.FEWEST_TEXTS), True, path, MOST_LOOKED_AT)
    return narrowed(held.collection, most)
