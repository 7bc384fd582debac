"""A kind of dataset from outside the package is one module: here `toy.py`, photographs by class without tokens.

The module lies in a user's folder; the real commands run there, each in a process of its own.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.common.plugins import VARIABLE
from tests.processes import environment, run_commands

FILE = '''
"""Photographs by class: a folder a class, or a tar."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar

import pyarrow as pa

from clearspan.common.options import Flag
from clearspan.pipelines.builders import Builder
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.counter import RecordError, RecordCounter
from clearspan.shards.manifest import FILES_FOLDER
from clearspan.shards import schema
from clearspan.shards.layouts import Samples

schema.register(
    schema.Schema("toy", ("id:int64", "image:binary", "label:int64"), layout=Samples(image="jpg", label="cls"))
)
CLASSES = f"{FILES_FOLDER}/classes.json"


@dataclasses.dataclass(frozen=True)
class Toy(Builder):
    min_bytes: Annotated[int, Flag("N")] = 0

    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "photographs by class"
    example: ClassVar[str] = "clearspan toy:Toy --input photographs --output data/toy"

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("small",)

    def reading(self) -> ReadOptions:
        return ReadOptions(as_bytes=True)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        return {CLASSES: json.dumps(inputs.classes.names).encode()}

    def worker(self, resources: Mapping[str, bytes]) -> "ToyWorker":
        return ToyWorker(self.min_bytes, json.loads(resources[CLASSES]))


@dataclasses.dataclass(frozen=True)
class ToyWorker:
    min_bytes: int
    classes: list[str]

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        rows = []
        for record in records:
            counter.counts.read += 1
            if record.problem or not record.value.startswith(b"\\xff\\xd8"):
                counter.reject(record, RecordError(record.problem or "not a JPEG"))
            elif len(record.value) < self.min_bytes:
                counter.counts.filtered["small"] += 1
            else:
                counter.counts.kept += 1
                number = int.from_bytes(hashlib.blake2b(record.value).digest()[:8], "big") >> 1
                label = self.classes.index(record.label)
                rows.append({"id": number, "image": record.value, "label": label})
            if len(rows) == 8:
                yield pa.RecordBatch.from_pylist(rows, schema=schema.schema("toy"))
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema.schema("toy"))
'''
KILLING = Path(__file__).with_name("killing.py")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python in the user's folder; the environment variable names the module, unless `known` is False."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "toy.py").write_text(FILE)

    def command(*words: str | Path, known: bool = True) -> subprocess.CompletedProcess[str]:
        variables = environment(**({VARIABLE: "toy"} if known else {}))
        return run_commands(list(map(str, words)), [variables], folder=folder)

    return command


@pytest.fixture(scope="module")
def photographs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty photographs of four classes in folders, one of a class in a tar of 120, and a text among them."""
    folder = tmp_path_factory.mktemp("corpus") / "photographs"
    images = shared_data / "images"
    for name in ("ant", "barrel", "bass", "accordion"):
        (folder / name).mkdir(parents=True)
        for path in sorted((images / "caltech60" / name).iterdir())[:10]:
            shutil.copy(path, folder / name)
    shutil.copy(images / "tinyimagenet60" / "n01443537.tar", folder)
    (folder / "ant" / "notes.jpg").write_text("Call me Ishmael.")
    return folder


@pytest.fixture(scope="module")
def command(photographs: Path) -> list[str | Path]:
    often = ["--max-bad-fraction", "0.1", "--unit-bytes", "120000", "--min-bytes", "1200"]
    return ["toy:Toy", "--input", photographs, "--holdout-fraction", "0.1", "--limit", "100", *often]


@pytest.fixture(scope="module")
def made(run: Run, command: list[str | Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "out"
    ended = run("-m", "clearspan.pipelines", *command, "--output", folder, "--workers", "2", "--json")
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["kind"], summary["read"], summary["bad"], summary["tokens"]) == ("toy", 161, 1, 0)
    assert summary["filtered"]["small"] > 0 and summary["filtered"]["over_limit"] > 0
    assert summary["kept"] + summary["filtered"]["held_out"] == 100
    return folder


def test_its_options_are_those_of_its_command(run: Run) -> None:
    assert "module:Class" in run("-m", "clearspan.pipelines", "--help").stdout
    shown = run("-m", "clearspan.pipelines", "toy:Toy", "--help").stdout
    assert "photographs by class" in shown and "--min-bytes" in shown
    assert "clearspan toy:Toy --input photographs" in shown
    assert "--tokenizer" not in shown and "--dedup" not in shown


@pytest.mark.exhaustive
def test_ls_verify_and_cat_read_it(run: Run, made: Path) -> None:
    for folder in (made, made / "validation"):
        ended = run("-m", "clearspan.shards", "verify", folder)
        assert (ended.returncode, ended.stdout) == (0, f"{folder}: every shard is as the manifest says\n")
    listed = run("-m", "clearspan.shards", "ls", made).stdout
    assert f"{made}: toy, " in listed and "_files/classes.json" in listed and "bad 1" in listed
    rows = [
        json.loads(line)
        for line in run("-m", "clearspan.shards", "cat", made, "--limit", "200", "--json").stdout.splitlines()
    ]
    manifest = json.loads((made / "manifest.json").read_text())
    assert len(rows) == manifest["totals"]["examples"] and set(rows[0]) == {"id", "image", "label", "class"}
    assert "tokenizer" not in manifest["fingerprint"] and list(manifest["fingerprint"]["options"]["files"])


@pytest.mark.slow
def test_a_dataset_does_not_choose_the_module_that_reads_it(run: Run, made: Path) -> None:
    ended = run("-m", "clearspan.shards", "ls", made, known=False)
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1
    assert "kind 'toy' is not one of" in ended.stderr and f"set {VARIABLE} to the module's name" in ended.stderr
