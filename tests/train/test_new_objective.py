"""An objective, a modality and a kind of dataset of the user's own: one module beside the data, and lines in a recipe.

The real commands run in that module's folder, in processes of their own; the package is as it is.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clearspan.shards import Dataset, Manifest, ShardWriter
from clearspan.shards import schema as schemas
from tests.conftest import ROOT
from tests.processes import environment, run_commands
from tests.train.runs import same_weights, without_its_last_checkpoint

MODULE = '''
"""Pictures of 8 x 8 gray pixels: their kind of dataset, patches of 4 x 4, and an objective that predicts classes."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearspan.shards import ShardError, keyed, schema
from clearspan.shards.layouts import Samples
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.draws import Purpose
from clearspan.train.modalities import Modality, ModalityConfig
from clearspan.train.model.packing import Patches, Sequences
from clearspan.train.objectives import (
    Encoded,
    ExampleObjective,
    Metrics,
    Objective,
    ObjectiveConfig,
    Request,
    Setting,
    Workload,
)

COLUMNS = ("id:int64", "image:binary", "label:int64")
schema.register(schema.Schema("toy", COLUMNS, layout=Samples(image="raw", label="cls")))


@dataclasses.dataclass
class PixelsConfig(ModalityConfig):
    noise: float = 0.0

    def check(self) -> None:
        if self.noise < 0:
            raise ValueError(f"noise {self.noise} is negative")


class Pixels(Modality):
    config: PixelsConfig
    columns = ("image", "label")
    views = 1
    patches = 4

    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        for id_, image in zip(rows.ids, rows.listed("image"), strict=True):
            if len(image) != 64:
                raise ShardError(f"{rows.dataset}: example {id_} holds {len(image)} bytes, not 64")
        pixels = np.frombuffer(b"".join(rows.listed("image")), np.uint8).reshape(-1, 2, 4, 2, 4).swapaxes(2, 3)
        draws = keyed.shift(keyed.draw(keys[..., None], np.arange(1, 65)), 11) / 2**53
        values = pixels.reshape(-1, 1, 4, 16) / 255 + self.config.noise * draws.reshape(-1, 1, 4, 16)
        return values.astype(np.float32), rows.numbers("label")

    def embedding(self, dim: int) -> nn.Module:
        return Embedding(dim)


class Embedding(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear, self.positions = nn.Linear(16, dim), nn.Parameter(0.02 * torch.randn(4, dim))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.linear(pixels) + self.positions


@dataclasses.dataclass
class Config(ObjectiveConfig):
    classes: int = 2


class Classes(ExampleObjective):
    config: Config

    def __init__(self, config: Config, setting: Setting) -> None:
        super().__init__(config, setting)
        if setting.modality is None:
            raise ValueError(f"data.{setting.data} holds no pictures")
        self.modality = setting.modality
        with setting.drawing_head():
            self.head = nn.Linear(setting.dim, config.classes)

    @property
    def columns(self) -> Sequence[str]:
        return self.modality.columns

    def workload(self) -> Workload:
        return Workload(patch_sequences=1, patches=self.modality.patches)

    def collate(self, rows: Rows) -> Columns:
        keys = self.setting.keys(rows.epoch, rows.ids, Purpose.VIEW)
        pixels, labels = self.modality.collate(rows, keys[:, None])
        return {"pixels": pixels[:, 0], "label": labels}

    def request(self, batch: Batch) -> Request:
        (keys,) = self.setting.sequence_keys(batch, 1)
        patches = Patches(self.setting.data, batch.values("pixels"), self.modality.patches)
        return Request({"pictures": Sequences(patches, keys)}, context=batch.values("label"))

    def loss(self, encoded: Encoded, context: Tensor) -> tuple[Tensor, Metrics]:
        logits = self.head(encoded.pooled("pictures"))
        return cross_entropy(logits, context), {"accuracy": (logits.argmax(1) == context).float().mean().detach()}


class Unfinished(ExampleObjective):
    def request(self, batch: Batch) -> Request:
        return Request()


class Untold(Objective):
    def workload(self) -> Workload:
        return Workload()

    def request(self, batch: Batch) -> Request:
        return Request()

    def loss(self, encoded: Encoded, context: None) -> tuple[Tensor, Metrics]:
        return torch.zeros(()), {}


class Loose(Classes):
    config: dict[str, int]


class Endless(Modality):
    config: PixelsConfig
    columns, views = Pixels.columns, Pixels.views
    collate, embedding = Pixels.collate, Pixels.embedding
'''
TOY = [
    "objectives.spans.data=text",
    "objectives.mlm.data=text",
    "data.train.batch_size=16",  # a name that every torch module has for a method of its own
    "data.train.modality.type=toys:Pixels",
    "data.train.modality.noise=0.05",
    "objectives.classes.type=toys:Classes",
    "objectives.classes.data=train",
    "objectives.classes.weight=5",
    "optimizer.schedule=constant",
    "optimizer.learning_rate=0.01",
    "training.max_steps=20",
    "training.save_steps=10",
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's working folder, with the module."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "toys.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 pictures of two classes: bright above, or bright below; written with the kind that the module registers."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    folder.mkdir()
    generator = np.random.default_rng(3)
    label = generator.integers(0, 2, 80)
    pixels = generator.integers(0, 120, (80, 8, 8))
    pixels[label == 0, :4] += 120
    pixels[label == 1, 4:] += 120
    images = [image.astype(np.uint8).tobytes() for image in pixels]
    kind = schemas.Schema(
        "toy", ("id:int64", "image:binary", "label:int64"), layout=schemas.Samples(image="raw", label="cls")
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(schemas.KINDS, "toy", kind)
        writer = ShardWriter(folder, "toy", 0, 4_000)
        for first in range(0, 80, 16):
            part = slice(first, first + 16)
            columns = [np.arange(80)[part], images[part], label[part]]
            writer.write(pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=kind.schema()))
        counts = {"read": 80, "kept": 80, "filtered": {}, "bad": 0}
        Manifest("toy", {"options": {}}, writer.close(), counts).save(str(folder))
        assert len(Dataset(folder).shards) > 1
    return folder


def trained(
    house: Path, *arguments: str | Path, before: Sequence[str] = (str(ROOT / "train" / "run.py"),)
) -> subprocess.CompletedProcess[str]:
    command = [*before, "--recipe", "demo", "--quiet", *map(str, arguments)]
    return run_commands(command, [environment()], folder=house)


def figures(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = ("tokens_per_s", "examples_per_s", "data_wait")
    return [{name: value for name, value in line.items() if not name.startswith(rates)} for line in lines]


@pytest.mark.exhaustive
def test_both_are_trained_beside_text_and_resumed_bit_for_bit(
    house: Path, pictures: Path, tiny: list[str], tmp_path: Path
) -> None:
    turns = ["optimization=alternate", "objectives.mlm.turn=spans", "turns.classes.learning_rate=0.02"]
    options = [*tiny, *TOY, f"data.train.path={pictures}", *turns]
    run = tmp_path / "run"
    done = trained(house, *options, f"output={run}")
    assert done.returncode == 0, done.stderr
    losses = [line["classes/loss"] for line in figures(run)]
    assert losses[-1] < 0.85 * losses[0] and figures(run)[-1]["classes/accuracy"] > 0.8
    assert all(line["spans/loss"] > 0 and line["mlm/loss"] > 0 for line in figures(run))
    recipe = (run / "recipe.yaml").read_text()
    assert "type: toys:Classes" in recipe and "type: toys:Pixels" in recipe
    half = without_its_last_checkpoint(run, tmp_path / "half")
    resumed = trained(house, *options, f"output={half}", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert figures(half) == figures(run) and same_weights(half, run)


REFUSED = {
    "data.train.modality.noise=-1": "data.train.modality: noise -1.0 is negative",
    "data.train.modality.nose=1": "unknown key 'data.train.modality.nose'",
    "data.text.modality.noise=1": "data.text.modality has no effect",
    "data.train.modality.type=toys:Embedding": "the class toys.Embedding, not a modality (a subclass of",
    "data.train.modality.type=toys:Endless": "data.train.modality: type toys:Endless: lacks patches (see",
    "objectives.classes.type=toys:Pixels": "toys:Pixels: the class toys.Pixels, not an objective (a subclass of",
    "objectives.classes.type=toys:Unfinished": "toys:Unfinished: not an objective: it lacks loss, workload (see",
    "objectives.classes.type=toys:Untold": "derive from one of ContrastiveObjective, TokenObjective, ExampleObjective",
    "objectives.classes.type=toys:Loose": "toys:Loose: Loose annotates config as dict: it must be a dataclass",
    "objectives.classes.clases=3": "unknown key 'objectives.classes.clases'; did you mean objectives.classes.classes?",
    "objectives.classes.data=text": "data.train: no objective reads it",
    "objectives.spans.data=train": "type spans needs the column 'tokens'",
    "objectives.other.type=toys:Classes objectives.other.data=text": "objectives.other: data.text holds no pictures",
}
ONE_AFTER_THE_OTHER = f"""
import os, runpy, sys
import clearspan.train.start.build_learner
given, changes = sys.argv[1:-1], sys.argv[-1].splitlines()
for change in changes:
    if not (child := os.fork()):
        sys.argv = ["train/run.py", *given, *change.split()]
        runpy.run_path({str(ROOT / "train" / "run.py")!r}, run_name="__main__")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr)
"""


@pytest.mark.exhaustive
def test_what_does_not_meet_the_contract_is_one_line(
    house: Path, pictures: Path, tiny: list[str], tmp_path: Path
) -> None:
    """Each said by a command of its own, all forks of one interpreter, whose start takes longest."""
    options = [*tiny, *TOY, f"data.train.path={pictures}", f"output={tmp_path / 'run'}", "--dry-run"]
    done = trained(house, *options, "\n".join(REFUSED), before=["-c", ONE_AFTER_THE_OTHER])
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(REFUSED) and set(lines[1::2]) == {"2"}, done.stderr
    for said, named in zip(lines[::2], REFUSED.values(), strict=True):
        assert named in said
