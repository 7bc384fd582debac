"""Choose the recipe that `clearspan adapt` trains with, by the number and the length of the texts and by the model.

    the first that applies                 recipe
    static encoder                         static-pairs for texts with titles, otherwise static
    texts with titles                      pairs
    sentences: median below 32 tokens      simcse-unsup-bert-base
    passages: median below 1,024 tokens    crops
    long documents                         contrastive-only, which draws DeCLUTR's spans

The number of texts decides the batch size and the number of steps.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

EVALUATED = "training.eval_steps=1"
"""Evaluation interval with which a recipe is loaded, until the interval is computed from its number of steps."""
SHORT, LONG = 32, 1024
"""Bounds of the median number of tokens: below SHORT, texts are single sentences; from LONG on, long documents."""
FEW_TEXTS = 10_000
"""Below this number of texts, training reads them three times."""
NUM_EVALUATIONS, NUM_BY_STATIC = 2, 4
"""Number of evaluations during training, in addition to the evaluation at its start. A transformer's takes seconds."""
RANKED, RANKED_BY_STATIC = 900, 20_000
"""Number of texts that an evaluation ranks: a transformer embeds 900 in seconds, a static encoder 20,000."""
STATIC = ("model.config=null", "model.init=random", "optimizer.learning_rate=0.02")
"""Overrides of the static recipes for a model that already has vectors: they are kept, with a lower learning rate."""
MAX_STEPS = 300
"""Most steps of a transformer on texts with titles: ten minutes on two cores. Twice as many gained half a point."""
MAX_EPOCHS = 5
"""Most epochs of a static encoder over the titles: with 2,400 titles, 64 epochs overfitted."""
MIN_STEPS = 4
"""Fewest steps of an epoch with titles, or of a new static encoder: a small dataset is read in smaller batches."""
LENGTH = ("training.epochs=", "training.max_steps=")
"""Beginnings of the overrides by which the user sets the length of training."""
SENTENCES = ("model.pooling=''",)
"""Override that keeps the model's own pooling, since the recipe's pooling suits only BERT."""
LONG_TEXTS = ("data.text.short_documents=shrink",)


class Choice(NamedTuple):
    """A recipe that was chosen, and changes to it.

    Attributes:
        recipe: the name or file of the recipe.
        changes: settings to change in the recipe, each as `key=value`.
        reason: the reason for the choice, for the user.
    """

    recipe: str
    changes: tuple[str, ...]
    reason: str


def planned(
    dataset: Path,
    texts: Path,
    base: Path,
    keys: Sequence[str],
    overrides: Sequence[str],
    has_titles: bool,
    is_made: bool,
    chosen_recipe: str | None,
) -> Choice:
    """Choose a recipe for a dataset, with a batch size, number of steps and evaluation interval that suit its size.

    Args:
        dataset: the folder of the dataset to train on: `texts`, or a dataset that was mined from it.
        texts: the folder of the dataset that was made from the inputs, with a held-out part.
        base: the folder of the model to train.
        keys: settings that this run needs in every recipe (paths, evaluation on held-out texts), each as `key=value`.
        overrides: settings of the user, each as `key=value`.
        has_titles: whether the texts have titles.
        is_made: whether the model to train is a static encoder that `clearspan adapt` made.
        chosen_recipe: the recipe that the user chose; None to choose one by the texts and the model.

    Raises:
        RecipeError: there is no such recipe, or a key or value cannot work.
    """
    from clearspan.common.model_folder import read_modules
    from clearspan.pipelines.units.curation import held_out_share
    from clearspan.shards.manifest import Manifest
    from clearspan.train.api import load_recipe

    manifest = Manifest.load(str(dataset))
    is_static = any(module.kind == "StaticEmbedding" for module in read_modules(base))
    num_texts = manifest.totals["examples"]
    lengths = manifest.lengths["positive" if has_titles else "tokens"]
    choice = choose(num_texts, median(lengths), is_static, has_titles, chosen_recipe, sets_length(overrides))
    recipe = load_recipe(choice.recipe, [*keys, EVALUATED, *choice.changes, *overrides])
    batch_size = recipe.data["text"].batch_size
    if num_texts < MIN_STEPS * batch_size and (has_titles or is_made):
        smaller = 1 << max(3, (num_texts // MIN_STEPS).bit_length() - 1)
        choice = choice._replace(changes=(*choice.changes, f"data.text.batch_size={min(smaller, batch_size)}"))
    recipe = load_recipe(choice.recipe, [*keys, EVALUATED, *choice.changes, *overrides])
    num_steps_of_epochs = recipe.training.epochs * num_texts / recipe.data["text"].batch_size
    is_free = not chosen_recipe and not sets_length(overrides)
    num_steps = recipe.training.max_steps or num_steps_of_epochs
    most = most_steps(num_texts, recipe.data["text"].batch_size, is_static)
    if has_titles and is_free and num_steps > most:
        choice, num_steps = choice._replace(changes=(*choice.changes, f"training.max_steps={most}")), most
    ranked = f"training.eval_texts={RANKED_BY_STATIC if is_static else RANKED}"
    num_evaluations = NUM_BY_STATIC if is_static else NUM_EVALUATIONS
    evaluations = f"training.eval_steps={max(1, math.ceil(num_steps / num_evaluations))}"
    reason = f"{choice.reason}; about {max(1, round(num_steps)):,} steps; {held_out_share(Manifest.load(str(texts)))}"
    return Choice(choice.recipe, (*choice.changes, evaluations, ranked), reason)


def check(
    keys: Sequence[str], overrides: Sequence[str], is_static: bool, has_titles: bool, chosen_recipe: str | None
) -> None:
    """Raise RecipeError if the user's overrides fit none of the recipes that may be chosen.

    This is called before the texts are read, when it is not known which recipe will be chosen.

    Args:
        keys: settings that this run needs in every recipe (paths, evaluation on held-out texts), each as `key=value`.
        overrides: settings of the user, each as `key=value`.
        is_static: whether the model to train is a static encoder.
        has_titles: whether the texts have titles.
        chosen_recipe: the recipe that the user chose; None if it will be chosen when the texts have been read.
    """
    from clearspan.train.api import load_recipe
    from clearspan.train.config.options import RecipeError

    problems = []
    for choice in {choose(FEW_TEXTS, length, is_static, has_titles, chosen_recipe) for length in (LONG, SHORT, 1)}:
        try:
            load_recipe(choice.recipe, [*keys, EVALUATED, *choice.changes, *overrides])
        except RecipeError as error:
            problems.append(error)
        else:
            return
    raise min(problems, key=str)


def sets_length(overrides: Sequence[str]) -> bool:
    """Return whether the user's overrides set the length of training, which then is not chosen here."""
    return any(key.startswith(LENGTH) for key in overrides)


def most_steps(num_texts: int, batch_size: int, is_static: bool) -> int:
    """Return the maximum number of steps of a training on texts with titles.

    A transformer is trained for at most 300 steps. A static encoder is trained for at most five epochs; if these have
    fewer than four steps, the maximum is four.

    Args:
        num_texts: the number of texts.
        batch_size: the number of texts in a step.
        is_static: whether the model to train is a static encoder.
    """
    return max(MIN_STEPS, round(MAX_EPOCHS * num_texts / batch_size)) if is_static else MAX_STEPS


def choose(
    num_texts: int,
    median_tokens: int,
    is_static: bool,
    has_titles: bool = False,
    recipe: str | None = None,
    has_length: bool = False,
) -> Choice:
    """Choose a recipe by the texts and the model.

    Args:
        num_texts: the number of texts.
        median_tokens: the median of the texts' numbers of tokens.
        is_static: whether the model to train is a static encoder.
        has_titles: whether the texts have titles.
        recipe: the recipe that the user chose, which is returned with no changes to it; None to choose one here.
        has_length: whether the user set the length of training.
    """
    lengths = f"{num_texts:,} texts, half of them of at least {median_tokens:,} tokens"
    if median_tokens < SHORT and not has_titles:
        lengths += "; held-out crops of single sentences judge little: score labeled pairs too (docs/adapt.md)"
    epochs = ("training.epochs=3",) if num_texts < FEW_TEXTS and not has_length else ()
    if recipe:
        return Choice(recipe, (), f"recipe {recipe}, as given: {lengths}")
    if is_static:
        name = "static-pairs" if has_titles else "static"
        return Choice(name, STATIC, f"recipe {name}, since the model is static token vectors: {lengths}")
    if has_titles:
        return Choice("pairs", epochs, f"recipe pairs, each title told from texts that are near its own: {lengths}")
    if median_tokens >= LONG:
        return Choice("contrastive-only", LONG_TEXTS, f"recipe contrastive-only, DeCLUTR's spans: {lengths}")
    if median_tokens < SHORT:
        return Choice("simcse-unsup-bert-base", SENTENCES, f"recipe simcse-unsup-bert-base, two dropouts: {lengths}")
    return Choice("crops", epochs, f"recipe crops, two neighboring crops of each text: {lengths}")


def median(histogram: Mapping[str, int]) -> int:
    """Return the lower edge of the bin that holds the median of the values that a histogram counts.

    Args:
        histogram: the lower edge of each bin -> the number of texts in it, in ascending order of the edges.
    """
    edges, counts = map(int, histogram), itertools.accumulate(histogram.values())
    return next(edge for edge, count in zip(edges, counts, strict=True) if 2 * count >= sum(histogram.values()))
