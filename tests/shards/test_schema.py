"""A member's bytes: the same batch gives the same bytes, anything else than a batch of a known kind is refused."""

import numpy as np
import pyarrow as pa
import pytest
import webdataset as wds
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.shards import layouts, schema, vectors
from clearspan.shards.layouts import MemberError, pack
from clearspan.shards.schema import token_type, tokens_by_column

FIELDS = schema.schema("documents", pa.uint16())
example = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**63 - 1),
        "tokens": st.lists(st.integers(0, 2**16 - 1)),
        "source": st.text(st.characters(codec="utf-8")),
    }
)


def unpacked(data: bytes, name: str = "member") -> pa.RecordBatch:
    return layouts.unpack(data, name, schema.KINDS["documents"].check)


def arrow_stream(batch: pa.RecordBatch, copies: int = 1, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        for _ in range(copies):
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.slow
@given(st.lists(example, max_size=20))
@settings(max_examples=60)
def test_any_batch_comes_back_as_it_was(rows: list[dict]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=FIELDS)
    assert unpacked(pack(batch)).equals(batch)
    assert pack(batch) == pack(pa.RecordBatch.from_pylist(rows, schema=FIELDS))
    assert sum(tokens_by_column(batch).values()) == sum(len(row["tokens"]) for row in rows)


def test_a_slice_is_packed_without_the_rest(batches: list[pa.RecordBatch]) -> None:
    part = batches[0].slice(2, 1)
    assert unpacked(pack(part)).equals(part)
    assert len(pack(part)) < len(pack(batches[0]))
    assert tokens_by_column(part) == {"tokens": len(part.column("tokens")[0])}


@pytest.mark.parametrize(("vocabulary", "expected"), [(1, "uint16"), (65536, "uint16"), (65537, "uint32")])
def test_ids_take_two_bytes_where_the_vocabulary_allows(vocabulary: int, expected: str) -> None:
    assert str(token_type(vocabulary)) == expected


@pytest.mark.guarantee("hostile-archives")
def test_the_columns_of_another_kind_are_not_this_ones(batches: list[pa.RecordBatch]) -> None:
    with pytest.raises(MemberError, match=r"00000: columns \['id', 'tokens', 'source'\] .*sentences"):
        layouts.unpack(pack(batches[0]), "00000", schema.KINDS["sentences"].check)


@pytest.mark.guarantee("hostile-archives")
def test_what_is_no_frame_or_no_arrow_is_refused_by_name(batches: list[pa.RecordBatch]) -> None:
    whole = pack(batches[0])
    for data in (b"", b"PK\x03\x04", whole[:-9], zstandard.compress(b"The quick brown fox"), zstandard.compress(b"")):
        with pytest.raises(MemberError, match="00000-000-00003"):
            unpacked(data, "00000-000-00003")


@pytest.mark.guarantee("hostile-archives")
def test_a_member_holds_exactly_one_batch(batches: list[pa.RecordBatch]) -> None:
    with pytest.raises(MemberError, match="expected one record batch"):
        unpacked(zstandard.compress(arrow_stream(batches[0], copies=2)))


@pytest.mark.guarantee("hostile-archives")
def test_a_decompression_bomb_is_refused_before_it_is_decompressed() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=20)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=layouts.MAX_MEMBER_BYTES + 1)
    zeros = bytes(1 << 24)
    bomb = b"".join(compressor.compress(zeros) for _ in range(layouts.MAX_MEMBER_BYTES >> 24))
    bomb += compressor.compress(b"\0") + compressor.flush()
    assert len(bomb) < 1 << 20
    with pytest.raises(MemberError, match="outside the limit of 1,073,741,824"):
        unpacked(bomb)


@pytest.mark.guarantee("hostile-archives")
def test_a_member_of_the_limit_is_unpacked_and_a_larger_one_is_refused_by_its_size(
    batches: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = arrow_stream(batches[0])
    monkeypatch.setattr(layouts, "MAX_MEMBER_BYTES", len(stream))
    assert unpacked(zstandard.compress(stream)).equals(batches[0])
    monkeypatch.setattr(layouts, "MAX_MEMBER_BYTES", len(stream) - 1)
    with pytest.raises(MemberError, match=rf"^member: a frame of {len(stream):,} bytes is outside the limit of"):
        unpacked(zstandard.compress(stream))


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize(
    ("offsets", "source"),
    [([0, 2, 3], b"a:0a:1"), ([0, 9, 3], b"a:0a:1"), ([0, 2, 3], b"a:0\xff:1")],
)
def test_offsets_beyond_the_values_and_broken_texts_are_refused(offsets: list[int], source: bytes) -> None:
    positions = pa.py_buffer(np.array(offsets, np.int32))
    tokens = pa.ListArray.from_buffers(
        FIELDS.field("tokens").type, 2, [None, positions], children=[pa.array([1, 2, 3], pa.uint16())]
    )
    sources = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 3, 6], np.int32)), pa.py_buffer(source))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64()), tokens, sources], schema=FIELDS)
    data = zstandard.compress(arrow_stream(batch))
    if offsets == [0, 2, 3] and source.isascii():
        assert unpacked(data).column("tokens").to_pylist() == [[1, 2], [3]]
        return
    with pytest.raises(MemberError, match="member: not a zstd-compressed Arrow stream"):
        unpacked(data)


@pytest.mark.guarantee("hostile-archives")
def test_a_frame_that_hides_its_size_is_refused(batches: list[pa.RecordBatch]) -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(arrow_stream(batches[0]))
    with pytest.raises(MemberError, match="does not state its size"):
        unpacked(frame)


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compression_within_the_frame_is_refused(batches: list[pa.RecordBatch], codec: str) -> None:
    with pytest.raises(MemberError, match="compressed inside the zstd frame"):
        unpacked(zstandard.compress(arrow_stream(batches[0], compression=codec)))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_a_damaged_arrow_stream_is_refused_or_valid_never_a_crash(data: st.DataObject) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 7, "tokens": [1, 2, 3], "source": "a:0"}] * 3, schema=FIELDS)
    damaged = bytearray(arrow_stream(batch))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=3)):
        damaged[position] = data.draw(st.integers(0, 255))
    try:
        found = unpacked(zstandard.compress(bytes(damaged)))
    except MemberError:
        return
    found.validate(full=True)


@pytest.mark.guarantee("plain-webdataset")
def test_plain_webdataset_decodes_with_one_handler(dataset, batches: list[pa.RecordBatch]) -> None:
    tars = sorted(str(path) for path in dataset.glob("*.tar"))
    samples = wds.WebDataset(tars, shardshuffle=False).decode(schema.webdataset_decoder)
    assert [sample["arrow.zst"] for sample in samples] == batches


def kept(names: list[str], arrays: list[pa.Array]) -> pa.RecordBatch:
    """Return a batch of two vectors with these kept fields."""
    columns = {
        "id": pa.array([1, 2], pa.int64()),
        "source": pa.array(["owls.csv"] * 2),
        **vectors.columns(np.eye(2, dtype=np.float32), "float32"),
        "record": pa.array([1, 2], pa.int64()),
    }
    types = dict(zip(names, [array.type for array in arrays], strict=True))
    made = schema.KINDS["vectors"].schema(optional=["record", *names], vector=columns["vector"].type, fields=types)
    return pa.record_batch([*columns.values(), *arrays], schema=made)


def test_kept_fields_have_any_names_and_may_be_null() -> None:
    names = ["field_meta.year", "field_title", "field_score", "field_is open"]
    arrays = [pa.array([2020, None]), pa.array([None, "Owls"]), pa.array([0.5, 1.5]), pa.array([True, None])]
    batch = kept(names, arrays)
    read = layouts.unpack(pack(batch), "member", schema.KINDS["vectors"].check)
    assert read.equals(batch)
    assert vectors.field_names(read.schema) == ["meta.year", "title", "score", "is open"]
    assert vectors.fields(read)["meta.year"].to_pylist() == [2020, None]


def test_a_kept_field_of_another_type_is_refused() -> None:
    batch = kept(["field_tags"], [pa.array([["owls"], None])])
    with pytest.raises(MemberError, match=r"'field_tags'\] .*vectors"):
        layouts.unpack(pack(batch), "member", schema.KINDS["vectors"].check)


def test_no_two_columns_have_one_name() -> None:
    batch = kept(["field_year"], [pa.array([1, 2])])
    twice = batch.append_column(pa.field("field_year", pa.int64()), pa.array([3, 4]))
    with pytest.raises(MemberError, match="two columns are named field_year"):
        layouts.unpack(pack(twice), "member", schema.KINDS["vectors"].check)
