"""The plan: the same units for the same inputs; a run must follow its plan."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.errors import PipelineError
from clearspan.pipelines.builders.images import Images
from clearspan.pipelines.records import Input, Inputs, ReadOptions
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.inputs import find
from clearspan.pipelines.units.plan import Plan, cut, find_inputs, make_plan


def plan_of(pattern: Path | str, unit_bytes: int = 100, **options: Any) -> Plan:
    return make_plan(
        find_inputs([str(pattern)], ReadOptions()), {"tokenizer": {"vocab_size": 50265}, "options": options}, unit_bytes
    )


entries = st.builds(
    Input,
    name=st.uuids().map(str),
    bytes=st.integers(0, 2000),
    format=st.sampled_from(["parquet", "text"]),  # cut without being opened
    compression=st.sampled_from([None, "zstd"]),
)


@pytest.mark.slow
@given(st.lists(entries, max_size=8, unique_by=lambda entry: entry.name), st.integers(1, 900))
def test_units_cover_the_inputs_once_in_order(inputs: list[Input], unit_bytes: int) -> None:
    units = cut("corpus", inputs, unit_bytes)
    assert [unit.number for unit in units] == list(range(len(units)))
    pieces = [piece for unit in units for piece in unit.splits]
    assert list(dict.fromkeys(piece.input for piece in pieces)) == inputs
    assert sum(piece.bytes for piece in pieces) == sum(entry.bytes for entry in inputs)
    for entry in inputs:
        mine = [piece for piece in pieces if piece.input == entry]
        if entry.format == "parquet" and entry.compression is None:
            assert [piece.start for piece in mine] == [0, *(piece.end for piece in mine[:-1])]
            assert mine[-1].end == entry.bytes
        else:
            assert [(piece.start, piece.end) for piece in mine] == [(0, None)]
    for unit in units:
        assert unit.bytes <= unit_bytes or len(unit.splits) == 1


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("b/2.jsonl", "a/10.jsonl", "a/9.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "a"}\n')
    return tmp_path


def test_the_fingerprint_holds_the_hash_of_the_listing(corpus: Path) -> None:
    made = plan_of(f"{corpus}/*/*.jsonl", unit_bytes=1)
    record = json.loads(made.to_json())
    assert [entry["name"] for entry in record["inputs"]] == ["a/10.jsonl", "a/9.jsonl", "b/2.jsonl"]
    listing = json.dumps([entry.fields for entry in made.inputs], separators=(",", ":"))[1:-1].encode()
    assert record["fingerprint"]["inputs"]["sha256"] == hashlib.sha256(listing).hexdigest()


def test_inputs_are_sorted_named_once_and_below_their_common_folder(corpus: Path) -> None:
    root, files = find([str(corpus / "*/*.jsonl"), str(corpus / "b" / ".." / "a" / "9.jsonl")])
    assert root == str(corpus)
    assert list(files) == ["a/10.jsonl", "a/9.jsonl", "b/2.jsonl"]


def test_a_path_with_globs_own_characters_is_a_path_first(tmp_path: Path) -> None:
    (tmp_path / "part[1].jsonl").write_text("")
    assert list(find([str(tmp_path / "part[1].jsonl")])[1]) == ["part[1].jsonl"]


def test_a_link_keeps_the_name_the_user_gave_it(corpus: Path) -> None:
    (corpus / "a" / "link.jsonl").symlink_to(corpus / "b" / "2.jsonl")
    assert list(find([str(corpus / "a" / "link.jsonl")])[1]) == ["link.jsonl"]


def test_a_plan_is_the_same_wherever_the_corpus_is(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "corpus"
    elsewhere.symlink_to(corpus)
    plans = [plan_of(f"{folder}/*/*.jsonl").to_json() for folder in (corpus, elsewhere)]
    assert plans[0] == plans[1]


def test_a_name_that_cannot_be_a_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "two\nlines.jsonl").write_text("")
    with pytest.raises(PipelineError, match="rename it"):
        plan_of(tmp_path / "*.jsonl")


@pytest.mark.parametrize("value", ["prix \udce9", ["title", "prix \udce9"]])
def test_an_option_that_is_not_utf8_is_named(value: str | list[str]) -> None:
    with pytest.raises(PipelineError, match="the option text_field is not valid UTF-8"):
        make_plan(Inputs("corpus", []), {"options": {"text_field": value}})


@pytest.mark.slow
def test_more_units_than_there_are_numbers_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "big.jsonl").open("wb") as file:
        file.truncate(100_001)
    with pytest.raises(PipelineError, match="100,001 work units, more than 100,000"):
        plan_of(tmp_path / "big.jsonl", 1)


def test_units_of_very_large_corpora_are_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(Input(f"{number}.jsonl.gz", 10**9, "jsonl", "gzip", "") for number in range(600))
    assert len(make_plan(Inputs("corpus", files), {"options": {}}).units) == 600
    monkeypatch.setattr(planning, "MANY_UNITS", 100)
    plan = make_plan(Inputs("corpus", files), {"options": {}})
    assert plan.fingerprint["options"]["unit_bytes"] == 6 * 10**9 and len(plan.units) == 100


def test_the_fingerprint_holds_what_shapes_the_data(corpus: Path) -> None:
    plan = plan_of(f"{corpus}/*/*.jsonl", min_tokens=2048)
    assert plan.fingerprint["tokenizer"] == {"vocab_size": 50265}
    assert plan.fingerprint["options"] == {"min_tokens": 2048, "unit_bytes": 100}
    assert (plan.fingerprint["inputs"]["files"], plan.fingerprint["inputs"]["bytes"]) == (3, 42)
    assert set(plan.fingerprint["code"]) == {"format"}, "a version of the package shapes no data"


def test_two_kinds_of_the_same_options_have_different_fingerprints() -> None:
    class Own(Images):
        pass

    built_in, own = (builder().fingerprint({}) for builder in (Images, Own))
    assert built_in["options"] == own["options"] and built_in["kind"] == "images"
    assert own["kind"].startswith(f"{__name__}:")
