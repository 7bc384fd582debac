"""Pack sequences of tokens and of patches into one flat batch, without padding.

    [Sequences, ...] -> pack -> PackedBlocks: ids (T,), positions (T,), cumulative lengths (N + 1,)

N is the number of sequences, and T the number of rows: tokens and patches. `pack` puts special tokens around every
sequence of tokens. Patches of images and audio come first in the batch. Their rows hold padding ids, and the encoder
replaces the embeddings of these ids by the embeddings of the patches.

A `budget` gives every batch the same number of tokens. `torch.compile` needs this. Also, the host then knows the number
without waiting for the device. Filler sequences fill the end of the batch. In the rare batch with more tokens than the
budget, the last sequences are cut, and `cut` counts the lost tokens. Patches need no budget and are never cut, because
each image or clip has the same number of them.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from clearspan.common.encoder.packing import Packed
from clearspan.shards import keyed, rolling


@dataclasses.dataclass(frozen=True)
class TokenSlices:
    """N slices of one flat array of tokens: slice i has the `lengths[i]` tokens from `starts[i]` on.

    Attributes:
        tokens: the array of S token ids, without special tokens, of any integer type, (S,).
        starts, lengths: the index of each slice's first token in `tokens`, and its number of tokens, (N,) int64 each.
    """

    tokens: Tensor
    starts: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def text_keys(self) -> Tensor:
        """Return a hash of each slice's tokens, (N,) int64. Equal slices have equal hashes; collisions are negligible.

        The hash is a rolling hash (`shards.rolling`): one pass over `tokens` gives the hashes of all slices, even if
        they overlap, without waiting for the device.
        """
        size = len(self.tokens) + 1
        base, inverse = (rolling.powers(self.starts.new_empty(size), of) for of in (keyed.GOLDEN, rolling.INVERSE))
        terms = torch.as_tensor(keyed.mix(self.tokens.long())) * base[:-1]
        sums = torch.cat([terms.new_zeros(1), terms.cumsum(0)])
        hashes = rolling.hashes(sums, inverse, self.starts, self.starts + self.lengths)
        return torch.as_tensor(keyed.mix(hashes, self.lengths))


@dataclasses.dataclass(frozen=True)
class Patches:
    """N sequences of `rows` patches each; a sequence is an image or an audio clip.

    Attributes:
        dataset: the name of the dataset in the recipe. Each such dataset has a patch embedding, a module that maps
            `values` to embeddings of the hidden size h, (N, rows, h).
        values: the numbers from which the patches are made, (N, ...); the modality decides their shape.
        rows: the number of patches of a sequence.
    """

    dataset: str
    values: Tensor
    rows: int

    def __len__(self) -> int:
        return len(self.values)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """N sequences of one modality to encode.

    Attributes:
        content: the tokens or patches.
        keys: the random key of each sequence, (N,) int64, from which its masks are drawn.
    """

    content: TokenSlices | Patches
    keys: Tensor


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer.

    Attributes:
        prefix, suffix: the ids that the tokenizer puts before and after a sequence; [] if it puts none there.
        pad: the id of the padding token; 0 if there is none.
        mask: the id of the mask token; None if there is none.
    """

    prefix: list[int]
    suffix: list[int]
    pad: int
    mask: int | None

    @property
    def count(self) -> int:
        return len(self.prefix) + len(self.suffix)


@dataclasses.dataclass(frozen=True)
class Budget:
    """The fixed number of tokens to which every packed batch is filled up or cut. Patches are not counted.

    Attributes:
        tokens: the number of tokens in a batch, including special tokens and the tokens of filler sequences.
        fillers: the number of filler sequences, which fill the end of the batch with padding ids; some may be empty.
        longest: the maximum length of a sequence or filler, in tokens.
    """

    tokens: int
    fillers: int
    longest: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedBlocks(Packed):
    """The packed batch of a forward pass: the blocks of sequences that objectives requested, in T rows.

    If the batch has a fixed number of tokens (`Budget`), filler sequences at its end make up for missing tokens. The
    lengths of the sequences are then known on the device only, so that the host does not wait for them.

    Attributes:
        content: True at the tokens of texts, False at special tokens, fillers and patches, (T,) bool.
        keys: the random key of each of the N requested sequences, (N,) int64; fillers have no key.
        blocks: the range of each requested block's sequences, in the order in which the blocks were requested; []
            after `reordered`, which mixes the sequences of all blocks.
        num_cut: the number of tokens that did not fit into the budget, () int64.
    """

    content: Tensor
    keys: Tensor
    blocks: list[slice]
    num_cut: Tensor

    def reordered(self, order: Tensor, rows: Tensor) -> Self:
        reordered = super().reordered(order, rows)
        return dataclasses.replace(reordered, content=self.content[rows], keys=self.keys[order], blocks=[])


def plan_budget(mean: float, variance: float, num_sequences: int, shortest: int, longest: int) -> Budget:
    """Return a budget of tokens for a micro-batch: the mean number of its tokens plus four standard deviations.

    It is at most `num_sequences` x `longest`, and is then rounded up to a multiple of 64. If the number of tokens in a
    micro-batch is normally distributed, as for the spans of many documents, all but 3 in 100,000 micro-batches fit. For
    small micro-batches of sentences, the distribution has a longer tail, and more of them overflow.
    `PackedBlocks.num_cut` counts the tokens that are dropped.

    Args:
        mean, variance: the mean and the variance of the number of tokens in a micro-batch.
        num_sequences: the number of sequences in a micro-batch.
        shortest, longest: the minimum and maximum length of a sequence, in tokens, special tokens included. They
            determine how many filler sequences may be needed to fill the batch up.
    """
    tokens = min(math.ceil(mean + 4 * math.sqrt(variance)), num_sequences * longest)
    tokens = -(-tokens // 64) * 64
    return Budget(tokens, max(1, math.ceil((tokens - num_sequences * shortest) / longest)), longest)


def pack(sequences: Sequence[Sequences], special: SpecialTokens, budget: Budget | None = None) -> PackedBlocks:
    """Pack all sequences into one batch: first patches, then tokens. Special tokens surround each sequence of tokens.

    Args:
        sequences: the blocks of sequences; blocks of patches and of tokens may be in any order.
        special: the special tokens to put around a sequence of tokens.
        budget: the number of tokens to which the batch is filled up or cut; None to keep the number of tokens.
    """
    order = sorted(range(len(sequences)), key=lambda i: isinstance(sequences[i].content, TokenSlices))  # stable
    bounds = itertools.accumulate(len(sequences[i].content) for i in order)
    block_of = {i: slice(end - len(sequences[i].content), end) for i, end in zip(order, bounds, strict=True)}
    blocks = [block_of[i] for i in range(len(sequences))]
    contents = [sequences[i].content for i in order]
    keys = torch.cat([sequences[i].keys for i in order])
    device = keys.device
    patch_rows = [part.rows for part in contents if isinstance(part, Patches) for _ in range(len(part))]
    slices = [part for part in contents if isinstance(part, TokenSlices)]
    tokens, starts, lengths = _concatenated(slices, device)
    num_patched, first, num_sequences = len(patch_rows), sum(patch_rows), len(keys)
    # A patch sequence has no special tokens; copying its length from the host would be a sync.
    sizes = [torch.full((len(part),), part.rows, device=device) for part in contents if isinstance(part, Patches)]
    sizes.append(lengths + special.count)
    starts, lengths = (torch.cat([values.new_zeros(num_patched), values]) for values in (starts, lengths))

    ends = torch.cat(sizes).cumsum(0)
    cut = ends.new_zeros(())
    if budget is None:
        host_lengths: list[int] | None = patch_rows + (sizes[-1].tolist() if slices else [])
        assert host_lengths is not None
        total, longest = sum(host_lengths), max(host_lengths)
    else:
        host_lengths, total, longest = None, first + budget.tokens, max([budget.longest, *patch_rows])
        cut = (ends[-1] - total).clamp(min=0)
        fillers = ends[-1] + budget.longest * torch.arange(1, budget.fillers + 1, device=device)
        ends = torch.cat([ends, fillers]).clamp(max=total)
        starts, lengths = (torch.cat([values, values.new_zeros(budget.fillers)]) for values in (starts, lengths))
    cu_seqlens = torch.cat([ends.new_zeros(1), ends])

    at = torch.arange(total, device=device)
    sequence = torch.searchsorted(ends, at, right=True).clamp(max=len(lengths) - 1)
    positions = at - cu_seqlens[sequence]
    inside, length = positions - len(special.prefix), lengths[sequence]
    is_text = (sequence >= num_patched) & (sequence < num_sequences)
    content = is_text & (inside >= 0) & (inside < length)
    ids = torch.where(content, tokens[torch.where(content, starts[sequence] + inside, 0)].long(), special.pad)
    for offset, token in enumerate(special.prefix):
        ids = torch.where(is_text & (positions == offset), token, ids)
    for offset, token in enumerate(special.suffix):
        ids = torch.where(is_text & (inside == length + offset), token, ids)
    return PackedBlocks(
        ids=ids,
        positions=positions,
        sequence=sequence,
        cu_seqlens=cu_seqlens.int(),
        num_sequences=num_sequences,
        longest=longest,
        patch_rows=first,
        lengths=host_lengths,
        content=content,
        keys=keys,
        blocks=blocks,
        num_cut=cut,
    )


def _concatenated(slices: list[TokenSlices], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate the token arrays of several blocks of slices, each array once even if several blocks slice it.

    Args:
        slices: the blocks; N is their number of slices in all.
        device: the device of the result.

    Returns:
        (tokens, starts, lengths):
            tokens: the concatenated arrays, and a 0 at the end, so that there is something to index if `slices` is [].
            starts: the index of each slice's first token in `tokens`, (N,) int64.
            lengths: the number of tokens of each slice, (N,) int64.
    """
    # Copy each array once, even if several blocks slice it.
    sources = list({id(part.tokens): part.tokens for part in slices}.values())
    offsets = dict(zip(map(id, sources), itertools.accumulate([0, *map(len, sources)]), strict=False))
    none = torch.zeros(0, dtype=torch.int64, device=device)
    tokens = torch.cat([*sources, (sources[0] if sources else none).new_zeros(1)])
    starts = torch.cat([none, *(part.starts + offsets[id(part.tokens)] for part in slices)])
    return tokens, starts, torch.cat([none, *(part.lengths for part in slices)])
