"""What class a picture or a clip is of, by its name, and which of them are taken: functions of names alone.

    name                          class
    train/n01443537/a.JPEG        n01443537: the folder it is in
    train/n01443537.tar/a.JPEG    n01443537: a tar is the folder of its members
    train/cat/images/a.png        cat: a last folder of one name for all tells nothing, and is passed over
    0_george_0.wav                what --label-pattern finds, e.g. _(\\w+)_ george

What a list of files or a sample of a webdataset says of its class is said elsewhere (`Input.label`, `readers.tars`). A
subset is chosen by hashes of names, so that neither the order of the files nor how they are packed decides.
"""

import collections
import dataclasses
import functools
import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import regex

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.suffixes import COMPRESSED, TARS

PACKED = (*TARS, *COMPRESSED)
"""No part of a class: a tar's ends are taken off one by one."""
MATCH_S = 2.0
"""Processor time that --label-pattern may take on one name, in seconds; a match takes some microseconds."""


class Listed(NamedTuple):
    """A picture or clip as planning knows it: its name from the inputs' common folder on, and what is said of its class
    other than by the name.
    """

    name: str
    label: str | None = None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the user wants: how a class is told, and which are taken; None: all."""

    pattern: str | None = None
    field: str = "label"
    num_classes: int | None = None
    per_class: int | None = None
    top: int | None = None
    named: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of a run: their `names` by number, how many folders at the end of a name are passed over (`skip`),
    and the `last` that is taken of each class that is not taken whole. `files` of `of_files` are taken, and of
    `of_classes` the classes.
    """

    names: tuple[str, ...]
    pattern: str | None = None
    skip: int = 0
    last: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    files: int = 0
    of_files: int = 0
    of_classes: int = 0

    @property
    def taken(self) -> dict[str, int]:
        """How much of what there is."""
        sizes = {"files": self.files, "of_files": self.of_files}
        return {**sizes, "classes": len(self.names), "of_classes": self.of_classes}

    def label(self, listed: Listed) -> str:
        """The class of one, by what is said of it or by its name."""
        return listed.label if listed.label is not None else _label(listed.name, self.pattern, self.skip)

    def takes(self, name: str, label: str, known: Collection[str]) -> bool:
        """Whether one of this class is taken; `known` are the names as a set."""
        if label not in known:
            return False
        last = self.last.get(label)
        return last is None or _key(label, name) <= last


def _label(name: str, pattern: str | None, skip: int) -> str:
    if pattern is None:
        folder = _folders(name)[-1 - skip]
        while folder.lower().endswith(PACKED):
            folder = folder[: folder.rindex(".")]
        if folder in ("", ".."):
            raise PipelineError(f"{name}: is in no folder that tells its class: use --label-pattern")
        return folder
    found = _found(name, pattern)
    if not found:
        raise PipelineError(f"--label-pattern {pattern}: finds nothing in {name}")
    return found


def _found(name: str, pattern: str) -> str:
    """Return what a pattern finds in a name: "" where it finds nothing, or its group is empty.

    Raises:
        PipelineError: the match takes longer than MATCH_S.
    """
    compiled = compile_pattern(pattern)
    try:
        found = compiled.search(name, timeout=MATCH_S)
    except TimeoutError:
        raise PipelineError(
            f"--label-pattern {pattern}: takes more than {MATCH_S:g} s on {name}: a repeat of a repeat, such as (a+)+, "
            "tries too many ways to match: write the pattern without one"
        ) from None
    return (found[1 if compiled.groups else 0] or "").strip() if found else ""


@functools.cache
def compile_pattern(pattern: str) -> "regex.Pattern[str]":
    """Compile a --label-pattern, by `regex`, which can limit the time of a match as `re` cannot.

    Raises:
        regex.error: it is not a regular expression.
    """
    return regex.compile(pattern)


def _folders(name: str) -> list[str]:
    """The folders that a name is in; members of a tar may be called ./a.jpg, which is in none, or a//../b.jpg."""
    if "//" in name or "/." in name or name.startswith("."):  # few of a million need it
        name = posixpath.normpath(name)
    return name.split("/")[:-1] or [""]


def _key(label: str, name: str) -> tuple[str, str]:
    """The place of one among those of its class: by a hash of its own name, whatever it is packed in."""
    hashed = f"{label}/{name.rpartition('/')[2]}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(hashed, digest_size=16).hexdigest(), name


def _skip(names: Iterable[str]) -> int:
    """How many last folders all names have in common, unless one class is all that there is."""
    paths = [folder.split("/") for folder in {"/".join(_folders(name)) for name in names}]
    deepest = min(map(len, paths), default=0)
    for skip in range(deepest):
        if len({path[-1 - skip] for path in paths}) > 1:
            return skip
    return 0


def find(listed: Collection[Listed], wanted: Wanted) -> Classes:
    """The classes of these, and which of them are wanted.

    Raises:
        PipelineError: a name tells no class, two classes differ in case alone, or there are not so many as are wanted.
    """
    by_name = [one.name for one in listed if one.label is None]
    skip = 0 if wanted.pattern else _skip(by_name)
    _check_pattern(by_name, wanted.pattern)
    told = Classes((), wanted.pattern, skip)
    members: dict[str, list[str]] = collections.defaultdict(list)
    for one in listed:
        members[told.label(one)].append(one.name)
    names = _order(_chosen({label: len(found) for label, found in members.items()}, wanted))
    _check_case(names)
    last = {}
    if wanted.per_class is not None:
        for label in names:
            if len(members[label]) > wanted.per_class:
                _check_once(members[label])
                last[label] = sorted(_key(label, name) for name in members[label])[wanted.per_class - 1]
    sizes = {label: wanted.per_class if label in last else len(members[label]) for label in names}
    return dataclasses.replace(
        told,
        names=tuple(names),
        last=last,
        files=sum(size or 0 for size in sizes.values()),
        of_files=len(listed),
        of_classes=len(members),
    )


def _check_pattern(names: Collection[str], pattern: str | None) -> None:
    if pattern is None:
        return
    lost = [name for name in names if not _found(name, pattern)]
    if lost:
        raise PipelineError(
            f"--label-pattern {pattern}: finds nothing in {len(lost):,} of {len(names):,} names, e.g. {lost[0]}: "
            "mend it; it is looked for in the path below the inputs' common folder"
        )


def _check_once(names: Sequence[str]) -> None:
    """Raises PipelineError where a tar holds a name twice: of those that are chosen by name there would be too many."""
    name, number = collections.Counter(names).most_common(1)[0]
    if number > 1:
        raise PipelineError(f"{name}: {number} members of this name, and --per-class cannot choose one: unpack the tar")


def _chosen(sizes: Mapping[str, int], wanted: Wanted) -> list[str]:
    """The classes that are wanted of these, by their sizes."""
    found = sorted(sizes)
    if wanted.named is not None:
        if lost := [name for name in wanted.named if name not in sizes]:
            raise PipelineError(f"--class-list: {len(lost):,} of its classes are not there, e.g. {lost[0]!r}")
        return list(wanted.named)
    if wanted.top is not None:
        if wanted.top > len(found):
            raise PipelineError(f"--top-classes {wanted.top}: there are {len(found):,} classes: lower it")
        return sorted(found, key=lambda name: (-sizes[name], name))[: wanted.top]
    if wanted.num_classes is not None:
        least = wanted.per_class or 1
        large = [name for name in found if sizes[name] >= least]
        if wanted.num_classes > len(large):
            of = f" of at least {least:,}" if least > 1 else ""
            raise PipelineError(f"--classes {wanted.num_classes}: there are {len(large):,} classes{of}: lower it")
        return sorted(large, key=lambda name: _key(name, ""))[: wanted.num_classes]
    return found


def _order(names: Iterable[str]) -> list[str]:
    """Sorted: whole numbers, if all are such, by their value."""
    found = list(names)
    if all(re.fullmatch(r"\d{1,18}", name) for name in found):
        return sorted(found, key=lambda name: (int(name), name))
    return sorted(found)


def _check_case(names: Collection[str]) -> None:
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            how, shown = "case", repr
            if other.casefold() != name.casefold():
                how, shown = "how Unicode writes their characters", ascii
            raise PipelineError(
                f"classes {shown(other)} and {shown(name)} differ in {how} alone: rename one, or leave one out with "
                "--class-list"
            )
