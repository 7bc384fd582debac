"""A dataset as a webdataset pipeline: every example once, in any loader, decoded, and verified before it is opened."""

import io
import itertools
import os
import pickle
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import webdataset as wds
from PIL import Image
from torch.utils.data import DataLoader
from webdataset.autodecode import ImageHandler

import clearspan
from clearspan.shards import Dataset, Manifest, ShardError, ShardWriter, vectors
from clearspan.shards.as_webdataset import _decoded, _rows, _samples, webdataset_pipeline
from clearspan.shards.layouts import Samples, _from_npy, npy, pack
from clearspan.shards.schema import KINDS


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for batch in Dataset(folder) for row in batch.to_pylist()]


def plain(sample: dict[str, Any]) -> dict[str, Any]:
    """Return an example's columns as plain Python values."""
    values = {name: value for name, value in sample.items() if not name.startswith("__")}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize("kind", ["dataset", "with_views", "audio"])
def test_the_examples_are_those_of_the_dataset_decoded(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    samples = list(clearspan.webdataset_pipeline(folder))
    assert list(map(plain, samples)) == rows(folder)
    arrays = [value for sample in samples for value in sample.values() if isinstance(value, np.ndarray)]
    assert arrays and all(value.flags.writeable and value.dtype in (np.uint16, np.float16) for value in arrays)
    assert len({sample["__key__"] for sample in samples}) == len(samples)
    assert {Path(sample["__url__"]).name for sample in samples} == {path.name for path in folder.glob("*.tar")}


@pytest.mark.guarantee("webdataset-pipeline")
def test_images_are_what_webdataset_makes_of_them(images: Path) -> None:
    expected = [Image.open(io.BytesIO(row["image"])).convert("RGB") for row in rows(images)]
    pictures = list(webdataset_pipeline(images))
    assert [(sample["image"].size, sample["image"].mode) for sample in pictures] == [
        (picture.size, "RGB") for picture in expected
    ]
    assert [(sample["id"], sample["label"]) for sample in pictures] == [
        (row["id"], row["label"]) for row in rows(images)
    ]
    for sample, picture in zip(webdataset_pipeline(images, images="rgb8"), expected, strict=True):
        np.testing.assert_array_equal(sample["image"], np.asarray(picture))


@pytest.mark.guarantee("webdataset-pipeline")
def test_vectors_are_float32_whatever_their_type(embedded: Path) -> None:
    samples = list(webdataset_pipeline(Dataset(embedded)))
    expected = np.concatenate([vectors.decoded(batch) for batch in Dataset(embedded)])
    np.testing.assert_array_equal(np.stack([sample["vector"] for sample in samples]), expected)
    assert [plain(sample).keys() for sample in samples] == [{"id", "source", "vector"}] * 30


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (2, 2), (1, 12)])
def test_every_example_comes_once_from_one_worker_of_one_rank(
    dataset: Path, ranks: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    found = []
    for rank in range(ranks):
        monkeypatch.setenv("RANK", str(rank))
        pipeline = webdataset_pipeline(dataset, shuffle=20)
        found.append([sample["id"] for sample in DataLoader(pipeline, batch_size=None, num_workers=workers)])
    ids = [row["id"] for row in rows(dataset)]
    together = list(itertools.chain.from_iterable(found))
    assert sorted(together) == ids != together
    assert all(found)


@pytest.fixture(params=[(2, 1, 3, 2, 1), (5, 4)], ids=["five shards", "two shards"])
def repeating(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Nine vectors with ids that come twice, in a batch and across batches."""
    folder = tmp_path / "repeating"
    folder.mkdir()
    writer = ShardWriter(folder, "vectors", 0, max_bytes=1)
    ids, start = [5, 5, 9, 0, 5, 2**63 - 1, 9, 9, 0], 0
    for size in request.param:
        some = pa.array(ids[start : start + size])
        column = vectors.columns(np.full((size, 4), start + 0.5, np.float32), "float32")["vector"]
        fields = KINDS["vectors"].schema(vector=column.type)
        columns = {"id": some, "source": pa.array([f"owls.csv:{start + row}" for row in range(size)]), "vector": column}
        writer.write(pa.record_batch([columns[field.name] for field in fields], schema=fields))
        start += size
    counts = {"read": 9, "kept": 9, "filtered": {}, "bad": 0}
    Manifest("vectors", {"options": {}}, writer.close(), counts).save(str(folder))
    return folder


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize("shuffle", [0, 3])
@pytest.mark.parametrize(("ranks", "workers"), [(1, 3), (2, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("told_by", ["environment", "torch"])
def test_each_worker_of_each_rank_reads_its_shards_and_no_other(
    repeating: Path, ranks: int, workers: int, shuffle: int, told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the number of shards is no multiple of theirs, or there are fewer, and in each of several epochs."""
    for name in ("RANK", "WORLD_SIZE", "WORKER", "NUM_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    found: list[list[str]] = [[], []]
    for rank, worker in itertools.product(range(ranks), range(workers)):
        if told_by == "environment":
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
        else:
            monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
            monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None, rank=rank: rank)
            monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: ranks)
        monkeypatch.setattr(
            torch.utils.data, "get_worker_info", lambda w=worker: SimpleNamespace(id=w, num_workers=workers)
        )
        pipeline = webdataset_pipeline(repeating, shuffle=shuffle, seed=1)
        for epoch in found:
            epoch += [sample["source"] for sample in pipeline]
    for epoch in found:
        assert sorted(epoch) == [f"owls.csv:{row}" for row in range(9)]


@pytest.mark.exhaustive
def test_a_worker_may_be_a_new_process(dataset: Path) -> None:
    """As where processes are not forked: all stages can be pickled."""
    loader = DataLoader(webdataset_pipeline(dataset), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [sample["tokens"].tolist() for sample in loader] == [row["tokens"] for row in rows(dataset)]


@pytest.mark.guarantee("webdataset-pipeline")
def test_the_order_depends_on_seed_and_epoch(dataset: Path) -> None:
    def epochs(seed: int) -> list[list[int]]:
        pipeline = webdataset_pipeline(dataset, shuffle=10, seed=seed)
        return [[sample["id"] for sample in pipeline] for _ in range(2)]

    first, second = epochs(0)
    assert first != second and sorted(first) == sorted(second)
    assert epochs(0) == [first, second] and epochs(5) != [first, second]


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize("damage", ["bit", "cut", "gone"])
def test_damage_is_raised_and_no_example_is_skipped(dataset: Path, damage: str) -> None:
    shard = Dataset(dataset).shards[1]
    path = dataset / shard.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data if damage == "bit" else data[:1024])
    with pytest.raises(ShardError, match=shard.name) as error:
        list(webdataset_pipeline(dataset))
    assert "\n" not in str(error.value)


@pytest.mark.guarantee("webdataset-pipeline")
def test_damage_between_two_epochs_is_raised_by_the_next_one(dataset: Path) -> None:
    """Whether the pipeline goes on or is made anew; a bad block changes neither the size nor the times of a file."""
    opened = Dataset(dataset)
    pipeline = webdataset_pipeline(opened)
    before = [sample["id"] for sample in pipeline]
    for shard in opened.shards:
        path = dataset / shard.name
        whole, times = path.read_bytes(), path.stat()
        path.write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        for again in (pipeline, pipeline, webdataset_pipeline(opened), webdataset_pipeline(dataset)):
            with pytest.raises(ShardError, match=f"{shard.name}: its sha256"):
                list(again)
        path.write_bytes(whole)
    assert [sample["id"] for sample in pipeline] == before


class Runs:
    """An object that would write a file when unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


@pytest.mark.guarantee("webdataset-pipeline")
def test_nothing_in_a_sample_is_unpickled(tmp_path: Path) -> None:
    """Even in a shard whose manifest was made for it."""
    file = io.BytesIO()
    np.save(file, np.array([Runs(tmp_path / "ran")], object), allow_pickle=True)
    sample = {"__key__": "00000-000-00000-00000-0000000000000000", "__url__": "a.tar", "cls": b"1"}
    with pytest.raises(ShardError, match=r"a\.tar: sample 00000-.*: an array \(1,\) of object"):
        list(decoded("audio", [{**sample, "npy": file.getvalue()}]))
    for version in ((1, 0), (2, 0), (3, 0)):
        other = io.BytesIO()
        np.lib.format.write_array(other, np.array([[Runs(tmp_path / "ran")] * 128], object), version, allow_pickle=True)
        with pytest.raises(ShardError, match=r"a\.tar: sample 00000-.*: (an array|not an array)"):
            list(decoded("audio", [{**sample, "npy": other.getvalue()}]))
    with pytest.raises(ShardError, match=r"a\.tar: sample 00000-"):
        list(decoded("audio", [{**sample, "npy": pickle.dumps(Runs(tmp_path / "ran"))}]))
    with pytest.raises(ShardError, match=r"sample 00000-.* is not an integer"):
        list(decoded("images", [{**sample, "jpg": b"", "cls": pickle.dumps(Runs(tmp_path / "ran"))}]))
    assert not (tmp_path / "ran").exists()


@pytest.mark.guarantee("webdataset-pipeline")
def test_a_batch_of_another_kind_or_with_other_columns_is_refused(images: Path, dataset: Path, embedded: Path) -> None:
    """Even in a shard whose manifest was made for it."""
    (batch, *_), (vector, *_), (picture,) = list(Dataset(dataset)), list(Dataset(embedded)), list(Dataset(images))
    sample = {"__key__": "00000-000-00000", "__url__": "a.tar"}
    assert list(_decoded(_rows, "documents", ImageHandler("pil"), [{**sample, "arrow.zst": pack(batch)}]))
    others = [picture, vector, batch.select(["id", "tokens"]), batch.append_column("more", batch.column("id"))]
    for other in others:
        with pytest.raises(ShardError, match=r"^a\.tar: sample 00000-000-00000: "):
            list(_decoded(_rows, "documents", ImageHandler("pil"), [{**sample, "arrow.zst": pack(other)}]))


def decoded(kind: str, samples: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return _decoded(_samples, kind, ImageHandler("pil"), samples)


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize(
    ("files", "message"),
    [({"jpg": b"no picture", "cls": b"1"}, "not an image that Pillow reads"), ({"jpg": b""}, "it lacks its .cls")],
)
def test_a_sample_that_cannot_be_decoded_is_named(files: dict[str, bytes], message: str) -> None:
    sample = {"__key__": "00000-000-00000-00000-0000000000000000", "__url__": "a.tar", **files}
    with pytest.raises(ShardError, match=f"a.tar: sample 00000.*{message}"):
        list(decoded("images", [sample]))


def test_further_stages_are_webdatasets_own(dataset: Path) -> None:
    lengths = webdataset_pipeline(dataset).compose(
        wds.map(lambda sample: len(sample["tokens"])), wds.batched(10, collation_fn=list)
    )
    assert next(iter(lengths)) == [len(row["tokens"]) for row in rows(dataset)[:10]]


@pytest.mark.guarantee("webdataset-pipeline")
def test_a_folder_that_looks_like_a_command_is_a_folder(
    embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    embedded.rename(tmp_path / "pipe:touch ran;")
    assert len(list(webdataset_pipeline("pipe:touch ran;"))) == 30
    assert not (tmp_path / "ran").exists()


@pytest.mark.guarantee("webdataset-pipeline")
def test_what_cannot_work_is_refused_at_once(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jpeg2000"):
        webdataset_pipeline(dataset, images="jpeg2000")
    (tmp_path / "empty").mkdir()
    counts = {"read": 0, "kept": 0, "filtered": {}, "bad": 0}
    Manifest("images", {"options": {}}, [], counts).save(str(tmp_path / "empty"))
    with pytest.raises(ShardError, match="empty: holds no example"):
        webdataset_pipeline(tmp_path / "empty")


@pytest.mark.guarantee("webdataset-pipeline")
def test_shards_and_the_examples_of_one_are_shuffled_by_the_seed(embedded: Path, with_views: Path) -> None:
    """With a buffer of one example, only the order of the shards changes."""

    def order(folder: Path, **options: int) -> list[str]:
        return [sample["__key__"] for sample in webdataset_pipeline(folder, **options)]

    shards = {tuple(key[:9] for key in order(embedded, shuffle=1, seed=seed)) for seed in range(4)}
    assert len({tuple(dict.fromkeys(each)) for each in shards}) > 1
    assert all(sorted(each) == sorted(min(shards)) for each in shards)
    examples = [order(with_views, shuffle=10, seed=seed) for seed in range(4)]
    plain = order(with_views)
    assert plain == sorted(plain) == order(with_views, seed=3) and plain not in examples
    assert len(set(map(tuple, examples))) == 4 and all(sorted(each) == plain for each in examples)
    assert order(with_views, shuffle=10) == examples[0]


@pytest.mark.guarantee("webdataset-pipeline")
def test_a_key_is_that_of_the_member_and_a_row_of_a_batch_adds_its_number(images: Path, dataset: Path) -> None:
    for sample in webdataset_pipeline(images):
        assert sample["__key__"] == f"00000-000-00000-{sample['id']:05d}-{sample['id']:016x}"
        assert sample["__url__"] == str(images / "images-00000-000.tar")
    first = [sample["__key__"] for sample in webdataset_pipeline(dataset)][:7]
    assert first == [*(f"00000-000-00000-{row:05d}" for row in range(6)), "00000-000-00001-00000"]


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.replace(b"IDAT", b"\1DAT").replace(b"\1DAT", b"IDAT", 1), "broken PNG file"),
        (lambda data: data[:-400], "image file is truncated"),
        (lambda data: data[1:], "not an image that Pillow reads"),
    ],
)
def test_whatever_pillow_raises_names_shard_and_sample(change: Callable[[bytes], bytes], said: str) -> None:
    """Pillow raises a SyntaxError for a broken part of a picture of several, and an OSError for what ends early."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (160, 160, 3), np.uint8)
    Image.fromarray(noise).save(file, "PNG")
    key = "00000-000-00000-00004-0000000000000017"
    files = {"cls": b"1", "jpg": change(file.getvalue())}
    with pytest.raises(ShardError, match=rf"^zoo\.tar: sample {key}: {said}"):
        list(decoded("images", [{"__key__": key, "__url__": "zoo.tar", **files}]))


@pytest.mark.guarantee("webdataset-pipeline")
def test_each_of_several_samples_is_decoded_with_an_id_in_hexadecimal(images: Path) -> None:
    files = {"jpg": rows(images)[0]["image"], "cls": b"2"}
    keys = [f"00000-000-00000-0000{row}-{number:016x}" for row, number in enumerate((26, 2**63 - 1))]
    samples = [{"__key__": key, "__url__": "zoo.tar", **files} for key in keys]
    found = list(decoded("images", samples))
    assert [(sample["__key__"], sample["__url__"], sample["id"], sample["label"]) for sample in found] == [
        (keys[0], "zoo.tar", 26, 2),
        (keys[1], "zoo.tar", 2**63 - 1, 2),
    ]


def file_of(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def with_value(row: int, column: int, value: float) -> np.ndarray:
    frames = FRAMES.copy()
    frames[row, column] = value
    return frames


FRAMES = np.linspace(-65504, 65504, 12, dtype=np.float16).reshape(4, 3)


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize("frames", [FRAMES, FRAMES[:1], FRAMES[:0], -FRAMES, np.abs(FRAMES)])
def test_any_finite_frames_are_read_from_a_file_of_numpy(frames: np.ndarray) -> None:
    found = _from_npy(file_of(frames), 3)
    assert found.dtype == np.float16 and found.shape == frames.shape
    np.testing.assert_array_equal(found, frames)


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (file_of(FRAMES, (2, 0)), "not an array of numpy's format 1.0"),
        (file_of(np.asfortranarray(FRAMES)), "an array (4, 3) of float16"),
        (file_of(FRAMES.astype(np.float32)), "an array (4, 3) of float32"),
        (file_of(FRAMES.view(np.int16)), "an array (4, 3) of int16"),
        (file_of(FRAMES.astype(">f2")), "an array (4, 3) of >f2"),
        (file_of(FRAMES.reshape(-1)), "an array (12,) of float16"),
        (file_of(FRAMES.reshape(4, 3, 1)), "an array (4, 3, 1) of float16"),
        (file_of(FRAMES.reshape(3, 4)), "an array (3, 4) of float16"),
        (file_of(FRAMES)[:-2], "150 bytes"),
        (file_of(FRAMES) + b"\0\0", "154 bytes"),
        (file_of(with_value(3, 2, np.inf)), "values that are not finite"),
        (file_of(with_value(0, 0, -np.inf)), "values that are not finite"),
        (file_of(with_value(1, 2, np.nan)), "values that are not finite"),
    ],
)
def test_a_file_of_another_array_is_refused_by_what_it_holds(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        _from_npy(data, 3)


@pytest.mark.guarantee("webdataset-pipeline")
def test_pictures_and_arrays_are_decoded_in_any_column(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kind of one's own, which has its class first."""
    layout = Samples(label="cls", image="jpg", frames=npy(3))
    monkeypatch.setitem(KINDS, "films", SimpleNamespace(layout=layout))
    key = "00000-000-00000-00000-0000000000000017"
    files = {"cls": b"2", "jpg": rows(images)[0]["image"], "npy": file_of(FRAMES)}
    (sample,) = decoded("films", [{"__key__": key, "__url__": "films.tar", **files}])
    assert sample["label"] == 2 and isinstance(sample["image"], Image.Image)
    assert sample["frames"].flags.writeable and np.array_equal(sample["frames"], FRAMES)


@pytest.mark.guarantee("webdataset-pipeline")
@pytest.mark.parametrize("seed", range(8))
def test_ranks_share_out_one_order_of_the_shards_whatever_the_seed(
    dataset: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two orders, the halves of a few shards fit together by chance."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        found += [sample["id"] for sample in webdataset_pipeline(dataset, shuffle=20, seed=seed)]
    assert sorted(found) == [row["id"] for batch in Dataset(dataset) for row in batch.to_pylist()]
