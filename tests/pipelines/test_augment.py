"""CLEAR's augmentations: each equals a slow, obvious one for the same draws, and keeps what the paper says of it."""

import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from pipelines.augment.steps import DEL, STEPS, UNITS, Augmentation, Augmenter, Block, reorder, subs
from pipelines.augment.synonyms import SynonymTable
from pipelines.augment.words import WordStarts
from shards import keyed
from shards.ragged import Ragged, bounds

# Words, pieces that continue a word, and two special tokens.
VOCABULARY = [*"abcdefghij", *(f"##{piece}" for piece in "uvwxyz"), "[UNK]", "[MASK]", DEL]
ID = {token: number for number, token in enumerate(VOCABULARY)}
SPECIAL = {ID["[MASK]"], ID[DEL]}
SYNONYMS = {"a": ["b", "cu"], "bv": ["d"], "c": ["e", "f", "g"], "duv": ["h", "aw"], "i": ["jx"]}
OPTIONS = {
    ("a",): [("b",), ("c", "##u")],
    ("b", "##v"): [("d",)],
    ("c",): [("e",), ("f",), ("g",)],
    ("d", "##u", "##v"): [("h",), ("a", "##w")],
    ("i",): [("j", "##x")],
}
COMPOSITIONS = (*STEPS, "subs+del-span", "subs+del-word", "del-span+reorder", "subs+del-word+reorder")
COMPOSITIONS += ("del-word+reorder+subs", "reorder+del-span")


def tiny_tokenizer() -> Tokenizer:
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokenizer = Tokenizer(WordPiece(ID, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(["[MASK]", DEL])
    return tokenizer


TINY = tiny_tokenizer()


class Reference:
    """The same, one sentence at a time, in lists: a token is (id, whether it starts a word)."""

    def __init__(self, augmentation: Augmentation) -> None:
        self.options = augmentation

    def __call__(self, ids: list[int], key: int) -> list[int]:
        sentence = []
        for i, token in enumerate(ids):
            follows_special = i > 0 and ids[i - 1] in SPECIAL
            sentence.append((token, i == 0 or follows_special or not VOCABULARY[token].startswith("##")))
        for number, step in enumerate(self.options.steps):
            sentence = getattr(self, step.replace("-", "_"))(sentence, keyed.mix(key, number))
        return [token for token, _ in sentence]

    @staticmethod
    def bits(key: int, number: int) -> int:
        return keyed.shift(keyed.draw(key, number), 33)

    def lowest(self, key: int, count: int, quota: int) -> list[int]:
        return sorted(range(count), key=lambda i: (self.bits(key, i + 1), i))[:quota]

    def units(self, sentence: list, by_word: bool) -> list[list]:
        units: list[list] = []
        for token, starts in sentence:
            if starts or not by_word:
                units.append([])
            units[-1].append((token, starts))
        return units

    def free(self, units: list[list], special: set[int] = SPECIAL) -> list[int]:
        return [u for u, unit in enumerate(units) if unit[0][0] not in special]

    def delete(self, units: list[list], gone: set[int]) -> list:
        left: list = []
        after_deleted = False
        for u, unit in enumerate(units):
            if u in gone or unit[0][0] == ID[DEL]:
                if not after_deleted:
                    left.append((ID[DEL], True))
                after_deleted = True
            else:
                left += [(unit[0][0], unit[0][1] or after_deleted), *unit[1:]]
                after_deleted = False
        return left

    def share(self, share: float, count: int) -> int:
        return math.floor(share * count + 0.5 + 1e-9)

    def del_word(self, sentence: list, key: int) -> list:
        units = self.units(sentence, self.options.unit == "word")
        free = self.free(units)
        quota = min(max(self.share(self.options.del_word, len(free)), 1), max(len(free) - 1, 0))
        return self.delete(units, {free[i] for i in self.lowest(key, len(free), quota)})

    def spans(self, key: int, count: int, total: int, number: int) -> list[tuple[int, int]]:
        if not number:
            return []
        turn = self.bits(keyed.mix(key, 1), 1) % number
        lengths = [total // number + ((r + turn) % number < total % number) for r in range(number)]
        slots = count - total + number
        chosen = set(self.lowest(keyed.mix(key, 2), slots, number))
        spans, at = [], 0
        for slot in range(slots):
            if slot in chosen:
                spans.append((at, lengths[len(spans)]))
                at += spans[-1][1]
            else:
                at += 1
        return spans

    def del_span(self, sentence: list, key: int) -> list:
        units = self.units(sentence, self.options.unit == "word")
        free = self.free(units)
        share = self.share(self.options.del_spans * self.options.del_span, len(free))
        total = min(max(share, 1), max(len(free) - 1, 0))
        spans = self.spans(key, len(free), total, min(self.options.del_spans, total))
        return self.delete(units, {free[i] for start, length in spans for i in range(start, start + length)})

    def reorder(self, sentence: list, key: int) -> list:
        units = self.units(sentence, self.options.unit == "word")
        free = self.free(units, SPECIAL - {ID[DEL]})
        share = self.share(2 * self.options.reorder_pairs * self.options.reorder_span, len(free))
        total = min(max(share, 2), len(free)) if len(free) > 1 else 0
        spans = self.spans(key, len(free), total, 2 * min(self.options.reorder_pairs, total // 2))
        order = self.lowest(keyed.mix(key, 3), len(spans), len(spans))
        partner = {}
        for first, second in zip(order[::2], order[1::2], strict=True):
            partner[first], partner[second] = second, first
        moved, at = [], 0
        for number, (start, length) in enumerate(spans):
            moved += free[at:start]
            other, size = spans[partner[number]]
            moved += free[other : other + size]
            at = start + length
        moved += free[at:]
        place = iter(moved)
        sequence = [next(place) if u in set(free) else u for u in range(len(units))]
        out = []
        for position, u in enumerate(sequence):
            (token, starts), *rest = units[u]
            follows = position > 0 and sequence[position - 1] == u - 1
            out += [(token, starts or not follows), *rest]
        return self.delete(self.units(out, False), set())

    def subs(self, sentence: list, key: int) -> list:
        words = self.units(sentence, True)
        free = self.free(words)
        names = [tuple(VOCABULARY[token] for token, _ in word) for word in words]
        candidates = [u for u in free if names[u] in OPTIONS]
        quota = min(max(self.share(self.options.subs, len(free)), 1), len(candidates))
        chosen = set(self.lowest(key, len(candidates), quota))
        out = []
        for u, word in enumerate(words):
            if u in candidates and candidates.index(u) in chosen:
                options = OPTIONS[names[u]]
                new = options[self.bits(keyed.mix(key, 1), candidates.index(u) + 1) % len(options)]
                word = [(ID[piece], number == 0) for number, piece in enumerate(new)]
            out += word
        return out


augmenters = {
    (steps, unit): Augmenter(Augmentation.parse(steps, unit=unit), TINY, SYNONYMS)
    for steps in COMPOSITIONS
    for unit in UNITS
}
sentences = st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=60)
blocks = st.lists(sentences, min_size=1, max_size=6)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("steps", COMPOSITIONS)
@settings(max_examples=40, deadline=None)
@given(block=blocks, seed=st.integers(0, 1 << 40))
def test_each_augmentation_is_the_obvious_one(steps: str, unit: str, block: list[list[int]], seed: int) -> None:
    augmenter = augmenters[steps, unit]
    keys = keyed.mix(seed, np.arange(len(block)))
    views = augmenter(ragged(block), keys)
    reference = Reference(augmenter.augmentation)
    for i, sentence in enumerate(block):
        assert views[i].tolist() == reference(sentence, int(keys[i]))


@settings(max_examples=40, deadline=None)
@given(
    sentence=sentences,
    key=st.integers(0, 1 << 40),
    share=st.floats(0.01, 0.2),
    number=st.integers(1, 5),
    steps=st.sampled_from(["del-word", "del-span", "reorder", "subs"]),
)
def test_other_proportions_too(sentence: list[int], key: int, share: float, number: int, steps: str) -> None:
    options = {"del_word": share, "del_spans": number, "del_span": share, "subs": share}
    options |= {"reorder_pairs": max(1, number // 2), "reorder_span": share}
    augmentation = Augmentation.parse(steps, **options)
    view = Augmenter(augmentation, TINY, SYNONYMS)(ragged([sentence]), np.array([key]))
    assert view[0].tolist() == Reference(augmentation)(sentence, key)


def ragged(block: list[list[int]]) -> Ragged:
    return Ragged.of([np.array(sentence, np.uint16) for sentence in block], np.uint16)


@pytest.fixture(scope="module")
def keys(wiki_tokens: Ragged) -> np.ndarray:
    return keyed.mix(42, np.arange(len(wiki_tokens)), 0)


@pytest.fixture(scope="module")
def del_id(del_tokenizer: Tokenizer) -> int:
    return del_tokenizer.token_to_id(DEL)


def per_sentence(marked: np.ndarray, sentences: Ragged) -> np.ndarray:
    """How many of each sentence's tokens are marked."""
    return np.diff(bounds(marked)[sentences.offsets])


def words_of(block: Block) -> list[np.ndarray]:
    """The words of all sentences, one after another."""
    return np.split(block.tokens.values, np.flatnonzero(block.starts)[1:])


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


def test_what_is_left_of_a_deletion_is_in_its_order(
    augmenter: Callable[..., Augmenter], wiki_tokens: Ragged, keys: np.ndarray, del_id: int
) -> None:
    made = augmenter("del-span")(wiki_tokens, keys)
    for i in range(0, len(wiki_tokens), 7):
        rest = iter(wiki_tokens[i].tolist())
        assert all(token in rest for token in made[i].tolist() if token != del_id)


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


def test_reorder_of_words_keeps_them_whole(
    wiki_tokens: Ragged, keys: np.ndarray, word_starts: WordStarts, del_id: int
) -> None:
    before = Block(wiki_tokens, word_starts(wiki_tokens.values, wiki_tokens.offsets))
    after = reorder(before, keys, 5, 0.05, del_id, True, word_starts.special)
    old, new = ([word.tobytes() for word in words_of(block)] for block in (before, after))
    for first, last in itertools.pairwise(bounds(before.starts)[wiki_tokens.offsets].tolist()):
        assert Counter(new[first:last]) == Counter(old[first:last])


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


def test_another_seed_or_view_is_another_view(augmenter: Callable[..., Augmenter], wiki_tokens: Ragged) -> None:
    augment, numbers = augmenter("subs+del-span"), np.arange(len(wiki_tokens))
    one, *others = (augment(wiki_tokens, keyed.mix(seed, numbers, view)) for seed, view in ((1, 0), (1, 1), (2, 0)))
    long = np.flatnonzero(wiki_tokens.lengths > 12)
    for other in others:
        assert np.mean([np.array_equal(one[i], other[i]) for i in long]) < 0.01


def test_every_choice_of_places_is_equally_likely() -> None:
    """Chi-square over 20,000 keys, over all that can come of ten tokens."""
    keys = keyed.mix(3, np.arange(20_000))
    block = Ragged(np.tile(np.arange(10, dtype=np.uint16), 20_000), np.arange(20_001) * 10)
    for steps, options, outcomes in (
        ("del-word", {"del_word": 0.2}, math.comb(10, 2)),
        ("del-span", {"del_spans": 2, "del_span": 0.2}, math.comb(8, 2)),  # two spans of two: two of eight slots
        ("reorder", {"reorder_pairs": 1, "reorder_span": 0.2}, math.comb(8, 2)),
    ):
        made = Augmenter(Augmentation.parse(steps, **options), TINY)(block, keys)
        seen = Counter(made[i].tobytes() for i in range(len(made)))
        expected = _places(10, 2, 1 if steps == "del-word" else 2)
        assert len(expected) == outcomes
        if steps == "reorder":
            assert len(seen) == outcomes and stats.chisquare(list(seen.values())).pvalue > 1e-3
        else:
            # Neighbouring spans leave the same as one long one, wherever it is thought to be cut.
            left = Counter(tuple(sorted(set(range(10)) - gone)) for gone in expected)
            got = Counter(tuple(t for t in made[i].tolist() if t != ID[DEL]) for i in range(len(made)))
            assert got.keys() == left.keys()
            frequencies = [20_000 * left[key] / outcomes for key in left]
            assert stats.chisquare([got[key] for key in left], frequencies).pvalue > 1e-3


def _places(count: int, number: int, length: int) -> list[set[int]]:
    """What each placement of `number` spans of one length covers."""
    starts = itertools.combinations(range(count - length + 1), number)
    spread = [c for c in starts if all(b - a >= length for a, b in itertools.pairwise(c))]
    return [{start + i for start in chosen for i in range(length)} for chosen in spread]


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("", {}, "''"),
        ("del-words", {}, "'del-words'"),
        ("subs+", {}, "''"),
        ("subs+subs", {}, "steps 'subs\\+subs' names a step twice"),
        ("subs", {"unit": "char"}, "unit 'char'"),
        ("subs", {"subs": 0.0}, "subs 0.0"),
        ("subs", {"del_word": 1.5}, "del_word 1.5"),
        ("subs", {"subs": float("nan")}, "subs nan"),
        ("del-span", {"del_spans": 0}, "del_spans 0"),
        ("del-span", {"del_spans": 30}, "del_spans 30: spans of"),
        ("reorder", {"reorder_pairs": 11}, "reorder_pairs 11: pairs of"),
    ],
)
def test_an_augmentation_that_makes_no_sense_is_named(text: str, options: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Augmentation.parse(text, **options)


def test_what_a_tokenizer_or_a_table_lacks_is_named() -> None:
    bare = Tokenizer(WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(ValueError, match=r"del-word needs the special token \[DEL\]"):
        Augmenter(Augmentation.parse("del-word"), bare)
    with pytest.raises(ValueError, match="subs needs synonyms"):
        Augmenter(Augmentation.parse("subs"), bare)


def test_importing_the_augmentations_does_not_import_beam_or_torch() -> None:
    """The trainer makes views with them, and workers need no torch."""
    import subprocess
    import sys

    code = "import sys, pipelines.augment.steps; print(sorted({'apache_beam', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
