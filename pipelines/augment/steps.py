"""CLEAR's four augmentations and their compositions, applied to many sentences at a time (sections 3.3 and 4.1).

    token ids of n sentences, a key for each -> step by step (subs, del-span, ...) -> token ids of n views

    del-word   70 % of the units become [DEL]               consecutive [DEL] are merged
    del-span   5 spans of 5 % of the units become [DEL]
    reorder    5 pairs of spans of 5 % are swapped
    subs       30 % of the words are replaced by a synonym

A unit is a token, as in the paper, or a word (`unit`); the tokens of a word then stay together. `subs` always works on
words. Each step is a pure function of (ids, word starts, key), so a view does not depend on the worker, on the order,
or on the other sentences. Special tokens within a sentence are not changed and stay in place, except [DEL], which
reordering moves.

A fraction is multiplied by the number of units in the sentence, and the product is rounded half up. A deletion removes
at least one unit and leaves at least one, however short the sentence is. If the spans of a step together would have
fewer units than there are spans, the number of spans is reduced until each has at least one unit. The lengths of a
step's spans differ by at most one unit. Reordering takes at least two units. A sentence of one unit is neither deleted
nor reordered. `subs` replaces at least one of the words that have synonyms, and at most all of them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from tokenizers import Tokenizer

from clearspan.common.options import Flag, Options
from clearspan.common.ragged import Ragged, bounds, segments
from clearspan.pipelines.augment.choices import choose, fraction_of, members, shuffled, spans_of
from clearspan.pipelines.augment.synonyms import SynonymTable
from clearspan.pipelines.augment.words import WordStarts
from clearspan.shards import keyed

DEL = "[DEL]"
"""The special token that replaces deleted units."""
UNITS = ("token", "word")
CHUNK = 8192
"""Number of sentences that are augmented at a time, which bounds the memory. A larger number is not faster."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proportions(Options):
    """Options of the steps of an augmentation (del-word, del-span, reorder, subs), such as the fraction of a sentence
    that a step changes. The defaults are the values of the CLEAR paper (section 4.1).
    """

    unit: Annotated[str, Flag(choices=UNITS)] = "token"
    """What del-word, del-span and reorder delete or move."""
    del_word: Annotated[float, Flag("P"), Gt(0), Le(1)] = 0.7
    """Fraction of a sentence's units that del-word deletes."""
    del_spans: Annotated[int, Flag("N"), Ge(1)] = 5
    """Number of spans that del-span deletes."""
    del_span: Annotated[float, Flag("P"), Gt(0), Le(1)] = 0.05
    """Length of each span of del-span, as a fraction of the sentence."""
    reorder_pairs: Annotated[int, Flag("N"), Ge(1)] = 5
    """Number of pairs of spans that reorder swaps."""
    reorder_span: Annotated[float, Flag("P"), Gt(0), Le(1)] = 0.05
    """Length of each span of reorder, as a fraction of the sentence."""
    subs: Annotated[float, Flag("P"), Gt(0), Le(1)] = 0.3
    """Fraction of a sentence's words that subs replaces by synonyms."""

    def validate(self) -> None:
        super().validate()
        if self.del_spans * self.del_span > 1 + 1e-9:
            raise ValueError(f"`del_spans` {self.del_spans}: spans of {self.del_span} are more than a whole sentence")
        if 2 * self.reorder_pairs * self.reorder_span > 1 + 1e-9:
            raise ValueError(
                f"`reorder_pairs` {self.reorder_pairs}: pairs of spans of {self.reorder_span} exceed the sentence"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(Proportions):
    """Augmentation of sentences: steps that are applied one after another, and the options of the steps.

    Attributes:
        steps: names of the steps, in order: del-word, del-span, reorder or subs.
    """

    steps: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, **options: Any) -> "Augmentation":
        """Return the augmentation for a text such as "subs+del-span".

        Args:
            options: values of the fields of `Proportions`, by name.

        Raises:
            ValueError: a step is unknown or repeated, or an option is out of range; the message names the option.
        """
        steps = tuple(text.split("+"))
        for step in steps:
            if step not in STEPS:
                raise ValueError(f"`augment` {text!r}: {step!r} is not one of {', '.join(STEPS)} (joined by +)")
        if len(set(steps)) < len(steps):
            raise ValueError(f"`augment` {text!r} names a step twice")
        return cls(steps=steps, **options)

    def __str__(self) -> str:
        return "+".join(self.steps)

    def options(self) -> dict[str, Any]:
        """Return the steps and their options for a dataset's fingerprint: `steps`, such as "subs+del-span", and all
        fields of `Proportions`.
        """
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(Proportions)}
        return {"steps": str(self), **own}

    @property
    def deletes(self) -> bool:
        """True if a step deletes words or tokens; the tokenizer must then have the special token [DEL]."""
        return "del-word" in self.steps or "del-span" in self.steps

    @property
    def substitutes(self) -> bool:
        """True if a step replaces words by synonyms, which must then be given."""
        return "subs" in self.steps


@dataclasses.dataclass(frozen=True)
class SentenceBatch:
    """A batch of sentences, which each step of an augmentation takes and returns.

    Attributes:
        tokens: token ids of the sentences, S in all.
        starts: mask of the tokens that start a word, (S,) bool; all True if no step needs words.
    """

    tokens: Ragged
    starts: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Units:
    """Units (tokens or words) of n sentences.

    Attributes:
        starts: for each of the U units of all sentences, the index of its first token; the last value is the number of
            all tokens, (U + 1,).
        bounds: sentence i consists of the units bounds[i], ..., bounds[i + 1] - 1, (n + 1,).
        free: indices of the F units that a step may change, because they are not special tokens, (F,).
        free_bounds: the units in `free` that belong to sentence i are free[free_bounds[i]], ...,
            free[free_bounds[i + 1] - 1], (n + 1,).
    """

    starts: np.ndarray
    bounds: np.ndarray
    free: np.ndarray
    free_bounds: np.ndarray

    @classmethod
    def of(cls, sentences: SentenceBatch, by_word: bool, special: np.ndarray) -> "_Units":
        values = sentences.tokens.values
        is_start = sentences.starts if by_word else np.ones(len(values), bool)
        starts = np.flatnonzero(is_start)
        unit_bounds = bounds(is_start)[sentences.tokens.offsets]
        free = np.flatnonzero(~special[values[starts]])
        return cls(np.append(starts, len(values)), unit_bounds, free, np.searchsorted(free, unit_bounds))

    @property
    def counts(self) -> np.ndarray:
        """For each sentence, the number of its units that are not special tokens, (n,)."""
        return np.diff(self.free_bounds)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each of U units, (U,)."""
        return np.diff(self.starts)

    def tokens_of(self, chosen: np.ndarray) -> np.ndarray:
        """Return a mask of the tokens that belong to chosen units, (S,) bool, where S is the number of all tokens.

        Args:
            chosen: mask of the chosen units among the F units that are not special tokens, (F,) bool.
        """
        marked = np.zeros(len(self.starts) - 1, bool)
        marked[self.free] = chosen
        return np.repeat(marked, self.lengths)


def _delete(sentences: SentenceBatch, deleted: np.ndarray, del_id: int) -> SentenceBatch:
    """Delete tokens, and put one [DEL] in place of each run of consecutive deleted tokens.

    A [DEL] that is already in the sentences counts as a token to delete, so that adjacent [DEL] are merged.

    Args:
        deleted: mask of the tokens to delete, (S,) bool, where S is the number of all tokens.
        del_id: the id of [DEL].
    """
    values, offsets = sentences.tokens.values, sentences.tokens.offsets
    deleted = deleted | (values == del_id)
    follows = np.zeros(len(values), bool)
    follows[1:] = deleted[:-1]
    follows[offsets[:-1][offsets[:-1] < len(values)]] = False
    kept = ~(deleted & follows)
    left = values[kept]
    left[deleted[kept]] = del_id
    # A token after a [DEL] starts a word, because the beginning of its word is deleted.
    starts = (sentences.starts | deleted | follows)[kept]
    return SentenceBatch(Ragged(left, bounds(kept)[offsets]), starts)


class Augmenter:
    """Function that makes a view of each sentence: an augmentation, prepared for a tokenizer.

    Args:
        augmentation: the steps and their options.
        tokenizer: the tokenizer that made the token ids of the sentences.
        synonyms: for the step `subs`, the synonyms of each word, or the table built from them (building it takes
            seconds); None if there is no such step.

    Raises:
        ValueError: a step deletes and the tokenizer has no [DEL], or a step substitutes and there are no synonyms, or
            the tokenizer cannot encode any of them.
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
        self.special, self.unmoved = self.words.special.copy(), self.words.special.copy()
        if del_id is not None:
            self.special[del_id], self.unmoved[del_id] = True, False
        if augmentation.deletes and del_id is None:
            raise ValueError(f"{augmentation} needs the special token {DEL}, which the tokenizer lacks")
        if augmentation.substitutes and not synonyms:
            raise ValueError(f"{augmentation} needs synonyms")
        if synonyms is not None and not isinstance(synonyms, SynonymTable):
            synonyms = SynonymTable.build(synonyms, tokenizer)
        self.table = synonyms

    def __call__(self, block: Ragged, keys: np.ndarray) -> Ragged:
        """Return a view of each of n sentences: its token ids, in the dtype of the ids in `block`.

        Args:
            block: token ids of the sentences, without special tokens around them.
            keys: random key of each view, (n,) int64, e.g. `shards.keyed.mix(seed, ids, view)`.
        """
        ranges = [slice(first, first + CHUNK) for first in range(0, len(block), CHUNK)]
        parts = [self._chunk(block.slice(part), keys[part]) for part in ranges]
        return Ragged.concatenate(parts) if parts else block

    def _chunk(self, block: Ragged, keys: np.ndarray) -> Ragged:
        needs_words = self.augmentation.unit == "word" or self.augmentation.substitutes
        starts = self.words(block.values, block.offsets) if needs_words else np.ones(len(block.values), bool)
        sentences = SentenceBatch(block, starts)
        for number, step in enumerate(self.augmentation.steps):
            sentences = STEPS[step](self, sentences, keyed.mix(keys, number))
        return sentences.tokens

    def _units(self, sentences: SentenceBatch, special: np.ndarray) -> _Units:
        return _Units.of(sentences, self.augmentation.unit == "word", special)

    def del_word(self, sentences: SentenceBatch, keys: np.ndarray) -> SentenceBatch:
        """Delete random units (tokens or words) of each of n sentences (CLEAR's Figure 2a).

        The option `del_word` is the fraction of the units to delete. One [DEL] takes the place of consecutive deleted
        units.

        Args:
            keys: random key of each sentence, (n,) int64.
        """
        units = self._units(sentences, self.special)
        quotas = _deletable(self.augmentation.del_word, units.counts)
        return _delete(sentences, units.tokens_of(choose(keys, units.counts, quotas)), self.del_id)

    def del_span(self, sentences: SentenceBatch, keys: np.ndarray) -> SentenceBatch:
        """Delete random spans of units (tokens or words) of each of n sentences (CLEAR's Figure 2b).

        The options are the number of spans, `del_spans`, and the fraction of a sentence's units that a span has,
        `del_span`. One [DEL] takes the place of consecutive deleted units.

        Args:
            keys: random key of each sentence, (n,) int64.
        """
        options = self.augmentation
        units = self._units(sentences, self.special)
        totals = _deletable(options.del_spans * options.del_span, units.counts)
        spans = spans_of(keys, units.counts, totals, np.minimum(options.del_spans, totals))
        deleted = np.zeros(len(units.free), bool)
        deleted[members(*spans)] = True
        return _delete(sentences, units.tokens_of(deleted), self.del_id)

    def reorder(self, sentences: SentenceBatch, keys: np.ndarray) -> SentenceBatch:
        """Swap random pairs of spans of units (tokens or words) of each of n sentences (CLEAR's Figure 2c).

        The options are the number of pairs, `reorder_pairs`, and the fraction of a sentence's units that a span has,
        `reorder_span`. [DEL] can be moved, unlike other special tokens. Two [DEL] that become adjacent are merged.

        Args:
            keys: random key of each sentence, (n,) int64.
        """
        options = self.augmentation
        units = self._units(sentences, self.unmoved)
        counts = units.counts
        wanted = fraction_of(2 * options.reorder_pairs * options.reorder_span, counts)
        totals = np.where(counts > 1, np.clip(wanted, 2, np.maximum(counts, 2)), 0)
        numbers = 2 * np.minimum(options.reorder_pairs, totals // 2)
        starts, lengths = spans_of(keys, counts, totals, numbers)
        partner = _partners(keyed.mix(keys, 3), numbers)
        # A sentence is a gap, a span, a gap, ..., a gap; each span is replaced by its partner.
        gaps_end = np.append(starts, len(units.free))
        gaps_start = np.append(0, starts + lengths)
        piece_start, piece_length = (np.empty(2 * len(starts) + 1, np.int64) for _ in range(2))
        piece_start[::2], piece_length[::2] = gaps_start, gaps_end - gaps_start
        piece_start[1::2], piece_length[1::2] = starts[partner], lengths[partner]
        order = np.arange(len(units.lengths))
        order[units.free] = units.free[members(piece_start, piece_length)]
        # A token continues a word only if it still follows the same token.
        at = members(units.starts[order], units.lengths[order])
        is_start = sentences.starts[at]
        is_start[1:] |= at[1:] != at[:-1] + 1
        is_start[:1] = True
        moved = SentenceBatch(Ragged(sentences.tokens.values[at], sentences.tokens.offsets), is_start)
        has_del = (moved.tokens.values == self.del_id).any()
        return _delete(moved, np.zeros(len(at), bool), self.del_id) if has_del else moved

    def subs(self, sentences: SentenceBatch, keys: np.ndarray) -> SentenceBatch:
        """Replace random words of each of n sentences by synonyms (CLEAR's Figure 2d).

        The option `subs` is the fraction of all words to replace. Words that have no synonyms are never replaced.

        Args:
            keys: random key of each sentence, (n,) int64.
        """
        assert self.table is not None
        values = sentences.tokens.values
        options = self.table.options
        units = _Units.of(sentences, True, self.special)
        entries = self._entries(values, units)
        candidates = np.flatnonzero(entries >= 0)
        counts = np.diff(bounds(entries >= 0)[units.bounds])
        quotas = np.minimum(np.maximum(fraction_of(self.augmentation.subs, units.counts), 1), counts)
        chosen = choose(keys, counts, quotas)
        words = candidates[chosen]
        entry = entries[words]
        # The number of the draw for a word is its place among the words of its sentence that have synonyms.
        place = np.arange(len(candidates)) - np.repeat(np.cumsum(counts) - counts, counts)
        draws = keyed.draw(np.repeat(keyed.mix(keys, 1), counts)[chosen], place[chosen] + 1)
        first = self.table.first_option[entry]
        option = first + keyed.shift(draws, 33) % (self.table.first_option[entry + 1] - first)
        starts = units.starts[:-1].copy()
        lengths = units.lengths
        starts[words] = len(values) + options.offsets[option]
        lengths[words] = options.lengths[option]
        pool = np.concatenate([values, options.values.astype(values.dtype, copy=False)])
        replaced = segments(pool, starts, lengths)
        is_start = np.zeros(len(replaced.values), bool)
        is_start[replaced.offsets[:-1]] = True
        return SentenceBatch(Ragged(replaced.values, replaced.offsets[units.bounds]), is_start)

    def _entries(self, values: np.ndarray, units: _Units) -> np.ndarray:
        """Return the index of each of U words in the table of synonyms, (U,); -1 for a special token or a word without
        synonyms.

        Args:
            values: the token ids of all sentences, one sentence after another.
            units: the words of the sentences.
        """
        assert self.table is not None
        entries = np.full(len(units.lengths), -1)
        entries[units.free] = self.table.find(values, units.starts[units.free], units.lengths[units.free])
        return entries

    def coverage(self, block: Ragged) -> tuple[int, int]:
        """Return (number of words that have synonyms, number of all words) of the sentences in a block.

        The CLEAR paper reports synonyms for about 40 % of the tokens (section 3.3).

        Args:
            block: token ids of the sentences.
        """
        units = _Units.of(SentenceBatch(block, self.words(block.values, block.offsets)), True, self.special)
        return int((self._entries(block.values, units) >= 0).sum()), len(units.free)


Step = Callable[[Augmenter, SentenceBatch, np.ndarray], SentenceBatch]
"""A step: a function of the augmenter, n sentences and the sentences' random keys, (n,) int64."""
STEPS: dict[str, Step] = {
    "del-word": Augmenter.del_word,
    "del-span": Augmenter.del_span,
    "reorder": Augmenter.reorder,
    "subs": Augmenter.subs,
}
"""The steps by name."""


def _deletable(fraction: float, counts: np.ndarray) -> np.ndarray:
    """Return the number of units to delete from each of n sentences, (n,).

    At least one unit is deleted and at least one is left; a sentence of one unit is not changed.

    Args:
        fraction: the fraction of a sentence's units to delete.
        counts: the number of units of each sentence, (n,).
    """
    quotas: np.ndarray = np.minimum(np.maximum(fraction_of(fraction, counts), 1), np.maximum(counts - 1, 0))
    return quotas


def _partners(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Pair the spans of each of n sentences at random, to swap the two spans of each pair.

    Args:
        keys: random key of each sentence, (n,) int64.
        numbers: the number of spans of each sentence, which is even, (n,).

    Returns:
        For each span, the index of the span with which it is paired, (numbers.sum(),). The spans of all sentences are
        numbered from 0.
    """
    partner = np.empty(numbers.sum(), np.int64)
    first = bounds(numbers)
    for rows, order in shuffled(keys, numbers):
        left, right = order[:, ::2], order[:, 1::2]
        paired = 2 * np.arange(left.shape[1]) < numbers[rows, None]
        left, right = ((side + first[rows, None])[paired] for side in (left, right))
        partner[left], partner[right] = right, left
    return partner
