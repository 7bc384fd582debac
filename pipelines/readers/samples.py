"""Pictures and clips among a tar's members, with what lies beside each: webdataset's samples, or mere files.

    cat/a.jpg  cat/b.jpg        two records; their class is in their names
    00017.jpg  00017.cls        one: the files of one key (the name up to its first dot); its class is what .cls says
    00017.jpg  00017.json       one: its class is a field of the object

The files of a sample lie together. A sample without a picture or a clip is of no known kind.
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
"""A file that says what class a sample is of has at most so many."""
CLASS_CHARACTERS = 255
"""A longer name of a class is a text of another kind."""
SAID = (".cls", ".json")
"""How the names of such files end, in small letters."""
LINK = "a link or a device, not a file"

Member = tuple[str, int, BinaryIO | None]
"""A tar's member: its name, where its header starts, and its content; None for what is no file."""


class Sample(NamedTuple):
    """What lies together in a tar, from `start` on: the names of its pictures or clips, what is said of their class,
    and the names of the files that are of no known kind.
    """

    start: int
    listed: list[Listed]
    unknown: list[str]


def is_wanted(name: str, extensions: tuple[str, ...]) -> bool:
    """Whether a file is a picture or a clip by the end of its name; what macOS keeps beside one is none."""
    last = name.rpartition("/")[2]
    return not last.startswith("._") and (not extensions or last.lower().endswith(extensions))


def listing(members: Iterable[Member], reading: Reading) -> Iterator[Sample]:
    """The samples of a tar, in order. Of the members only those that say a class are read.

    Raises:
        PipelineError: a sample says its class in no way that is known.
    """
    for _, group in itertools.groupby(members, key=_place):
        start, found, others, said = -1, [], [], _Said(reading)
        for name, offset, member in group:
            start = offset if start < 0 else start
            if is_wanted(name, reading.extensions):
                found.append(name)
            else:
                others.append(name)
                said.add(name, member)
        label = said.label
        if found and label is None and not reading.wanted.pattern:
            _check_says(found[0], others, reading)
        yield Sample(start, [Listed(name, label) for name in found], [] if found else others)


def read(members: Iterable[Member], reading: Reading) -> Iterator[Record]:
    """The pictures or clips that are of the run's classes, as bytes."""
    assert reading.classes is not None
    known = frozenset(reading.classes.names)
    for _, group in itertools.groupby(members, key=_place):
        found, said = [], _Said(reading)
        for name, _, member in group:
            if not is_wanted(name, reading.extensions):
                said.add(name, member)
            elif member is None:
                found.append(Record(name, None, None, b"", LINK))
            else:
                found.append(files.whole(member, name, reading.max_bytes))
        for record in found:
            of = reading.classes.label(Listed(record.name, said.label))
            if reading.classes.takes(record.name, of, known):
                yield record.of_class(of)


def _place(member: Member) -> str:
    """A member's key: its name up to the first dot of the last part."""
    folder, slash, last = member[0].rpartition("/")
    return f"{folder}{slash}{last.split('.')[0] or last}"


class _Said:
    """What the files of a sample say of its class: a .cls counts before a .json, but not before one whose field the
    user names; the order in the tar does not count.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.first, self.second = SAID if reading.wanted.field == Wanted.field else reversed(SAID)
        self.found: dict[str, tuple[str, str]] = {}
        """By the end of the name: the file, and the class that it says."""

    @property
    def label(self) -> str | None:
        """The class; None where none is said."""
        _, label = self.found.get(self.first) or self.found.get(self.second) or ("", None)
        return label

    def add(self, name: str, member: BinaryIO | None) -> None:
        """Reads a file beside a picture, if it may say a class.

        Raises:
            PipelineError: what it says is no class, or another than a file of its kind has said.
        """
        end = next((end for end in SAID if name.lower().endswith(end)), None)
        if end is None or member is None or self.reading.wanted.pattern:
            return
        if end == self.second and self.first in self.found:
            return
        label = _said(name, end, member, self.reading)
        if label is None:
            return
        other, before = self.found.setdefault(end, (name, label))
        if before != label:
            raise PipelineError(
                f"{name}: says {label!r}, and {other.rpartition('/')[2]} of the same sample {before!r}: what has a "
                "name up to the first dot in common is one sample: rename them, or use --label-pattern"
            )


def _said(name: str, end: str, member: BinaryIO, reading: Reading) -> str | None:
    """The class that a file beside a picture says, where it does."""
    data = member.read(SIDE_BYTES + 1)
    if len(data) > SIDE_BYTES:
        raise PipelineError(f"{name}: {SIDE_BYTES:,} bytes and more, which no class takes: use --label-pattern")
    if end == ".json":
        value = (parse(data)[0] or {}).get(reading.wanted.field)
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            return None
        said = str(value).strip()
    else:
        try:
            said = data.decode().strip()
        except UnicodeDecodeError:
            said = ""
    if not 0 < len(said) <= CLASS_CHARACTERS or not said.isprintable():
        raise PipelineError(f"{name}: {data[:40]!r} is no class: mend it, or take the class from the name")
    return said


def _check_says(name: str, others: list[str], reading: Reading) -> None:
    """Raises PipelineError where a .json was there to say the class, and does not."""
    if said := [other for other in others if other.lower().endswith(SAID)]:
        raise PipelineError(
            f'{said[0]}: says no class of {name.rpartition("/")[2]}: no "{reading.wanted.field}" in it that is a text '
            "or a whole number: name the field with --label-field, or take the class from the name with --label-pattern"
        )
