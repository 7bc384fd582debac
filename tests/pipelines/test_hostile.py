"""Inputs that are made to fill the memory or to reach other files: limits and names, reader by reader."""

import gzip
import io
import lzma
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import zstandard

from clearspan.common.errors import PipelineError
from clearspan.pipelines.labels import Classes
from clearspan.pipelines.readers import arrays, formats, lines, plain_text, samples, tables, tars
from clearspan.pipelines.readers.streams import BUFFER_BYTES, DamagedFileError
from clearspan.pipelines.records import Input, ReadOptions, Record, Split

LINK = "a link or a device, not a file"
KINDS = {
    "file": tarfile.REGTYPE,
    "old file": tarfile.AREGTYPE,
    "link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "folder": tarfile.DIRTYPE,
}


def tar(*members: tuple[str, str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    """Return a tar of (kind, name, content of a file or target of a link) of each member."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        for kind, name, content in members:
            info = tarfile.TarInfo(name)
            info.type = KINDS[kind]
            if kind.endswith("file"):
                info.size = len(content)
            else:
                info.linkname = content.decode()
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def read(
    data: bytes, mode: Literal["r:", "r|"] = "r|", length: int | None = None
) -> list[tuple[str, int, bytes | None]]:
    members = tars._members(io.BytesIO(data), "a.tar", length, mode)
    return [(name, offset, None if content is None else content.read()) for name, offset, content in members]


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("mode", ["r|", "r:"])
def test_only_files_have_content_and_folders_and_hidden_files_are_left_out(
    tmp_path: Path, mode: Literal["r:", "r|"]
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("Rivers run cold.")
    target = str(secret).encode()
    data = tar(
        ("file", "a.txt", b"owls"),
        ("folder", "b", b""),
        ("file", "b/.hidden", b"hidden"),
        ("file", ".git/config", b"hidden"),
        *((kind, f"{kind}.txt", target) for kind in KINDS if "link" in kind or "device" in kind or kind == "pipe"),
        ("hard link", "again.txt", b"a.txt"),
        ("link", "again.txt", b"a.txt"),
        ("old file", "c.txt", b"rivers"),
        ("file", "empty.txt", b""),
    )
    found = read(data, mode)
    assert [(name, content) for name, _, content in found] == [
        ("a.tar/a.txt", b"owls"),
        ("a.tar/link.txt", None),
        ("a.tar/hard link.txt", None),
        ("a.tar/pipe.txt", None),
        ("a.tar/character device.txt", None),
        ("a.tar/block device.txt", None),
        ("a.tar/again.txt", None),
        ("a.tar/again.txt", None),
        ("a.tar/c.txt", b"rivers"),
        ("a.tar/empty.txt", b""),
    ]
    assert [data[offset : offset + 5] for _, offset, _ in found[:2]] == [b"a.txt", b"link."]


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "../../etc/passwd"),
        ("/etc/passwd", "/etc/passwd"),
        ("two\nlines.txt", r"two\nlines.txt"),
        ("\x1b[2J.txt", r"\x1b[2J.txt"),
        ("tab\t.txt", r"tab\t.txt"),
        ("Größe.txt", "Größe.txt"),
        ("it's.txt", "it's.txt"),
        ("n" * 300 + ".txt", "n" * 300 + ".txt"),
    ],
)
def test_a_name_is_one_line_of_text_and_no_path(name: str, shown: str) -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        ((found, offset, content),) = read(tar(("file", name, b"owls"), form=form))
        assert (found, offset, content) == (f"a.tar/{shown}", 0, b"owls")


@pytest.mark.guarantee("hostile-archives")
def test_a_piece_of_a_tar_ends_where_the_next_one_begins() -> None:
    data = tar(*(("file", f"{number}.txt", b"x" * 600) for number in range(3)))
    starts = [offset for _, offset, _ in read(data)]
    assert starts == [0, 1536, 3072]
    assert [name for name, _, _ in read(data, length=1536)] == ["a.tar/0.txt"]
    assert [name for name, _, _ in read(data, length=3072)] == ["a.tar/0.txt", "a.tar/1.txt"]
    assert [(name, at) for name, at, _ in read(data[1536:])] == [("a.tar/1.txt", 0), ("a.tar/2.txt", 1536)]
    for length in (1, 1535, 1537):
        with pytest.raises(
            tarfile.ReadError, match=f"no member at byte {length:,} of the split, where one was planned"
        ):
            read(data, length=length)
    with pytest.raises(tarfile.ReadError, match="its end is before byte 4,608 of the split"):
        read(data, length=4608)
    for mode in ("r|", "r:"):
        assert len(read(data, mode)) == 3
    with pytest.raises(tarfile.ReadError, match="data follows its end"):
        read(data + data)


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize(("size", "is_refused"), [(1 << 20, False), ((1 << 20) + 1, True)])
@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g", b"X"])
def test_only_a_header_of_names_and_attributes_has_a_limit(kind: bytes, size: int, is_refused: bool) -> None:
    info = tarfile.TarInfo("a.txt")
    info.type, info.size = kind, size
    data = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(tarfile.ReadError) as caught:
        read(data)
    assert (f"a name or attributes of {size:,} bytes at byte 0" in str(caught.value)) == is_refused
    large = tar(("file", "a.txt", b"x" * (size + 1)))
    assert len(read(large)[0][2] or b"") == size + 1


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("mode", ["r|", "r:"])
def test_the_members_of_a_tar_are_not_kept_in_memory(mode: Literal["r:", "r|"]) -> None:
    data = tar(("file", "a.txt", b""))[:512] * 2000 + bytes(1024)
    tracemalloc.start()
    assert sum(1 for _ in tars._members(io.BytesIO(data), "a.tar", mode=mode)) == 2000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


def unpacked(data: bytes, reading: ReadOptions | None = None) -> list[Record]:
    return list(tars.unpack(io.BytesIO(data), "a.tar/b", reading or ReadOptions(10**6)))


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_links_in_a_tar_within_a_tar_are_bad_records_and_the_rest_is_read(pack, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("Rivers run cold.")
    target = str(tmp_path / "secret.txt").encode()
    inner = tar(
        ("link", "evil.txt", target),
        ("file", "a.txt", b"owls"),
        ("hard link", "b.txt", b"a.txt"),
        ("file", "c.jsonl", b'{"text": "hoot"}\n'),
    )
    found = unpacked(pack(inner))
    assert [(record.name, record.problem, record.value) for record in found] == [
        ("a.tar/b/evil.txt", LINK, None),
        ("a.tar/b/a.txt", "", "owls"),
        ("a.tar/b/b.txt", LINK, None),
        ("a.tar/b/c.jsonl", "", {"text": "hoot"}),
    ]
    piece = Split(Input("a.tar", 0, "tar", None, ""), 0, None)
    outer = tar(("link", "evil.txt", target), ("file", "b", pack(inner)), ("pipe", "p.txt", b""))
    whole = list(formats.format_named("tar").read(io.BytesIO(outer), piece, ReadOptions(10**6, text_per="line")))
    assert [record.name for record in whole] == ["a.tar/evil.txt", *(record.name for record in found), "a.tar/p.txt"]
    assert [record.problem for record in whole] == [LINK, LINK, "", LINK, "", LINK]


@pytest.mark.guarantee("hostile-archives")
def test_a_tar_within_a_tar_within_a_tar_is_not_unpacked_any_further() -> None:
    innermost = tar(("file", "c.txt", b"owls"))
    for data in (tar(("file", "b.tar", innermost)), tar(("file", "b.tar.gz", gzip.compress(innermost)))):
        try:
            (record,) = unpacked(data)
        except PipelineError as error:
            assert str(error).startswith("a.tar/b/b.tar")
        else:
            assert record.value is None and record.problem and record.name.startswith("a.tar/b/b.tar")


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("cut", [700, 1000, 1030])
def test_a_member_that_is_damaged_is_named(cut: int) -> None:
    whole = tar(("file", "a.txt", b"owls"), ("file", "b.txt", b"rivers"))
    with pytest.raises(PipelineError, match=r"^a\.tar/b: damaged or cut short \(tar: "):
        unpacked(whole[:cut])
    with pytest.raises(PipelineError, match=r"^a\.tar/b: damaged or cut short \(gzip: "):
        unpacked(gzip.compress(whole)[:-9])
    with pytest.raises(PipelineError, match=r"^a\.tar/b/c\.txt: damaged .*zero bytes"):
        unpacked(tar(("file", "c.txt", b"owls" + bytes(600))))
    with pytest.raises(PipelineError, match=r"^a\.tar/b/c\.gz: damaged or misnamed"):
        unpacked(tar(("file", "c.gz", b"owls")))


class Endless(io.RawIOBase):
    """Stream of a beginning and many times the same bytes, which are made as they are read."""

    def __init__(self, head: bytes, part: bytes, size: int) -> None:
        self.left = size
        self.pending, self.part = head, part * (BUFFER_BYTES // len(part))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if not self.pending and self.left > 0:
            self.pending, self.left = self.part, self.left - len(self.part)
        size = min(len(buffer), len(self.pending))
        buffer[:size], self.pending = self.pending[:size], self.pending[size:]
        return size


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("is_tar", [False, True])
@pytest.mark.parametrize("pack", [lambda data: gzip.compress(data, 1), zstandard.compress], ids=["gzip", "zstd"])
def test_a_packed_member_is_unpacked_in_bounded_memory(pack: Callable[[bytes], bytes], is_tar: bool) -> None:
    bomb = b"Owls hunt at night.\n" * 1_000_000
    data = pack(tar(("file", "c.txt", bomb), ("file", "d.txt", b"Rivers.")) if is_tar else bomb)
    del bomb
    tracemalloc.start()
    found = unpacked(data, ReadOptions(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        found[0].problem == "longer than 1,000 bytes" and [record.value for record in found[1:]] == ["Rivers."] * is_tar
    )
    assert peak < 10_000_000


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("name", ["a.json", "a.cls", "a.jpg"])
def test_of_a_member_beside_a_picture_and_of_a_picture_no_more_is_read_than_allowed(name: str) -> None:
    classes = Classes(("owl",))
    reading = ReadOptions(1000, as_bytes=True, extensions=(".jpg",), classes=classes)
    endless = io.BufferedReader(Endless(b"", b"owl ", SIZE), BUFFER_BYTES)
    members: list[samples.Member] = [(f"a.tar/owl/{name}", 0, endless), ("a.tar/owl/b.jpg", 9, io.BytesIO(b"b"))]
    list(samples.read([], reading))  # imports a package
    tracemalloc.start()
    if name == "a.jpg":
        assert [record.problem[:11] for record in samples.read(members, reading)] == ["longer than", ""]
    else:
        with pytest.raises(PipelineError, match=f"^a.tar/owl/{name}: more than 1,048,576 bytes"):
            list(samples.read(members, reading))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


SIZE = 60_000_000
READERS = {
    "text": lambda stream: plain_text.records(stream, "a.txt", ReadOptions(1000)),
    "separator": lambda stream: plain_text.records(stream, "a.txt", ReadOptions(1000, separator="\n\n")),
    "lines": lambda stream: formats.format_named("lines").read(stream, PIECE, ReadOptions(1000)),
    "jsonl": lambda stream: formats.format_named("jsonl").read(stream, PIECE, ReadOptions(1000)),
    "csv": lambda stream: tables.records(stream, "a.csv", ReadOptions(1000)),
    "array": lambda stream: arrays.records(stream, "a.json", ReadOptions(1000)),
}
PIECE = Split(Input("a", SIZE, "lines", None, ""), 0, None)
HEADS = {"jsonl": b'{"text": "', "csv": b'n,text\n1,"', "array": b'[{"text": "'}


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("kind", READERS)
def test_a_record_without_an_end_is_read_in_bounded_memory(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for module in (plain_text, tables, arrays):
        monkeypatch.setattr(module, "MAX_BYTES", 1_000_000)
    stream = io.BufferedReader(Endless(HEADS.get(kind, b""), b"owls hunt at night ", SIZE), BUFFER_BYTES)
    tracemalloc.start()
    try:
        (record,) = READERS[kind](stream)
        assert record.value is None and record.problem.startswith("longer than 1,000 bytes")
        assert len(record.raw) <= 1000
    except (PipelineError, DamagedFileError) as error:
        assert kind in ("separator", "csv", "array"), error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("size", [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 5])
def test_the_rest_of_a_line_is_skipped_a_buffer_at_a_time(size: int) -> None:
    class Counted(io.BytesIO):
        def readline(self, most: int | None = -1) -> bytes:
            assert most is not None and 0 < most <= BUFFER_BYTES
            return super().readline(most)

    for rest in (b"\nnext\n", b"\n", b""):
        stream = Counted(b"o" * size + rest)
        assert lines._skip_line(stream, 7) == size + bool(rest)
        assert stream.read() == rest[1:]
    with pytest.raises(DamagedFileError, match=f"in a row at byte {BUFFER_BYTES + 12:,}"):
        lines._skip_line(Counted(b"o" * (BUFFER_BYTES + 5) + bytes(600)), 7)
    with pytest.raises(DamagedFileError, match="more than 512 zero bytes in a row at byte"):
        lines._skip_line(Counted(b"o" * size + bytes(2000)), 7)


@pytest.mark.guarantee("nested-fields")
@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("zeros", [512, 513])
def test_a_hole_in_a_long_line_is_found_across_two_reads(zeros: int) -> None:
    for start in (BUFFER_BYTES - 300, BUFFER_BYTES - 512, 2 * BUFFER_BYTES - 1):
        rest = io.BytesIO(b"o" * start + bytes(zeros) + b"\n")
        if zeros == 512:
            assert lines._skip_line(rest, 7) == start + zeros + 1
        else:
            with pytest.raises(DamagedFileError, match=f"in a row at byte {start + 7:,}"):
                lines._skip_line(rest, 7)
    whole = io.BytesIO(b"o" * 900 + bytes(zeros) + b"o\n")  # a line of at most 1,000 bytes is read at once
    if zeros == 512:
        assert [problem[:4] for *_, problem in lines.lines(whole, 1000)] == ["long"]
    else:
        with pytest.raises(DamagedFileError, match="in a row at byte 900"):
            list(lines.lines(whole, 1000))
