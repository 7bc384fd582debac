"""The tars that we write, byte by byte those of tarfile in USTAR form: files alone, of mode 644, time 0 and owner 0.

    header(name, size) + content + padding to 512, ... + two empty blocks + padding to 10,240

Of small pictures tarfile took more time than all else that is done to them. Its own reading stays where a tar may be
anyone's: `members` reads back what was just written, and takes nothing else.
"""

import tarfile
from collections.abc import Iterator
from typing import Protocol

BLOCK = tarfile.BLOCKSIZE
MAX_NAME, MAX_SIZE = 100, 8**11 - 1
"""A longer name or a larger file takes another form of header."""


def _blank() -> bytes:
    """A header of no name and no bytes."""
    info = tarfile.TarInfo()
    info.mode, info.mtime = 0o644, 0
    return info.tobuf(tarfile.USTAR_FORMAT)


_NAME, _SIZE, _SUM = slice(0, 100), slice(124, 135), slice(148, 154)
_BLANK = _blank()
_OWNER, _TIME, _REST = _BLANK[_NAME.stop : _SIZE.start], _BLANK[_SIZE.stop : _SUM.start], _BLANK[_SUM.stop :]
_BLANK_SUM = int(_BLANK[_SUM], 8) - sum(_BLANK[_SIZE])


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def header(name: str, size: int) -> bytes:
    """The 512 bytes before a file's content.

    Raises:
        ValueError: the name is not ASCII of at most 100 characters, or the size is 8 GiB or more.
    """
    start, digits = name.encode("ascii"), b"%011o" % size
    if not 0 < len(start) <= MAX_NAME or size > MAX_SIZE:
        raise ValueError(f"{name[: MAX_NAME + 1]!r} of {size:,} bytes: beyond what a header of USTAR holds")
    checked = b"%06o" % (_BLANK_SUM + sum(start) + sum(digits))
    return b"".join((start.ljust(MAX_NAME, b"\0"), _OWNER, digits, _TIME, checked, _REST))


def padding(size: int) -> bytes:
    """The zeros between a content of so many bytes and the next header."""
    return bytes(-size % BLOCK)


def ending(size: int) -> bytes:
    """The zeros at the end of a tar with so many bytes of files: two blocks, and what is lacking of whole records."""
    return bytes(2 * BLOCK + -(size + 2 * BLOCK) % tarfile.RECORDSIZE)


def members(stream: Readable) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each file of a tar that was written here, read to its end without seeking.

    Raises:
        tarfile.ReadError: any byte but those of contents is another than was written, or lacking.
    """
    place = 0
    while (block := stream.read(BLOCK)) != bytes(BLOCK):
        try:
            name, size = block[_NAME].rstrip(b"\0").decode("ascii"), int(block[_SIZE], 8)
            is_own = block == header(name, size)
        except ValueError:
            is_own = False
        if not is_own:
            raise tarfile.ReadError(f"no header that was written here at byte {place:,}")
        data = stream.read(size)
        rest = -size % BLOCK
        if len(data) < size or stream.read(rest) != bytes(rest):
            raise tarfile.ReadError(f"cut short, or no zeros, behind {name}")
        yield name, data
        place += BLOCK + size + rest
    expected = ending(place)[BLOCK:]
    if stream.read(len(expected) + 1) != expected:
        raise tarfile.ReadError(f"does not end as it was written, behind byte {place:,}")
