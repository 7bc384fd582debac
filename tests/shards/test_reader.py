"""The reader: what the manifest says, or an error that names the shard."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from clearspan.common.checksummed import FileInfo
from clearspan.common.files import sha256
from clearspan.shards import Dataset, Manifest, ShardError, ShardWriter, storage, ustar, verify
from clearspan.shards.schema import schema

SHARD = "documents-00001-000.tar"


def redeclare(folder: Path, name: str = SHARD) -> None:
    """Gives a changed shard's size and hash to the manifest: only what is inside can now tell."""
    manifest = Manifest.load(str(folder))
    path = folder / name
    shards = [
        replace(shard, bytes=path.stat().st_size, sha256=sha256(path)) if shard.name == name else shard
        for shard in manifest.shards
    ]
    replace(manifest, shards=shards).save(str(folder))


def test_batches_come_in_the_manifests_order(dataset: Path, batches: list[pa.RecordBatch]) -> None:
    assert list(Dataset(dataset)) == batches
    assert verify(dataset) == []


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize("position", [0, 700, -600])
def test_a_flipped_byte_anywhere_is_found_and_named(dataset: Path, position: int) -> None:
    data = bytearray((dataset / SHARD).read_bytes())
    data[position] ^= 1
    (dataset / SHARD).write_bytes(data)
    with pytest.raises(ShardError, match=f"{SHARD}: its sha256"):
        list(Dataset(dataset))
    (problem,) = verify(dataset)
    assert SHARD in problem


@pytest.mark.guarantee("damaged-shard")
def test_a_missing_shard_is_found_and_named(dataset: Path) -> None:
    (dataset / SHARD).unlink()
    with pytest.raises(ShardError, match=f"{SHARD}: .* missing"):
        list(Dataset(dataset))


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize("size", [-512, 1])
def test_a_shard_of_another_size_is_named_with_both_sizes_and_left_where_it_is(dataset: Path, size: int) -> None:
    data = (dataset / SHARD).read_bytes()
    changed = data[:size] if size < 0 else data + bytes(size)
    (dataset / SHARD).write_bytes(changed)
    said = f"{SHARD}: {len(changed):,} bytes where the manifest says {len(data):,}: the shard is damaged; delete it and"
    with pytest.raises(ShardError, match=f"^{dataset}: {said} run the pipeline again$"):
        list(Dataset(dataset))
    assert (dataset / SHARD).read_bytes() == changed


@pytest.mark.guarantee("damaged-shard")
def test_a_remote_shard_is_downloaded_once_and_a_damaged_copy_is_neither_read_nor_kept(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On an object store that serves the files of a folder."""
    remote, downloads = Dataset(dataset), []
    remote.folder = "gs://corpus/documents"
    shard = next(shard for shard in remote.shards if shard.name == SHARD)

    def download(path: str, local: Path) -> None:
        downloads.append(path)
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes((dataset / path.removeprefix("gs://corpus/documents/")).read_bytes())

    monkeypatch.setattr(storage, "download", download)
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    copy = tmp_path / "cache" / f"{shard.sha256}.tar"
    whole = (dataset / SHARD).read_bytes()
    for damaged, said in ((whole[:-512], "bytes where the manifest says"), (b"\1" + whole[1:], "its sha256 is not")):
        (dataset / SHARD).write_bytes(damaged)
        with pytest.raises(ShardError, match=rf"^gs://corpus/documents: {SHARD}: .*{said}"):
            remote.fetch(shard)
        assert not copy.exists()
    (dataset / SHARD).write_bytes(whole)
    downloads.clear()
    assert remote.fetch(shard) == remote.fetch(shard) == copy and copy.read_bytes() == whole
    assert downloads == [f"gs://corpus/documents/{SHARD}"]
    copy.write_bytes(b"\1" + whole[1:])
    assert remote.fetch(shard).read_bytes() == whole and len(downloads) == 2
    assert f"{copy}: damaged in the cache" in capsys.readouterr().err


def tar_of(*members: tuple[str, bytes]) -> bytes:
    data = b"".join(ustar.header(name, len(data)) + data + ustar.padding(len(data)) for name, data in members)
    return data + ustar.ending(len(data))


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-512], r": not a readable tar .*end after byte \d"),
        (lambda data: b"\1" + data[1:], r": not a readable tar .*header at byte 0"),
        (lambda data: tar_of(("00001-000-00000.arrow.zst", b"no frame")), r"/00001-000-00000\.arrow\.zst: not a zstd-"),
        (
            lambda data: tar_of(*list(ustar.members(io.BytesIO(data)))[:-1]),
            r": holds batches = \d+ where",
        ),
        (lambda data: tar_of(), r": holds batches = 0 .*; examples = 0"),
    ],
)
def test_what_a_shard_holds_is_compared_even_if_its_hash_is_the_manifests(
    dataset: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    (dataset / SHARD).write_bytes(change((dataset / SHARD).read_bytes()))
    redeclare(dataset)
    with pytest.raises(ShardError, match=rf"^{SHARD}{said}"):
        list(Dataset(dataset))


@pytest.mark.guarantee("verify-every-figure")
def test_a_tar_the_manifest_does_not_name_is_reported(dataset: Path) -> None:
    (dataset / "documents-00009-000.tar").write_bytes(b"left over")
    (problem,) = verify(dataset)
    assert problem.startswith("documents-00009-000.tar: ")


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("00001-000-00000.pickle", b"cos\nsystem\n(S'true'\ntR."),
        ("00001-000-00000.arrow.zst", b"no frame"),
        ("../outside.arrow.zst", zstandard.compress(b"no arrow")),
    ],
)
def test_a_member_of_another_form_is_refused_and_never_written(dataset: Path, name: str, data: bytes) -> None:
    tar = ustar.header(name, len(data)) + data + ustar.padding(len(data))
    (dataset / SHARD).write_bytes(tar + ustar.ending(len(tar)))
    redeclare(dataset)
    before = sorted(dataset.parent.rglob("*"))
    with pytest.raises(ShardError, match=f"{SHARD}/"):
        list(Dataset(dataset))
    assert sorted(dataset.parent.rglob("*")) == before


@pytest.mark.guarantee("verify-every-figure")
def test_an_id_outside_the_vocabulary_is_reported(dataset: Path) -> None:
    manifest = Manifest.load(str(dataset))
    small = {"tokenizer": {**manifest.fingerprint["tokenizer"], "vocab_size": 1000}}
    replace(manifest, fingerprint=small).save(str(dataset))
    size, *ids = verify(dataset)
    assert size.endswith("tokenizer.json: has 50,265 token ids where the manifest says 1,000")
    assert len(ids) == len(manifest.shards)
    assert all("outside the vocabulary" in problem for problem in ids)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_flip_in_a_file_of_the_tokenizer_is_noticed(dataset: Path, name: str) -> None:
    path = dataset / "tokenizer" / name
    path.write_bytes(path.read_bytes().replace(b"<mask>", b"<nask>"))
    (problem,) = verify(dataset)
    assert f"{path}: its sha256 is not the manifest's" in problem


def test_a_file_beside_the_tokenizer_that_nobody_published_is_not_taken_for_its_own(dataset: Path) -> None:
    (dataset / "tokenizer" / "added_tokens.json").write_text('{"<nask>": 50265}')
    with pytest.raises(ShardError, match=r"added_tokens.json: the manifest names no"):
        Dataset(dataset).local_tokenizer()


def test_importing_the_format_loads_no_framework() -> None:
    code = "import sys, shards; print([m for m in ('torch', 'apache_beam', 'webdataset') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.guarantee("damaged-shard")
def test_a_shard_that_is_damaged_after_it_was_read_is_noticed_when_it_is_read_again(dataset: Path) -> None:
    opened = Dataset(dataset)
    list(opened)
    path = dataset / opened.shards[1].name
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(ShardError, match=f"{path.name}: its sha256"):
        list(opened)


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize("rank", ["0", "1"])
def test_each_shard_that_a_bad_block_damages_is_noticed_by_each_rank_at_each_reading(
    dataset: Path, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad block changes neither the size nor the times of a file. The same error comes again, until it is mended."""
    for variable in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.setenv(variable, rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    opened = Dataset(dataset)
    before = list(opened)
    for shard in opened.shards:
        path = dataset / shard.name
        whole, times = path.read_bytes(), path.stat()
        for place in (700, len(whole) - 600):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            for reader in (opened, opened, Dataset(dataset)):
                with pytest.raises(ShardError, match=f"^{dataset}: {shard.name}: its sha256"):
                    list(reader)
                with pytest.raises(ShardError, match=f"^{dataset}: {shard.name}: its sha256"):
                    reader.fetch(shard)
        path.write_bytes(whole)
    assert list(opened) == before


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize("place", [600, 3_000_000, -600])
def test_a_flip_in_a_large_shard_is_noticed_wherever_it_is(tmp_path: Path, place: int) -> None:
    writer = ShardWriter(tmp_path, "images", 0)
    photos = [os.urandom(2_000_000) for _ in range(2)]
    rows = [{"id": number, "image": photo, "label": 0} for number, photo in enumerate(photos)]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema("images")))
    counts = {"read": 2, "kept": 2, "filtered": {}, "bad": 0}
    Manifest("images", {"options": {}}, writer.close(), counts).save(str(tmp_path))
    dataset = Dataset(tmp_path)
    (shard,) = dataset.shards
    assert dataset.fetch(shard) == tmp_path / shard.name
    with (tmp_path / shard.name).open("r+b") as stream:
        stream.seek(place, os.SEEK_SET if place > 0 else os.SEEK_END)
        (byte,) = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))
    with pytest.raises(ShardError, match=f"{shard.name}: its sha256"):
        dataset.fetch(shard)


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize("place", [0, 7, 8, 31, 32, 63])
def test_two_hashes_differ_if_one_digit_does(place: int) -> None:
    declared = FileInfo(10, "a" * 64)
    other = FileInfo(10, declared.sha256[:place] + "b" + declared.sha256[place + 1 :])
    assert declared.difference(other) == "its sha256 is not the manifest's"
    assert declared.difference(FileInfo(10, "a" * 64)) == ""


@pytest.mark.guarantee("kept-things-checked")
def test_a_copy_of_a_remote_tokenizer_is_checked_at_each_use(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On an object store that serves the files of a folder."""
    remote, exists, read_bytes, downloads = Dataset(dataset), storage.exists, storage.read_bytes, list[str]()
    remote.folder = "gs://corpus/documents"

    def here(path: str) -> str:
        return path.replace("gs://corpus/documents", str(dataset))

    def download(path: str) -> bytes:
        if path.startswith("gs:"):
            downloads.append(path.rpartition("/")[2])
        return read_bytes(here(path))

    monkeypatch.setattr(storage, "exists", lambda path: exists(here(path)))
    monkeypatch.setattr(storage, "read_bytes", download)
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    local, names = remote.local_tokenizer(), sorted(remote.tokenizer.files)
    assert local.parent == tmp_path / "cache" and sorted(downloads) == names
    for name in (*names, *names):
        path, times = local / name, (local / name).stat()
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        downloads.clear()
        assert remote.local_tokenizer() == remote.local_tokenizer() == local and downloads == [name]
        assert capsys.readouterr().err == f"{path}: damaged in the cache: made again\n"
        assert path.read_bytes() == (dataset / "tokenizer" / name).read_bytes()
