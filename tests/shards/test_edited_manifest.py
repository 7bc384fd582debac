"""A manifest that somebody edited with its hash: `verify` reports every figure, `ls` never ends in a traceback."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearspan.common.checksummed import dump_checksummed
from clearspan.shards import Manifest
from clearspan.shards.__main__ import main
from clearspan.shards.manifest import ManifestError
from tests.shards.test_manifest import edit

Place = tuple[str | int, ...]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from(["", "7", "documents", "0" * 64]),
    st.text(max_size=4),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.sampled_from(["0", "1", "tokens", "x"]), st.one_of(st.integers(-1, 9), st.text(max_size=2))),
)


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all fields of a record, but for options of the pipeline, which are no figures of the shards."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        if (*place, key)[:2] != ("fingerprint", "options") or (*place, key)[2:3] == ("files",):
            yield (*place, key)
        yield from places(each, (*place, key))


def at(record: Any, place: Place) -> Any:
    for key in place:
        record = record[key]
    return record


def changed(record: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """The record with one field replaced by another value, missing, or there twice."""
    new = copy.deepcopy(record)
    *above, key = data.draw(st.sampled_from(sorted(places(record), key=repr)))
    parent, way = at(new, tuple(above)), data.draw(st.sampled_from(["replace", "replace", "remove", "repeat", "near"]))
    if way == "repeat" and isinstance(parent, list):
        parent.insert(key, parent[key])
    elif way == "remove":
        del parent[key]
    elif way == "near" and type(parent[key]) is int:
        parent[key] += data.draw(st.sampled_from([-1, 1]))
    else:
        parent[key] = data.draw(VALUES)
    return new


def fuzz(folder: Path, capsys: pytest.CaptureFixture[str], times: int) -> None:
    """Change the manifest of a dataset of several shards many times."""
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    del record["sha256"]

    @settings(max_examples=times, suppress_health_check=[HealthCheck.too_slow], database=None, derandomize=True)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        new = changed(record, data)
        if json.dumps(new) == json.dumps(record):
            return
        path.write_bytes(dump_checksummed(new))
        code = main(["verify", str(folder), "--quiet"])
        said = capsys.readouterr()
        assert code == 1 and (said.out or said.err).strip(), new
        assert said.err.count("\n") <= 1
        assert main(["ls", str(folder)]) in (0, 1)
        assert capsys.readouterr().err.count("\n") <= 1

    check()


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["images", "audio", "with_views"])
def test_a_changed_field_is_reported(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fuzz(request.getfixturevalue(kind), capsys, 60)


@pytest.mark.exhaustive
def test_a_changed_field_of_several_shards_is_reported(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fuzz(dataset, capsys, 300)


def twice(record: dict[str, Any]) -> None:
    """List a shard twice, with all sums to match."""
    shard = record["shards"][0]
    record["shards"].append(shard)
    for name in ("examples", "tokens", "bytes"):
        record["totals"][name] += shard[name]
    record["counts"]["kept"] += shard["examples"]
    record["counts"]["read"] += shard["examples"]


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (twice, "documents-00000-000.tar is listed twice"),
        (lambda r: r["totals"].update(examples=61), "totals do not match the shards"),
        (lambda r: r["counts"].update(bad=2), "read 70 is not the sum of kept, filtered and bad"),
        (lambda r: r["counts"].update(read=71, kept=61), "61 kept, but its shards hold 60 examples"),
        (lambda r: r["shards"][0].update(unit=1), "documents-00000-000.tar: its name does not belong to unit 1"),
        (lambda r: r["shards"][0].update(examples="18"), "ShardInfo: examples must be an integer, not '18'"),
        (lambda r: r["shards"][0].update(lengths=[]), "ShardInfo: lengths must be a mapping, not []"),
        (lambda r: r["counts"].update(filtered=None), "Reconciliation: filtered must be a mapping, not None"),
        (lambda r: r["fingerprint"].update(options=[]), "options of its fingerprint have the wrong type"),
        (lambda r: r.update(shards={}), "shards has the wrong type: {}"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_one_line_that_says_how(
    dataset: Path, change: Callable[[dict[str, Any]], object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(dataset, change)
    for command in ("ls", "verify"):
        assert main([command, str(dataset)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"shards: {dataset}/manifest.json: ") and said in error and error.count("\n") == 1


@pytest.mark.guarantee("verify-every-figure")
def test_a_vocabulary_and_a_number_of_classes_are_compared_with_the_files(
    dataset: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(dataset, lambda record: record["fingerprint"]["tokenizer"].update(vocab_size=60_000))
    assert main(["verify", str(dataset)]) == 1
    assert "has 50,265 token ids where the manifest says 60,000" in capsys.readouterr().out
    edit(images, lambda record: record["fingerprint"]["options"]["taken"].update(classes=4))
    assert main(["verify", str(images)]) == 1
    assert "names 3 classes where the manifest says 4" in capsys.readouterr().out


def last(record: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the last shard."""
    shard: dict[str, Any] = record["shards"][-1]
    return shard


@pytest.mark.guarantee("verify-every-figure")
@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("dataset", lambda r: last(r)["lengths"]["tokens"].update({"0": 2}), "its lengths or classes do not fit"),
        ("dataset", lambda r: last(r).update(lengths={"tokens": {"01": last(r)["examples"]}}), "are not numbers of"),
        ("dataset", lambda r: last(r)["lengths"]["tokens"].update({"0": 0}), "are not numbers of examples"),
        ("dataset", lambda r: last(r)["lengths"]["tokens"].update(many=1), "are not numbers of examples"),
        ("dataset", lambda r: last(r).update(classes={"0": 1}), "its lengths or classes do not fit"),
        ("dataset", lambda r: last(r)["column_tokens"].update(tokens=1), "the tokens of its columns are not"),
        ("with_views", lambda r: last(r)["lengths"].update(view_1={"1": 19}), "do not fit 20 examples"),
        ("with_views", lambda r: last(r)["column_tokens"].update(view_1=0), "the tokens of its columns are not"),
        ("images", lambda r: last(r).update(classes={}), "its lengths or classes do not fit 9 examples"),
        ("images", lambda r: last(r).update(classes={"0": 10, "1": -1}), "are not numbers of examples"),
        ("images", lambda r: r["counts"].update(bad=-1, filtered={"small": 1}), "counts are not numbers of records"),
        ("images", lambda r: r["counts"].update(read=8, filtered={"small": 1, "dup": -2}), "counts are not numbers"),
        ("images", lambda r: r["counts"].update(read=8, kept=8), "8 kept, but its shards hold 9 examples"),
        ("images", lambda r: r["counts"].update(read=8), "read 8 is not the sum of kept, filtered and bad"),
        ("audio", lambda r: r["statistics"].update(std=1.0), "statistics do not match the shards: {"),
        ("audio", lambda r: r.pop("statistics"), "statistics do not match the shards: null"),
        ("audio", lambda r: r["totals"].update(bytes=1), "totals do not match the shards: {"),
    ],
)
def test_figures_that_contradict_each_other_are_refused_before_a_shard_is_read(
    kind: str, change: Callable[[dict[str, Any]], object], said: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    edit(folder, change)
    with pytest.raises(ManifestError, match=re.escape(said)) as error:
        Manifest.load(str(folder))
    shards = [path.name for path in folder.glob("*.tar") if path.name in str(error.value)]
    assert not shards or shards == [max(path.name for path in folder.glob("*.tar"))]


@pytest.mark.guarantee("verify-every-figure")
def test_a_count_of_one_and_of_none_is_a_count(images: Path) -> None:
    edit(images, lambda record: record["counts"].update(read=10, filtered={"small": 1, "dup": 0}))
    assert Manifest.load(str(images)).counts["filtered"] == {"small": 1, "dup": 0}
