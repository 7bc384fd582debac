"""Planning for images and audio clips: find the files and their classes, and distribute the files over work units.

    folders, tars, lists -> names (and the headers of tars) -> selected classes -> splits -> units

Planning uses only the names of image and audio files, and does not open them; a hash of their content is recorded when
a worker processes them (`changes`). Planning reads the headers of a tar, and those members of it that state a class. A
split is a file, or several adjacent members of a tar. A tar that is compressed or in a bucket of an object store cannot
be cut, and is one split. The splits are sorted by a hash, so that every shard has examples of many classes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from clearspan.common.errors import PipelineError
from clearspan.pipelines.labels import Listed, find_classes
from clearspan.pipelines.readers import samples, tars
from clearspan.pipelines.readers.files import WholeFiles
from clearspan.pipelines.readers.refused import refusal
from clearspan.pipelines.readers.sniff import is_about, sample
from clearspan.pipelines.readers.streams import COMPRESSION_BYTES, compression_of, decompressed, naming_damage
from clearspan.pipelines.records import Input, Inputs, ReadOptions, Split
from clearspan.pipelines.suffixes import TAR_NAMES
from clearspan.pipelines.units.inputs import absolute, check_known, find
from clearspan.shards import storage
from clearspan.shards.finding import Status

LISTS = (".tsv", ".txt", ".lst")
"""Extensions of lists of files, whose lines are `path<TAB>class`. A file found in an input folder is never a list."""
RUNS_A_UNIT = 256
"""Minimum number of splits of tars in a unit of full size, so that a unit mixes tars that hold one class each."""


def catalog(patterns: Sequence[str], reading: ReadOptions) -> Inputs:
    """Find the images or audio clips among the inputs, and select classes and files by the user's options.

    Args:
        patterns: paths, folders, globs and lists of files; a list states the class of each of its files.
        reading: the rules for reading the files. They contain the options that select classes and files
            (`reading.wanted`).

    Raises:
        PipelineError: a file is missing, is of unknown type, is a damaged tar, or has no class.
    """
    listed_in = {path: label for pattern in patterns if _is_list(pattern) for path, label in _read_list(pattern)}
    left_out = set[str]()
    root, files = find([pattern for pattern in patterns if not _is_list(pattern)], tuple(listed_in), left_out)
    labels = {path.removeprefix(f"{root.rstrip('/')}/"): label for path, label in listed_in.items()}
    of_root = None if reading.wanted.label_pattern else Path(root).name
    entries: list[tuple[Input, Sequence[samples.Sample]]] = []
    unknown: dict[str, str] = {}
    for name, status in files.items():
        if name.lower().endswith(TAR_NAMES):
            entries.append(_tar(root, name, status, reading))
            unknown |= {member: "" for group in entries[-1][1] for member in group.unknown}
        elif samples.has_extension(name, reading.extensions):
            label = labels.get(name, None if "/" in name else of_root)
            entries.append((Input(name, status.bytes, WholeFiles.name, None, "", label, status), ()))
        else:
            unknown[name] = refusal(name)
    named = {pattern if storage.is_remote(pattern) else absolute(pattern) for pattern in patterns} | set(listed_in)
    others = {
        name: reason for name, reason in unknown.items() if storage.join(root, name) in named or not is_about(name)
    }
    check_known(root, others, f"{', '.join(reading.extensions)}, or tars of them", reading.skip_unknown)
    listed = [example for entry, groups in entries for example in _listed(entry, groups)]
    if not listed:
        raise PipelineError(f"`input` {' '.join(patterns)}: no {', '.join(reading.extensions)} and no tar of them")
    chosen = find_classes(listed, reading.wanted)
    known = frozenset(chosen.names)
    takes_all = chosen.files == chosen.of_files
    del listed  # perhaps millions of names

    def takes(example: Listed) -> bool:
        return takes_all or chosen.is_selected(example.name, chosen.label(example), known)

    kept, runs = [], {}
    for entry, groups in entries:
        if entry.format == WholeFiles.name:
            wanted = [takes(Listed(entry.name, entry.label))]
        else:
            wanted = [any(map(takes, group.listed)) for group in groups]
            cut = entry.compression is None and not storage.is_remote(root)
            runs[entry.name] = _places(groups, wanted) if cut else None
        if any(wanted):
            kept.append(entry)
    return Inputs(root, tuple(kept), runs, chosen, len(unknown), tuple(sorted(left_out)))


def _is_list(pattern: str) -> bool:
    return pattern.lower().endswith(LISTS) and (storage.is_remote(pattern) or Path(pattern).is_file())


def _read_list(path: str) -> Iterator[tuple[str, str]]:
    """Yield (path of a file, class of the file) for each line of a list of files.

    Args:
        path: the path of the list. Relative paths in the list are relative to its folder.

    Raises:
        PipelineError: the list is empty or not UTF-8, a line does not consist of a path, a tab and a class, or a file
            has two classes.
    """
    folder = path.rpartition("/")[0] or "."
    seen: dict[str, str] = {}
    try:
        lines = storage.read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise PipelineError(f"`input` {path}: not UTF-8 at byte {error.start}: convert the file to UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, tab, label = line.partition("\t")
        label = label.strip()
        if not (name and tab and label and label.isprintable()):
            raise PipelineError(f"`input` {path}: line {number} is not a path, a tab and a class: {line[:60]!r}")
        file = name if storage.is_remote(name) or name.startswith("/") else storage.join(folder, *name.split("/"))
        file = file if storage.is_remote(file) else absolute(file)
        if seen.setdefault(file, label) != label:
            raise PipelineError(
                f"`input` {path}: line {number}: {name} has the class {label!r} here, and {seen[file]!r} "
                "above: keep one of them"
            )
        yield file, label
    if not seen:
        raise PipelineError(f"`input` {path}: lists no file: write a path, a tab and a class on each line")


def _check_all_labelled(groups: Iterable[samples.Sample]) -> None:
    """Raise PipelineError if some samples of a tar state their class and others do not.

    A sample is an image or clip with the other files of its name, one of which may state the class. If no sample of a
    tar states a class, the classes are found in the paths of the images or clips (`labels`).

    Args:
        groups: all samples of one tar.
    """
    first = {example.label is None: example.name for group in groups for example in group.listed}
    if len(first) > 1:
        raise PipelineError(
            f"{first[True]}: no .cls or .json file states its class, unlike the class of {first[False]}: add such a "
            f"file, or take the class from the name with `label_pattern`"
        )


def _tar(root: str, name: str, status: Status, reading: ReadOptions) -> tuple[Input, list[samples.Sample]]:
    """Return the `Input` for a tar of images or audio clips, and the samples in the tar.

    A sample is the files whose names are equal up to the first dot, such as an image and the file that states its
    class.

    Args:
        root: the common folder of the inputs.
        name: the path of the tar, relative to `root`.
        status: the size and times of the tar.
        reading: the rules for reading the files.

    Raises:
        PipelineError: the tar is damaged, only some of its samples state their class, or the files of a sample do not
            follow each other.
    """
    path = storage.join(root, name)
    with storage.open_input(path) as stored:
        content_hash = sample(stored, status.bytes)
        compression = compression_of(stored.read(COMPRESSION_BYTES))
        stored.seek(0)
        seekable = compression is None and not storage.is_remote(path)
        with naming_damage(path, compression or "tar"), decompressed(stored, compression) as stream:
            groups = list(samples.listing(tars.listing(stream, name, seekable), reading))
    if not reading.wanted.label_pattern:
        samples.check_together(groups)
    _check_all_labelled(groups)
    return Input(name, status.bytes, tars.Tars.name, compression, content_hash, status=status), groups


def _listed(entry: Input, groups: Sequence[samples.Sample]) -> Iterator[Listed]:
    if entry.format == WholeFiles.name:
        yield Listed(entry.name, entry.label)
    for group in groups:
        yield from group.listed


def _places(groups: Sequence[samples.Sample], wanted: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the byte ranges (start, end) of those samples of a tar that are to be read.

    A sample is the files whose names are equal up to the first dot. An end of -1 is the end of the tar.

    Args:
        groups: all samples of the tar, in order.
        wanted: for each sample, whether it is to be read.
    """
    ends = [*(group.start for group in groups[1:]), -1]
    return [(group.start, end) for group, end, is_wanted in zip(groups, ends, wanted, strict=False) if is_wanted]


def deal(inputs: Inputs, num_bytes: int) -> list[Split]:
    """Cut the inputs into splits; return these, sorted by a hash of their names and offsets, which mixes the classes.

    Args:
        num_bytes: the approximate size of a work unit in bytes. If possible, a tar is cut into splits of
            about 1/256 of this size.
    """
    splits: list[Split] = []
    for entry in inputs.files:
        runs = inputs.sample_ranges.get(entry.name)
        splits += [Split(entry, 0, None)] if runs is None else _joined(entry, runs, max(1, num_bytes // RUNS_A_UNIT))
    return sorted(splits, key=lambda split: _order(split.input.name, split.start))


def _joined(entry: Input, runs: Iterable[tuple[int, int]], min_bytes: int) -> Iterator[Split]:
    """Yield the splits of a tar: join adjacent samples until a split has at least `min_bytes` bytes.

    A sample is the files whose names are equal up to the first dot. A split is shorter if no sample follows it in the
    tar, or if the sample that follows is not to be read.

    Args:
        entry: the tar.
        runs: the byte ranges (start, end) of the samples to read, in order; an end of -1 is the end of the tar.
    """
    first = last = -1
    for start, end in runs:
        if first >= 0 and (start != last or start - first >= min_bytes):
            yield Split(entry, first, last)
            first = -1
        first, last = (start if first < 0 else first), end
    if first >= 0:
        yield Split(entry, first, None if last < 0 else last)


def _order(name: str, start: int) -> bytes:
    return hashlib.blake2b(f"{name}:{start}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
