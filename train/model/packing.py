"""From spans of documents to one flat batch of tokens, without padding.

    [Sequences of each objective] -> pack -> Packed: ids (T,), positions (T,), cumulative lengths (N + 1,)

Special tokens are put around every sequence here. With a static `budget` T is the same at every step (what
`torch.compile` and a host that must not wait for the device need): the rest is filled with filler sequences at the end,
and in the rare step that overflows, the last sequences are cut.
"""

import dataclasses
import math

import torch
from torch import Tensor


@dataclasses.dataclass
class Sequences:
    """What an objective asks to have encoded: `lengths[i]` tokens of `tokens` from `starts[i]` on.

    tokens (S,) int64 without special tokens; starts, lengths (N,) int64; keys (N,) int64, a randomness key a sequence.
    """

    tokens: Tensor
    starts: Tensor
    lengths: Tensor
    keys: Tensor


@dataclasses.dataclass
class SpecialTokens:
    """Ids that the tokenizer puts before and after a sequence, and those that fill and mask."""

    prefix: list[int]
    suffix: list[int]
    pad: int
    mask: int | None

    @property
    def count(self) -> int:
        return len(self.prefix) + len(self.suffix)


@dataclasses.dataclass
class Budget:
    """The fixed shape of a step: `tokens` in all, of which the last are `fillers` sequences of at most `longest`."""

    tokens: int
    fillers: int
    longest: int


@dataclasses.dataclass
class Packed:
    """One flat batch. Sequences from `num_sequences` on are fillers.

    ids, positions, sequence, content: (T,); cu_seqlens (N + 1,) int32; keys (N,). `positions` counts from 0 in each
    sequence, `sequence` is its number, `content` is False at special and filler tokens. `lengths` is the host's copy
    of the sequence lengths, None under a budget (it would cost a sync).
    """

    ids: Tensor
    positions: Tensor
    sequence: Tensor
    content: Tensor
    cu_seqlens: Tensor
    keys: Tensor
    num_sequences: int
    longest: int
    lengths: list[int] | None = None


def plan_budget(mean: float, variance: float, num_sequences: int, shortest: int, longest: int) -> Budget:
    """A budget that holds all but 3 in 100,000 steps: the mean plus four standard deviations of a step's tokens.

    `shortest` and `longest` are the sequence lengths in tokens, specials included.
    """
    tokens = min(math.ceil(mean + 4 * math.sqrt(variance)), num_sequences * longest)
    tokens = -(-tokens // 64) * 64
    return Budget(tokens, max(1, math.ceil((tokens - num_sequences * shortest) / longest)), longest)


def pack(requests: list[Sequences], special: SpecialTokens, budget: Budget | None = None) -> Packed:
    """Lays all sequences end to end, each between its special tokens; see the module's docstring."""
    device = requests[0].tokens.device
    sizes = [len(request.tokens) for request in requests]
    tokens = torch.cat([request.tokens for request in requests])
    starts = torch.cat([r.starts + offset for r, offset in zip(requests, _offsets(sizes), strict=True)])
    lengths = torch.cat([request.lengths for request in requests])
    keys = torch.cat([request.keys for request in requests])
    num_sequences = len(lengths)

    ends = (lengths + special.count).cumsum(0)
    if budget is None:
        host_lengths = (lengths + special.count).tolist()
        total, longest = sum(host_lengths), max(host_lengths)
    else:
        host_lengths, total, longest = None, budget.tokens, budget.longest
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
    ids = tokens[torch.where(content, starts[sequence] + inside, 0)]
    for offset, token in enumerate(special.prefix):
        ids = torch.where(positions == offset, token, ids)
    for offset, token in enumerate(special.suffix):
        ids = torch.where(inside == length + offset, token, ids)
    if budget is not None:
        filler = sequence >= num_sequences
        ids, content = torch.where(filler, special.pad, ids), content & ~filler
    return Packed(ids, positions, sequence, content, cu_seqlens.int(), keys, num_sequences, longest, host_lengths)


def _offsets(sizes: list[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def pack_ids(sequences: list[list[int]], device: torch.device | str = "cpu") -> Packed:
    """Packs sequences that already hold their special tokens, as an encoder's user has them."""
    lengths = torch.tensor([len(ids) for ids in sequences], device=device)
    tokens = torch.tensor([token for ids in sequences for token in ids], device=device)
    request = Sequences(tokens, lengths.cumsum(0) - lengths, lengths, torch.zeros_like(lengths))
    return pack([request], SpecialTokens([], [], 0, None))
