"""The score on `training.eval_data` during training: how it is computed, and what it is called.

SentEval's folder, a file of pairs ──> embeddings ──> Spearman correlation of cosines with scores
`heldout`: data.NAME.validation ─────> embeddings ──> MRR: given one crop of a text, find the other
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearspan.eval.data import heldout
from clearspan.eval.data.pairs import SUFFIXES
from clearspan.eval.files import DataError, MissingDataError
from clearspan.eval.tasks.heldout import LIMIT_IN_TRAINING, mean_mrr
from clearspan.eval.tasks.sts import pairs_spearman, read_stsb_dev
from clearspan.shards import Dataset
from clearspan.train.data.feed import listed
from clearspan.train.learner import Learner
from clearspan.train.model.encoder import encode_texts
from clearspan.train.options import HELD_OUT, Recipe, RecipeError


@dataclasses.dataclass(frozen=True)
class DevScore:
    """The score on `training.eval_data`: a function of a learner; higher is better.

    Attributes:
        data: hash of the pairs, or of the held-out texts, wherever their files are.
    """

    data: str
    score: Callable[[Learner], float]

    def __call__(self, learner: Learner) -> float:
        return self.score(learner)


@dataclasses.dataclass(frozen=True)
class Measure:
    """The meaning of a score, in the words of a model card.

    Attributes:
        data: the name of its data.
        metric: its name; its unit is percent.
        hub: (type of the task, name of the task, type of the metric) in the Hub's words.
    """

    data: str
    metric: str
    hub: tuple[str, str, str]

    def as_result(self, score: float) -> dict[str, Any]:
        """Return a score as the Hub reads it in a model card."""
        task, title, metric = self.hub
        return {
            "task": {"type": task, "name": title},
            "dataset": {"type": "unknown", "name": self.data},
            "metrics": [{"type": metric, "value": round(score, 2), "name": f"{self.metric}, in percent"}],
        }


def measure(eval_data: str) -> Measure:
    """Return what the score on `training.eval_data` measures."""
    if eval_data == HELD_OUT:
        return Measure("held-out texts", "MRR", ("information-retrieval", "Information Retrieval", "mrr"))
    path = Path(eval_data)
    name = path.name if path.suffix.lower() in SUFFIXES else "STS-B dev"
    hub = "semantic-similarity", "Semantic Similarity", "spearman_cosine"
    return Measure(name, "Spearman by cosine", hub)


def evaluator(recipe: Recipe, datasets: Mapping[str, Dataset], tokenizer: Any, quiet: bool) -> DevScore | None:
    """Return what scores the encoder on `eval_data` during training, or None without it.

    Raises:
        RecipeError: there are no held-out texts, or the data cannot be read, or all pairs have the same score.
    """
    data = recipe.training.eval_data
    if not data:
        return None
    try:
        content, scored = _on_held_out(recipe, datasets) if data == HELD_OUT else _on_pairs(data)
    except (DataError, MissingDataError) as error:
        raise RecipeError(f"training.eval_data{' heldout' if data == HELD_OUT else ''}: {error}") from None

    def score(learner: Learner) -> float:
        return scored(lambda texts: encode_texts(learner.encoder, tokenizer, texts, quiet=quiet))

    return DevScore(hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest(), score)


def _on_pairs(data: str) -> tuple[str, Callable[[Any], float]]:
    """Return the pairs as text, and the score on them."""
    pairs = read_stsb_dev(data)
    if len(set(pairs.gold)) < 2:
        raise RecipeError(
            f"training.eval_data {data}: all pairs have the same score, so no correlation exists: "
            "give pairs with different scores"
        )
    content = json.dumps([pairs.left, pairs.right, pairs.gold.tolist()])
    return content, lambda encode: pairs_spearman(encode, pairs)


def _on_held_out(recipe: Recipe, datasets: Mapping[str, Dataset]) -> tuple[str, Callable[[Any], float]]:
    """Return a line for each shard of the held-out texts, and the score on them."""
    folders = {
        name: data.validation
        for name, data in recipe.data.items()
        if data.validation and datasets[name].kind.has_tokens
    }
    if not folders:
        raise DataError("no dataset of text has held-out examples: set data.NAME.validation")
    read = [heldout.read_dataset(folder, LIMIT_IN_TRAINING, picking=True) for folder in folders.values()]
    collections = [held.collection for held in read]
    content = listed({name: Dataset(folder) for name, folder in folders.items()})
    return content, lambda encode: mean_mrr(encode, collections)
