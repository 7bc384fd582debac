"""A new objective is one file and a recipe line; a new modality one file, and its kind a line of the schema: toys.

A copy of the packages gets these and nothing else; then the real commands run in it, in processes of their own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clearspan.shards import Dataset, Manifest, ShardWriter
from clearspan.shards import schema as schemas
from tests.conftest import ROOT
from tests.train.runs import same_weights, without_its_last_checkpoint

LINE = """
        Kind("toy", ("id:int64", "image:binary", "label:int64"), layout=Samples(image="raw", label="cls")),
"""
MODALITY = '''
"""Pictures of 8 x 8 grey pixels, as patches of 4 x 4."""

import dataclasses

import numpy as np
import torch
from torch import Tensor, nn

from clearspan.shards import Dataset, ShardError, keyed
from clearspan.train.data.batch import Rows
from clearspan.train.modalities import Modality


@dataclasses.dataclass
class Config:
    noise: float = 0.0

    def check(self) -> None:
        if self.noise < 0:
            raise ValueError(f"noise {self.noise} is negative")


def build(config: Config, dataset: Dataset) -> "Toy":
    return Toy(config)


class Toy(Modality):
    columns = ("image", "label")
    views = 1
    patches = 4

    def __init__(self, config: Config) -> None:
        self.config = config

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
'''
OBJECTIVE = '''
"""Tells pictures' classes apart by their pooled states."""

import dataclasses
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.draws import Purpose
from clearspan.train.model.packing import Patches, Sequences
from clearspan.train.objectives import Encoded, Metrics, Objective, ObjectiveConfig, Request, Setting, Workload


@dataclasses.dataclass
class Config(ObjectiveConfig):
    classes: int = 2


def build(config: Config, setting: Setting, earlier: Sequence[Objective]) -> "Toy":
    if setting.modality is None:
        raise ValueError(f"objectives.{setting.name}: data.{setting.data} holds no pictures")
    return Toy(config, setting)


class Toy(Objective):
    embeds_tokens = False

    def __init__(self, config: Config, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        with setting.drawing_head():
            self.head = nn.Linear(setting.dim, config.classes)

    @property
    def columns(self) -> Sequence[str]:
        return self.setting.modality.columns

    def workload(self) -> Workload:
        return Workload(patch_sequences=1, patches=self.setting.modality.patches)

    def collate(self, rows: Rows) -> Columns:
        keys = self.setting.keys(rows.epoch, rows.ids, Purpose.VIEW)
        pixels, labels = self.setting.modality.collate(rows, keys[:, None])
        return {"pixels": pixels[:, 0], "label": labels}

    def request(self, batch: Batch) -> Request:
        keys = self.setting.keys(batch.epochs, batch.ids, Purpose.SEQUENCE)
        patches = Patches(self.setting.data, batch.values("pixels"), self.setting.modality.patches)
        return Request({"pictures": Sequences(patches, keys)}, context=batch.values("label"))

    def loss(self, encoded: Encoded, context: Tensor) -> tuple[Tensor, Metrics]:
        logits = self.head(encoded.pooled("pictures"))
        return cross_entropy(logits, context), {"accuracy": (logits.argmax(1) == context).float().mean().detach()}
'''
TOY = [
    "objectives.spans.data=text",
    "objectives.mlm.data=text",
    "data.train.batch_size=16",  # a name that every torch module has for a method of its own
    "data.train.modality.noise=0.05",
    "objectives.classes.type=toy",
    "objectives.classes.data=train",
    "objectives.classes.weight=5",
    "optimizer.schedule=constant",
    "optimizer.learning_rate=0.01",
    "training.max_steps=20",
    "training.save_steps=10",
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with the new files."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "clearspan", folder / "clearspan", symlinks=True)
    for package in ("common", "pipelines", "shards", "train", "eval"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "train" / "modalities" / "toy.py").write_text(MODALITY)
    (folder / "train" / "objectives" / "toy.py").write_text(OBJECTIVE)
    path = folder / "shards" / "schema.py"
    before, after = path.read_text().split("\n    )\n}\n")
    path.write_text(f"{before}{LINE}    )\n}}\n{after}")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 pictures of two classes: bright above, or bright below; written with the kind that the line declares."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    folder.mkdir()
    generator = np.random.default_rng(3)
    label = generator.integers(0, 2, 80)
    pixels = generator.integers(0, 120, (80, 8, 8))
    pixels[label == 0, :4] += 120
    pixels[label == 1, 4:] += 120
    images = [image.astype(np.uint8).tobytes() for image in pixels]
    kind = schemas.Kind(
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
    house: Path, *arguments: str | Path, before: Sequence[str] = ("train/run.py",)
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *before, "--recipe", "demo", "--quiet", *map(str, arguments)]
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, timeout=400)


def figures(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = ("tokens_per_s", "examples_per_s", "data_wait")
    return [{name: value for name, value in line.items() if not name.startswith(rates)} for line in lines]


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
    half = without_its_last_checkpoint(run, tmp_path / "half")
    resumed = trained(house, *options, f"output={half}", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert figures(half) == figures(run) and same_weights(half, run)


REFUSED = {
    "data.train.modality.noise=-1": "data.train.modality: noise -1.0 is negative",
    "data.train.modality.nose=1": "unknown key 'data.train.modality.nose'",
    "data.text.modality.noise=1": "data.text.modality has no effect",
    "objectives.classes.data=text": "data.train: no objective reads it",
    "objectives.spans.data=train": "type spans needs the column 'tokens'",
    "objectives.other.type=toy objectives.other.data=text": "objectives.other: data.text holds no pictures",
}
ONE_AFTER_THE_OTHER = """
import os, runpy, sys
import clearspan.train.build
given, changes = sys.argv[1:-1], sys.argv[-1].splitlines()
for change in changes:
    if not (child := os.fork()):
        sys.argv = ["train/run.py", *given, *change.split()]
        runpy.run_path("train/run.py", run_name="__main__")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr)
"""


def test_what_does_not_go_together_is_one_line(house: Path, pictures: Path, tiny: list[str], tmp_path: Path) -> None:
    """Each said by a command of its own, all forks of one interpreter, whose start takes longest."""
    options = [*tiny, *TOY, f"data.train.path={pictures}", f"output={tmp_path / 'run'}", "--dry-run"]
    done = trained(house, *options, "\n".join(REFUSED), before=["-c", ONE_AFTER_THE_OTHER])
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(REFUSED) and set(lines[1::2]) == {"2"}, done.stderr
    for said, named in zip(lines[::2], REFUSED.values(), strict=True):
        assert named in said
