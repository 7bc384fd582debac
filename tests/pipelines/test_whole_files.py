"""What tells that an input is whole: each reader's check of the end, and which errors mean damage."""

import errno
import io
import lzma
import random
import re
import tarfile
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import arrays, streams, tars
from clearspan.pipelines.readers.arrow import END, FILE, _Messages
from clearspan.pipelines.readers.streams import DamagedFileError, naming_damage
from clearspan.pipelines.records import ReadOptions, Record
from tests.pipelines.packings import COMPRESS, parquet, read_all, tar


def complaint(error: BaseException, kind: str | None) -> str:
    """Return what `naming_damage` says about an error; "" if the error passes unchanged."""
    try:
        with naming_damage("in/a.gz", kind):
            raise error
    except PipelineError as named:
        return str(named)
    except BaseException as passed:
        assert passed is error
    return ""


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize(
    ("error", "of_text", "of_gzip"),
    [
        (DamagedFileError("no end"), "no end", "no end"),
        (OSError("not a gzip\n  stream"), "", "not a gzip stream"),
        (EOFError("ended"), "", "ended"),
        (lzma.LZMAError("corrupt"), "", "corrupt"),
        (tarfile.ReadError("no header"), "", "no header"),
        (pa.ArrowInvalid("no message"), "", "no message"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "start"), "", "'utf-8' codec can't decode byte 0xff in"),
        (OSError(errno.EIO, "Input/output error"), "", ""),
        (FileNotFoundError(errno.ENOENT, "No such file"), "", ""),
        (ConnectionError("reset"), "", ""),
        (FileNotFoundError("gone"), "", ""),
        (ValueError("a bug"), "", ""),
        (KeyError("a bug"), "", ""),
    ],
)
def test_an_error_that_damage_causes_names_the_file_and_others_pass(
    error: Exception, of_text: str, of_gzip: str
) -> None:
    text, packed = complaint(error, None), complaint(error, "gzip")
    assert text == (f"in/a.gz: damaged or cut short ({of_text}): fetch or make it again" if of_text else "")
    assert packed.startswith(f"in/a.gz: damaged or cut short (gzip: {of_gzip}" if of_gzip else "")
    assert bool(packed) == bool(of_gzip) and "\n" not in packed
    with naming_damage("in/a.gz", "gzip"):
        pass  # no error, no complaint


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("words", ["ZSTD: Frame requires too much memory for decoding", "Memory usage limit exceeded"])
def test_a_window_above_the_limit_is_no_damage(words: str) -> None:
    for error in (OSError(words), lzma.LZMAError(words)):
        assert complaint(error, "xz").startswith("in/a.gz: its xz window takes more than 128 MiB of memory: compress")


@pytest.mark.guarantee("truncated-input")
def test_a_file_that_needs_a_dictionary_of_zstds_is_no_damage_of_others() -> None:
    error = OSError("ZSTD decompression failed: Dictionary mismatch")
    assert complaint(error, "zstd").startswith("in/a.gz: compressed with a dictionary of zstd's, or damaged: unpack")
    assert complaint(error, "gzip").startswith("in/a.gz: damaged or cut short (gzip: ZSTD")
    assert complaint(OSError("unexpected end"), "zstd").startswith("in/a.gz: damaged or cut short (zstd: unexpected")


def unxz(data: bytes, packed_bytes: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(streams, "PACKED_BYTES", packed_bytes)
    parts = list(streams._unxz(io.BytesIO(data)))
    assert all(len(part) <= streams.BUFFER_BYTES for part in parts)
    return b"".join(parts)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("packed_bytes", [1, 3, 4, 7, 1 << 16])
def test_xz_streams_are_read_to_their_end_and_nothing_else_may_follow(
    monkeypatch: pytest.MonkeyPatch, packed_bytes: int
) -> None:
    one, two = lzma.compress(b"Call me Ishmael.\n" * 90), lzma.compress(b"Some years ago\n" * 80)
    whole = b"Call me Ishmael.\n" * 90 + b"Some years ago\n" * 80
    assert unxz(b"", packed_bytes, monkeypatch) == b""
    assert unxz(lzma.compress(b""), packed_bytes, monkeypatch) == b""
    for padding in (0, 4, 8, 40):
        data = one + bytes(padding) + two
        assert unxz(data, packed_bytes, monkeypatch) == whole
        assert unxz(data + bytes(padding), packed_bytes, monkeypatch) == whole
        for cut in (1, 20, len(two) - 12, len(two) - 1):
            with pytest.raises(EOFError, match="it ends within a compressed stream"):
                unxz(data[:-cut], packed_bytes, monkeypatch)
    for padding in (1, 2, 3, 5, 41):
        for rest in (two, b""):
            with pytest.raises(DamagedFileError, match=f"{padding} bytes of padding, which is not a multiple of 4"):
                unxz(one + bytes(padding) + rest, packed_bytes, monkeypatch)
    for rest in (b"garbage, and more of it", bytes(4) + b"garbage, and more of it"):
        with pytest.raises(lzma.LZMAError):
            unxz(one + rest, packed_bytes, monkeypatch)


@pytest.mark.guarantee("truncated-input")
def test_a_bomb_of_xz_is_decompressed_a_buffer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BUFFER_BYTES", 1000)
    assert len(unxz(lzma.compress(bytes(50_000)), 1 << 16, monkeypatch)) == 50_000


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize(("dictionary", "is_read"), [(1 << 16, True), (1 << 20, True), (3 << 19, False)])
def test_xz_is_decompressed_in_the_memory_of_a_window_and_a_buffer(
    monkeypatch: pytest.MonkeyPatch, dictionary: int, is_read: bool
) -> None:
    monkeypatch.setattr(streams, "WINDOW_BYTES", 1 << 20)
    monkeypatch.setattr(streams, "BUFFER_BYTES", 1 << 18)
    text = b"Call me Ishmael.\n" * 90
    packed = lzma.compress(text, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": dictionary}])
    for data in (packed, lzma.compress(b"", preset=0) + packed):
        if is_read:
            assert unxz(data, 1 << 16, monkeypatch) == text
        else:
            with pytest.raises(lzma.LZMAError, match="Memory usage limit exceeded"):
                unxz(data, 1 << 16, monkeypatch)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("mode", ["r|", "r:"])
def test_a_tar_cut_anywhere_before_its_end_mark_is_damaged(mode: Literal["r:", "r|"]) -> None:
    data = tar({"a.txt": b"Call me Ishmael.", "b.txt": b"x" * 700, "c.txt": b""})
    end = len(data.rstrip(b"\0")) // 512 * 512 + 512

    def names(cut: bytes) -> list[str]:
        found = tars._members(io.BytesIO(cut), "a.tar", mode=mode)
        return [name for name, _, content in found if content is None or content.read() is not None]

    assert names(data[: end + 512]) == names(data) == [f"a.tar/openwebtext/{name}.txt" for name in "abc"]
    for cut in range(0, end + 1, 256):
        with pytest.raises(tarfile.TarError):
            names(data[:cut])


@pytest.mark.guarantee("truncated-input")
def test_after_the_end_mark_of_a_tar_only_padding_may_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    tars._check_end(io.BytesIO(b""))
    for size in (1, 7, 1 << 20):
        monkeypatch.setattr(tars, "BUFFER_BYTES", size)
        tars._check_end(io.BytesIO(bytes(10_240)))
        with pytest.raises(tarfile.ReadError, match="10,240 zero bytes"):
            tars._check_end(io.BytesIO(bytes(10_241)))
        for at in (0, 511, 9000):
            with pytest.raises(tarfile.ReadError, match="data follows its end"):
                tars._check_end(io.BytesIO(bytes(at) + b"a" + bytes(500)))


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "0,x", "GNU.sparse.size": "9"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"},
    ],
)
def test_a_header_that_cannot_be_parsed_is_no_end_of_a_tar(headers: dict[str, str]) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = headers
        archive.addfile(info)
    with pytest.raises(tarfile.ReadError, match=r"no whole member at byte 1536: (invalid literal|not enough values)"):
        list(tars._members(io.BytesIO(data.getvalue()), "a.tar"))


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("content", [b"", b"Rivers run cold."])
@pytest.mark.parametrize("mode", ["r|", "r:"])
def test_a_damaged_header_of_the_last_member_is_no_end_of_a_tar(content: bytes, mode: Literal["r|", "r:"]) -> None:
    data = tar({"a.txt": b"Owls hunt at night.", "b.txt": content})
    at = data.index(b"openwebtext/b.txt")
    for place in (at, at + 100, at + 124, at + 150):
        with pytest.raises(tarfile.ReadError, match=f"no whole member at byte {at:,}".replace(",", ",?")):
            list(tars._members(io.BytesIO(data[:place] + b"x" + data[place + 1 :]), "a.tar", mode=mode))


@pytest.mark.guarantee("truncated-input")
@pytest.mark.slow
@pytest.mark.parametrize("end", ["gz", "zst"])
def test_a_text_that_is_too_long_is_read_to_its_end_for_damage(tmp_path: Path, end: str) -> None:
    data = COMPRESS[end](random.Random(0).randbytes(1_200_000).hex().encode())
    reading = ReadOptions(1000)
    for name, packed in ((f"a.txt.{end}", data), ("a.tar", tar({f"b.txt.{end}": data}))):
        (record,) = read_all({name: packed}, tmp_path, 10**9, reading=reading)
        assert record.problem == "longer than 1,000 bytes"
    for name, packed in ((f"a.txt.{end}", data[:-9]), ("a.tar", tar({f"b.txt.{end}": data[:-9]}))):
        with pytest.raises(PipelineError, match=rf"{name}.*: damaged or cut short"):
            read_all({name: packed}, tmp_path, 10**9, reading=reading)


@pytest.mark.guarantee("truncated-input")
def test_rows_that_are_missing_in_a_row_group_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *given, **options: [*batches(*given, **options)][:-1])
    data = parquet({"text": pa.array([f"Owl {number}" for number in range(20)])})
    with pytest.raises(PipelineError, match=r"a\.parquet: damaged or cut short \(.*0 rows of 7 in row group 0"):
        read_all({"a.parquet": data}, tmp_path, 10**9)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("zeros", [512, 513])
def test_a_hole_is_found_wherever_the_parts_of_a_text_end(zeros: int) -> None:
    data = b"Owls" + bytes(zeros) + b"hunt."
    for size in (512, 513, 515, 600):  # parts of at least the size of a hole
        if zeros == 512:
            assert b"".join(streams.chunks(io.BytesIO(data), size)) == data
        else:
            with pytest.raises(DamagedFileError, match=r"more than 512 zero bytes in a row at byte 4$"):
                list(streams.chunks(io.BytesIO(data), size))


class Slowly(io.BytesIO):
    """Stream that gives few bytes at a time."""

    step = 1

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(self.step, size) if size and size > 0 else size)


ARRAY = '\ufeff [{"text": "Größe", "n": 12}, "two\\n", null,\r\n -7.25e+2 , ["]", "["], {}, "ö" ]\n '.encode()


def elements(data: bytes, step: int, max_bytes: int = 10**6) -> list[Record]:
    stream = Slowly(data)
    stream.step = step
    return list(arrays.records(stream, "a.json", ReadOptions(max_bytes)))


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("step", [1, 2, 5, 1000])
def test_an_array_is_read_alike_in_parts_of_any_size_and_every_cut_is_damage(step: int) -> None:
    found = elements(ARRAY, step)
    assert [record.value for record in found] == [{"text": "Größe", "n": 12}, "two\n", None, None, None, {}, "ö"]
    assert [bool(record.problem) for record in found] == [False] * 3 + [True] * 2 + [False] * 2
    assert [record.number for record in found] == list(range(1, 8))
    assert [ARRAY[record.offset or 0 :][: len(record.raw)] for record in found] == [record.raw for record in found]
    assert [record.raw for record in found[2:5]] == [b"null", b"-7.25e+2", b'["]", "["]']
    assert [elements(data, step) for data in (b"[]", b" [ \n] ", b"\xef\xbb\xbf[\t]\n")] == [[], [], []]
    end = ARRAY.rindex(b"]")
    for cut in range(end + 1):
        with pytest.raises(DamagedFileError, match=r"the array is not closed at its end, or not JSON at byte \d"):
            elements(ARRAY[:cut], step)
    for rest in (b"]", b"[]", b", 3]", b"x", b'\n["a"]'):
        with pytest.raises(DamagedFileError, match=r"data follows the end of the array|found"):
            elements(ARRAY + rest, step)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("array", "at", "reason"),
    [
        (b'["a",, "b"]', 4, "Expecting value"),
        (b'["a" "b"]', 4, "found 'an element', expected ','"),
        (b'["a",]', 4, "found ',]', expected ','|Expecting value"),
        (b'{"text": "a"}', 0, "found 'an element', expected '\\['"),
        (b'"a"', 0, "found 'an element', expected '\\['"),
        (b',"a"]', 0, "found ',', expected '\\['"),
        (b"]", 0, "found ']', expected '\\['"),
        (b"", 0, ""),
        (b"[", 0, "Expecting value"),
        (b'["a"[', 4, "found '\\[', expected ','|Expecting value"),
        (b'["a", ["b"', 4, ""),
        (b'["a", tru]', 4, "Expecting value"),
        (b"[" * 100_000, 0, ""),
    ],
)
def test_what_is_not_json_in_an_array_is_named_with_its_place(array: bytes, at: int, reason: str, step: int) -> None:
    step = max(step, len(array) // 10)
    with pytest.raises(DamagedFileError) as caught:
        elements(array, step)
    assert re.fullmatch(
        rf"the array is not closed at its end, or not JSON at byte {at:,} \(.*({reason}).*\)", str(caught.value)
    ), caught.value


@pytest.mark.guarantee("truncated-input")
def test_an_element_that_is_too_large_to_parse_is_damage_and_a_long_one_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_BYTES", 40)
    bad, good = elements(b'["' + b"a" * 25 + b'", "b"]', 5, max_bytes=20)
    assert bad.problem.startswith("longer than 20 bytes") and good.value == "b"
    for array in (b'["' + b"a" * 90 + b'", "b"]', b'["b", "' + b"a" * 90 + b'"]'):
        with pytest.raises(DamagedFileError, match="or not JSON at byte "):
            elements(array, 5, max_bytes=20)
        assert "b" in [record.value for record in elements(array, 5, max_bytes=100)]
    for before in (b"[", b'["b",', b" [ "):  # 41 characters with what parts it
        most = 40 if before != b" [ " else 38
        (*_, last) = elements(before + b'"' + b"a" * (most - 2) + b'"]', 1, max_bytes=40)
        assert last.value == "a" * (most - 2)
        with pytest.raises(DamagedFileError, match="or not JSON at byte "):
            elements(before + b'"' + b"a" * (most - 1) + b'"]', 1, max_bytes=40)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize(
    ("start", "end", "rest", "complaint"),
    [
        (b"", END, b"", ""),
        (b"", END, b"\0", "data follows its end"),
        (b"", b"", b"", "the end-of-stream marker is missing: batches may be missing, too"),
        (b"", END[1:], b"", "the end-of-stream marker is missing: batches may be missing, too"),
        (FILE, END, b"footer" + b"ARROW1", ""),
        (FILE, END, b"x" * (streams.BUFFER_BYTES + 7) + b"ARROW1", ""),
        (FILE, END, b"footer" + b"ARROW1\0", "no footer at its end"),
        (FILE, END, b"footer" + b"ARROW", "no footer at its end"),
        (FILE, END, b"", "no footer at its end"),
        (FILE, b"", b"footer" + b"ARROW1", "the end-of-stream marker is missing: batches may be missing, too"),
    ],
)
@pytest.mark.parametrize("step", [3, 8, 1 << 21])
def test_an_arrow_table_ends_with_its_mark_and_a_file_with_its_footer(
    start: bytes, end: bytes, rest: bytes, complaint: str, step: int
) -> None:
    body = b"\xff\xff\xff\xff\x08\0\0\0messages"
    messages = _Messages(io.BytesIO(start + body + end + rest), 10**6, "a.arrow")
    for at in range(0, len(body + end), step):
        messages.read(min(step, len(body + end) - at))
    if not complaint:
        messages.check_end()
        return
    with pytest.raises(DamagedFileError, match=f"^{complaint}"):
        messages.check_end()
