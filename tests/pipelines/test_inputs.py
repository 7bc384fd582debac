"""All packings of a corpus: each gives the same documents, and the counts add up."""

import gzip
import io
import itertools
import lzma
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from clearspan.common.errors import PipelineError
from clearspan.common.field_names import matching_name
from clearspan.pipelines.readers import tars
from clearspan.pipelines.readers.streams import BOM
from clearspan.pipelines.records import ReadOptions, Split
from clearspan.pipelines.units import plan
from clearspan.pipelines.units.plan import cut, describe
from tests.pipelines.packings import COMPRESS, PACKINGS, jsonl, read_all, tar, tar_of_texts, text_of, write


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("unit_bytes", [700, 10**9])
@pytest.mark.parametrize("nested", [False, True])
def test_what_file_managers_leave_in_a_tar_is_no_document(
    texts: list[str], tmp_path: Path, nested: bool, unit_bytes: int
) -> None:
    hidden = ("._a.txt", ".DS_Store", "__MACOSX/a.txt", "b/._c.txt", "b/Thumbs.db")
    members = {"./a.txt": texts[0], **dict.fromkeys(hidden, "a text"), "b/../c.txt": texts[1]}
    archive = tar({name: text.encode() for name, text in members.items()})
    found = read_all({"a.tar": tar({"inner.tar": archive}) if nested else archive}, tmp_path, unit_bytes)
    assert [record.value for record in found] == texts[:2]


@pytest.mark.slow
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("unit_bytes", [700, 20_000, 10**9])
def test_wherever_units_are_cut_every_document_is_read_once(
    texts: list[str], tmp_path: Path, packing: str, unit_bytes: int
) -> None:
    found = read_all(PACKINGS[packing](texts[:40]), tmp_path, unit_bytes)
    assert not [record.problem for record in found if record.problem]
    expected = texts[:40]
    if "texts" in packing and "tar" not in packing:
        expected = [text for folder in range(3) for text in texts[folder:40:3]]
    assert [text_of(record) for record in found] == expected
    assert len({record.source for record in found}) == 40


@pytest.mark.parametrize("unit_bytes", [300, 10**9])
@pytest.mark.parametrize("pack", [None, *COMPRESS])
def test_a_text_may_be_a_document_a_line(texts: list[str], tmp_path: Path, unit_bytes: int, pack: str | None) -> None:
    lines = [" ".join(text.split()) for text in texts[:10]]
    data = BOM + "\r\n".join([*lines[:5], "", "  ", *lines[5:]]).encode()
    name = f"wiki.txt.{pack}" if pack else "wiki.txt"
    found = read_all({name: COMPRESS[pack](data) if pack else data}, tmp_path, unit_bytes, "line")
    assert [record.value for record in found] == lines
    assert [data[record.offset :].removeprefix(BOM)[:9] for record in found] == [line.encode()[:9] for line in lines]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("unit_bytes", [20_000, 10**9])
def test_a_tar_cut_between_two_members_is_no_shorter_tar(texts: list[str], tmp_path: Path, unit_bytes: int) -> None:
    data = tar_of_texts(texts[:40])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        offsets = [info.offset for info in archive.getmembers()]
    with pytest.raises(PipelineError, match=r"a\.tar: damaged .*no whole member at byte"):
        read_all({"a.tar": data[: offsets[30]]}, tmp_path, unit_bytes)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("packing", ["tar of texts", "OpenWebText's tar of xz of tar"])
def test_two_joined_tars_are_an_error(texts: list[str], tmp_path: Path, packing: str) -> None:
    ((name, data),) = PACKINGS[packing](texts[:40]).items()
    with pytest.raises(PipelineError, match="data follows its end"):
        read_all({name: data + data}, tmp_path, 10**9)


@pytest.mark.guarantee("truncated-input")
def test_a_packed_member_that_is_damaged_is_named(texts: list[str], tmp_path: Path) -> None:
    good = lzma.compress(tar_of_texts(texts[:5]))
    bad = good[:1000] + bytes([good[1000] ^ 255]) + good[1001:]
    with pytest.raises(PipelineError, match=r"^a\.tar/openwebtext/2\.xz: damaged or cut short \(xz: "):
        read_all({"a.tar": tar({"1.xz": good, "2.xz": bad})}, tmp_path, 10**9)


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("name", ["1.xz", "1.txt.gz", "1.tgz"])
@pytest.mark.parametrize("packing", ["in a tar", "in an inner tar"])
def test_a_member_that_is_not_what_its_name_says_is_damage(tmp_path: Path, name: str, packing: str) -> None:
    for data, found in ((b"", "is empty"), (b"\0" + lzma.compress(b"text")[1:], "does not begin as one")):
        members = {name: data} if packing == "in a tar" else {"0.xz": lzma.compress(tar({name: data}))}
        with pytest.raises(PipelineError, match=rf"^a\.tar/.*{name}: damaged or misnamed \(a \.\w+ that {found}\)"):
            read_all({"a.tar": tar(members)}, tmp_path, 10**9)
    with pytest.raises(PipelineError, match=r"1\.tar\.xz: damaged .*empty"):
        read_all({"a.tar": tar({"1.tar.xz": lzma.compress(b"")})}, tmp_path, 10**9)


@pytest.mark.guarantee("no-markup")
def test_parquet_in_a_tar_is_a_bad_record_that_says_so(texts: list[str], tmp_path: Path) -> None:
    (record,) = read_all(
        {"a.tar": tar({"b.parquet": PACKINGS["parquet"](texts[:3])["corpus/a.parquet"]})}, tmp_path, 10**9
    )
    assert record.problem == "parquet, Arrow or WARC in a tar: unpack the tar"


@pytest.mark.parametrize("unit_bytes", [20_000, 10**9])
def test_json_lines_in_tars_are_read_as_json_lines(texts: list[str], tmp_path: Path, unit_bytes: int) -> None:
    nan = b'{"text": "Loomings", "score": NaN}\n'
    members = {
        "a.jsonl": jsonl(texts[:10]),
        "b.jsonl.gz": gzip.compress(jsonl(texts[10:20])),
        "c": BOM + b"\n" + jsonl(texts[20:30]),
        "d.xz": lzma.compress(tar({"e.jsonl": jsonl(texts[30:35]), "f": jsonl(texts[35:39])})),
        "g.json": nan,
        "h.txt": texts[39].encode(),
    }
    found = read_all({"a.tar": tar(members)}, tmp_path, unit_bytes)
    assert not [record.problem for record in found if record.problem]
    assert [text_of(record) for record in found] == [*texts[:39], "Loomings", texts[39]]
    second = len(jsonl(texts[:1]))
    assert [record.source for record in found[:2]] == [
        "a.tar/openwebtext/a.jsonl:0",
        f"a.tar/openwebtext/a.jsonl:{second}",
    ]
    assert found[30].source == "a.tar/openwebtext/d.xz/openwebtext/e.jsonl:0"


@pytest.mark.guarantee("no-markup")
def test_json_in_a_tar_that_is_neither_lines_nor_an_array_is_bad_and_not_a_text(tmp_path: Path) -> None:
    members = {"a.json": b'{\n "text": "a"\n}\n', "b.json": b'[{"text": "a"}]', "c.jsonl": b'{"text": "a"}\nnone\n'}
    found = read_all({"a.tar": tar(members)}, tmp_path, 10**9)
    assert [record.problem.partition(":")[0] for record in found] == [
        "not one JSON object a line",
        "",
        "",
        "broken JSON",
    ]


def header(kind: bytes, size: int, form: int = tarfile.GNU_FORMAT) -> bytes:
    """Return a tar header with a long name, or with attributes."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, size
    return info.tobuf(form)[-tarfile.BLOCKSIZE :]


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g", b"X"])
def test_a_header_of_gigabytes_is_refused_by_its_size(tmp_path: Path, kind: bytes) -> None:
    packing = zstandard.ZstdCompressor().compressobj()
    bomb = packing.compress(header(kind, 300_000_000))
    bomb += b"".join(packing.compress(b"a" * 1_000_000) for _ in range(300)) + packing.flush()
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(PipelineError, match=r"a\.tar\.zst: .*a name or attributes of 300,000,000 bytes at byte 0"):
        read_all({"a.tar.zst": bomb}, tmp_path, 10**9)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


@pytest.mark.guarantee("truncated-input")
@pytest.mark.guarantee("hostile-archives")
def test_many_headers_before_one_member_are_refused(tmp_path: Path) -> None:
    chain = (header(b"L", 512) + b"a" * 512) * 2000
    with pytest.raises(PipelineError, match=r"a\.tar: .*no whole member at byte"):
        read_all({"a.tar": chain + tar({})}, tmp_path, 10**9)


@pytest.mark.guarantee("hostile-archives")
def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    sparse = header(tarfile.GNUTYPE_SPARSE, 0)
    with pytest.raises(PipelineError, match=r"a\.tar: .*a sparse member.*pack it without --sparse"):
        read_all({"a.tar": sparse + tar({})}, tmp_path, 10**9)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1000000000"}
        archive.addfile(info)
    with pytest.raises(PipelineError, match=r"a\.tar: .*no whole member at byte"):
        read_all({"a.tar": data.getvalue()}, tmp_path, 10**9)
    for headers, content in (
        ({"GNU.sparse.map": "0,4", "GNU.sparse.size": "1000000000"}, b"owls"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1000000000"},
         b"1\n0\n4\n".ljust(512, b"\0") + b"owls"),
    ):  # fmt: skip
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
            info = tarfile.TarInfo("a.txt")
            info.pax_headers, info.size = headers, len(content)
            archive.addfile(info, io.BytesIO(content))
        for packed in (data.getvalue(), tar({"b.tar": data.getvalue()})):
            with pytest.raises(PipelineError, match=r"a\.tar.*: .*a sparse member.*pack it without --sparse"):
                read_all({"a.tar": packed}, tmp_path, 10**9)


@pytest.mark.guarantee("truncated-input")
def test_a_tar_followed_by_more_zeros_than_writers_pad_with_may_have_lost_members(
    texts: list[str], tmp_path: Path
) -> None:
    data = tar_of_texts(texts[:3])
    assert len(read_all({"a.tar": data + bytes(512)}, tmp_path, 10**9)) == 3
    with pytest.raises(PipelineError, match="more than 10,240 zero bytes after its end"):
        read_all({"a.tar": data + bytes(20_000)}, tmp_path, 10**9)


@pytest.mark.guarantee("hostile-archives")
def test_links_in_a_tar_are_bad_records_and_names_are_only_names(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        link = tarfile.TarInfo("evil.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name in ("../../up.txt", "two\nlines.txt", "naïve.txt"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"text"))
    found = read_all({"a.tar": data.getvalue()}, tmp_path, 10**9)
    assert found[0].problem == "a link or a device, not a file"
    sources = ["a.tar/evil.txt", "a.tar/../../up.txt", r"a.tar/two\nlines.txt", "a.tar/naïve.txt"]
    assert [record.source for record in found] == sources


def test_large_tars_are_cut_between_members_and_never_sought_on_an_object_store(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a.tar": tar_of_texts(texts[:40])})
    inputs = list(describe(str(tmp_path), {"a.tar": (tmp_path / "a.tar").stat().st_size}, ReadOptions()))
    starts = [piece.start for unit in cut(str(tmp_path), inputs, 30_000) for piece in unit.splits]
    assert len(starts) > 3 and starts[0] == 0
    assert min(after - before for before, after in itertools.pairwise(starts)) >= 30_000
    whole = [Split(inputs[0], 0, None)]
    assert [list(unit.splits) for unit in cut(str(tmp_path), inputs, 10**9)] == [whole]
    monkeypatch.setattr(plan.storage, "is_remote", lambda path: True)
    monkeypatch.setattr(tars, "cuts", lambda *_: pytest.fail("sought"))
    assert [list(unit.splits) for unit in cut("gs://bucket", inputs, 30_000)] == [whole]


@pytest.mark.guarantee("records-counted")
def test_a_text_above_the_limit_is_bad_wherever_it_is(texts: list[str], tmp_path: Path) -> None:
    long = ["short", "x" * 2_000_000, "after"]
    for packing in ("jsonl", "jsonl.xz", "tar of texts", "OpenWebText's tar of xz of tar", "parquet"):
        found = read_all(PACKINGS[packing](long), tmp_path / packing, 10**9)
        assert [bool(record.problem) for record in found] == [False, True, False]
        assert found[1].problem.startswith("longer than 1,000,000 bytes")
        assert len(found[1].raw) <= 1000
    (line,) = read_all({"lines.txt": b"x" * 2_000_000}, tmp_path, 10**9, "line")
    assert line.problem == "longer than 1,000,000 bytes: 2,000,000"


def test_awkward_characters_come_through_and_broken_ones_are_bad(tmp_path: Path) -> None:
    data = b'{"text": "nul \\u0000 in"}\r\n{"text": "half \\ud83d"}\r\n{"text": "raw nul \0"}\r\n{"text": "ok"}'
    found = read_all({"a.jsonl": BOM + data}, tmp_path, 10**9)
    assert found[0].value == {"text": "nul \0 in"}
    assert found[2].problem.startswith("broken JSON")
    assert found[3].value == {"text": "ok"}
    (text,) = read_all({"nul.txt": BOM + b"one\0two\r\n"}, tmp_path, 10**9)
    assert text.value == "one\0two\r\n"


def test_a_field_is_found_in_any_letter_case_unless_two_differ_in_it_alone() -> None:
    assert [
        matching_name(["Text", "n"], "text"),
        matching_name(["Text", "TEXT"], "text"),
        matching_name(["Text", "text"], "text"),
    ] == [*("Text", None, "text")]
