"""Steps of the training loop on the device: the loop's own code over synthetic batches, with a stand-in for DeepSpeed.

    host batches, pinned -> `copied_ahead` -> `Trainer._train_step`: caching, forward, backward, clipping, AdamW

A run in bf16 on CUDA has batches of a fixed number of tokens, any other run has not (`train.job`). So do steps here.
"""

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.ragged import Ragged
from clearspan.train.collectives import autocast
from clearspan.train.config.options import DatasetConfig, ObjectiveConfig, Recipe, TrainingConfig
from clearspan.train.data.ahead import copied_ahead
from clearspan.train.data.batch import Batch, Columns, Rows, cut_micro_batches
from clearspan.train.data.feed import FeedState, MicroBatch
from clearspan.train.data.span_sampler import SpanConfig
from clearspan.train.engine.loop import Trainer
from clearspan.train.engine.optimization import AlternatingOptimizer
from clearspan.train.engine.tracking import Clock
from clearspan.train.modalities import Modality, audio, images
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import Budget, SpecialTokens, plan_budget
from clearspan.train.model.static import StaticConfig, StaticModel
from clearspan.train.objectives import Objective, Setting, clear, mlm, patches, simcse, spans
from clearspan.train.step.learner import Learner
from tests.cuda_without_gpu.models import DIM, VOCABULARY, random_model
from tests.cuda_without_gpu.tensors import CUDA, Ledger, recording

SPECIAL = SpecialTokens(prefix=[0], suffix=[2], pad=1, mask=4)


class NoShards(list[Any]):
    """A dataset without examples: the batches are made here."""

    folder = ""
    manifest = SimpleNamespace(resources={}, classes={0: 4, 1: 4}, lengths={})


EXAMPLES, MICRO_BATCHES = 8, 2
SAMPLER = SpanConfig(max_span=24, min_span=4, placement="uniform", min_distance=16)
OBJECTIVES = ("spans + mlm", "clear", "simcse", "triplets", "mlm", "images", "audio", "static", "turns")
"""Steps: `triplets` is SimCSE with pairs and two hard negatives, `static` the same with a static encoder, and `turns`
text, images and audio by turns, each with an optimizer of its own. `clear` has a memory bank.
"""


def encoder_of(config: Any, pooling: str = "mean", head: bool = False) -> TrainableEncoder:
    """Return an encoder in training with random weights, on the CPU."""
    model = random_model(config, head, attn_implementation=PACKED_ATTENTION)
    return TrainableEncoder(model, pooling)


def static_encoder() -> TrainableEncoder:
    torch.manual_seed(0)
    return TrainableEncoder(StaticModel(StaticConfig(vocab_size=VOCABULARY, hidden_size=DIM, weights=True)))


def made(name: str, encoder: TrainableEncoder) -> tuple[list[Objective], dict[str, nn.Module]]:
    """Return the objectives of one of OBJECTIVES, and its patch embeddings."""

    def setting(objective: str, modality: Modality | None = None, data: str = "data") -> Setting:
        capacity = min(encoder.max_tokens, 512) - SPECIAL.count
        options = {"modality": modality, "attends": encoder.attends, "pooling": encoder.pooling}
        return Setting(objective, data, 0, capacity, VOCABULARY, encoder.dim, SPECIAL, NoShards(), **options)  # type: ignore[arg-type]

    embeddings: dict[str, nn.Module] = {}
    built: list[Objective] = []
    modalities: dict[str, Modality] = {
        "images": images.ImageModality(images.ImageConfig(image_size=32)),
        "audio": audio.AudioModality(audio.AudioConfig(frames=64), 0.0, 0.5),
    }
    if name == "spans + mlm":
        contrast = spans.SpanContrast(spans.SpansConfig(sampler=SAMPLER), setting("spans"))
        moments = contrast.block_moments("anchors")
        built = [contrast, mlm.MaskedLM(mlm.MlmConfig(), setting("mlm"), "spans/anchors", moments)]
    elif name == "mlm":
        built = [mlm.MaskedLM(mlm.MlmConfig(input="sentence"), setting("mlm"), "sequences", (16.0, 64.0))]
    elif name == "clear":
        config = clear.ClearConfig(augment="del-word", views="stored", memory=16)
        built = [clear.Clear(config, setting("clear"), clear.StoredViews(2, setting("clear")))]
    elif name not in modalities:
        columns = ["tokens", "positive", "negative", "negative_1"] if name in ("triplets", "static") else ["tokens"]
        options = simcse.SimcseConfig(negatives=2 if len(columns) > 1 else 1, head="none")
        built = [simcse.SimCSE(options, setting("simcse"), columns)]
    for data, modality in modalities.items():
        if name in (data, "turns"):
            embeddings[data] = modality.embedding(encoder.dim)
            built.append(patches.PatchContrast(patches.PatchesConfig(), setting(data, modality, data), modality))
    for objective in built:
        objective.name, objective.data, objective.weight = objective.setting.name, objective.setting.data, 1.0
    return built, embeddings


def learner_of(name: str, encoder: TrainableEncoder, static: bool) -> Learner:
    """Return the learner of one of OBJECTIVES; `static` gives its batches a fixed number of tokens."""
    torch.manual_seed(1)
    built, embeddings = made(name, encoder)
    if not any(isinstance(objective, mlm.MaskedLM) for objective in built):
        encoder.drop_mlm_head()
    special = SPECIAL if encoder.attends else dataclasses.replace(SPECIAL, prefix=[], suffix=[])
    turns = {objective.name: [objective.name] for objective in built} if name == "turns" else None
    learner = Learner(encoder, built, special, embeddings, turns)
    if static:
        learner.budgets = {turn: _budget(learner, turn) for turn in learner.turns}
    return learner


@torch.no_grad()
def _budget(learner: Learner, turn: str) -> Budget | None:
    """Return the budget of a turn; None if the turn has no tokens."""
    if all(objective.data in ("images", "audio") for objective in learner.of_turn(turn)):
        return None
    sizes = [learner.prepare(batch, turn).packed for batch in host_batches(learner)]
    tokens = max(len(packed.ids) for packed in sizes)
    longest = max(packed.longest for packed in sizes)
    return plan_budget(tokens + 40, 0.0, sizes[0].num_sequences, 1, max(longest, SAMPLER.max_span + 2))


def _lists(generator: np.random.Generator, count: int, shortest: int, longest: int) -> Ragged:
    lengths = generator.integers(shortest, longest, count)
    return Ragged(generator.integers(5, VOCABULARY, lengths.sum(), np.int32), np.concatenate([[0], lengths.cumsum()]))


def host_batches(learner: Learner) -> list[MicroBatch]:
    """Return a step's micro-batches of random examples of each dataset, on the host."""
    generator = np.random.default_rng(3)
    datasets = dict.fromkeys(objective.data for objective in learner.objectives)
    cut = [_batches(learner, data, generator) for data in datasets]
    return [dict(zip(datasets, batches, strict=True)) for batches in zip(*cut, strict=True)]


def _batches(learner: Learner, data: Any, generator: np.random.Generator) -> list[Batch]:
    ids, columns = np.arange(EXAMPLES), dict[str, Any]()
    objective: Any = next(each for each in learner.objectives if each.data == data)
    collated: dict[str, Columns]
    if isinstance(objective, patches.PatchContrast):
        if data == "images":
            values: Any = generator.integers(0, 256, (EXAMPLES, 2, 32, 32, 3), np.uint8)
        else:
            values = generator.standard_normal((EXAMPLES, 1, 64, 128)).astype(np.float16)
        collated = {objective.name: {"values": values, "labels": ids % 2}}
    else:
        shortest, longest = (100, 140) if isinstance(objective, spans.SpanContrast) else (4, 24)
        for name in learner.columns(data):
            columns[name] = _lists(generator, EXAMPLES, shortest, longest)
        collated = learner.collate(Rows(data, columns, ids, 0))
    return list(cut_micro_batches(collated, ids, 0, EXAMPLES // MICRO_BATCHES))


class Engine:
    """The part of DeepSpeed's engine that the loop uses, for one rank at ZeRO stage 0."""

    def __init__(self, module: Learner, optimizer: AlternatingOptimizer, bf16: bool, device: torch.device) -> None:
        self.module, self.optimizer, self.bf16, self.device, self.calls = module, optimizer, bf16, device, 0

    def torch_autocast_enabled(self) -> bool:
        return self.bf16

    def torch_autocast_dtype(self) -> torch.dtype:
        return torch.bfloat16

    def __call__(self, *inputs: Any) -> Any:
        with autocast(self):
            return self.module(*inputs)

    def backward(self, loss: torch.Tensor) -> None:
        (loss / MICRO_BATCHES).backward()

    def step(self) -> None:
        self.calls += 1
        if self.calls % MICRO_BATCHES == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()


def trainer_of(learner: Learner, bf16: bool, caching: bool, device: torch.device, **options: Any) -> Trainer:
    """Return the loop of one rank, without files, at its first step."""
    training = TrainingConfig(
        gradient_accumulation_steps=MICRO_BATCHES, gradient_caching=caching, bf16=bf16, max_steps=10, **options
    )
    objectives = {
        each.name: ObjectiveConfig(data=each.data) for turn in learner.turns for each in learner.of_turn(turn)
    }
    data = {each.data: DatasetConfig(path="unused") for each in objectives.values()}
    optimization: Any = "alternate" if len(learner.turns) > 1 else "sum"
    recipe = Recipe(output="unused", data=data, objectives=objectives, training=training, optimization=optimization)
    trainer = Trainer.__new__(Trainer)
    trainer.recipe, trainer.learner, trainer.optimizers = recipe, learner, recipe.optimizers()
    trainer.parameters = {turn: learner.parameters_of(turn) for turn in trainer.optimizers}
    trainer.optimizer = AlternatingOptimizer(trainer.parameters, trainer.optimizers, learner.parts())
    trainer.engine = Engine(learner, trainer.optimizer, bf16, device)
    trainer.step, trainer.total, trainer.rank, trainer.ranks = 0, 10, 0, 1
    return trainer


def moved(learner: Learner, device: torch.device, pinned: bool = True) -> Iterator[tuple[MicroBatch, FeedState]]:
    """Yield the micro-batches of the same step again and again, as the loop gets them on a device."""

    def endless() -> Iterator[tuple[MicroBatch, FeedState]]:
        while True:
            for batch in host_batches(learner):
                is_cuda = device.type == "cuda"
                yield {name: each.pin() if is_cuda and pinned else each for name, each in batch.items()}, {}

    return copied_ahead(endless(), device)


@dataclasses.dataclass
class Step:
    """What two steps of a run showed.

    Attributes:
        ledger: the device's record of the second step; empty on a CPU.
        loss, norm: the loss of the first step, and the norm of its gradient; their sums over turns. AdamW then divides
            by the gradient, and so enlarges differences of rounding.
        losses: the losses of both steps.
    """

    ledger: Ledger
    loss: float
    norm: float
    losses: list[float]


def two_steps(learner: Learner, bf16: bool, caching: bool, device: torch.device = CUDA, **options: Any) -> Step:
    """Make two steps of a learner, which is moved to the device; the first makes the optimizer's state."""
    learner.to(device).train()
    trainer = trainer_of(learner, bf16, caching, device, **options)
    batches = moved(learner, device)
    metrics, _ = trainer._train_step(batches, Clock())
    trainer.step = 1
    with recording() as ledger:
        second, _ = trainer._train_step(batches, Clock())
    batches.close()
    norm = sum(float(value) for name, value in metrics.items() if name.startswith("grad_norm"))
    return Step(ledger, float(metrics["loss"]), norm, [float(metrics["loss"]), float(second["loss"])])
