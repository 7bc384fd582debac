"""CLEAR's augmentations: each equals a slow, obvious implementation, and fulfills the paper's claims."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import DEL, STEPS, UNITS, Augmentation, Augmenter
from clearspan.shards import keyed

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
    """Reference implementation in lists, one sentence at a time; a token is (id, whether it starts a word)."""

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
@settings(max_examples=40)
@given(block=blocks, seed=st.integers(0, 1 << 40))
def test_each_augmentation_is_the_obvious_one(steps: str, unit: str, block: list[list[int]], seed: int) -> None:
    augmenter = augmenters[steps, unit]
    keys = keyed.mix(seed, np.arange(len(block)))
    views = augmenter(ragged(block), keys)
    reference = Reference(augmenter.augmentation)
    for i, sentence in enumerate(block):
        assert views[i].tolist() == reference(sentence, int(keys[i]))


@settings(max_examples=40)
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


def test_every_choice_of_places_is_equally_likely() -> None:
    """Chi-square test with 20,000 keys, over all outcomes for ten tokens."""
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
    """Return the units that each placement of `number` spans of one length covers."""
    starts = itertools.combinations(range(count - length + 1), number)
    spread = [c for c in starts if all(b - a >= length for a, b in itertools.pairwise(c))]
    return [{start + i for start in chosen for i in range(length)} for chosen in spread]


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("", {}, "''"),
        ("del-words", {}, "'del-words'"),
        ("subs+", {}, "''"),
        ("subs+subs", {}, "`augment` 'subs\\+subs' names a step twice"),
        ("subs", {"unit": "char"}, "`unit` char: choose token, word"),
        ("subs", {"subs": 0.0}, "`subs` must be above 0"),
        ("subs", {"del_word": 1.5}, "`del_word` must be at most 1"),
        ("subs", {"subs": float("nan")}, "`subs` must be at most 1"),
        ("del-span", {"del_spans": 0}, "`del_spans` must be at least 1"),
        ("del-span", {"del_spans": 30}, "`del_spans` 30: spans of"),
        ("reorder", {"reorder_pairs": 11}, "`reorder_pairs` 11: pairs of"),
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
