"""The module that DeepSpeed trains: all objectives over one shared encoder, one packed forward, one summed loss.

    batches -> each objective's request -> pack -> mask -> encoder -> each objective's loss -> sum of weight x loss

Losses are computed inside this forward, in fp32, whatever autocast does to the encoder.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.gradient_caching import Cached, Part, cache
from clearspan.train.losses import IGNORED
from clearspan.train.model.encoded import Encoded, Forward, Vectors, qualified
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.masking import Masked, mask
from clearspan.train.model.packing import Budget, Packed, Patches, Sequences, SpecialTokens, pack
from clearspan.train.objectives import Metrics, Objective, Request
from clearspan.train.options import ALL


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What a turn's objectives want of a micro-batch, packed and masked; `static`: to a fixed shape."""

    objectives: list[Objective]
    requests: dict[str, Request]
    packed: Packed
    blocks: dict[str, slice]
    masked: dict[str, Masked]
    static: bool

    def masked_tokens(self) -> dict[str, Tensor]:
        """() how many of them are masked on this rank, by the objective that wants it."""
        found = {}
        for name, request in self.requests.items():
            labels = [self.masked[qualified(name, block)].labels for block in request.masking]
            if labels:
                found[name] = (torch.cat(labels) != IGNORED).sum()
        return found


class Learner(nn.Module):
    """Encoder, patch embeddings and objectives.

    Args:
        embeddings: of the datasets that are not text, by name.
        turns: the objectives of each update, by turn; None: one of all.
        budgets: the fixed shape of each turn's forward on one rank; None lets every one have its own number of tokens.
    """

    def __init__(
        self,
        encoder: Encoder,
        objectives: Sequence[Objective],
        special: SpecialTokens,
        embeddings: Mapping[str, nn.Module] | None = None,
        turns: Mapping[str, Sequence[str]] | None = None,
        budgets: Mapping[str, Budget | None] | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.objectives = encoder, nn.ModuleList(objectives)
        self.embeddings = nn.ModuleDict({_module_name(name): one for name, one in (embeddings or {}).items()})
        self.special = special
        self.turns = dict(turns or {ALL: [objective.name for objective in objectives]})
        self.budgets = dict(budgets or {})

    @property
    def static(self) -> bool:
        """Whether forwards have a fixed shape."""
        return any(budget is not None for budget in self.budgets.values())

    def of_turn(self, turn: str) -> list[Objective]:
        """The objectives of an update."""
        return [one for one in self._objectives if one.name in self.turns[turn]]

    @property
    def _objectives(self) -> list[Objective]:
        return list(self.objectives)  # type: ignore[arg-type]

    def columns(self, dataset: str) -> list[str]:
        """The shards' columns of a dataset that its objectives read."""
        own = (one for one in self._objectives if one.data == dataset)
        return list(dict.fromkeys(name for objective in own for name in objective.columns))

    def fingerprints(self) -> dict[str, str]:
        """By objective, the hash of what decides its batches besides recipe and shards, where there is such a thing."""
        found = {objective.name: objective.fingerprint() for objective in self._objectives}
        return {name: fingerprint for name, fingerprint in found.items() if fingerprint}

    def collate(self, rows: Rows) -> dict[str, Columns]:
        """What each objective wants of a rank's rows of its dataset; the stream calls it on the host."""
        return {one.name: one.collate(rows) for one in self._objectives if one.data == rows.dataset}

    def parameters_of(self, turn: str) -> list[nn.Parameter]:
        """The parameters that an update reaches: of the encoder's layers, of the turn's objectives, and of the patch
        and token embeddings, the masked-LM head and the layers after the pooling only where one of them uses these.
        """
        objectives = self.of_turn(turn)
        outside: set[str] = set()
        if not any(one.embeds_tokens for one in objectives):
            outside |= self.encoder.embedding_parameters()
        if not any(one.uses_mlm_head for one in objectives):
            outside |= {f"model.{name}" for name in self.encoder.mlm_head_parameters()}
        if not any(one.pools for one in objectives):
            outside |= {f"head.{name}" for name, _ in self.encoder.head.named_parameters()}
        reached = [p for name, p in self.encoder.named_parameters() if name not in outside]
        modules: list[nn.Module] = [
            self.embeddings[name] for name in self.embeddings if name in {_module_name(one.data) for one in objectives}
        ]
        modules += objectives
        return reached + [parameter for module in modules for parameter in module.parameters()]

    def forward(
        self, batches: Mapping[str, Batch], turn: str = ALL, cached: Cached | None = None, measured: bool = True
    ) -> tuple[Tensor, Metrics]:
        """(loss, metrics): the weighted sum of a turn's losses, scalar fp32, and detached scalars such as `spans/loss`,
        `tokens` (rows of the packed batch).

        Args:
            batches: one micro-batch, by dataset. Where it lacks some, the losses are those on the others.
            cached: what the step's contrasts gave (`cache`): of those the loss is that of the step.
            measured: whether anyone will look at metrics beside losses and counts.
        """
        losses, metrics = self.losses(batches, turn, cached, measured)
        total = torch.zeros((), device=metrics["tokens"].device)
        for loss in losses.values():
            total = total + loss
        metrics["loss"] = total.detach()
        return total, metrics

    def losses(
        self, batches: Mapping[str, Batch], turn: str = ALL, cached: Cached | None = None, measured: bool = True
    ) -> tuple[dict[str, Tensor], Metrics]:
        """(each objective's weighted loss, metrics): what `forward` adds up, from one packed forward.

        With `cached` the gradient of all contrasts comes with the first of them.
        """
        asked = self._ask(batches, turn)
        encoded = self._encode(asked)
        losses: dict[str, Tensor] = dict(cached.losses) if cached else {}
        metrics: Metrics = dict(cached.metrics) if cached else {}
        if cached and losses:
            first = next(iter(losses))
            losses[first] = losses[first] + cached.pull(encoded)
        for objective in asked.objectives:
            if objective.name in losses:
                continue
            loss, own = objective.loss(
                Encoded(encoded, objective.name, measured), asked.requests[objective.name].context
            )
            if cached:
                loss = loss * cached.shares.get(objective.name, 1.0)
            losses[objective.name] = objective.weight * loss
            metrics[f"{objective.name}/loss"] = loss.detach()
            metrics.update({f"{objective.name}/{key}": value for key, value in own.items()})
        metrics["tokens"] = asked.packed.num_tokens.detach()
        if asked.static:
            metrics["tokens_cut"] = asked.packed.cut.detach()
            if asked.masked:
                metrics["masks_cut"] = torch.stack([one.cut for one in asked.masked.values()]).sum()
        return losses, metrics

    def cache(
        self, micro_batches: Iterable[Mapping[str, Batch]], turn: str = ALL, measured: bool = True
    ) -> list[Cached]:
        """Return what `forward` needs of each micro-batch to contrast a whole step (`train.gradient_caching`).

        Every rank calls it, under the autocast of the forward. Dropout is to be seeded for each micro-batch when it is
        taken, and again before its forward.
        """
        parts, objectives = [], self.of_turn(turn)
        for batches in micro_batches:
            with torch.no_grad():
                asked = self._ask(batches, turn)
                objectives, vectors = asked.objectives, None
                if any(one.contrasts for one in objectives):
                    encoded = self._encode(asked)
                    vectors = Vectors(encoded.pooled, encoded.first, encoded.blocks)
                contexts = {name: request.context for name, request in asked.requests.items()}
                parts.append(Part(vectors, contexts, asked.masked_tokens()))
        return cache(parts, objectives, measured)

    @torch.no_grad()
    def _ask(self, batches: Mapping[str, Batch], turn: str) -> _Asked:
        objectives = [one for one in self.of_turn(turn) if one.data in batches]
        whole = len(objectives) == len(self.of_turn(turn))
        budget = self.budgets.get(turn) if whole else None
        requests = {one.name: one.request(batches[one.data].of(one.name)) for one in objectives}
        asked = {
            qualified(name, block): sequences
            for name, request in requests.items()
            for block, sequences in request.sequences.items()
        }
        packed = pack(list(asked.values()), self.special, budget)
        blocks = dict(zip(asked, packed.blocks, strict=True))
        masked: dict[str, Masked] = {}
        for name, request in requests.items():
            for block, masking in request.masking.items():
                packed, masked[qualified(name, block)] = mask(packed, blocks[qualified(name, block)], masking)
        return _Asked(objectives, requests, packed, blocks, masked, budget is not None)

    def _encode(self, asked: _Asked) -> Forward:
        sequences = [one for request in asked.requests.values() for one in request.sequences.values()]
        hidden = self.encoder(asked.packed, self._patches(sequences, asked.packed))
        return Forward(self.encoder, asked.packed, hidden, asked.blocks, asked.masked)

    def _patches(self, asked: list[Sequences], packed: Packed) -> Tensor | None:
        """What stands in the first rows of the batch instead of token embeddings, (packed.patch_rows, h)."""
        contents = [one.content for one in asked if isinstance(one.content, Patches)]
        if not contents:
            return None
        embedded = [self.embeddings[_module_name(one.dataset)](one.values).flatten(0, 1) for one in contents]
        patches = torch.cat(embedded)
        if len(patches) != packed.patch_rows:
            raise ValueError(f"a modality embeds {len(patches)} patches where it says {packed.patch_rows}")
        return patches


def _module_name(dataset: str) -> str:
    """A dataset's patch embedding by a name that no module has already, as it has `train`, or `keys`."""
    return f"patches-{dataset}"
