"""The recipe that `adapt` trains with follows from the texts and the model."""

import pytest

from clearspan.adapt import recipe as adapt_recipe
from clearspan.train.api import load_recipe


@pytest.mark.parametrize(
    ("num_texts", "median", "is_static", "recipe", "changes"),
    [
        (5_000, 30, False, "simcse-unsup-bert-base", adapt_recipe.SENTENCES),
        (5_000, 100, False, "crops", ("training.epochs=3",)),
        (50_000, 400, False, "crops", ()),
        (50_000, 2_048, False, "contrastive-only", adapt_recipe.LONG_TEXTS),
        (5_000, 30, True, "static", adapt_recipe.STATIC),
    ],
)
def test_the_recipe_follows_from_texts_and_model(
    num_texts: int, median: int, is_static: bool, recipe: str, changes: tuple[str, ...]
) -> None:
    chosen = adapt_recipe.choose(num_texts, median, is_static)
    assert (chosen.recipe, chosen.changes) == (recipe, changes)
    assert f"{num_texts:,} texts" in chosen.reason and f"{median:,} tokens" in chosen.reason
    assert ("single sentences" in chosen.reason) == (median < 32)
    assert adapt_recipe.choose(num_texts, median, is_static, recipe="mine.yaml")[:2] == ("mine.yaml", ())
    titled = adapt_recipe.choose(num_texts, median, is_static, has_titles=True)
    assert titled.recipe == ("static-pairs" if is_static else "pairs") and "single sentences" not in titled.reason


@pytest.mark.parametrize("key", ["training.max_steps=20", "training.epochs=1"])
@pytest.mark.parametrize("has_titles", [False, True])
def test_a_length_that_the_user_sets_is_the_only_one(key: str, has_titles: bool) -> None:
    """A recipe with two lengths would be refused when the texts are read and the negatives mined."""
    assert adapt_recipe.sets_length(["optimizer.learning_rate=2e-5", key])
    chosen = adapt_recipe.choose(700, 100, is_static=False, has_titles=has_titles, has_length=True)
    assert chosen.changes == ()
    paths = ["data.text.path=texts", "data.text.validation=held", "model.path=model", "output=run"]
    recipe = load_recipe(chosen.recipe, [*paths, adapt_recipe.EVALUATED, *chosen.changes, key])
    assert (recipe.training.max_steps or recipe.training.epochs) == float(key.partition("=")[2])


def test_a_static_encoder_reads_few_titles_few_times() -> None:
    """Of many it reads as many as the recipe says."""
    assert adapt_recipe.most_steps(2_400, 512, is_static=True) == 23
    assert adapt_recipe.most_steps(36_550, 512, is_static=True) > 300
    assert adapt_recipe.most_steps(40, 16, is_static=True) == 12 and adapt_recipe.most_steps(3, 8, True) == 4
    assert adapt_recipe.most_steps(2_400, 48, is_static=False) == adapt_recipe.MAX_STEPS
