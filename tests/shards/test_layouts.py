"""Samples, webdataset's usual form: the same batches come back, plain webdataset reads them, all else is refused."""

import io
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import webdataset as wds
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from clearspan.common.files import sha256
from clearspan.shards import Dataset, Manifest, ShardError, ShardWriter, layouts, verify
from clearspan.shards.layouts import MemberError, _to_npy, array_column, array_of
from clearspan.shards.schema import KINDS, schema

IMAGES = KINDS["images"]
example = st.fixed_dictionaries(
    {"id": st.integers(0, 2**63 - 1), "image": st.binary(max_size=50), "label": st.integers(-(2**63), 2**63 - 1)}
)


def batch_of(rows: list[dict]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema("images"))


@pytest.fixture(scope="module")
def pictures(shared_data: Path) -> list[pa.RecordBatch]:
    """Twelve photographs of three classes, four a batch."""
    paths = [sorted((shared_data / "images" / "caltech60" / name).iterdir())[:4] for name in ("ant", "barrel", "bass")]
    rows = [
        {"id": (label << 40) + number, "image": path.read_bytes(), "label": label}
        for label, some in enumerate(paths)
        for number, path in enumerate(some)
    ]
    return [batch_of(rows[start : start + 4]) for start in range(0, 12, 4)]


@pytest.fixture
def dataset(pictures: list[pa.RecordBatch], tmp_path: Path) -> Path:
    """The photographs as a dataset without tokenizer, with a table of classes, in shards of a batch each."""
    classes = json.dumps(["ant", "barrel", "bass"]).encode()
    (tmp_path / "_files").mkdir()
    (tmp_path / "_files" / "classes.json").write_bytes(classes)
    writer = ShardWriter(tmp_path, "images", 0, max_bytes=1)
    for batch in pictures:
        writer.write(batch)
    files = {"classes.json": sha256(tmp_path / "_files" / "classes.json")}
    counts = {"read": 12, "kept": 12, "filtered": {}, "bad": 0}
    Manifest("images", {"options": {"files": files}}, writer.close(), counts).save(str(tmp_path))
    return tmp_path


@pytest.mark.guarantee("plain-webdataset")
@given(st.lists(st.lists(example, min_size=1, max_size=5), max_size=4))
@settings(max_examples=60)
def test_any_batches_come_back_as_they_were(parts: list[list[dict]]) -> None:
    batches = [batch_of(rows) for rows in parts]
    members = [
        member
        for number, batch in enumerate(batches)
        for member in IMAGES.layout.members(batch, f"00003-001-{number:05d}")
    ]
    assert list(IMAGES.layout.batches(members, IMAGES.check)) == batches
    assert len({name for name, _ in members}) == len(members)


def test_the_dataset_reads_and_counts_examples(dataset: Path, pictures: list[pa.RecordBatch]) -> None:
    found = Dataset(dataset)
    assert list(found) == pictures
    assert verify(dataset) == []
    assert [(shard.examples, shard.batches, shard.tokens, shard.lengths) for shard in found.shards] == [
        (4, 1, 0, {})
    ] * 3
    assert json.loads(found.read_file("classes.json")) == ["ant", "barrel", "bass"]
    with pytest.raises(ShardError, match="images have no tokenizer"):
        found.local_tokenizer()


@pytest.mark.guarantee("plain-webdataset")
def test_plain_webdataset_opens_the_tars(dataset: Path, pictures: list[pa.RecordBatch]) -> None:
    tars = sorted(map(str, dataset.glob("*.tar")))
    samples = list(wds.WebDataset(tars, shardshuffle=False).decode("pil"))
    rows = [row for batch in pictures for row in batch.to_pylist()]
    assert [sample["cls"] for sample in samples] == [row["label"] for row in rows]
    assert [int(sample["__key__"].rpartition("-")[2], 16) for sample in samples] == [row["id"] for row in rows]
    for sample, row in zip(samples, rows, strict=True):
        assert sample["jpg"].size == Image.open(io.BytesIO(row["image"])).size
    index = Manifest.load(str(dataset)).wids_index()
    assert [shard["nsamples"] for shard in index["shardlist"]] == [4, 4, 4]


@pytest.mark.guarantee("verify-every-figure")
def test_a_resource_that_is_damaged_or_gone_is_reported(dataset: Path) -> None:
    path = dataset / "_files" / "classes.json"
    path.write_text("[]")
    (problem,) = verify(dataset)
    assert f"{path}: its sha256 is not the manifest's" in problem
    path.unlink()
    (problem,) = verify(dataset)
    assert f"{path}: " in problem and "missing" in problem


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.pop(1), r"\.cls of row 0"),
        (lambda m: m.pop(), "its last sample is without .cls"),
        (lambda m: m.insert(0, ("a.jpg", b"")), "a.jpg: not a file of a sample"),
        (lambda m: m.insert(0, ("../" + m[0][0], b"")), "not a file of a sample"),
        (lambda m: m.insert(1, (m[0][0].replace(".jpg", ".pickle"), b"cos\nsystem\n.")), r"\.pickle: \.cls of row 0"),
        (lambda m: m.insert(2, m[0]), r"\.jpg of row 1"),
        (lambda m: m.__setitem__(1, (m[1][0], b"one")), "b'one' is not an integer"),
        (lambda m: m.__setitem__(1, (m[1][0], b"9" * 19)), "is not an integer"),
        (lambda m: m.__setitem__(1, (m[1][0].replace("00.cls", "01.cls"), b"1")), r"\.cls of row 0"),
    ],
)
def test_members_out_of_place_are_refused_by_name(
    pictures: list[pa.RecordBatch], change: Callable[[list], object], complaint: str
) -> None:
    members = list(IMAGES.layout.members(pictures[0], "00000-000-00000"))
    change(members)
    with pytest.raises(MemberError, match=complaint):
        list(IMAGES.layout.batches(members, IMAGES.check))


@pytest.mark.guarantee("plain-webdataset")
def test_a_batch_has_at_most_the_rows_that_a_key_can_number(
    pictures: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "MAX_ROWS", 4)
    names = [name for name, _ in IMAGES.layout.members(pictures[0], "00000-000-00000")]
    assert names == [f"00000-000-00000-{row:05d}-{row:016x}.{end}" for row in range(4) for end in ("jpg", "cls")]
    monkeypatch.setattr(layouts, "MAX_ROWS", 3)
    with pytest.raises(ValueError, match=r"^a batch of 4 samples: make it of at most 3$"):
        list(IMAGES.layout.members(pictures[0], "00000-000-00000"))


@pytest.mark.guarantee("plain-webdataset")
def test_plain_webdataset_opens_the_clips(audio: Path) -> None:
    (batch,) = Dataset(audio)
    tars = sorted(map(str, audio.glob("*.tar")))
    samples = list(wds.WebDataset(tars, shardshuffle=False).decode())
    clips = [array_of(value) for value in batch.column("frames")]
    assert [len(clip) for clip in clips] == [100, 60, 30]
    for sample, clip in zip(samples, clips, strict=True):
        assert sample["npy"].dtype == np.float16
        np.testing.assert_array_equal(sample["npy"], clip)
    assert [sample["cls"] for sample in samples] == [0, 1, 1]
    assert [int(sample["__key__"].rpartition("-")[2], 16) for sample in samples] == [7, 8, 9]
    for sample, clip in zip(wds.WebDataset(tars, shardshuffle=False), clips, strict=True):
        file = io.BytesIO()
        np.save(file, clip)
        assert sample["npy"] == file.getvalue()


@pytest.mark.guarantee("plain-webdataset")
def test_threads_write_each_clip_as_its_own_file() -> None:
    arrays = [np.full((1 + number % 7, 128), number, np.float16) for number in range(2000)]
    values = list(array_column(arrays, 128))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(_to_npy, values))
    finally:
        sys.setswitchinterval(before)
    for array, data in zip(arrays, made, strict=True):
        np.testing.assert_array_equal(np.load(io.BytesIO(data)), array)


@pytest.mark.guarantee("plain-webdataset")
@pytest.mark.parametrize("threads", [1, 4])
def test_plain_webdataset_finds_each_sample_of_many_units_once(shared_data: Path, tmp_path: Path, threads: int) -> None:
    """Ids come twice and in any order, clips may be empty, and batches may be slices, as a limit on shards cuts them.

    The units have photographs and clips of equal ids, so that only unit and batch tell their names apart.
    """
    paths = sorted((shared_data / "images" / "caltech60" / "ant").iterdir())[:3]
    photos = [path.read_bytes() for path in paths]
    clips = [np.full((size, 128), size - 0.5, np.float16) for size in (3, 0, 1)]
    clips[0][0, :6] = [-0.0, 6e-8, -6e-8, 65504, -65504, 0.1]
    ids, labels = [2**63 - 1, 5, 5, 0, 17, 5, 17], [0, 1, 2, -1, 2**63 - 1, 7, 4]
    picture = pa.RecordBatch.from_pylist(
        [{"id": number, "image": photos[row % 3], "label": labels[row]} for row, number in enumerate(ids)],
        schema=schema("images"),
    )
    columns = [pa.array(ids), array_column([clips[row % 3] for row in range(7)], 128), pa.array(labels)]
    units = [
        (kind, unit, batch)
        for unit in range(6)
        for kind, batch in (("images", picture), ("audio", pa.record_batch(columns, schema=schema("audio"))))
    ]

    def write(kind: str, unit: int, batch: pa.RecordBatch) -> list[str]:
        writer = ShardWriter(tmp_path, kind, unit, max_bytes=1 if unit % 2 else 1 << 20)
        for start, size in ((0, 2), (2, 4), (6, 1)):
            writer.write(batch.slice(start, size))
        return [str(tmp_path / shard.name) for shard in writer.close()]

    with ThreadPoolExecutor(threads) as pool:
        written = list(pool.map(lambda unit: write(*unit), units))
    keys: dict[str, list[str]] = {"images": [], "audio": []}
    for (kind, _, _), tars in zip(units, written, strict=True):
        samples = list(wds.WebDataset(tars, shardshuffle=False).decode())
        keys[kind] += [sample["__key__"] for sample in samples]
        assert [int(sample["__key__"].rpartition("-")[2], 16) for sample in samples] == ids
        assert [sample["cls"] for sample in samples] == labels
        for row, sample in enumerate(samples):
            if kind == "images":
                assert sample["jpg"] == photos[row % 3]
            else:
                assert sample["npy"].dtype == np.float16
                assert sample["npy"].shape == clips[row % 3].shape
                assert sample["npy"].tobytes() == clips[row % 3].tobytes()
    assert all(len(set(each)) == len(each) == 42 for each in keys.values())
