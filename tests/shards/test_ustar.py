"""Our tars: tarfile's bytes, and of them every byte that is no content is checked when they are read back."""

import io
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.shards import ustar

Files = list[tuple[str, bytes]]
names = st.text("0123456789abcdef-.", min_size=1, max_size=100)
PICTURES = [("00003-001-00000-00000-0123456789abcdef.jpg", b"\xff\xd8" * 700), ("a.cls", b"7"), ("b.txt", b"")]


def ours(files: Files) -> bytes:
    data = b"".join(ustar.header(name, len(data)) + data + ustar.padding(len(data)) for name, data in files)
    return data + ustar.ending(len(data))


def by_tarfile(files: Files, tar_format: int = tarfile.USTAR_FORMAT, **fields: object) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tar_format) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.guarantee("plain-webdataset")
@given(st.lists(st.tuples(names, st.binary(max_size=2000)), max_size=30))
@settings(max_examples=100)
def test_they_are_the_bytes_that_tarfile_writes_and_are_read_back(files: Files) -> None:
    assert ours(files) == by_tarfile(files)
    assert list(ustar.members(io.BytesIO(ours(files)))) == files


@pytest.mark.guarantee("plain-webdataset")
@pytest.mark.parametrize("size", [0, 1, 511, 512, 8**10, ustar.MAX_SIZE])
def test_a_header_of_any_size_is_that_of_tarfile(size: int) -> None:
    info = tarfile.TarInfo("a.npy")
    info.size = size
    assert ustar.header("a.npy", size) == info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.guarantee("plain-webdataset")
def test_headers_that_share_a_part_of_their_names_or_their_size_are_each_their_own() -> None:
    names = [
        f"{unit:05d}-000-{batch:05d}-00000-{'0' * 16}.{end}"
        for unit in range(3)
        for batch in range(3)
        for end in ("jpg", "cls")
    ]
    for _ in range(2):
        for name in names:
            for size in (7, 700):
                info = tarfile.TarInfo(name)
                info.size = size
                assert ustar.header(name, size) == info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.guarantee("plain-webdataset")
@pytest.mark.parametrize(("name", "size"), [("a" * 101, 0), ("", 0), ("ä", 0), ("a", ustar.MAX_SIZE + 1)])
def test_what_a_header_cannot_hold_is_refused(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"USTAR|ascii"):
        ustar.header(name, size)


@pytest.mark.guarantee("damaged-shard")
def test_a_flip_of_any_byte_but_contents_is_noticed() -> None:
    data = ours(PICTURES)
    contents = set(range(512, 512 + 1400)) | {2560}
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 4
        try:
            list(ustar.members(io.BytesIO(flipped)))
        except tarfile.ReadError:
            assert place not in contents
        else:
            assert place in contents


@pytest.mark.guarantee("damaged-shard")
def test_a_tar_cut_anywhere_or_with_more_behind_it_is_refused() -> None:
    data = ours(PICTURES)
    for part in (*(data[:size] for size in range(0, len(data), 256)), data[:-1], data + b"\0", data + data):
        with pytest.raises(tarfile.ReadError):
            list(ustar.members(io.BytesIO(part)))


@pytest.mark.parametrize(
    "made",
    [
        lambda: by_tarfile(PICTURES, mtime=1),
        lambda: by_tarfile(PICTURES, uname="root"),
        lambda: by_tarfile(PICTURES, mode=0o600),
        lambda: by_tarfile([("a", b"")], type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        lambda: by_tarfile([("a" * 90 + "/" + "b" * 90, b"x")]),
        lambda: by_tarfile(PICTURES, tarfile.PAX_FORMAT, mtime=0.5),
        lambda: by_tarfile(PICTURES, tarfile.GNU_FORMAT),
    ],
)
def test_a_tar_that_another_wrote_is_not_taken_for_ours(made: Callable[[], bytes]) -> None:
    with pytest.raises(tarfile.ReadError, match="unexpected header at byte 0"):
        list(ustar.members(io.BytesIO(made())))


@pytest.mark.guarantee("plain-webdataset")
@pytest.mark.parametrize("name", ["7", "a" * 100])
def test_a_name_may_have_one_character_or_a_hundred(name: str) -> None:
    assert ours([(name, b"owls")]) == by_tarfile([(name, b"owls")])
