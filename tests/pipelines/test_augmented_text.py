"""CLEAR's augmentations of Wikipedia sentences: the paper's fractions, order, and whole words."""

from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.pipelines.augment.steps import DEL, Augmenter
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, bounds


@pytest.fixture(scope="module")
def del_id(del_tokenizer: Tokenizer) -> int:
    return del_tokenizer.token_to_id(DEL)


@pytest.fixture(scope="module")
def keys(wiki_tokens: Ragged) -> np.ndarray:
    return keyed.mix(42, np.arange(len(wiki_tokens)), 0)


def per_sentence(marked: np.ndarray, sentences: Ragged) -> np.ndarray:
    """Count the marked tokens of each sentence."""
    return np.diff(bounds(marked)[sentences.offsets])


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", ["del-word", "subs+del-span", "del-span+del-word", "del-word+reorder", "subs+del-word+reorder"]
)
def test_no_two_del_in_a_row_and_no_view_empty(
    augmenter: Callable[..., Augmenter], wiki_tokens: Ragged, keys: np.ndarray, del_id: int, steps: str
) -> None:
    made = augmenter(steps)(wiki_tokens, keys)
    assert made.values.dtype == np.uint16 and len(made) == len(wiki_tokens)
    is_del = made.values == del_id
    follows = np.append(False, is_del[:-1])
    follows[made.offsets[:-1]] = False
    assert is_del.any() and not (is_del & follows).any()
    assert (per_sentence(~is_del, made) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "share"), [("del-word", 0.7), ("del-span", 0.25)])
def test_the_share_of_tokens_deleted_is_the_papers(
    augmenter: Callable[..., Augmenter],
    wiki_tokens: Ragged,
    keys: np.ndarray,
    del_id: int,
    steps: str,
    share: float,
) -> None:
    made = augmenter(steps)(wiki_tokens, keys)
    deleted = wiki_tokens.lengths - per_sentence(made.values != del_id, made)
    expected = np.clip(np.floor(share * wiki_tokens.lengths + 0.5 + 1e-9), 1, np.maximum(wiki_tokens.lengths - 1, 0))
    assert np.array_equal(deleted, np.where(wiki_tokens.lengths > 1, expected, 0))


@pytest.mark.slow
def test_another_seed_or_view_is_another_view(augmenter: Callable[..., Augmenter], wiki_tokens: Ragged) -> None:
    augment, numbers = augmenter("subs+del-span"), np.arange(len(wiki_tokens))
    one, *others = (augment(wiki_tokens, keyed.mix(seed, numbers, view)) for seed, view in ((1, 0), (1, 1), (2, 0)))
    long = np.flatnonzero(wiki_tokens.lengths > 12)
    for other in others:
        assert np.mean([np.array_equal(one[i], other[i]) for i in long]) < 0.01
