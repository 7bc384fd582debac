"""Images and clips among a tar's members, and their classes: webdataset samples, or plain files.

    cat/a.jpg  cat/b.jpg        two records; the class is in the path
    00017.jpg  00017.cls        one record of one key (the name up to its first dot); the class is in .cls
    00017.jpg  00017.json       one record; the class is a field of the object

The files of a sample are consecutive: `webdataset` groups them. Its decoders, some of which unpickle, are not used, and
neither are its readers of tars, which take a damaged tar for a shorter one. A sample without an image or a clip has no
known kind.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Generic, NamedTuple, TypeVar

from clearspan.common.flags import flag
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.labels import Listed, Wanted
from clearspan.pipelines.readers import files
from clearspan.pipelines.readers.jsonl import parse
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.suffixes import type_suffix

SIDE_BYTES = 1 << 20
"""Largest file with the class of a sample."""
CLASS_CHARACTERS = 255
"""Longest class name: a longer text is something else."""
CLASS_FILE = ".cls"
CLASS_FILES = (CLASS_FILE, ".json")
"""Extensions of the files with the class of a sample, in lower case."""
LINK = "a link or a device, not a file"

Taken = TypeVar("Taken")
Member = tuple[str, int, BinaryIO | None]
"""A tar member: its name, the offset of its header, and its content (None if it is not a file)."""


class Sample(NamedTuple):
    """The files of one key in a tar, from `start` on: images or clips with their class, or files of no known kind."""

    start: int
    listed: list[Listed]
    unknown: list[str]


def is_wanted(name: str, extensions: tuple[str, ...]) -> bool:
    """Return whether a file is an image or a clip by its extension."""
    return not extensions or name.lower().endswith(extensions)


def listing(members: Iterable[Member], reading: Reading) -> Iterator[Sample]:
    """Yield the samples of a tar, in order. Only the members with a class are read.

    Raises:
        PipelineError: a .cls or .json is there, but gives no class.
    """
    for start, names, others, label in _samples(members, reading, lambda name, _: name):
        if names and label is None and not reading.wanted.label_pattern:
            _check_stated(names[0], others, reading)
        yield Sample(start, [Listed(name, label) for name in names], [] if names else others)


def read(members: Iterable[Member], reading: Reading) -> Iterator[Record]:
    """Yield the images or clips of the run's classes, as bytes."""
    assert reading.classes is not None
    known = frozenset(reading.classes.names)

    def content(name: str, member: BinaryIO | None) -> Record:
        return Record(name, None, None, b"", LINK) if member is None else files.whole(member, name, reading.max_bytes)

    for _, records, _, stated in _samples(members, reading, content):
        for record in records:
            label = reading.classes.label(Listed(record.name, stated))
            if reading.classes.takes(record.name, label, known):
                yield dataclasses.replace(record, label=label)


class _File(NamedTuple, Generic[Taken]):
    """A file of a sample: its place in the tar, what was taken of an image or clip, or the bytes that state a class."""

    name: str
    start: int
    taken: Taken | None
    stating: bytes | None


def _samples(
    members: Iterable[Member], reading: Reading, take: Callable[[str, BinaryIO | None], Taken]
) -> Iterator[tuple[int, list[Taken], list[str], str | None]]:
    """Yield (start, what `take` returns for each image or clip, names of the other files, stated class) of each sample.

    The class is that of the .cls or .json, in any order in the tar. A .cls takes precedence over a .json, unless the
    user names the field of the .json.

    Raises:
        PipelineError: a file states something that is not a class, or another class than a file with its extension.
    """
    first, second = CLASS_FILES if reading.wanted.label_field == Wanted.label_field else reversed(CLASS_FILES)
    for group in _grouped(_files(members, reading, take)):
        stated: dict[str, tuple[str, str]] = {}  # file and class, by extension
        for file in group:
            if file.stating is None:
                continue
            name, end = file.name, type_suffix(file.name)
            if end == second and first in stated:
                continue
            label = _class_in(name, end, file.stating, reading)
            if label is not None and (before := stated.setdefault(end, (name, label)))[1] != label:
                raise PipelineError(
                    f"{name}: says {label!r}, and {before[0].rpartition('/')[2]} of the same sample {before[1]!r}: "
                    "files with the same name up to the first dot are one sample: rename them, or use "
                    f"{flag('--label-pattern')}"
                )
        taken = [file.taken for file in group if file.taken is not None]
        others = [file.name for file in group if file.taken is None]
        yield group[0].start, taken, others, (stated.get(first) or stated.get(second) or ("", None))[1]


def _files(
    members: Iterable[Member], reading: Reading, take: Callable[[str, BinaryIO | None], Taken]
) -> Iterator[_File[Taken]]:
    """Yield the members of a tar, each read as far as it is needed now, because a stream can be read only once."""
    for name, start, member in members:
        if is_wanted(name, reading.extensions):
            yield _File(name, start, take(name, member), None)
        elif member is None or reading.wanted.label_pattern or type_suffix(name) not in CLASS_FILES:
            yield _File(name, start, None, None)
        else:
            yield _File(name, start, None, member.read(SIDE_BYTES + 1))


def _grouped(files: Iterable[_File[Taken]]) -> Iterator[list[_File[Taken]]]:
    """Yield the files of each sample: webdataset's own grouping, except that a name without an extension, which it
    passes over, is a sample too, so that no file goes uncounted.

    Raises:
        PipelineError: two files of a sample have one name.
    """
    from webdataset.tariterators import base_plus_ext, group_by_keys  # takes a second

    def key(name: str) -> tuple[str, str]:
        place, extensions = base_plus_ext(name)
        return (name, "") if place is None else (place, extensions)

    members = ({"fname": file.name, "data": file, "__url__": ""} for file in files)
    grouped = group_by_keys(members, keys=key, lcase=False)
    while True:
        try:
            sample = next(grouped, None)
        except ValueError as error:
            name = str(error.args[0]).partition(": duplicate file name")[0]
            raise PipelineError(f"{name}: is twice in a sample: rename one of the two, or pack the tar again") from None
        if sample is None:
            return
        yield [file for file in sample.values() if isinstance(file, _File)]


def _class_in(name: str, end: str, data: bytes, reading: Reading) -> str | None:
    """Return the class that a .cls or .json states, or None if the .json lacks the field."""
    if len(data) > SIDE_BYTES:
        raise PipelineError(
            f"{name}: more than {SIDE_BYTES:,} bytes, too large for a class: use {flag('--label-pattern')}"
        )
    if end == ".json":
        value = (parse(data)[0] or {}).get(reading.wanted.label_field)
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            return None
        label = str(value).strip()
    else:
        try:
            label = data.decode().strip()
        except UnicodeDecodeError:
            label = ""
    if not 0 < len(label) <= CLASS_CHARACTERS or not label.isprintable():
        raise PipelineError(f"{name}: {data[:40]!r} is not a class: mend it, or take the class from the name")
    return label


def _check_stated(name: str, others: list[str], reading: Reading) -> None:
    """Raise PipelineError if there is a .json that should state the class, and does not."""
    if silent := [other for other in others if other.lower().endswith(CLASS_FILES)]:
        raise PipelineError(
            f'{silent[0]}: states no class of {name.rpartition("/")[2]}: it has no "{reading.wanted.label_field}" '
            f"that is a text or a whole number: name the field with {flag('--label-field')}, or take the class "
            f"from the name with {flag('--label-pattern')}"
        )
