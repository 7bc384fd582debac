"""The manifest: what it says is of its form, or it is refused with the file and the field named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import webdataset as wds

from clearspan.common.checksummed import dump_checksummed
from clearspan.shards import Manifest
from clearspan.shards.manifest import ManifestError


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_bytes(dump_checksummed(record))


def test_it_loads_as_it_was_saved(dataset: Path) -> None:
    manifest = Manifest.load(str(dataset))
    assert manifest.to_json() == (dataset / "manifest.json").read_bytes()
    assert manifest.totals["examples"] == 60
    assert manifest.totals["bytes"] == sum(path.stat().st_size for path in dataset.glob("*.tar"))


def test_resources_are_named_with_their_hashes(dataset: Path) -> None:
    edit(dataset, lambda record: record["fingerprint"]["options"].update(files={"synonyms.json": "0" * 64}))
    found = Manifest.load(str(dataset))
    names = ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "_files/synonyms.json"]
    assert list(found.resources) == names
    assert found.resources[names[0]] == found.tokenizer.sha256


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r.update(version=4), "version 4, not clearspan-shards 3"),
        (lambda r: r.update(format="wids-shard-index-v1"), "format wids-shard-index-v1"),
        (lambda r: r.update(kind="poems"), "kind 'poems'"),
        (lambda r: r["shards"][0].update(name="../../etc/passwd"), "not the name of a shard"),
        (lambda r: r["shards"][0].update(owner="me"), "not a manifest"),
        (lambda r: r["shards"][0].pop("sha256"), "not a manifest"),
        (lambda r: r["shards"][0].update(name="images-00000-000.tar"), "not the name of a shard"),
        (lambda r: r["shards"][0].update(sha256="../../x"), r"'../../x' is not a sha256"),
        (lambda r: r["fingerprint"]["options"].update(files={"../x": "0"}), "not the name of a file"),
        (
            lambda r: r["fingerprint"].pop("tokenizer"),
            "documents .*no tokenizer",
        ),
        (lambda r: r["fingerprint"]["tokenizer"]["files"].update({"../config.json": "0"}), "not the name of a file"),
        (lambda r: r.pop("counts"), "missing field 'counts'"),
    ],
)
def test_what_is_no_manifest_of_ours_is_refused(
    dataset: Path, change: Callable[[dict], object], complaint: str
) -> None:
    edit(dataset, change)
    with pytest.raises(ManifestError, match=complaint) as error:
        Manifest.load(str(dataset))
    assert str(dataset / "manifest.json") in str(error.value)


def test_a_change_of_any_byte_is_noticed(dataset: Path) -> None:
    path = dataset / "manifest.json"
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(ManifestError):
            Manifest.load(str(dataset))


def test_the_wids_view_is_an_index_of_members(dataset: Path) -> None:
    index = Manifest.load(str(dataset)).wids_index(str(dataset))
    assert index["__kind__"] == "wids-shard-index-v1"
    assert sum(shard["nsamples"] for shard in index["shardlist"]) == 10
    for shard in index["shardlist"]:
        assert len(list(wds.WebDataset(shard["url"], shardshuffle=False))) == shard["nsamples"]
        assert Path(shard["url"]).stat().st_size == shard["filesize"]
