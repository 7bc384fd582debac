"""Verification: a manifest that was edited and sealed again is compared with what the shards hold, field by field."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clearspan.shards import Dataset, Manifest, ShardError, verify
from clearspan.shards.contents import Contents
from clearspan.shards.layouts import array_column
from clearspan.shards.reader import read_back, read_batches
from clearspan.shards.schema import KINDS, MEL_BINS, schema
from tests.shards.conftest import publish_labelled
from tests.shards.test_manifest import edit


def retable(folder: Path, data: bytes) -> list[str]:
    """Replaces the table of classes, seals the manifest with its new hash, and returns what `verify` says."""
    (folder / "_files" / "classes.json").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    edit(folder, lambda record: record["fingerprint"]["options"]["files"].update({"classes.json": sha256}))
    return verify(folder)


@pytest.mark.guarantee("verify-every-figure")
def test_a_class_that_the_shards_do_not_hold_is_named(images: Path) -> None:
    edit(images, lambda record: record["shards"][0].update(classes={"0": 4, "1": 3, "7": 2}))
    table, shard = verify(images)
    assert table.endswith("classes.json: names 3 classes, but the shards have classes 0 to 7")
    assert shard.endswith("holds classes that differ from the manifest's")


@pytest.mark.guarantee("verify-every-figure")
def test_a_shard_just_written_is_read_back_in_full_and_one_that_is_streamed_by_its_totals(audio: Path) -> None:
    shard = Manifest.load(str(audio)).shards[0]
    path = audio / shard.name
    wrong = dataclasses.replace(shard, moments={**shard.moments, "sum": shard.moments["sum"] + 1})
    with pytest.raises(ShardError, match="holds moments that differ"):
        read_back(path, wrong)
    assert sum(batch.num_rows for batch in read_batches(path, wrong)) == shard.examples
    with pytest.raises(ShardError, match=f"holds examples = {shard.examples} where the manifest says 9$"):
        list(read_batches(path, dataclasses.replace(wrong, examples=9)))


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Contents)])
def test_no_figure_is_left_out_of_the_comparison(dataset: Path, name: str) -> None:
    shard = Manifest.load(str(dataset)).shards[0]
    contents = Contents()
    for batch in Dataset(dataset).batches(shard):
        contents.add(batch, KINDS["documents"])
    assert contents.difference(shard) == ""
    other = getattr(shard, name) + 1 if isinstance(getattr(shard, name), int) else {"other": {"0": 1}}
    said = contents.difference(dataclasses.replace(shard, **{name: other}))
    assert said.startswith(name)


@pytest.mark.guarantee("verify-every-figure")
def test_a_table_without_a_class_of_the_shards_is_reported(images: Path) -> None:
    said = "names 2 classes, but the shards have classes 0 to 2"
    assert retable(images, json.dumps(["ant", "barrel"]).encode()) == [f"{images}/_files/classes.json: {said}"]


@pytest.mark.guarantee("verify-every-figure")
def test_a_file_beside_the_shards_that_the_manifest_does_not_name_is_reported(images: Path) -> None:
    edit(images, lambda record: record["fingerprint"]["options"].pop("files"))
    assert verify(images) == [
        "_files/classes.json: a file that manifest.json does not name: not part of the dataset; delete it",
    ]


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_frames_that_are_not_finite_are_named_with_shard_and_key(tmp_path: Path, value: float) -> None:
    clips = [np.full((3, 128), -4.0, np.float16) for _ in range(2)]
    clips[1][2, 127] = value
    columns = [pa.array([7, 8]), array_column(clips, MEL_BINS), pa.array([0, 1])]
    batch = pa.record_batch(columns, schema=schema("audio"))
    folder = publish_labelled(tmp_path / "audio", batch, "audio", ["george", "jackson"], {})
    name = "audio-00000-000.tar/00000-000-00000-00001-0000000000000008.npy"
    assert verify(folder) == [f"{name}: holds values that are not finite (NaN or infinity)"]
    with pytest.raises(ShardError, match="not finite"):
        list(Dataset(folder))
