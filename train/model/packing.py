"""From sequences of tokens and of patches to one flat batch, without padding.

    [Sequences, ...] -> pack -> Packed: ids (T,), positions (T,), cumulative lengths (N + 1,)

Special tokens are put around every sequence of tokens here. Patches of images and audio come first: a fixed number of
rows, never cut, whose embeddings the encoder writes over those of the ids there. With a static `budget` the number of
tokens is the same at every step (what `torch.compile` and a host that must not wait for the device need): the rest is
filled with filler sequences at the end, and in the rare step that overflows the last sequences are cut; `cut` counts
those tokens.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class TokenSlices:
    """N stretches of one flat array: `lengths[i]` tokens of `tokens` from `starts[i]` on.

    tokens (S,) integers without special tokens; starts, lengths (N,) int64.
    """

    tokens: Tensor
    starts: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)


@dataclasses.dataclass(frozen=True)
class Patches:
    """N sequences of `rows` patches each, as their modality takes them: values (N, ...).

    `dataset` is the recipe's name of the one whose patch embedding makes (N x rows, h) of the values.
    """

    dataset: str
    values: Tensor
    rows: int

    def __len__(self) -> int:
        return len(self.values)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """N sequences of one modality to encode; keys (N,) int64, a randomness key a sequence."""

    content: TokenSlices | Patches
    keys: Tensor


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """Ids that the tokenizer puts before and after a sequence, and those that fill and mask."""

    prefix: list[int]
    suffix: list[int]
    pad: int
    mask: int | None

    @property
    def count(self) -> int:
        return len(self.prefix) + len(self.suffix)


@dataclasses.dataclass(frozen=True)
class Budget:
    """The fixed shape of a step's tokens: `tokens` in all, of which the last are `fillers` sequences of at most
    `longest`. Patches, whose number is fixed, come on top.
    """

    tokens: int
    fillers: int
    longest: int


@dataclasses.dataclass(frozen=True)
class Packed:
    """One flat batch. Sequences from `num_sequences` on are fillers; the first `patch_rows` rows are patches.

    ids, positions, sequence, content: (T,); cu_seqlens (N + 1,) int32; keys (N,). `positions` counts from 0 in each
    sequence, `sequence` is its number, `content` is False at special tokens, fillers and patches. `blocks` says where
    what was asked for lies, in that order. `cut` () int64 counts the tokens that a budget left out. `lengths` is the
    host's copy of the sequence lengths, None under a budget (it would cost a sync).
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
        """() int: rows that are no fillers."""
        return self.cu_seqlens[self.num_sequences]


def plan_budget(mean: float, variance: float, num_sequences: int, shortest: int, longest: int) -> Budget:
    """A budget of the mean plus four standard deviations of a step's tokens, at most what the sequences can have.

    It holds all but 3 in 100,000 steps where the sum is normal, as that of many documents' spans is; that of a few
    sentences has a longer tail and overflows more often, which `Packed.cut` counts. `shortest` and `longest` are the
    sequence lengths in tokens, specials included.
    """
    tokens = min(math.ceil(mean + 4 * math.sqrt(variance)), num_sequences * longest)
    tokens = -(-tokens // 64) * 64
    return Budget(tokens, max(1, math.ceil((tokens - num_sequences * shortest) / longest)), longest)


def pack(asked: Sequence[Sequences], special: SpecialTokens, budget: Budget | None = None) -> Packed:
    """Lays all sequences end to end: patches, then tokens, each sequence of them between its special tokens; see the
    module's docstring.
    """
    order = sorted(range(len(asked)), key=lambda i: isinstance(asked[i].content, TokenSlices))  # stable
    ends = itertools.accumulate(len(asked[i].content) for i in order)
    block_of = {i: slice(end - len(asked[i].content), end) for i, end in zip(order, ends, strict=True)}
    blocks = [block_of[i] for i in range(len(asked))]
    contents = [asked[i].content for i in order]
    patches = [content for content in contents if isinstance(content, Patches)]
    slices = [content for content in contents if isinstance(content, TokenSlices)]
    keys = torch.cat([asked[i].keys for i in order])
    packed = _pack_tokens(slices, special, budget, keys) if slices else None
    if not patches:
        assert packed is not None
        return dataclasses.replace(packed, blocks=blocks)
    return _put_first(_pack_patches(patches, special, keys), packed, blocks)


def _pack_tokens(slices: list[TokenSlices], special: SpecialTokens, budget: Budget | None, keys: Tensor) -> Packed:
    device = keys.device
    sources = list({id(one.tokens): one.tokens for one in slices}.values())  # one of several blocks is laid down once
    offsets = dict(zip(map(id, sources), itertools.accumulate([0, *map(len, sources)]), strict=False))
    tokens = torch.cat([*sources, sources[0].new_zeros(1)])  # with one to point to where all texts are empty
    starts = torch.cat([one.starts + offsets[id(one.tokens)] for one in slices])
    lengths = torch.cat([one.lengths for one in slices])
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
    """Ids of padding where the encoder will write embeddings."""
    device = keys.device
    host_lengths = [one.rows for one in patches for _ in range(len(one))]
    lengths = torch.cat([torch.full((len(one),), one.rows, device=device) for one in patches])  # a copy would be a sync
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
    """One batch of two; the first has no fillers."""
    if rest is None:
        return dataclasses.replace(first, blocks=blocks)
    assert first.lengths is not None
    return Packed(
        ids=torch.cat([first.ids, rest.ids]),
        positions=torch.cat([first.positions, rest.positions]),
        sequence=torch.cat([first.sequence, rest.sequence + first.num_sequences]),
        content=torch.cat([first.content, rest.content]),
        cu_seqlens=torch.cat([first.cu_seqlens, rest.cu_seqlens[1:] + first.patch_rows]),
        keys=rest.keys,  # those of all sequences
        num_sequences=first.num_sequences + rest.num_sequences,
        longest=max(first.longest, rest.longest),
        blocks=blocks,
        cut=rest.cut,
        patch_rows=first.patch_rows,
        lengths=None if rest.lengths is None else first.lengths + rest.lengths,
    )


def pack_ids(sequences: list[list[int]], device: torch.device | str = "cpu") -> Packed:
    """Packs sequences that already hold their special tokens, as an encoder's user has them."""
    lengths = torch.tensor([len(ids) for ids in sequences], device=device)
    tokens = torch.tensor([token for ids in sequences for token in ids], device=device)
    slices = TokenSlices(tokens, lengths.cumsum(0) - lengths, lengths)
    return pack([Sequences(slices, torch.zeros_like(lengths))], SpecialTokens([], [], 0, None))
