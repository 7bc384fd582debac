"""Images and audio clips among the members of a tar, and their classes: webdataset samples, or plain files.

    cat/a.jpg  cat/b.jpg        two records; the class is in the path
    00017.jpg  00017.cls        one record, since the names are equal up to the first dot; the class is in .cls
    00017.jpg  00017.json       one record; the class is a field of the JSON object

The files of a sample follow each other in the tar, and the package `webdataset` groups them. Its decoders are not used,
because some of them unpickle data. Its readers of tars are not used either, because they take a damaged tar for a
shorter one. If a sample has no image or clip, its files count as files of unknown type.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Generic, NamedTuple, TypeVar

from clearspan.common.errors import PipelineError
from clearspan.pipelines.labels import Listed, SelectionOptions
from clearspan.pipelines.readers import files
from clearspan.pipelines.readers.jsonl import parse
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.suffixes import type_suffix

SIDE_BYTES = 1 << 20
"""Largest size of a file that states the class of a sample."""
CLASS_CHARACTERS = 255
"""Largest length of a class name. A longer text is not a class name."""
CLASS_FILE = ".cls"
CLASS_FILES = (CLASS_FILE, ".json")
"""Extensions of the files that state the class of a sample, in lower case."""
LINK = "a link or a device, not a file"

Taken = TypeVar("Taken")
Member = tuple[str, int, BinaryIO | None]
"""A tar member: its name, the offset of its header, and its content (None if it is not a file)."""


class Sample(NamedTuple):
    """Sample of a tar: the files whose names are equal up to the first dot.

    Attributes:
        start: offset in the tar at which the header of the first file begins.
        listed: the images or clips of the sample, each with the class that a .cls or .json file of the sample states;
            None as the class if no file states it.
        unknown: the names of the files if the sample has no image or clip; otherwise empty.
    """

    start: int
    listed: list[Listed]
    unknown: list[str]


def has_extension(name: str, extensions: tuple[str, ...]) -> bool:
    """Return whether a file has one of the extensions, in any letter case. If `extensions` is empty, return True."""
    return not extensions or name.lower().endswith(extensions)


def listing(members: Iterable[Member], reading: ReadOptions) -> Iterator[Sample]:
    """Yield the samples of a tar, in order. The contents of images and clips are not read.

    Args:
        reading: rules that say which files are images or clips, and which files state the class of a sample.

    Raises:
        PipelineError: a .cls or .json file that should state the class of a sample states none, or two files of a
            sample with the same extension state different classes.
    """
    for start, names, others, label in _samples(members, reading, lambda name, _: name):
        if names and label is None and not reading.wanted.label_pattern:
            _check_stated(names[0], others, reading)
        yield Sample(start, [Listed(name, label) for name in names], [] if names else others)


def check_together(samples: Sequence[Sample]) -> None:
    """Raise PipelineError if a file that may state a class lies apart from the image or clip of the same name.

    The class would be lost: files of a sample follow each other in a webdataset, as `tar --sort=name` packs them.

    Args:
        samples: all samples of one tar.
    """
    from webdataset.tariterators import base_plus_ext

    apart = [name for sample in samples for name in sample.unknown if type_suffix(name) in CLASS_FILES]
    if not apart:
        return
    examples = {base_plus_ext(listed.name)[0]: listed.name for sample in samples for listed in sample.listed}
    for name in apart:
        if (key := base_plus_ext(name)[0]) is not None and key in examples:
            raise PipelineError(
                f"{name}: does not follow {examples[key].rpartition('/')[2]}, whose class it may state: the files of a "
                f"sample must follow each other: pack the tar again with `tar --sort=name`, or take the class from "
                f"the file's name with `label_pattern`"
            )


def read(members: Iterable[Member], reading: ReadOptions) -> Iterator[Record]:
    """Yield a record for each selected image or clip of a tar. Its value is the bytes of the file, its label the class.

    Args:
        reading: rules that say which files are images or clips, and which classes and files are selected.

    Raises:
        PipelineError: a file states something that is not a class, two files of a sample with the same extension state
            different classes, or an image or clip whose class no file states is in no folder that could be its class.
    """
    assert reading.classes is not None
    known = frozenset(reading.classes.names)

    def content(name: str, member: BinaryIO | None) -> Record:
        return (
            Record(name, None, None, b"", LINK)
            if member is None
            else files.whole_file_record(member, name, reading.max_bytes)
        )

    for _, records, _, stated in _samples(members, reading, content):
        for record in records:
            label = reading.classes.label(Listed(record.name, stated))
            if reading.classes.is_selected(record.name, label, known):
                yield dataclasses.replace(record, label=label)


class _File(NamedTuple, Generic[Taken]):
    """File of a sample.

    Attributes:
        name: the name of the file.
        start: offset in the tar at which the header of the file begins.
        taken: of an image or clip, what the caller needs: its name, or a record with its bytes. None for other files.
        stating: the content of a file that may state the class of the sample; None for other files.
    """

    name: str
    start: int
    taken: Taken | None
    stating: bytes | None


def _samples(
    members: Iterable[Member], reading: ReadOptions, take: Callable[[str, BinaryIO | None], Taken]
) -> Iterator[tuple[int, list[Taken], list[str], str | None]]:
    """Yield (start, taken, others, label) for each sample of a tar.

    start: the offset in the tar at which the sample begins.
    taken: for each image or clip of the sample, the result of `take`.
    others: the names of the other files of the sample.
    label: the class that a .cls or .json file of the sample states; None if none does. A .cls takes precedence over a
    .json, unless the user names the field of the .json that holds the class.

    Args:
        take: function of the name and the stream of an image or clip, which returns what the caller needs of it. The
            stream is None if the member is not a file but, for example, a link.

    Raises:
        PipelineError: a file states something that is not a class, or two files of a sample with the same extension
            state different classes.
    """
    first, second = CLASS_FILES if reading.wanted.label_field == SelectionOptions.label_field else reversed(CLASS_FILES)
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
                    f"`label_pattern`"
                )
        taken = [file.taken for file in group if file.taken is not None]
        others = [file.name for file in group if file.taken is None]
        yield group[0].start, taken, others, (stated.get(first) or stated.get(second) or ("", None))[1]


def _files(
    members: Iterable[Member], reading: ReadOptions, take: Callable[[str, BinaryIO | None], Taken]
) -> Iterator[_File[Taken]]:
    """Yield the members of a tar as files of samples.

    The content of a member can be read only until the next member is reached. So `take` is called for an image or clip,
    and a file that may state a class is read, when the member is reached.

    Args:
        take: function of the name and the stream of an image or clip, whose result is stored in `_File.taken`. The
            stream is None if the member is not a file.
    """
    for name, start, member in members:
        if has_extension(name, reading.extensions):
            yield _File(name, start, take(name, member), None)
        elif member is None or reading.wanted.label_pattern or type_suffix(name) not in CLASS_FILES:
            yield _File(name, start, None, None)
        else:
            yield _File(name, start, None, member.read(SIDE_BYTES + 1))


def _grouped(files: Iterable[_File[Taken]]) -> Iterator[list[_File[Taken]]]:
    """Yield the files of each sample: consecutive files whose names are equal up to the first dot.

    The package webdataset groups them. It ignores files without an extension; here, such a file is a sample by itself,
    so that every file is counted.

    Raises:
        PipelineError: two files of a sample have the same name.
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
            raise PipelineError(
                f"{name}: occurs twice in a sample: rename one of the two files, or pack the tar again"
            ) from None
        if sample is None:
            return
        yield [file for file in sample.values() if isinstance(file, _File)]


def _class_in(name: str, extension: str, data: bytes, reading: ReadOptions) -> str | None:
    """Return the class that a .cls or .json file states; None if the .json has no field with a class.

    Args:
        name: name of the file, for messages.
        extension: extension of the file, in lower case.
        data: content of the file.
        reading: rules that name the field of a .json that holds the class.

    Raises:
        PipelineError: the file is too large, or what it states cannot be the name of a class.
    """
    if len(data) > SIDE_BYTES:
        raise PipelineError(
            f"{name}: more than {SIDE_BYTES:,} bytes, which is too large for the name of a class: use `label_pattern`"
        )
    if extension == ".json":
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
        raise PipelineError(
            f"{name}: {data[:40]!r} is not the name of a class: correct it, or take the class from the file's name"
        )
    return label


def _check_stated(name: str, others: list[str], reading: ReadOptions) -> None:
    """Raise PipelineError if a sample has a .json or .cls file although no file of the sample states its class.

    Args:
        name: name of the sample's image or clip.
        others: names of the other files of the sample. The caller has found that none of them states a class.
        reading: rules that name the field of a .json that holds the class, for the message.
    """
    if silent := [other for other in others if other.lower().endswith(CLASS_FILES)]:
        raise PipelineError(
            f'{silent[0]}: states no class of {name.rpartition("/")[2]}: it has no "{reading.wanted.label_field}" '
            f"with a text or an integer: name the field with `label_field`, or take the class "
            f"from the file's name with `label_pattern`"
        )
