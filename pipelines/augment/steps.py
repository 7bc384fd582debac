"""CLEAR's four augmentations and their compositions, applied to whole blocks of sentences (sections 3.3 and 4.1).

    token ids of n sentences, a key for each -> step by step (subs, del-span, ...) -> token ids of n views

    del-word   70 % of the units become [DEL]               consecutive [DEL] are merged
    del-span   5 spans of 5 % of the units become [DEL]
    reorder    5 pairs of spans of 5 % are swapped
    subs       30 % of the words are replaced by a synonym

A unit is a token (the paper's reading) or a word (`unit`), whose tokens then stay together; `subs` always works on
words. Each step is a pure function of (ids, word starts, key): a view is the same in any block, on any worker, in any
order. Special tokens within a sentence stay untouched and in place, except [DEL], which reordering moves.

Short sentences: fractions are of the sentence's n units, rounded half up. A deletion removes at least one unit and
leaves at least one. If all spans together have fewer units than spans, there are fewer spans; their lengths differ by
at most one unit. Reordering takes at least two units. A sentence of one unit is neither deleted nor reordered. `subs`
replaces at least one of the words that have synonyms, and at most all of them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from clearspan.pipelines.augment.choices import choose, fraction_of, members, shuffled, spans_of
from clearspan.pipelines.augment.synonyms import SynonymTable
from clearspan.pipelines.augment.words import WordStarts
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, bounds, segments

DEL = "[DEL]"
"""The special token that replaces deleted units."""
STEPS = ("del-word", "del-span", "reorder", "subs")
UNITS = ("token", "word")
CHUNK = 8192
"""Sentences that are augmented together: this bounds the memory, and more are not faster."""


class AugmentationError(ValueError):
    """Invalid augmentation: `field` names the option of Augmentation, `reason` the fault."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field, self.reason = field, reason


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Augmentation: a list of steps, in order, with their proportions (defaults: the paper's, section 4.1)."""

    steps: tuple[str, ...]
    unit: str = "token"
    del_word: float = 0.7
    del_spans: int = 5
    del_span: float = 0.05
    reorder_pairs: int = 5
    reorder_span: float = 0.05
    subs: float = 0.3

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise AugmentationError("unit", f"{self.unit!r} is not one of {', '.join(UNITS)}")
        for name in ("del_word", "del_span", "reorder_span", "subs"):
            if not 0 < getattr(self, name) <= 1:
                raise AugmentationError(name, f"{getattr(self, name)} must be above 0 and at most 1")
        for name, length, times in (("del_spans", "del_span", 1), ("reorder_pairs", "reorder_span", 2)):
            number = getattr(self, name)
            if number < 1:
                raise AugmentationError(name, f"{number} must be at least 1")
            if times * number * getattr(self, length) > 1 + 1e-9:
                what = "pairs of " if times == 2 else ""
                raise AugmentationError(
                    name, f"{number}: {what}spans of {getattr(self, length)} are more than a whole sentence"
                )

    @classmethod
    def parse(cls, text: str, **options: Any) -> "Augmentation":
        """Return the augmentation of a text such as "subs+del-span", with options named like the fields.

        Raises:
            AugmentationError: a step is unknown or repeated, or an option is out of range.
        """
        steps = tuple(text.split("+"))
        for step in steps:
            if step not in STEPS:
                raise AugmentationError("steps", f"{text!r}: {step!r} is not one of {', '.join(STEPS)} (joined by +)")
        if len(set(steps)) < len(steps):
            raise AugmentationError("steps", f"{text!r} names a step twice")
        return cls(steps, **options)

    def __str__(self) -> str:
        return "+".join(self.steps)

    def options(self) -> dict[str, Any]:
        """Return all options as plain values, for a dataset's fingerprint."""
        return {**dataclasses.asdict(self), "steps": str(self)}

    @property
    def deletes(self) -> bool:
        """True if views contain [DEL]."""
        return "del-word" in self.steps or "del-span" in self.steps

    @property
    def substitutes(self) -> bool:
        """True if synonyms are needed."""
        return "subs" in self.steps


@dataclasses.dataclass(frozen=True)
class Block:
    """Sentences between two steps: S ids, and (S,) bool, True where a word starts (None if no step needs it)."""

    tokens: Ragged
    starts: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class _Units:
    """Units of sentences: unit u has the tokens starts[u] .. starts[u + 1] - 1, sentence i the units from bounds[i] on.

    `free` are the units that are not special tokens (None: all); `free_bounds` are their bounds by sentence.
    """

    starts: np.ndarray
    bounds: np.ndarray
    free: np.ndarray | None
    free_bounds: np.ndarray

    @classmethod
    def of(cls, sentences: Block, by_word: bool, special: np.ndarray) -> "_Units":
        values, offsets = sentences.tokens.values, sentences.tokens.offsets
        if by_word:
            assert sentences.starts is not None
            (starts,) = np.nonzero(sentences.starts)
            unit_bounds = bounds(sentences.starts)[offsets]
            is_special = special[values[starts]]
            starts = np.append(starts, len(values))
        else:
            starts, unit_bounds, is_special = np.arange(len(values) + 1), offsets, special[values]
        if not is_special.any():
            return cls(starts, unit_bounds, None, unit_bounds)
        free = np.flatnonzero(~is_special)
        return cls(starts, unit_bounds, free, np.searchsorted(free, unit_bounds))

    @property
    def counts(self) -> np.ndarray:
        """Number of free units of each sentence, (n,)."""
        return np.diff(self.free_bounds)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each of U units, (U,)."""
        return np.diff(self.starts)

    def is_free(self) -> np.ndarray:
        """Return which units are free, (U,) bool."""
        marked = np.ones(len(self.starts) - 1, bool)
        if self.free is not None:
            marked[:] = False
            marked[self.free] = True
        return marked

    def tokens_of(self, chosen: np.ndarray) -> np.ndarray:
        """Return which tokens belong to the chosen units, (S,) bool; `chosen` is bool over the free units."""
        if self.free is not None:
            marked = np.zeros(len(self.starts) - 1, bool)
            marked[self.free] = chosen
            chosen = marked
        return chosen if len(chosen) == self.starts[-1] else np.repeat(chosen, self.lengths)


def _delete(sentences: Block, deleted: np.ndarray, del_id: int) -> Block:
    """Replace each run of deleted tokens, `deleted` (S,) bool, by one [DEL]; merge it with adjacent older [DEL]."""
    values, offsets = sentences.tokens.values, sentences.tokens.offsets
    deleted = deleted | (values == del_id)
    follows = np.zeros(len(values), bool)
    follows[1:] = deleted[:-1]
    follows[offsets[:-1][offsets[:-1] < len(values)]] = False
    kept = ~(deleted & follows)
    left = values[kept]
    left[deleted[kept]] = del_id
    # A token after a [DEL] starts a word, because the beginning of its word is deleted.
    starts = None if sentences.starts is None else (sentences.starts | deleted | follows)[kept]
    return Block(Ragged(left, bounds(kept)[offsets]), starts)


def del_word(
    sentences: Block, keys: np.ndarray, fraction: float, del_id: int, by_word: bool, special: np.ndarray
) -> Block:
    """Delete a fraction of each sentence's units (Figure 2a).

    Args:
        keys: (n,) int64.
        special: (vocabulary,) bool, the ids that stay untouched.
    """
    units = _Units.of(sentences, by_word, special)
    counts = units.counts
    quotas = np.minimum(np.maximum(fraction_of(fraction, counts), 1), np.maximum(counts - 1, 0))
    return _delete(sentences, units.tokens_of(choose(keys, counts, quotas)), del_id)


def del_span(
    sentences: Block, keys: np.ndarray, number: int, fraction: float, del_id: int, by_word: bool, special: np.ndarray
) -> Block:
    """Delete `number` spans, each with a fraction of the sentence's units (Figure 2b)."""
    units = _Units.of(sentences, by_word, special)
    counts = units.counts
    totals = np.minimum(np.maximum(fraction_of(number * fraction, counts), 1), np.maximum(counts - 1, 0))
    starts, lengths = spans_of(keys, counts, totals, np.minimum(number, totals))
    deleted = np.zeros(units.free_bounds[-1], bool)
    deleted[members(starts, lengths)] = True
    return _delete(sentences, units.tokens_of(deleted), del_id)


def reorder(
    sentences: Block, keys: np.ndarray, pairs: int, fraction: float, del_id: int, by_word: bool, special: np.ndarray
) -> Block:
    """Swap `pairs` pairs of spans, each with a fraction of the sentence's units (Figure 2c).

    Here [DEL] is an ordinary unit, though special elsewhere; two [DEL] that become adjacent are merged.
    """
    if 0 <= del_id < len(special):
        special = special.copy()
        special[del_id] = False
    units = _Units.of(sentences, by_word, special)
    counts = units.counts
    totals = np.where(counts > 1, np.clip(fraction_of(2 * pairs * fraction, counts), 2, np.maximum(counts, 2)), 0)
    numbers = 2 * np.minimum(pairs, totals // 2)
    starts, lengths = spans_of(keys, counts, totals, numbers)
    # Partners: the spans in a random order, two by two.
    partner, first = np.empty(len(starts), np.int64), bounds(numbers)
    for rows, order in shuffled(keyed.mix(keys, 3), numbers):
        left, right = order[:, ::2], order[:, 1::2]
        paired = 2 * np.arange(left.shape[1]) < numbers[rows, None]
        left, right = ((side + first[rows, None])[paired] for side in (left, right))
        partner[left], partner[right] = right, left
    # A sentence is a gap, a span, a gap, ..., a gap; each span is replaced by its partner.
    gaps_end = np.append(starts, units.free_bounds[-1])
    gaps_start = np.append(0, starts + lengths)
    piece_start, piece_length = (np.empty(2 * len(starts) + 1, np.int64) for _ in range(2))
    piece_start[::2], piece_length[::2] = gaps_start, gaps_end - gaps_start
    piece_start[1::2], piece_length[1::2] = starts[partner], lengths[partner]
    order = members(piece_start, piece_length)
    if units.free is not None:
        all_units = np.arange(len(units.starts) - 1)
        all_units[units.free] = units.free[order]
        order = all_units
    moved = _rearranged(sentences, units, order)
    has_del = (moved.tokens.values == del_id).any()
    return _delete(moved, np.zeros(len(moved.tokens.values), bool), del_id) if has_del else moved


def _rearranged(sentences: Block, units: _Units, order: np.ndarray) -> Block:
    values, offsets = sentences.tokens.values, sentences.tokens.offsets
    if len(order) == len(values):
        starts = None
        if sentences.starts is not None:
            # A token continues a word only if it still follows the same token.
            starts = sentences.starts[order]
            starts[1:] |= order[1:] != order[:-1] + 1
            starts[:1] = True
        return Block(Ragged(values[order], offsets), starts)
    moved = segments(values, units.starts[order], units.lengths[order])
    starts = np.zeros(len(values), bool)
    starts[moved.offsets[:-1]] = True
    return Block(Ragged(moved.values, offsets), starts)


def subs(sentences: Block, keys: np.ndarray, fraction: float, table: SynonymTable, special: np.ndarray) -> Block:
    """Replace a fraction of each sentence's words by synonyms, where they have any (Figure 2d)."""
    values = sentences.tokens.values
    units = _Units.of(sentences, True, special)
    entries = table.find(values, units.starts[:-1], units.lengths)
    replaceable = entries >= 0
    if units.free is not None:
        replaceable &= units.is_free()
    candidates = np.flatnonzero(replaceable)
    counts = np.diff(bounds(replaceable)[units.bounds])
    quotas = np.minimum(np.maximum(fraction_of(fraction, units.counts), 1), counts)
    chosen = choose(keys, counts, quotas)
    words = candidates[chosen]
    entry = entries[words]
    # The draw among a word's synonyms is numbered by the word's place among its sentence's candidates.
    place = np.arange(len(candidates)) - np.repeat(np.cumsum(counts) - counts, counts)
    draws = keyed.draw(np.repeat(keyed.mix(keys, 1), counts)[chosen], place[chosen] + 1)
    first = table.first_option[entry]
    option = first + keyed.shift(draws, 33) % (table.first_option[entry + 1] - first)
    starts, lengths = units.starts[:-1].copy(), units.lengths
    starts[words] = len(values) + table.options.offsets[option]
    lengths[words] = table.options.lengths[option]
    pool = np.concatenate([values, table.options.values.astype(values.dtype, copy=False)])
    replaced = segments(pool, starts, lengths)
    is_start = np.zeros(len(replaced.values), bool)
    is_start[replaced.offsets[:-1]] = True
    return Block(Ragged(replaced.values, replaced.offsets[units.bounds]), is_start)


class Augmenter:
    """An augmentation, prepared for a tokenizer.

    Args:
        synonyms: lists of synonyms by word, for `subs`, or the table built from them (which takes seconds).

    Raises:
        ValueError: a step deletes and the tokenizer has no [DEL], or a step substitutes and there are no synonyms.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        tokenizer: Tokenizer,
        synonyms: Mapping[str, Sequence[str]] | SynonymTable | None = None,
    ) -> None:
        self.augmentation = augmentation
        self.words = WordStarts(tokenizer)
        del_id = tokenizer.token_to_id(DEL)
        self.del_id = -1 if del_id is None else del_id
        self.special = self.words.special.copy()
        if del_id is not None:
            self.special[del_id] = True
        if augmentation.deletes and del_id is None:
            raise ValueError(f"{augmentation} needs the special token {DEL}, which the tokenizer lacks")
        if augmentation.substitutes and not synonyms:
            raise ValueError(f"{augmentation} needs synonyms")
        if synonyms is not None and not isinstance(synonyms, SynonymTable):
            synonyms = SynonymTable.build(synonyms, tokenizer)
        self.table = synonyms if augmentation.substitutes else None

    def __call__(self, block: Ragged, keys: np.ndarray) -> Ragged:
        """Return a view of each of n sentences; keys (n,) int64, e.g. `shards.keyed.mix(seed, ids, view)`.

        The token ids have the block's type, and no special tokens around them.
        """
        ranges = [slice(first, first + CHUNK) for first in range(0, len(block), CHUNK)]
        parts = [self._chunk(block.part(part), keys[part]) for part in ranges]
        return Ragged.concatenate(parts) if parts else block

    def _chunk(self, block: Ragged, keys: np.ndarray) -> Ragged:
        options, special = self.augmentation, self.special
        by_word = options.unit == "word"
        needs_words = by_word or options.substitutes
        sentences = Block(block, self.words(block.values, block.offsets) if needs_words else None)
        for number, step in enumerate(options.steps):
            step_keys = keyed.mix(keys, number)
            if step == "del-word":
                sentences = del_word(sentences, step_keys, options.del_word, self.del_id, by_word, special)
            elif step == "del-span":
                spans = options.del_spans, options.del_span
                sentences = del_span(sentences, step_keys, *spans, self.del_id, by_word, special)
            elif step == "reorder":
                spans = options.reorder_pairs, options.reorder_span
                sentences = reorder(sentences, step_keys, *spans, self.del_id, by_word, special)
            else:
                assert self.table is not None
                sentences = subs(sentences, step_keys, options.subs, self.table, special)
        return sentences.tokens

    def coverage(self, block: Ragged) -> tuple[int, int]:
        """Count (words with a synonym, words) of a block; the paper reports about 40 % of tokens (section 3.3)."""
        sentences = Block(block, self.words(block.values, block.offsets))
        units = _Units.of(sentences, True, self.special)
        is_free = units.is_free()
        if self.table is None:
            return 0, int(is_free.sum())
        entries = self.table.find(block.values, units.starts[:-1], units.lengths)
        return int(((entries >= 0) & is_free).sum()), int(is_free.sum())
