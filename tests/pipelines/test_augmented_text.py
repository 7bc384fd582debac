"""CLEAR's augmentations of Wikipedia sentences: the paper's fractions, order, and whole words."""

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.pipelines.augment.steps import DEL, UNITS, Augmenter, Block, reorder, subs
from clearspan.pipelines.augment.synonyms import SynonymTable
from clearspan.pipelines.augment.words import WordStarts
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


def words_of(block: Block) -> list[np.ndarray]:
    """Return the words of all sentences, concatenated."""
    return np.split(block.tokens.values, np.flatnonzero(block.starts)[1:])


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
def test_what_is_left_of_a_deletion_is_in_its_order(
    augmenter: Callable[..., Augmenter], wiki_tokens: Ragged, keys: np.ndarray, del_id: int
) -> None:
    made = augmenter("del-span")(wiki_tokens, keys)
    for i in range(0, len(wiki_tokens), 7):
        rest = iter(wiki_tokens[i].tolist())
        assert all(token in rest for token in made[i].tolist() if token != del_id)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_reorder_keeps_the_tokens_and_moves_some(
    augmenter: Callable[..., Augmenter], wiki_tokens: Ragged, keys: np.ndarray, unit: str
) -> None:
    made = augmenter("reorder", unit=unit)(wiki_tokens, keys)
    assert np.array_equal(made.offsets, wiki_tokens.offsets)
    for i in range(0, len(wiki_tokens), 5):
        assert Counter(made[i].tolist()) == Counter(wiki_tokens[i].tolist())
    share = per_sentence(made.values != wiki_tokens.values, wiki_tokens) / wiki_tokens.lengths
    assert (share[wiki_tokens.lengths > 8] == 0).mean() < 0.01
    assert share[wiki_tokens.lengths > 20].mean() > 0.4


@pytest.mark.slow
def test_reorder_of_words_keeps_them_whole(
    wiki_tokens: Ragged, keys: np.ndarray, word_starts: WordStarts, del_id: int
) -> None:
    before = Block(wiki_tokens, word_starts(wiki_tokens.values, wiki_tokens.offsets))
    after = reorder(before, keys, 5, 0.05, del_id, True, word_starts.special)
    old, new = ([word.tobytes() for word in words_of(block)] for block in (before, after))
    for first, last in itertools.pairwise(bounds(before.starts)[wiki_tokens.offsets].tolist()):
        assert Counter(new[first:last]) == Counter(old[first:last])


@pytest.mark.slow
def test_subs_replaces_words_by_their_synonyms_and_leaves_the_others(
    wiki_tokens: Ragged,
    keys: np.ndarray,
    del_tokenizer: Tokenizer,
    word_starts: WordStarts,
    counterfitted_table: SynonymTable,
) -> None:
    table = counterfitted_table
    before = Block(wiki_tokens, word_starts(wiki_tokens.values, wiki_tokens.offsets))
    after = subs(before, keys, 0.3, table, word_starts.special)
    counts = per_sentence(before.starts, before.tokens)
    assert np.array_equal(per_sentence(after.starts, after.tokens), counts)
    old, new = words_of(before), words_of(after)
    changed = [i for i in range(len(old)) if old[i].tobytes() != new[i].tobytes()]
    for i in changed[::50]:
        (entry,) = table.find(old[i], np.array([0]), np.array([len(old[i])]))
        options = range(table.first_option[entry], table.first_option[entry + 1])
        assert entry >= 0 and any(np.array_equal(new[i], table.options[option]) for option in options)
        word, synonym = (del_tokenizer.decode(one[i].tolist()).strip() for one in (old, new))
        assert word[0].isupper() == synonym[0].isupper()
    (starts,) = np.nonzero(before.starts)
    covered = table.find(wiki_tokens.values, starts, np.diff(np.append(starts, len(wiki_tokens.values)))) >= 0
    sentence = np.repeat(np.arange(len(wiki_tokens)), counts)
    share = np.maximum(np.floor(0.3 * counts + 0.5 + 1e-9), 1)
    expected = np.minimum(share, np.bincount(sentence, covered, minlength=len(wiki_tokens)))
    assert np.array_equal(np.bincount(sentence[changed], minlength=len(wiki_tokens)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["del-word", "del-span", "reorder", "subs+del-span", "subs+del-word+reorder"])
def test_special_tokens_are_never_touched(
    augmenter: Callable[..., Augmenter], wiki_tokens: Ragged, del_tokenizer: Tokenizer, steps: str
) -> None:
    """Sentences between <s> and </s>, with a <mask> in the middle."""
    start, end, mask = (del_tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<mask>"))
    framed = [np.array([start, *wiki_tokens[i][:9], mask, *wiki_tokens[i][9:], end], np.uint16) for i in range(600)]
    made = augmenter(steps)(Ragged.of(framed, np.uint16), keyed.mix(1, np.arange(600)))
    for i in range(600):
        view = made[i].tolist()
        assert view[0] == start and view[-1] == end and view.count(mask) == 1
        if steps == "reorder":
            assert view.index(mask) == framed[i].tolist().index(mask)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["subs+del-span", "subs+del-word+reorder"])
def test_a_view_is_the_same_alone_in_any_block_and_in_any_order(
    augmenter: Callable[..., Augmenter], wiki_tokens: Ragged, keys: np.ndarray, steps: str
) -> None:
    augment = augmenter(steps)
    whole = augment(wiki_tokens, keys)
    order = np.random.default_rng(0).permutation(len(wiki_tokens))
    shuffled = augment(wiki_tokens.take(order), keys[order])
    for place, i in enumerate(order[::50]):
        assert np.array_equal(shuffled[50 * place], whole[i])
    for i in range(0, len(wiki_tokens), 600):
        assert np.array_equal(augment(wiki_tokens.take(np.array([i])), keys[i : i + 1])[0], whole[i])


@pytest.mark.slow
def test_another_seed_or_view_is_another_view(augmenter: Callable[..., Augmenter], wiki_tokens: Ragged) -> None:
    augment, numbers = augmenter("subs+del-span"), np.arange(len(wiki_tokens))
    one, *others = (augment(wiki_tokens, keyed.mix(seed, numbers, view)) for seed, view in ((1, 0), (1, 1), (2, 0)))
    long = np.flatnonzero(wiki_tokens.lengths > 12)
    for other in others:
        assert np.mean([np.array_equal(one[i], other[i]) for i in long]) < 0.01
