"""Fast writer of tars, byte-identical to tarfile's USTAR format: regular files of mode 644, time 0 and owner 0.

    header(name, size) + content + padding to 512, ... + 1,024 zeros + padding to 10,240

With small images, tarfile took more time than all other work together. `members` reads back only tars that this module
wrote.
"""

import tarfile
from collections.abc import Iterator
from typing import Protocol

BLOCK = tarfile.BLOCKSIZE
MAX_NAME, MAX_SIZE = 100, 8**11 - 1
"""Limits of a USTAR header: characters of a name, and bytes of a file."""


def _blank() -> bytes:
    """Return the header of a file with an empty name and no content."""
    info = tarfile.TarInfo()
    info.mode, info.mtime = 0o644, 0
    return info.tobuf(tarfile.USTAR_FORMAT)


_NAME, _SIZE, _SUM = slice(0, 100), slice(124, 135), slice(148, 154)
_BLANK = _blank()
_OWNER, _TIME, _REST = _BLANK[_NAME.stop : _SIZE.start], _BLANK[_SIZE.stop : _SUM.start], _BLANK[_SUM.stop :]
_BLANK_SUM = int(_BLANK[_SUM], 8) - sum(_BLANK[_SIZE])


class Readable(Protocol):
    """Stream that can be read from the beginning to the end, without seeking."""

    def read(self, size: int, /) -> bytes: ...


def header(name: str, size: int) -> bytes:
    """Return the header of a file, 512 bytes that precede its content.

    Raises:
        ValueError: the name is empty, not ASCII or longer than 100 characters, or the size is 8 GiB or more.
    """
    start = name.encode("ascii")
    digits = b"%011o" % size
    if not 0 < len(start) <= MAX_NAME or size > MAX_SIZE:
        raise ValueError(f"{name[: MAX_NAME + 1]!r} of {size:,} bytes: too long or too large for a USTAR header")
    checked = b"%06o" % (_BLANK_SUM + sum(start) + sum(digits))
    return b"".join((start.ljust(MAX_NAME, b"\0"), _OWNER, digits, _TIME, checked, _REST))


def padding(size: int) -> bytes:
    """Return the zeros that pad a file's content of `size` bytes to a multiple of 512."""
    return bytes(-size % BLOCK)


def ending(size: int) -> bytes:
    """Return the zeros that end a tar: 1,024 of them, and then as many as make its size a multiple of 10,240.

    Args:
        size: the size of the tar so far, i.e. of all headers, contents and padding.
    """
    return bytes(2 * BLOCK + -(size + 2 * BLOCK) % tarfile.RECORDSIZE)


def members(stream: Readable) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file of a tar that this module wrote, reading to the end without seeking.

    Raises:
        tarfile.ReadError: the tar is truncated, or a header, padding or ending is not as this module writes it.
    """
    position = 0
    while (block := stream.read(BLOCK)) != bytes(BLOCK):
        try:
            name = block[_NAME].rstrip(b"\0").decode("ascii")
            size = int(block[_SIZE], 8)
            is_ours = block == header(name, size)
        except ValueError:
            is_ours = False
        if not is_ours:
            raise tarfile.ReadError(f"unexpected header at byte {position:,}")
        data = stream.read(size)
        rest = -size % BLOCK
        if len(data) < size or stream.read(rest) != bytes(rest):
            raise tarfile.ReadError(f"truncated, or not padded with zeros, after {name}")
        yield name, data
        position += BLOCK + size + rest
    expected = ending(position)[BLOCK:]
    if stream.read(len(expected) + 1) != expected:
        raise tarfile.ReadError(f"unexpected end after byte {position:,}")
