"""Verification: a manifest that was edited and sealed again is compared with what the shards hold, field by field."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clearspan.shards import Dataset, Manifest, ShardError, verify
from clearspan.shards.contents import Contents
from clearspan.shards.layouts import array_column
from clearspan.shards.manifest import ManifestError
from clearspan.shards.reader import read_back, read_batches
from clearspan.shards.schema import KINDS, MEL_BINS, schema
from tests.shards.conftest import publish_labelled
from tests.shards.test_manifest import edit


def redeclare(folder: Path, **figures: Any) -> str:
    """Changes figures of the first shard, seals the manifest again, and returns what `verify` says."""
    manifest = Manifest.load(str(folder))
    first, *others = manifest.shards
    changed = dataclasses.replace(manifest, shards=[dataclasses.replace(first, **figures), *others])
    extra = changed.totals["examples"] - manifest.totals["examples"]
    counts = {name: manifest.counts[name] + extra for name in ("read", "kept")}
    dataclasses.replace(changed, counts={**manifest.counts, **counts}).save(str(folder))
    (problem,) = verify(folder)
    assert problem.startswith(f"{first.name}: holds ")
    return problem.removeprefix(f"{first.name}: holds ")


def retable(folder: Path, data: bytes) -> list[str]:
    """Replaces the table of classes, seals the manifest with its new hash, and returns what `verify` says."""
    (folder / "_files" / "classes.json").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    edit(folder, lambda record: record["fingerprint"]["options"]["files"].update({"classes.json": sha256}))
    return verify(folder)


def test_class_counts_that_are_not_the_shards_are_named(images: Path) -> None:
    said = "classes.0 = 4 where the manifest says 3 (and 1 more of its classes)"
    assert redeclare(images, classes={"0": 3, "1": 4, "2": 2}) == said


def test_a_class_that_the_shards_do_not_hold_is_named(images: Path) -> None:
    edit(images, lambda record: record["shards"][0].update(classes={"0": 4, "1": 3, "7": 2}))
    table, shard = verify(images)
    assert table.endswith("classes.json: names 3 classes, but the shards have classes 0 to 7")
    assert shard.endswith("classes.7 = nothing where the manifest says 2 (and 1 more of its classes)")


def test_moments_that_are_not_the_shards_are_named(audio: Path) -> None:
    moments = Manifest.load(str(audio)).shards[0].moments
    said = redeclare(audio, moments={**moments, "sum": moments["sum"] + 1})
    assert said == f"moments.sum = {moments['sum']:,} where the manifest says {moments['sum'] + 1:,}"


def test_a_shard_just_written_is_read_back_in_full_and_one_that_is_streamed_by_its_totals(audio: Path) -> None:
    shard = Manifest.load(str(audio)).shards[0]
    path = audio / shard.name
    wrong = dataclasses.replace(shard, moments={**shard.moments, "sum": shard.moments["sum"] + 1})
    with pytest.raises(ShardError, match=r"holds moments\.sum = "):
        read_back(path, wrong)
    assert sum(batch.num_rows for batch in read_batches(path, wrong)) == shard.examples
    with pytest.raises(ShardError, match=f"holds examples = {shard.examples} where the manifest says 9$"):
        list(read_batches(path, dataclasses.replace(wrong, examples=9)))


def test_lengths_that_are_not_the_shards_are_named(audio: Path, with_views: Path) -> None:
    assert redeclare(audio, lengths={"frames": {"24": 1, "48": 1, "128": 1}}) == (
        "lengths.frames.128 = nothing where the manifest says 1 (and 1 more of its lengths)"
    )
    lengths = Manifest.load(str(with_views)).lengths
    del lengths["view_1"]
    assert redeclare(with_views, lengths=lengths).startswith("lengths.view_1.")


def test_every_difference_of_a_shard_is_on_its_line(dataset: Path) -> None:
    shard = Manifest.load(str(dataset)).shards[0]
    tokens, (bar, *_) = shard.tokens + 2, shard.lengths["tokens"]
    lengths = {"tokens": {**shard.lengths["tokens"], bar: shard.lengths["tokens"][bar] + 1}}
    figures = {"batches": 9, "examples": shard.examples + 1, "tokens": tokens, "column_tokens": {"tokens": tokens}}
    assert redeclare(dataset, **figures, lengths=lengths) == (
        f"batches = {shard.batches} where the manifest says 9; "
        f"examples = {shard.examples} where the manifest says {shard.examples + 1}; "
        f"tokens = {shard.tokens:,} where the manifest says {tokens:,}; "
        f"column_tokens.tokens = {shard.tokens:,} where the manifest says {tokens:,}; "
        f"lengths.tokens.{bar} = {lengths['tokens'][bar] - 1} where the manifest says {lengths['tokens'][bar]}"
    )


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Contents)])
def test_no_figure_is_left_out_of_the_comparison(dataset: Path, name: str) -> None:
    shard = Manifest.load(str(dataset)).shards[0]
    contents = Contents()
    for batch in Dataset(dataset).batches(shard):
        contents.add(batch, KINDS["documents"])
    assert contents.difference(shard) == ""
    other = getattr(shard, name) + 1 if isinstance(getattr(shard, name), int) else {"other": {"0": 1}}
    said = contents.difference(dataclasses.replace(shard, **{name: other}))
    assert said.startswith(name) and " where the manifest says " in said


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda record: record["statistics"].update(mean=0.0), "statistics .* are not the sum over its shards"),
        (lambda record: record["statistics"].update(std=1.0), "statistics .* are not the sum over its shards"),
        (lambda record: record.pop("statistics"), "statistics None are not the sum over its shards"),
        (lambda record: record["shards"][0].pop("moments"), "ShardInfo lacks moments"),
        (lambda record: record["shards"][0]["moments"].pop("sum"), "missing field 'sum'"),
        (lambda record: record["shards"][0].update(unit=7), "audio-00000-000.tar: its unit is not 7"),
    ],
)
def test_statistics_that_are_not_the_shards_are_refused(
    audio: Path, change: Callable[[dict], object], complaint: str
) -> None:
    edit(audio, change)
    with pytest.raises(ManifestError, match=complaint):
        verify(audio)


@pytest.mark.parametrize("field", ["lengths", "column_tokens"])
def test_a_figure_that_a_shard_lacks_is_refused(dataset: Path, field: str) -> None:
    edit(dataset, lambda record: record["shards"][1].pop(field))
    with pytest.raises(ManifestError, match=f"ShardInfo lacks {field}"):
        Manifest.load(str(dataset))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (["ant", "barrel"], "names 2 classes, but the shards have classes 0 to 2"),
        (["ant", "barrel", "bass", "bee"], "names 4 classes of 3"),
        (["ant", "barrel", "ant"], "not a list of distinct names: run the pipeline again"),
        (["ant", "barrel", 3], "not a list of distinct names: run the pipeline again"),
        ({"0": "ant"}, "not a list of distinct names: run the pipeline again"),
    ],
)
def test_names_that_are_not_those_of_the_shards_classes_are_reported(images: Path, table: object, said: str) -> None:
    assert retable(images, json.dumps(table).encode()) == [f"{images}/_files/classes.json: {said}"]


def test_a_table_of_classes_that_is_no_json_is_reported(images: Path) -> None:
    assert retable(images, b"ant, barrel") == [
        f"{images}/_files/classes.json: not a list of distinct names: run the pipeline again"
    ]


def test_a_damaged_table_of_classes_is_reported_once(images: Path) -> None:
    (images / "_files" / "classes.json").write_text('["ant"]')
    (problem,) = verify(images)
    assert "its sha256 is not the manifest's" in problem


def test_a_file_beside_the_shards_that_the_manifest_does_not_name_is_reported(images: Path) -> None:
    edit(images, lambda record: record["fingerprint"]["options"].pop("files"))
    assert verify(images) == [
        f"{images}/_files/classes.json: names 0 classes of 3",
        "_files/classes.json: a file that manifest.json does not name: not part of the dataset; delete it",
    ]


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


def test_the_largest_finite_frames_are_read(tmp_path: Path) -> None:
    clip = np.full((1, 128), 65504, np.float16)
    clip[0, ::2] = -65504
    batch = pa.record_batch([pa.array([7]), array_column([clip], MEL_BINS), pa.array([0])], schema=schema("audio"))
    folder = publish_labelled(tmp_path / "audio", batch, "audio", ["george"], {})
    assert verify(folder) == []
    assert len(list(Dataset(folder))) == 1
