"""Pack sequences of tokens and of patches into one flat batch, without padding.

    [Sequences, ...] -> pack -> Packed: ids (T,), positions (T,), cumulative lengths (N + 1,)

`pack` puts special tokens around every sequence of tokens. Patches of images and audio come first: a fixed number of
rows, never cut, where the encoder replaces the embeddings of the ids.

With a static `budget` every step has the same number of tokens, which `torch.compile` needs, and a host that must not
wait for the device. Filler sequences fill the end; in the rare step that overflows, the last sequences are cut, and
`cut` counts the lost tokens.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clearspan.shards import keyed

_GOLDEN_INVERSE = (pow(keyed.GOLDEN, -1, 1 << 64) ^ 1 << 63) - (1 << 63)
"""The number whose product with `keyed.GOLDEN` is 1 in int64."""


@dataclasses.dataclass(frozen=True)
class TokenSlices:
    """N slices of one flat array of tokens: slice i has the `lengths[i]` tokens from `starts[i]` on.

    tokens (S,) integers without special tokens; starts, lengths (N,) int64.
    """

    tokens: Tensor
    starts: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def text_keys(self) -> Tensor:
        """Return a hash of each slice's tokens, (N,) int64: equal slices have equal keys, and others, as good as
        surely, different ones.

        The hash is a polynomial in an odd number modulo 2^64 whose coefficients are hashes of the tokens. Prefix sums
        give it for all slices in one pass over `tokens`, however they overlap, without waiting for the device.
        """
        base = self.starts.new_full((len(self.tokens) + 1,), keyed.GOLDEN)
        base[0] = 1
        inverse = torch.full_like(base, _GOLDEN_INVERSE)
        inverse[0] = 1
        terms = torch.as_tensor(keyed.mix(self.tokens.long())) * base.cumprod(0)[:-1]
        sums = torch.cat([terms.new_zeros(1), terms.cumsum(0)])
        polynomial = (sums[self.starts + self.lengths] - sums[self.starts]) * inverse.cumprod(0)[self.starts]
        return torch.as_tensor(keyed.mix(polynomial, self.lengths))


@dataclasses.dataclass(frozen=True)
class Patches:
    """N sequences of `rows` patches each, as numbers that the modality understands: values (N, ...).

    The patch embedding of `dataset`, a name of the recipe, maps the values to (N x rows, h).
    """

    dataset: str
    values: Tensor
    rows: int

    def __len__(self) -> int:
        return len(self.values)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """N sequences of one modality to encode, with a randomness key each, (N,) int64."""

    content: TokenSlices | Patches
    keys: Tensor


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The ids that the tokenizer puts before and after a sequence, and those of padding and of the mask."""

    prefix: list[int]
    suffix: list[int]
    pad: int
    mask: int | None

    @property
    def count(self) -> int:
        return len(self.prefix) + len(self.suffix)


@dataclasses.dataclass(frozen=True)
class Budget:
    """The fixed shape of a step: `tokens` in all, the last of them in `fillers` sequences of at most `longest` tokens.

    Patches, whose number is fixed anyway, are not counted.
    """

    tokens: int
    fillers: int
    longest: int


@dataclasses.dataclass(frozen=True)
class Packed:
    """One flat batch of N sequences in T rows.

    Attributes:
        ids: (T,), with special tokens.
        positions: (T,), from 0 in each sequence.
        sequence: (T,), the number of each row's sequence.
        content: (T,) bool, False at special tokens, fillers and patches.
        cu_seqlens: (N + 1,) int32, cumulative lengths.
        keys: (N,) int64, the sequences' randomness keys, without fillers'.
        num_sequences: N without fillers, which come last.
        longest: the longest sequence, or the budget's bound of it.
        blocks: the sequences of each requested block, in the order of the requests.
        cut: () int64, the tokens that a budget left out.
        patch_rows: the first rows, which are patches.
        lengths: the host's copy of the sequence lengths; None under a budget, as it would cost a sync.
    """

    ids: Tensor
    positions: Tensor
    sequence: Tensor
    content: Tensor
    cu_seqlens: Tensor
    keys: Tensor
    num_sequences: int
    longest: int
    blocks: list[slice]
    cut: Tensor
    patch_rows: int = 0
    lengths: list[int] | None = None

    @property
    def num_tokens(self) -> Tensor:
        """The number of rows without fillers, () int."""
        return self.cu_seqlens[self.num_sequences]


def plan_budget(mean: float, variance: float, num_sequences: int, shortest: int, longest: int) -> Budget:
    """Return a budget: a step's mean tokens plus four standard deviations, at most `num_sequences` x `longest`.

    All but 3 in 100,000 steps fit if the sum is normal, as that of many documents' spans is. The sum of a few sentences
    has a longer tail and overflows more often; `Packed.cut` counts that.

    Args:
        mean, variance: of a step's tokens.
        shortest, longest: the shortest and longest sequence, in tokens with special tokens.
    """
    tokens = min(math.ceil(mean + 4 * math.sqrt(variance)), num_sequences * longest)
    tokens = -(-tokens // 64) * 64
    return Budget(tokens, max(1, math.ceil((tokens - num_sequences * shortest) / longest)), longest)


def pack(requested: Sequence[Sequences], special: SpecialTokens, budget: Budget | None = None) -> Packed:
    """Return all sequences in one batch: patches, then tokens, each sequence of them between its special tokens.

    Args:
        requested: the blocks, in any order of modalities.
    """
    order = sorted(range(len(requested)), key=lambda i: isinstance(requested[i].content, TokenSlices))  # stable
    ends = itertools.accumulate(len(requested[i].content) for i in order)
    block_of = {i: slice(end - len(requested[i].content), end) for i, end in zip(order, ends, strict=True)}
    blocks = [block_of[i] for i in range(len(requested))]
    contents = [requested[i].content for i in order]
    patches = [content for content in contents if isinstance(content, Patches)]
    slices = [content for content in contents if isinstance(content, TokenSlices)]
    keys = torch.cat([requested[i].keys for i in order])
    packed = _pack_tokens(slices, special, budget, keys) if slices else None
    if not patches:
        assert packed is not None
        return dataclasses.replace(packed, blocks=blocks)
    return _put_first(_pack_patches(patches, special, keys), packed, blocks)


def _pack_tokens(slices: list[TokenSlices], special: SpecialTokens, budget: Budget | None, keys: Tensor) -> Packed:
    device = keys.device
    sources = list(
        {id(part.tokens): part.tokens for part in slices}.values()
    )  # an array of several blocks is copied once
    offsets = dict(zip(map(id, sources), itertools.accumulate([0, *map(len, sources)]), strict=False))
    tokens = torch.cat([*sources, sources[0].new_zeros(1)])  # an index is needed even if all texts are empty
    starts = torch.cat([part.starts + offsets[id(part.tokens)] for part in slices])
    lengths = torch.cat([part.lengths for part in slices])
    num_sequences = len(lengths)

    ends = (lengths + special.count).cumsum(0)
    cut = ends.new_zeros(())
    if budget is None:
        host_lengths = (lengths + special.count).tolist()
        total, longest = sum(host_lengths), max(host_lengths)
    else:
        host_lengths, total, longest = None, budget.tokens, budget.longest
        cut = (ends[-1] - total).clamp(min=0)
        fillers = ends[-1] + longest * torch.arange(1, budget.fillers + 1, device=device)
        ends = torch.cat([ends, fillers]).clamp(max=total)
        starts = torch.cat([starts, starts.new_zeros(budget.fillers)])
        lengths = torch.cat([lengths, lengths.new_zeros(budget.fillers)])
    cu_seqlens = torch.cat([ends.new_zeros(1), ends])

    at = torch.arange(total, device=device)
    sequence = torch.searchsorted(ends, at, right=True).clamp(max=len(lengths) - 1)
    positions = at - cu_seqlens[sequence]
    inside = positions - len(special.prefix)
    length = lengths[sequence]
    content = (inside >= 0) & (inside < length)
    ids = tokens[torch.where(content, starts[sequence] + inside, 0)].long()
    for offset, token in enumerate(special.prefix):
        ids = torch.where(positions == offset, token, ids)
    for offset, token in enumerate(special.suffix):
        ids = torch.where(inside == length + offset, token, ids)
    if budget is not None:
        filler = sequence >= num_sequences
        ids, content = torch.where(filler, special.pad, ids), content & ~filler
    return Packed(
        ids, positions, sequence, content, cu_seqlens.int(), keys, num_sequences, longest, [], cut, 0, host_lengths
    )


def _pack_patches(patches: list[Patches], special: SpecialTokens, keys: Tensor) -> Packed:
    """Return a batch of patches, whose padding ids the encoder replaces with patch embeddings."""
    device = keys.device
    host_lengths = [part.rows for part in patches for _ in range(len(part))]
    # Copying host_lengths would be a sync.
    lengths = torch.cat([torch.full((len(part),), part.rows, device=device) for part in patches])
    cu_seqlens = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    rows = sum(host_lengths)
    sequence = torch.arange(len(host_lengths), device=device).repeat_interleave(lengths, output_size=rows)
    positions = torch.arange(rows, device=device) - cu_seqlens[sequence]
    ids = torch.full_like(positions, special.pad)
    content = torch.zeros_like(positions, dtype=torch.bool)
    longest, cut = max(host_lengths), lengths.new_zeros(())
    return Packed(
        *(ids, positions, sequence, content, cu_seqlens.int(), keys, len(host_lengths), longest, [], cut, rows),
        host_lengths,
    )


def _put_first(first: Packed, rest: Packed | None, blocks: list[slice]) -> Packed:
    """Return two batches as one; the first has no fillers."""
    if rest is None:
        return dataclasses.replace(first, blocks=blocks)
    assert first.lengths is not None
    return Packed(
        ids=torch.cat([first.ids, rest.ids]),
        positions=torch.cat([first.positions, rest.positions]),
        sequence=torch.cat([first.sequence, rest.sequence + first.num_sequences]),
        content=torch.cat([first.content, rest.content]),
        cu_seqlens=torch.cat([first.cu_seqlens, rest.cu_seqlens[1:] + first.patch_rows]),
        keys=rest.keys,  # of all sequences
        num_sequences=first.num_sequences + rest.num_sequences,
        longest=max(first.longest, rest.longest),
        blocks=blocks,
        cut=rest.cut,
        patch_rows=first.patch_rows,
        lengths=None if rest.lengths is None else first.lengths + rest.lengths,
    )


def pack_ids(sequences: list[list[int]], device: torch.device | str = "cpu") -> Packed:
    """Return a batch of sequences that already hold their special tokens."""
    lengths = torch.tensor([len(ids) for ids in sequences], device=device)
    tokens = torch.tensor([token for ids in sequences for token in ids], device=device)
    slices = TokenSlices(tokens, lengths.cumsum(0) - lengths, lengths)
    return pack([Sequences(slices, torch.zeros_like(lengths))], SpecialTokens([], [], 0, None))
