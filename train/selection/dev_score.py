"""Score the encoder during training, on the data that `training.eval_data` names.

    SentEval's folder, or a file of scored pairs ──> Spearman correlation of cosines with the scores (STS-B dev)
    `heldout`: queries from data.NAME.validation ──> MRR of a search among texts of data.NAME.path and .validation

With `heldout`, a query is a title, or a crop of a text, and should find its text. The ranked texts are the relevant
documents of all queries, and those training and held-out texts that BM25 ranks high for the queries. So the score
covers the hard cases of a search among all texts, while `training.eval_texts` limits the number of texts to embed.

The encoder puts the prompts of the model to be exported before the texts: its query prompt before queries, its document
prompt before ranked texts. The texts of scored pairs get its prompt for other texts.

The encoder computes in fp32, without autocast, even in a run in bf16. The exported weights are fp32, and `eval`
computes in fp32 by default, so the exported model has the dev score of its checkpoint.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from clearspan.common.encoder.embedder import Encode
from clearspan.common.encoder.prompts import Sides
from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data import heldout_data
from clearspan.eval.data.narrowed import narrowed
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.tasks.heldout import mean_mrr
from clearspan.eval.tasks.sts import pairs_spearman, read_stsb_dev
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.shards import Dataset
from clearspan.train.config.keys import naming
from clearspan.train.config.options import HELD_OUT, Recipe
from clearspan.train.model.embedding import encode_texts
from clearspan.train.step.learner import Learner

MAX_LOOKED_AT = 50_000
"""The most texts of a dataset among which BM25 searches for texts near to the queries."""
DevScore = Callable[[Learner], float]
"""Function that scores the encoder of a learner; a higher score is better."""
Encoded = Callable[[str], Encode]
"""Function from a prompt to a function that embeds texts with this prompt."""


def evaluator(recipe: Recipe, datasets: Mapping[str, Dataset], tokenizer: Any, quiet: bool) -> DevScore | None:
    """Return a function that scores the encoder of a learner on `training.eval_data`; None if this key is empty.

    Args:
        recipe: the recipe of the run.
        datasets: name of a dataset in the recipe -> dataset.
        tokenizer: the tokenizer of the encoder.
        quiet: if true, no progress bars are shown.

    Raises:
        RecipeError: the data cannot be read, all pairs have the same score, or `eval_data` is `heldout` and there are
            too few held-out texts.
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
    """Return a function that scores an encoder by the Spearman correlation on scored pairs.

    Args:
        data: SentEval's folder, from which the dev split of STS-B is read, or a file of scored pairs.

    Returns:
        A function with two arguments: the encoder, as a function that takes a prompt and returns a function that embeds
        texts with this prompt; and the model's prompts for queries, documents and other texts.

    Raises:
        DataError: the data cannot be read, or all pairs have the same score.
    """
    pairs = read_stsb_dev(data)
    if len(set(pairs.gold)) < 2:
        raise DataError(
            f"{data}: all pairs have the same score, so no correlation exists: give pairs with different scores"
        )
    return lambda encoded, prompts: pairs_spearman(encoded(prompts.other), pairs)


def _on_held_out(recipe: Recipe, datasets: Mapping[str, Dataset]) -> Callable[[Encoded, Sides], float]:
    """Return a function that scores an encoder by its MRR on held-out texts, the mean over all text datasets.

    Args:
        recipe: the recipe of the run.
        datasets: name of a dataset in the recipe -> dataset.

    Returns:
        A function with two arguments: the encoder, as a function that takes a prompt and returns a function that embeds
        texts with this prompt; and the model's prompts for queries, documents and other texts. It reads the texts at
        its first call.

    Raises:
        DataError: no text dataset has held-out examples, or the held-out texts of a dataset are damaged or too few.
    """
    held = {name: (data.path, data.validation) for name, data in recipe.data.items() if data.validation}
    folders = [both for name, both in held.items() if datasets[name].kind.has_tokens]
    if not folders:
        raise DataError("no dataset of text has held-out examples: set data.NAME.validation")
    for _, validation in folders:
        # Raises before training if the held-out texts cannot be ranked.
        heldout_data.read_dataset(validation, dev=True, max_ranked=MAX_LOOKED_AT)

    @functools.cache  # read by the rank that evaluates, when it first does
    def collections() -> list[RetrievalSet]:
        return [dev_set(*each, recipe.training.eval_texts) for each in folders]

    return lambda encoded, prompts: mean_mrr(
        Prompted(prompts, lambda prompt: EmbeddingSimilarity(encoded(prompt))), collections()
    )


def dev_set(path: str, validation: str, max_texts: int) -> RetrievalSet:
    """Return a dataset's retrieval collection for the choice of checkpoints: held-out queries, and the texts to rank.

    Args:
        path, validation: the folders of the dataset's training part and of its held-out part.
        max_texts: the maximum number of texts to rank. It is exceeded only if the queries have more relevant documents
            than this. The maximum number of queries is `max_texts` // 2, or 10 if `max_texts` is less than 20.

    Raises:
        DataError: a part of the dataset is damaged, or it has too few held-out texts.
    """
    held = heldout_data.read_dataset(validation, max(max_texts // 2, heldout_data.MIN_TEXTS), True, path, MAX_LOOKED_AT)
    return narrowed(held.collection, max_texts)
