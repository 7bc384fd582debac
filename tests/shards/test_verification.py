"""Verification: a manifest that was edited with its hash is compared with what the shards hold, field by field."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from clearspan.shards import Dataset, Manifest, ShardError, ShardWriter, vectors, verify
from clearspan.shards.contents import Contents
from clearspan.shards.layouts import array_column
from clearspan.shards.manifest import ManifestError
from clearspan.shards.reader import read_back, read_batches
from clearspan.shards.schema import KINDS, MEL_BINS, schema
from clearspan.shards.verification import _check_shard, _check_tokenizer
from tests.shards.conftest import publish_labelled
from tests.shards.test_manifest import edit


def retable(folder: Path, data: bytes) -> list[str]:
    """Replaces the table of classes, writes the manifest with its new hash, and returns what `verify` says."""
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


@pytest.mark.guarantee("verify-every-figure")
def test_every_file_and_every_shard_is_compared_and_each_problem_is_named_once(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"synonyms.json": "0" * 64, "words.json": "1" * 64, "words.txt": "2" * 64, "table": "3" * 64}
    edit(dataset, lambda record: record["fingerprint"]["options"].update(files=files))
    (dataset / "tokenizer" / "tokenizer_config.json").unlink()
    shards = sorted(dataset.glob("*.tar"))
    for path in shards:
        path.write_bytes(path.read_bytes()[:-512])
    (dataset / "documents-00007-000.tar").write_bytes(b"left over")
    tokenizer, first, second, third, fourth, *damaged, unnamed = verify(dataset)
    missing = "the manifest names this file, but it is missing: put it back, or run the pipeline again"
    assert tokenizer == f"{dataset}/tokenizer/tokenizer_config.json: {missing}"
    assert [first, second, third, fourth] == [f"{dataset}/_files/{name}: {missing}" for name in files]
    assert len(shards) > 1 and [problem.split(": ")[1] for problem in damaged] == [path.name for path in shards]
    assert unnamed.startswith("documents-00007-000.tar: a tar that manifest.json does not name")
    assert capsys.readouterr().err == ""


@pytest.mark.guarantee("verify-every-figure")
def test_the_table_of_classes_is_named_once_though_two_checks_read_it(images: Path) -> None:
    (images / "_files" / "classes.json").unlink()
    (problem,) = verify(images)
    assert problem.startswith(f"{images}/_files/classes.json: ")


@pytest.mark.guarantee("verify-every-figure")
def test_vectors_that_are_as_the_manifest_says_have_no_problem(embedded: Path) -> None:
    assert verify(embedded) == []


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_vector_that_is_not_finite_is_named_in_any_batch(tmp_path: Path, value: float) -> None:
    writer = ShardWriter(tmp_path, "vectors", 0)
    for start in (0, 2):
        column = vectors.columns(np.array([[0.5, start], [1, 65504]], np.float32), "float32")["vector"]
        if start:
            values = np.array([0.5, 2, value, 1], np.float32)
            column = pa.FixedSizeListArray.from_arrays(pa.array(values), type=column.type)
        rows = [pa.array([start, start + 1]), pa.array(["owls.csv:1", "owls.csv:2"]), column]
        fields = KINDS["vectors"].schema(vector=column.type)
        writer.write(pa.record_batch(rows, schema=fields))
        counts = {"read": start + 2, "kept": start + 2, "filtered": {}, "bad": 0}
    Manifest("vectors", {"options": {}}, writer.close(), counts).save(str(tmp_path))
    assert verify(tmp_path) == ["vectors-00000-000.tar: holds a vector with a NaN or an infinity"]


@pytest.mark.guarantee("verify-every-figure")
def test_an_id_outside_the_vocabulary_is_found_in_any_column_of_any_batch(tmp_path: Path) -> None:
    """The largest id is in the last view of the second batch; a column without an id has none outside."""
    rows = [
        [{"id": 0, "tokens": [5, 6], "view_0": [], "view_1": [7]}],
        [{"id": 1, "tokens": [8], "view_0": [], "view_1": [2, 41]}],
    ]
    writer = ShardWriter(tmp_path, "sentences", 0)
    for each in rows:
        writer.write(pa.RecordBatch.from_pylist(each, schema=schema("sentences", pa.uint16(), views=2)))
    (shard,) = writer.close()
    known = {"sha256": "0" * 64, "vocab_size": 42, "files": {"tokenizer.json": "0" * 64}}
    counts = {"read": 2, "kept": 2, "filtered": {}, "bad": 0}
    Manifest("sentences", {"tokenizer": known, "options": {}}, [shard], counts).save(str(tmp_path))
    _check_shard(Dataset(tmp_path), shard)
    known["vocab_size"] = 41
    Manifest("sentences", {"tokenizer": known, "options": {}}, [shard], counts).save(str(tmp_path))
    with pytest.raises(ShardError, match=r"^sentences-00000-000\.tar: token id 41 "):
        _check_shard(Dataset(tmp_path), shard)


def retokenize(folder: Path, data: bytes, vocab_size: int) -> list[str]:
    """Replaces tokenizer.json, writes the manifest with its hash, and returns what `_check_tokenizer` says."""
    (folder / "tokenizer" / "tokenizer.json").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()

    def change(record: dict[str, Any]) -> None:
        known = record["fingerprint"]["tokenizer"]
        known.update(sha256=sha256, vocab_size=vocab_size, files={**known["files"], "tokenizer.json": sha256})

    edit(folder, change)
    try:
        _check_tokenizer(Dataset(folder))
    except ShardError as error:
        return [str(error)]
    return []


def tokenizer_of(vocabulary: dict[str, int], *added: str) -> bytes:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="owls"))
    tokenizer.add_tokens(list(added))
    return tokenizer.to_str().encode()


@pytest.mark.guarantee("verify-every-figure")
def test_the_size_of_a_vocabulary_includes_added_tokens_and_gaps(dataset: Path) -> None:
    path = f"{dataset}/tokenizer/tokenizer.json"
    added = tokenizer_of({"owls": 0, "hunt": 1}, "mice", "voles")
    assert retokenize(dataset, added, 4) == []
    assert retokenize(dataset, added, 2) == [f"{path}: has 4 token ids where the manifest says 2"]
    gaps = tokenizer_of({"owls": 0, "hunt": 5})
    assert retokenize(dataset, gaps, 6) == []
    assert retokenize(dataset, gaps, 2) == [f"{path}: has 6 token ids where the manifest says 2"]
    (problem,) = retokenize(dataset, tokenizer_of({"owls": 0, "hunt": 1 << 20}), 2)
    assert problem == f"{path}: 'hunt' has id 1,048,576 in a vocabulary of 2 tokens: correct the id"
    assert retokenize(dataset, b'{"version": "9.0"}', 2) == []  # of a later `tokenizers`
    assert verify(dataset) != []


@pytest.mark.guarantee("verify-every-figure")
def test_the_figures_of_several_batches_are_those_of_all_their_rows() -> None:
    contents = Contents()
    for clips, labels in ((([1.0] * 3, [2.0] * 5), (0, 2)), (([-0.5] * 3, [4.0] * 9), (2, 2))):
        frames = [np.repeat(np.array(clip, np.float16)[:, None], MEL_BINS, axis=1) for clip in clips]
        columns = [pa.array([7, 8]), array_column(frames, MEL_BINS), pa.array(labels)]
        contents.add(pa.record_batch(columns, schema=schema("audio")), KINDS["audio"])
    total = (3 * 1 + 5 * 2 + 3 * -0.5 + 9 * 4) * MEL_BINS
    squares = (3 * 1 + 5 * 4 + 3 * 0.25 + 9 * 16) * MEL_BINS
    assert vars(contents) == {
        "batches": 2,
        "examples": 4,
        "tokens": 0,
        "column_tokens": {},
        "lengths": {"frames": {"3": 2, "4": 1, "8": 1}},
        "classes": {"0": 1, "2": 3},
        "moments": {"values": 20 * MEL_BINS, "sum": int(total * 2**24), "squares": int(squares * 2**48)},
    }


@pytest.mark.guarantee("verify-every-figure")
def test_an_id_outside_a_vocabulary_of_more_ids_than_uint16_holds_is_found(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "documents", 0)
    rows = [{"id": 0, "tokens": [7, 2**16 + 5], "source": "owls.txt:1"}]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema("documents", pa.uint32())))
    (shard,) = writer.close()
    known = {"sha256": "0" * 64, "vocab_size": 2**16 + 6, "files": {"tokenizer.json": "0" * 64}}
    counts = {"read": 1, "kept": 1, "filtered": {}, "bad": 0}
    Manifest("documents", {"tokenizer": known, "options": {}}, [shard], counts).save(str(tmp_path))
    _check_shard(Dataset(tmp_path), shard)
    known["vocab_size"] = 2**16 + 5
    Manifest("documents", {"tokenizer": known, "options": {}}, [shard], counts).save(str(tmp_path))
    with pytest.raises(ShardError, match="token id 65541 "):
        _check_shard(Dataset(tmp_path), shard)


def of_many_shards(folder: Path) -> list[str]:
    """Write thirty clips as a shard each, and return the names of the shards."""
    writer = ShardWriter(folder, "audio", 0, max_bytes=1)
    for number in range(30):
        frames = np.full((1 + 7 * number % 30, MEL_BINS), number - 7.5, np.float16)
        columns = [pa.array([number]), array_column([frames], MEL_BINS), pa.array([number % 3])]
        writer.write(pa.record_batch(columns, schema=schema("audio")))
    table = json.dumps(["owl", "heron", "moss"]).encode()
    (folder / "_files").mkdir()
    (folder / "_files" / "classes.json").write_bytes(table)
    options = {"files": {"classes.json": hashlib.sha256(table).hexdigest()}}
    counts = {"read": 30, "kept": 30, "filtered": {}, "bad": 0}
    Manifest("audio", {"options": options}, writer.close(), counts).save(str(folder))
    return [shard.name for shard in Dataset(folder).shards]


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.parametrize("figures", [["lengths"], ["classes"], ["moments"], ["lengths", "classes", "moments"]])
def test_a_figure_of_each_of_many_shards_is_compared_and_each_problem_is_told(
    tmp_path: Path, figures: list[str]
) -> None:
    """The sums over all shards fit: figures are exchanged between shards, and each histogram has as many examples."""
    names = of_many_shards(tmp_path)
    assert verify(tmp_path) == []
    was = [shard.copy() for shard in json.loads((tmp_path / "manifest.json").read_text())["shards"]]

    def exchange(record: dict[str, Any]) -> None:
        for shard, other in zip(record["shards"], [*was[1:], was[0]], strict=True):
            shard.update({figure: other[figure] for figure in figures})

    edit(tmp_path, exchange)
    expected = []
    for name, old, new in zip(names, was, [*was[1:], was[0]], strict=True):
        if differ := [f"{figure} that differ from the manifest's" for figure in figures if old[figure] != new[figure]]:
            expected.append(f"{name}: holds {'; '.join(differ)}")
    assert len(expected) > 10 and verify(tmp_path) == expected


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.parametrize(
    "place", [("totals", "bytes"), ("totals", "tokens"), ("statistics", "std"), ("statistics", "mean")]
)
def test_a_total_is_compared_to_its_last_digit(tmp_path: Path, place: tuple[str, str]) -> None:
    of_many_shards(tmp_path)
    group, name = place

    def nudge(record: dict[str, Any]) -> None:
        value = record[group][name]
        record[group][name] = float(np.nextafter(value, np.inf)) if isinstance(value, float) else value + 1

    edit(tmp_path, nudge)
    with pytest.raises(ManifestError, match=f"{group} do not match the shards"):
        verify(tmp_path)


@pytest.mark.guarantee("verify-every-figure")
def test_the_lengths_and_tokens_of_each_column_are_those_of_all_batches() -> None:
    contents = Contents()
    for number, (tokens, first, second) in enumerate([(3, 1, 0), (4, 8, 2), (3, 1, 9)]):
        row = {"id": number, "tokens": [7] * tokens, "view_0": [8] * first, "view_1": [9] * second}
        batch = pa.RecordBatch.from_pylist([row], schema=schema("sentences", pa.uint16(), views=2))
        contents.add(batch, KINDS["sentences"])
    assert contents.lengths == {
        "tokens": {"3": 2, "4": 1},
        "view_0": {"1": 2, "8": 1},
        "view_1": {"0": 1, "2": 1, "8": 1},
    }
    assert contents.column_tokens == {"tokens": 10, "view_0": 10, "view_1": 11}
    assert (contents.tokens, contents.examples, contents.batches) == (31, 3, 3)
