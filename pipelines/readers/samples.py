"""Images and clips among a tar's members, and their classes: webdataset samples, or plain files.

    cat/a.jpg  cat/b.jpg        two records; the class is in the path
    00017.jpg  00017.cls        one record of one key (the name up to its first dot); the class is in .cls
    00017.jpg  00017.json       one record; the class is a field of the object

The files of a sample are consecutive. A sample without an image or a clip has no known kind.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.labels import Listed, Wanted
from clearspan.pipelines.readers import files
from clearspan.pipelines.readers.jsonl import parse
from clearspan.pipelines.records import Reading, Record

SIDE_BYTES = 1 << 20
"""Largest file with the class of a sample."""
CLASS_CHARACTERS = 255
"""Longest class name: a longer text is something else."""
CLASS_FILES = (".cls", ".json")
"""Extensions of the files with the class of a sample, in lower case."""
LINK = "a link or a device, not a file"

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
    for _, group in itertools.groupby(members, key=_place):
        start, media, others, stated = -1, [], [], _StatedClass(reading)
        for name, offset, member in group:
            start = offset if start < 0 else start
            if is_wanted(name, reading.extensions):
                media.append(name)
            else:
                others.append(name)
                stated.add(name, member)
        label = stated.label
        if media and label is None and not reading.wanted.pattern:
            _check_stated(media[0], others, reading)
        yield Sample(start, [Listed(name, label) for name in media], [] if media else others)


def read(members: Iterable[Member], reading: Reading) -> Iterator[Record]:
    """Yield the images or clips of the run's classes, as bytes."""
    assert reading.classes is not None
    known = frozenset(reading.classes.names)
    for _, group in itertools.groupby(members, key=_place):
        media, stated = [], _StatedClass(reading)
        for name, _, member in group:
            if not is_wanted(name, reading.extensions):
                stated.add(name, member)
            elif member is None:
                media.append(Record(name, None, None, b"", LINK))
            else:
                media.append(files.whole(member, name, reading.max_bytes))
        for record in media:
            label = reading.classes.label(Listed(record.name, stated.label))
            if reading.classes.takes(record.name, label, known):
                yield record.of_class(label)


def _place(member: Member) -> str:
    """Return a member's key: its path up to the first dot in the file name."""
    folder, slash, last = member[0].rpartition("/")
    return f"{folder}{slash}{last.split('.')[0] or last}"


class _StatedClass:
    """The class that the .cls and .json files of a sample state, in any order in the tar.

    A .cls takes precedence over a .json, unless the user names the field of the .json.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.first, self.second = CLASS_FILES if reading.wanted.field == Wanted.field else reversed(CLASS_FILES)
        self.stated: dict[str, tuple[str, str]] = {}
        """File and class, by extension."""

    @property
    def label(self) -> str | None:
        """The class, or None if no file states one."""
        _, label = self.stated.get(self.first) or self.stated.get(self.second) or ("", None)
        return label

    def add(self, name: str, member: BinaryIO | None) -> None:
        """Read a file beside an image or clip, if it may state a class.

        Raises:
            PipelineError: it states something that is not a class, or another class than a file with its extension.
        """
        end = next((end for end in CLASS_FILES if name.lower().endswith(end)), None)
        if end is None or member is None or self.reading.wanted.pattern:
            return
        if end == self.second and self.first in self.stated:
            return
        label = _class_in(name, end, member, self.reading)
        if label is None:
            return
        other, before = self.stated.setdefault(end, (name, label))
        if before != label:
            raise PipelineError(
                f"{name}: says {label!r}, and {other.rpartition('/')[2]} of the same sample {before!r}: files with the "
                "same name up to the first dot are one sample: rename them, or use --label-pattern"
            )


def _class_in(name: str, end: str, member: BinaryIO, reading: Reading) -> str | None:
    """Return the class that a .cls or .json states, or None if the .json lacks the field."""
    data = member.read(SIDE_BYTES + 1)
    if len(data) > SIDE_BYTES:
        raise PipelineError(f"{name}: more than {SIDE_BYTES:,} bytes, too large for a class: use --label-pattern")
    if end == ".json":
        value = (parse(data)[0] or {}).get(reading.wanted.field)
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
            f'{silent[0]}: states no class of {name.rpartition("/")[2]}: it has no "{reading.wanted.field}" that is a '
            "text or a whole number: name the field with --label-field, or take the class from the name with "
            "--label-pattern"
        )
