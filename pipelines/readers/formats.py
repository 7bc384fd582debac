"""Input formats from outside this package: `--format module:name` names an object that recognizes and reads files.

    planning   first 64 KiB of a file, decompressed -> the first named format that recognizes it, else a built-in one
    workers    the whole file, decompressed as it is read -> `read` -> records

Files of such a format are never cut: a work unit takes whole ones. The kinds of text read them (documents, sentences,
triplets, and kinds from outside whose `Reading` names formats).
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Protocol

from clearspan.common import plugins
from clearspan.common.terminal import MOST_SAID, one_line
from clearspan.pipelines.readers.sniff import LOOK_BYTES, MAGIC_BYTES, compression_of
from clearspan.pipelines.readers.streams import naming, opened
from clearspan.pipelines.records import Piece, Reading, Record
from clearspan.shards import storage


class Format(Protocol):
    """An input format: an object with these two methods, or a class of such objects that needs no arguments."""

    def recognizes(self, head: bytes, path: str) -> bool:
        """Return whether a file is of this format, by its first 64 KiB (decompressed) and its path."""

    def read(self, stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
        """Yield a file's records in order, and read the stream to its end.

        A record's value is the text, or a JSON object with the field or the columns that `reading` names; its name is
        `piece.input.name`, its offset any number that finds it again. A record that cannot be read, or is larger than
        `reading.max_bytes`, has a `problem` in place of a value.

        Raises:
            DamagedFileError, PipelineError: the file cannot be read on.
        """


def own_format(spec: str) -> Format:
    """Return the format that the user names as `module:name`.

    Raises:
        PluginError: there is none, or it does not keep the contract of `Format`.
    """
    named = plugins.load_object(spec, Format, "an input format")
    try:
        return named() if inspect.isclass(named) else named
    except Exception as error:  # the user's code may raise anything
        what = f"{type(error).__name__}: {one_line(error, MOST_SAID)}"
        raise plugins.PluginError(f"{spec}: raised {what} when called without arguments") from None


def recognized(path: str, formats: Sequence[str]) -> tuple[str, str | None] | None:
    """Return the first of the named formats that recognizes a file, and the file's compression; None if none does.

    Raises:
        PipelineError: the file is compressed and damaged.
    """
    if not formats:
        return None
    with storage.open_input(path) as stream:
        compression = compression_of(stream.read(MAGIC_BYTES))
    with naming(path, compression), opened(path, compression) as content:
        head = content.read(LOOK_BYTES)
    return next(((spec, compression) for spec in formats if own_format(spec).recognizes(head, path)), None)
