"""The module that DeepSpeed trains: all objectives over one shared encoder, one packed forward, one summed loss.

    batches -> each objective's request -> pack -> mask -> encoder -> each objective's loss -> sum of weight x loss

Losses are computed inside this forward pass, in fp32, even if autocast runs the encoder in half precision.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from clearspan.train.config.optimizer import LAYERS
from clearspan.train.config.options import ALL
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.model.encoded import Encoded, Forward, SequenceVectors
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import Budget, PackedBlocks, Patches, Sequences, SpecialTokens
from clearspan.train.step.caching import Cached, Part, cache
from clearspan.train.step.contract import Objective, TokenObjective
from clearspan.train.step.contrast import ContrastiveObjective
from clearspan.train.step.requests import Metrics, Prepared, prepare

COUNTS = ("tokens", "tokens_cut", "masks_cut")
"""Metrics that are sums over sequences; all others are means."""


class Learner(nn.Module):
    """The module that DeepSpeed trains: the encoder, the patch embeddings and the objectives.

    With alternating optimization, a step consists of several weight updates, called turns, and each turn minimizes the
    losses of its own objectives. Otherwise there is one turn, `all`, with all objectives.

    Args:
        encoder: the encoder that all objectives share.
        objectives: the objectives, in the recipe's order.
        special: the special tokens around each sequence of tokens.
        embeddings: name of a dataset -> its patch embedding, for each dataset that is not text; None if all are text.
        turns: name of a turn -> the names of its objectives; None for one turn with all objectives.
        budgets: name of a turn -> the fixed number of tokens in its forward pass on one rank, or None to take as many
            tokens as the batch has; None for no budget in any turn.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        objectives: Sequence[Objective],
        special: SpecialTokens,
        embeddings: Mapping[str, nn.Module] | None = None,
        turns: Mapping[str, Sequence[str]] | None = None,
        budgets: Mapping[str, Budget | None] | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.objectives = encoder, nn.ModuleList(objectives)
        self.embeddings = nn.ModuleDict({_module_name(name): module for name, module in (embeddings or {}).items()})
        self.special = special
        self.turns = dict(turns or {ALL: [objective.name for objective in objectives]})
        self.budgets = dict(budgets or {})

    @property
    def static(self) -> bool:
        """True if the forward pass of at least one turn has a fixed number of tokens."""
        return any(budget is not None for budget in self.budgets.values())

    def of_turn(self, turn: str) -> list[Objective]:
        """Return the objectives of a turn."""
        return [objective for objective in self._objectives if objective.name in self.turns[turn]]

    @property
    def _objectives(self) -> list[Objective]:
        return list(self.objectives)  # type: ignore[arg-type]

    def columns(self, dataset: str) -> list[str]:
        """Return the names of the columns that the objectives read from a dataset's shards.

        Args:
            dataset: the name of the dataset in the recipe.
        """
        readers = (objective for objective in self._objectives if objective.data == dataset)
        return list(dict.fromkeys(name for objective in readers for name in objective.columns))

    def collate(self, rows: Rows) -> dict[str, Columns]:
        """Return name of an objective -> the columns that it makes from one rank's rows of a dataset, on the host.

        Objectives that read another dataset are left out.
        """
        readers = (objective for objective in self._objectives if objective.data == rows.dataset)
        return {objective.name: objective.collate(rows) for objective in readers}

    def parts(self) -> dict[nn.Parameter, str]:
        """Return parameter -> the name of the part of the model that it belongs to, for optimizer options of each part.

        `embeddings` is the table of token embeddings, `layers` is the rest of the encoder's base model, and `heads` is
        everything else, such as the masked-LM head and patch embeddings.
        """
        parts = dict.fromkeys(self.parameters(), "heads") | dict.fromkeys(self.encoder.base.parameters(), LAYERS)
        return parts | dict.fromkeys(self.encoder.token_table(), "embeddings")

    def frozen_by_adapter(self) -> set[str]:
        """Return the names of the weights in `state_dict` that the encoder's adapter freezes, if it has one."""
        return {f"encoder.{name}" for name in self.encoder.frozen_by_adapter()}

    def parameters_of(self, turn: str) -> list[nn.Parameter]:
        """Return the parameters that a turn trains, without frozen parameters.

        They are the encoder's layers and the parameters of the turn's objectives. Token embeddings, patch embeddings,
        the masked-LM head and the layers after the pooling are included if one of these objectives uses them.
        """
        return self.trained_by(self.of_turn(turn))

    def trained_by(self, objectives: Sequence[Objective]) -> list[nn.Parameter]:
        """Return the parameters that at least one of some objectives trains, without frozen parameters.

        They are the encoder's layers and the parameters of the objectives. Token embeddings, patch embeddings, the
        masked-LM head and the layers after the pooling are included if one of these objectives uses them.
        """
        outside: set[str] = set()
        if not any(objective.embeds_tokens for objective in objectives):
            outside |= self.encoder.embedding_parameters()
        if not any(isinstance(objective, TokenObjective) for objective in objectives):
            outside |= {f"model.{name}" for name in self.encoder.mlm_head_parameters()}
        if not any(objective.pools for objective in objectives):
            outside |= {f"head.{name}" for name, _ in self.encoder.head.named_parameters()}
        reached = [p for name, p in self.encoder.named_parameters() if name not in outside]
        used = {_module_name(objective.data) for objective in objectives}
        modules: list[nn.Module] = [self.embeddings[name] for name in self.embeddings if name in used]
        modules += objectives
        reached += [parameter for module in modules for parameter in module.parameters()]
        return [parameter for parameter in reached if parameter.requires_grad]

    def forward(
        self, batches: Mapping[str, Batch], turn: str = ALL, cached: Cached | None = None, measured: bool = True
    ) -> tuple[Tensor, Metrics]:
        """Compute the loss of one micro-batch in a turn, the weighted sum of its objectives' losses, and the metrics.

        Args:
            batches: name of a dataset -> its batch in the micro-batch. Objectives whose dataset is missing are left
                out.
            turn: the name of the turn, whose objectives are computed.
            cached: with gradient caching, the result of `cache` for this micro-batch: the contrastive losses of the
                whole step, their gradients with respect to this micro-batch's vectors, and the packed micro-batch;
                otherwise None.
            measured: whether the step is logged. If not, the metrics need only hold losses and numbers of tokens.

        Returns:
            The loss, a scalar in fp32; and name of a metric -> a detached scalar, such as `spans/loss` and `tokens`,
            the number of this rank's tokens and patches in the packed batch, without fillers.
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
        """Return (name of an objective -> its weighted loss, metrics) from one packed forward pass.

        `forward` adds these losses up. With `cached`, the contrastive losses are those of the whole step. The first
        of them carries the gradient of all of them, and the others have none.

        Args:
            batches: name of a dataset -> its batch in the micro-batch. Objectives whose dataset is missing are left
                out.
            turn: the name of the turn, whose objectives are computed.
            cached: with gradient caching, the result of `cache` for this micro-batch: the contrastive losses of the
                whole step, their gradients with respect to this micro-batch's vectors, and the packed micro-batch;
                otherwise None.
            measured: whether the step is logged. If not, the metrics need only hold losses and numbers of tokens.
        """
        prepared = cached.prepared if cached else self.prepare(batches, turn)
        forward = self._encode(prepared)
        losses: dict[str, Tensor] = dict(cached.losses) if cached else {}
        metrics: Metrics = dict(cached.metrics) if cached else {}
        if cached and losses:
            first = next(iter(losses))
            losses[first] = losses[first] + cached.pull(forward)
        for objective in self.of_turn(turn):
            if objective.name not in prepared.requests or objective.name in losses:
                continue
            encoded = Encoded(forward, objective.name, measured, objective.pools)
            share = cached.shares.get(objective.name, 1.0) if cached else 1.0
            context = prepared.requests[objective.name].context
            losses[objective.name], named = objective.weighted_loss(encoded, context, share)
            metrics |= named
        return losses, metrics | prepared.counts()

    def cache(
        self, micro_batches: Iterable[Mapping[str, Batch]], turn: str = ALL, measured: bool = True
    ) -> list[Cached]:
        """Return the argument `cached` of `forward` for each micro-batch: the first pass of gradient caching.

        This pass encodes all micro-batches of a step without gradient, and computes the contrastive losses of the whole
        step. In the second pass, `forward` encodes each micro-batch again, with gradient.

        Every rank must call this method, with the same autocast as `forward`. Both passes over a micro-batch must have
        the same dropout, so the caller sets the random seed twice: when `micro_batches` yields the micro-batch, and
        before `forward`.

        Args:
            micro_batches: the micro-batches of a step, each as name of a dataset -> its batch.
            turn: the name of the turn, whose objectives are computed.
            measured: whether the step is logged. If not, the metrics need only hold losses.
        """
        parts, objectives = [], self.of_turn(turn)
        for batches in micro_batches:
            with torch.no_grad():
                with torch.random.fork_rng(devices=self._gpus()):  # pass 2, which packs nothing, has the same dropout
                    prepared = self.prepare(batches, turn)
                objectives, vectors = [each for each in self.of_turn(turn) if each.name in prepared.requests], None
                if any(isinstance(objective, ContrastiveObjective) for objective in objectives):
                    forward = self._encode(prepared)
                    vectors = SequenceVectors(forward.pooled, forward.first, forward.blocks)
                parts.append(Part(vectors, prepared))
        return cache(parts, objectives, measured)

    @torch.no_grad()
    def prepare(self, batches: Mapping[str, Batch], turn: str = ALL) -> Prepared:
        """Return the sequences that a turn's objectives request for a micro-batch, packed and masked.

        If the turn has a budget of tokens, the packed batch is filled up or cut to it. If the dataset of an objective
        is missing from the micro-batch, the budget is ignored.

        Args:
            batches: name of a dataset -> its batch in the micro-batch. Objectives whose dataset is missing are left
                out.
            turn: the name of the turn.
        """
        objectives = [objective for objective in self.of_turn(turn) if objective.data in batches]
        complete = len(objectives) == len(self.of_turn(turn))
        budget = self.budgets.get(turn) if complete else None
        requests = {
            objective.name: objective.request(batches[objective.data].of(objective.name)) for objective in objectives
        }
        return prepare(requests, self.special, budget)

    def _gpus(self) -> list[torch.device]:
        """Return the GPU that the encoder is on, if it is on one."""
        device = next(self.encoder.parameters()).device
        return [device] if device.type == "cuda" else []

    def _encode(self, prepared: Prepared) -> Forward:
        blocks = [block for request in prepared.requests.values() for block in request.sequences.values()]
        hidden = self.encoder(prepared.packed, self._patches(blocks, prepared.packed))
        return Forward(self.encoder, prepared.packed, hidden, prepared.blocks, prepared.masked)

    def _patches(self, blocks: list[Sequences], packed: PackedBlocks) -> Tensor | None:
        """Return the embeddings of all patches in a packed batch, (packed.patch_rows, h); None if there are no patches.

        The patches are the first rows of the packed batch. h is the hidden size of the encoder.

        Args:
            blocks: the requested blocks of sequences, in order, of tokens or of patches.
            packed: the packed batch of these blocks.
        """
        contents = [block.content for block in blocks if isinstance(block.content, Patches)]
        if not contents:
            return None
        embedded = [
            self.embeddings[_module_name(content.dataset)](content.values).flatten(0, 1) for content in contents
        ]
        patches = torch.cat(embedded)
        if len(patches) != packed.patch_rows:
            raise ValueError(f"a modality embeds {len(patches)} patches, but declares {packed.patch_rows}")
        return patches


def _module_name(dataset: str) -> str:
    """Return the name under which `Learner.embeddings` stores the patch embedding of a dataset.

    The dataset's own name could clash with an attribute of `nn.ModuleDict`, e.g. `train`.
    """
    return f"patches-{dataset}"
