"""Classes of images and audio clips, found in the paths of the files, and the selection of classes and files.

    path                          class
    train/n01443537/a.JPEG        n01443537: the folder that contains the file
    train/n01443537.tar/a.JPEG    n01443537: a tar counts as the folder of its members
    train/cat/images/a.png        cat: the last folder is skipped if it has the same name for all files
    0_george_0.wav                george: the match of --label-pattern, e.g. _(\\w+)_

The class can also be stated in a list of files, or by a webdataset sample; other modules read it there (`Input.label`,
`readers.samples`). The options `classes` and `per_class` select by hashes of names, so that the selection depends
neither on the order of the files nor on the tars that hold them.
"""

import collections
import dataclasses
import hashlib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from annotated_types import Ge

from clearspan.common.errors import PipelineError
from clearspan.common.options import Flag, Options, checking, lines_in
from clearspan.pipelines.suffixes import COMPRESSED, TARS

PACKED = (*TARS, *COMPRESSED)
"""Extensions that are removed from a tar's name, one by one, to get the class of its members."""


class Listed(NamedTuple):
    """An image or audio clip that planning found.

    Attributes:
        name: the path relative to the common folder of the inputs.
        label: the class that a list of files or a webdataset sample states; None if the class is found in the path.
    """

    name: str
    label: str | None = None


def check_pattern(text: str) -> None:
    """Raise ValueError if a text is not a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text}: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOptions(Options):
    """Options that say how the class of an image or audio clip is found, and which classes and files are selected.

    All classes and files are selected, unless `classes`, `per_class`, `top_classes` or `class_list` limits them.
    """

    label_pattern: Annotated[str | None, Flag("REGEX", parse=checking(check_pattern))] = None
    """Regular expression that finds the class in a path: its first group, else its match (default: the folder)."""
    label_field: Annotated[str, Flag("NAME")] = "label"
    """Field of the class in the .json files of a webdataset."""
    classes: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Select N classes, by a hash of their names."""
    per_class: Annotated[int | None, Flag("M"), Ge(1)] = None
    """Select M files of each class, by a hash of their names."""
    top_classes: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Select the N largest classes."""
    class_list: Annotated[Sequence[str] | None, Flag("FILE", parse=lines_in, path=True)] = None
    """Select the classes in FILE, one per line."""

    def validate(self) -> None:
        super().validate()
        subsets = {"classes": self.classes, "top_classes": self.top_classes, "class_list": self.class_list}
        chosen = [option for option, value in subsets.items() if value is not None]
        if len(chosen) > 1:
            raise ValueError(f"`{chosen[0]}` and `{chosen[1]}`: choose one")


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of images or audio clips that a run selects, and how they are found in paths.

    Attributes:
        names: the names of the selected classes; the label of an example is the index of its class in this tuple.
        pattern: the regular expression that finds the class in a path; None if a folder in the path is the class.
        skip: the number of folders to skip at the end of a path to find the class. Their names are the same in all
            paths.
        last_selected: for each class in `names` of which not all files are selected, the key of the last selected
            file: a pair of a hash and the file's path. The files of a class are sorted by their keys, and the first
            ones are selected.
        files, of_files: the number of selected files, and of all files.
        of_classes: the number of classes among all files.
    """

    names: tuple[str, ...]
    pattern: str | None = None
    skip: int = 0
    last_selected: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    files: int = 0
    of_files: int = 0
    of_classes: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of selected files and classes (`files`, `classes`), and of all files and classes (`of_files`,
        `of_classes`), for the dataset's fingerprint.
        """
        sizes = {"files": self.files, "of_files": self.of_files}
        return {**sizes, "classes": len(self.names), "of_classes": self.of_classes}

    def label(self, listed: Listed) -> str:
        """Return the class of a file: the class that a list of files or a webdataset sample states, or else the class
        found in the file's path.

        The class is "" if `pattern` is set and finds nothing in the path.

        Raises:
            PipelineError: `pattern` is None, and the file is in no folder that could be its class.
        """
        return listed.label if listed.label is not None else _label(listed.name, self.pattern, self.skip)

    def is_selected(self, name: str, label: str, selected_names: Collection[str]) -> bool:
        """Return whether a file is selected.

        Args:
            name: the path of the file, relative to the common folder of the inputs.
            label: the class of the file.
            selected_names: the names of the selected classes as a set, which the caller makes once for all files.
        """
        if label not in selected_names:
            return False
        last = self.last_selected.get(label)
        return last is None or _key(label, name) <= last


def _label(name: str, pattern: str | None, skip: int) -> str:
    if pattern is not None:
        return _matched(name, pattern)
    folder = _folders(name)[-1 - skip]
    while folder.lower().endswith(PACKED):
        folder = folder[: folder.rindex(".")]
    if folder in ("", ".."):
        raise PipelineError(f"{name}: is in no folder that could be its class: use `label_pattern`")
    return folder


def _matched(name: str, pattern: str) -> str:
    """Return the class that a regular expression finds in a path; "" if it finds nothing.

    The class is the expression's first group, or the whole match if there are no groups.
    """
    match = re.search(pattern, name)
    return (match[match.re.groups and 1] or "").strip() if match else ""


def _folders(name: str) -> list[str]:
    """Return the folders in a path, after resolving `.` and `..`; [""] if the path has no folders."""
    if "//" in name or "/." in name or name.startswith("."):  # most names do not need the slow call
        name = posixpath.normpath(name)
    return name.split("/")[:-1] or [""]


def _key(label: str, name: str) -> tuple[str, str]:
    """Return the key by which the files of a class are sorted to select some of them.

    The key is a pair: a hash of the class and the file's name, then the file's path, which decides between equal
    hashes. The hash does not depend on the folders and tars that hold the file.

    Args:
        label: the class.
        name: the path of the file.
    """
    hashed = f"{label}/{name.rpartition('/')[2]}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(hashed, digest_size=16).hexdigest(), name


def _skip(names: Iterable[str]) -> int:
    """Return the number of folders, counted from the end of a path, whose names are the same in all paths.

    These folders do not distinguish classes. For example, the result is 1 for paths in the folders cat/images and
    dog/images. If all files lie in the same folder, there is only one class, and the result is 0.

    Args:
        names: the paths of the files.
    """
    paths = [folder.split("/") for folder in {"/".join(_folders(name)) for name in names}]
    deepest = min(map(len, paths), default=0)
    for skip in range(deepest):
        if len({path[-1 - skip] for path in paths}) > 1:
            return skip
    return 0


def find_classes(listed: Collection[Listed], wanted: SelectionOptions) -> Classes:
    """Find the class of each file, and select classes and files as the user's options ask.

    Args:
        listed: the images or audio clips among the inputs.
        wanted: the user's options.

    Raises:
        PipelineError: the class of a file cannot be found in its path, or the files do not have the requested classes.
    """
    unstated = [file.name for file in listed if file.label is None]
    pattern = wanted.label_pattern
    if odd := [name for name in unstated if pattern is not None and not _matched(name, pattern)]:
        raise PipelineError(
            f"`label_pattern` {pattern}: finds nothing in {len(odd):,} of {len(unstated):,} files, e.g. "
            f"{odd[0]}: correct it; the pattern is searched in the path below the inputs' common folder"
        )
    all_classes = Classes((), pattern, 0 if pattern else _skip(unstated))
    members: dict[str, list[str]] = collections.defaultdict(list)
    for file in listed:
        members[all_classes.label(file)].append(file.name)
    names = _order(_chosen({label: len(files) for label, files in members.items()}, wanted))
    last = {}
    if wanted.per_class is not None:
        for label in names:
            if len(members[label]) > wanted.per_class:
                last[label] = sorted(_key(label, name) for name in members[label])[wanted.per_class - 1]
    sizes = {label: wanted.per_class if label in last else len(members[label]) for label in names}
    return dataclasses.replace(
        all_classes,
        names=tuple(names),
        last_selected=last,
        files=sum(size or 0 for size in sizes.values()),
        of_files=len(listed),
        of_classes=len(members),
    )


def _chosen(sizes: Mapping[str, int], wanted: SelectionOptions) -> list[str]:
    """Return the names of the classes that the user's options select.

    Args:
        sizes: class -> number of its files.
        wanted: the user's options.

    Raises:
        PipelineError: there are not as many classes as requested, or a class in the user's list does not exist.
    """
    every_class = sorted(sizes)
    if wanted.class_list is not None:
        if lost := [name for name in wanted.class_list if name not in sizes]:
            raise PipelineError(
                f"`class_list`: {len(lost):,} of its classes do not occur in the inputs, e.g. {lost[0]!r}: remove them"
            )
        return list(dict.fromkeys(wanted.class_list))
    if wanted.top_classes is not None:
        if wanted.top_classes > len(sizes):
            raise PipelineError(f"`top_classes` {wanted.top_classes}: there are {len(sizes):,} classes: lower it")
        return sorted(every_class, key=lambda name: (-sizes[name], name))[: wanted.top_classes]
    if wanted.classes is not None:
        least = wanted.per_class or 1
        large = [name for name in every_class if sizes[name] >= least]
        if wanted.classes > len(large):
            of = f" of at least {least:,}" if least > 1 else ""
            raise PipelineError(f"`classes` {wanted.classes}: there are {len(large):,} classes{of}: lower it")
        return sorted(large, key=lambda name: _key(name, ""))[: wanted.classes]
    return every_class


def _order(names: Iterable[str]) -> list[str]:
    """Return the names in alphabetical order; if all of them are integers, in the order of the numbers."""
    ordered = sorted(names)
    if all(re.fullmatch(r"\d{1,18}", name) for name in ordered):
        return sorted(ordered, key=int)
    return ordered
