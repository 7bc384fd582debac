"""Images and clips among a tar's members, and their classes: webdataset samples, or plain files.

    cat/a.jpg  cat/b.jpg        two records; the class is in the path
    00017.jpg  00017.cls        one record of one key (the name up to its first dot); the class is in .cls
    00017.jpg  00017.json       one record; the class is a field of the object

The files of a sample are consecutive. A sample without an image or a clip has no known kind.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple, TypeVar

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.labels import Listed, Wanted
from clearspan.pipelines.readers import files
from clearspan.pipelines.readers.jsonl import parse
from clearspan.pipelines.records import Reading, Record

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
    for _, group in itertools.groupby(members, key=_place):
        start, taken, others = -1, [], []
        stated: dict[str, tuple[str, str]] = {}  # file and class, by extension
        for name, offset, member in group:
            start = offset if start < 0 else start
            if is_wanted(name, reading.extensions):
                taken.append(take(name, member))
                continue
            others.append(name)
            end = next((end for end in CLASS_FILES if name.lower().endswith(end)), None)
            if end is None or member is None or reading.wanted.label_pattern or (end == second and first in stated):
                continue
            label = _class_in(name, end, member, reading)
            if label is not None and (before := stated.setdefault(end, (name, label)))[1] != label:
                raise PipelineError(
                    f"{name}: says {label!r}, and {before[0].rpartition('/')[2]} of the same sample {before[1]!r}: "
                    "files with the same name up to the first dot are one sample: rename them, or use --label-pattern"
                )
        yield start, taken, others, (stated.get(first) or stated.get(second) or ("", None))[1]


def _place(member: Member) -> str:
    """Return a member's key: its path up to the first dot in the file name."""
    folder, slash, last = member[0].rpartition("/")
    return f"{folder}{slash}{last.split('.')[0] or last}"


def _class_in(name: str, end: str, member: BinaryIO, reading: Reading) -> str | None:
    """Return the class that a .cls or .json states, or None if the .json lacks the field."""
    data = member.read(SIDE_BYTES + 1)
    if len(data) > SIDE_BYTES:
        raise PipelineError(f"{name}: more than {SIDE_BYTES:,} bytes, too large for a class: use --label-pattern")
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
            "that is a text or a whole number: name the field with --label-field, or take the class from the name with "
            "--label-pattern"
        )
