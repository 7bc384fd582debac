"""Planning of pictures and clips: which there are, of which classes, and how they are dealt to units.

    folders, tars, lists -> names (and the headers of tars) -> classes, those that are wanted -> pieces -> units

A file is known by its name alone, and not opened: its unit's account holds a hash of its content. Of a tar the headers
are read, and what says a class. Pieces (a file, or a run of a tar's members) are dealt to units in the order of a hash,
so that every shard has pictures of all classes, wherever those lie. A tar that is compressed, or on an object store,
cannot be cut: it is one piece.
"""

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.labels import Listed
from clearspan.pipelines.labels import find as find_classes
from clearspan.pipelines.readers import samples, tars
from clearspan.pipelines.readers.sniff import MAGIC_BYTES, compression_of, is_about, sample
from clearspan.pipelines.readers.streams import decompressed, naming
from clearspan.pipelines.records import Input, Inputs, Piece, Reading
from clearspan.pipelines.suffixes import TAR_NAMES
from clearspan.pipelines.units.inputs import absolute, find
from clearspan.shards import finding, storage

LISTS = (".tsv", ".txt", ".lst")
"""A file that is named itself, not found in a folder, and ends so is a list of files: `path<TAB>class`."""
RUNS_A_UNIT = 256
"""A unit has runs of about so many places in tars, so that tars of a class each are mixed."""
UNITS = 64
LEAST_UNIT_BYTES = 4_000_000
SHOWN = 3
EMPTY = "a class without files: fill or remove it, or go on with --skip-unknown"


def unit_bytes(num_bytes: int, most: int) -> int:
    """The input of a unit, where the user names none: enough units for many processes, few enough for large shards."""
    return min(most, max(LEAST_UNIT_BYTES, num_bytes // UNITS))


def catalog(patterns: Sequence[str], reading: Reading) -> Inputs:
    """The pictures or clips that these name, and of them what is wanted.

    Raises:
        PipelineError: a file is missing, of no known kind, a damaged tar, or tells no class.
    """
    listed_in = {path: label for pattern in patterns if _is_list(pattern) for path, label in _read_list(pattern)}
    others: dict[str, str] = {}
    root, files = find([pattern for pattern in patterns if not _is_list(pattern)], tuple(listed_in), others)
    labels = {_below(root, path): label for path, label in listed_in.items()}
    _check_listed(root, labels, files)
    if not reading.skip_unknown:
        _check_empty(patterns)
    found: list[tuple[Input, Sequence[samples.Sample]]] = []
    unknown: list[str] = []
    for name, size in files.items():
        if not name.isprintable():
            raise PipelineError(f"{name!r}: a file name that is not printable text cannot be a source: rename it")
        if name.lower().endswith(TAR_NAMES):
            found.append(_tar(root, name, size, reading))
            unknown += itertools.chain.from_iterable(group.unknown for group in found[-1][1])
            if not found[-1][1] and not reading.skip_unknown:
                raise PipelineError(f"{storage.join(root, name)}: {EMPTY}")
        elif samples.is_wanted(name, reading.extensions):
            found.append((Input(name, size, "file", None, "", _given(root, name, labels, reading)), ()))
        else:
            unknown.append(name)
    named = {pattern if storage.is_remote(pattern) else absolute(pattern) for pattern in patterns} | set(listed_in)
    _check_known(root, [name for name in unknown if storage.join(root, name) in named or not is_about(name)], reading)
    everything = [one for entry, groups in found for one in _listed(entry, groups)]
    if not everything:
        raise PipelineError(
            f"--input {' '.join(patterns)}: holds no {', '.join(reading.extensions)} and no tar of them"
        )
    chosen = find_classes(everything, reading.wanted)
    _check_links(root, others, lambda name: chosen.label(Listed(name, _given(root, name, labels, reading))), reading)
    known = frozenset(chosen.names)
    takes_all = chosen.files == chosen.of_files
    del everything  # perhaps a million names

    def takes(one: Listed) -> bool:
        return takes_all or chosen.takes(one.name, chosen.label(one), known)

    kept, runs = [], {}
    for entry, groups in found:
        if entry.format == "file":
            wanted = takes(Listed(entry.name, entry.label))
        else:
            places = list(_places(groups, [any(map(takes, group.listed)) for group in groups]))
            wanted = any(is_wanted for _, _, is_wanted in places)
            cut = entry.compression is None and not storage.is_remote(root)
            runs[entry.name] = [(start, end) for start, end, is_wanted in places if is_wanted] if cut else None
        if wanted:
            kept.append(entry)
    return Inputs(root, tuple(kept), runs, chosen, len(unknown))


def _given(root: str, name: str, labels: Mapping[str, str], reading: Reading) -> str | None:
    """The class that is given to a file otherwise than by its name: a list's, or that of the folder that all lie in."""
    if name not in labels and "/" not in name and not reading.wanted.pattern:
        return Path(root).name
    return labels.get(name)


def _check_links(root: str, others: Mapping[str, str], label: Callable[[str], str], reading: Reading) -> None:
    """Raises PipelineError where a file is linked into two classes: it counts once, and one of them would lose it."""
    for path, stays in others.items():
        name, kept = _below(root, path), _below(root, stays)
        if name != path and samples.is_wanted(name, reading.extensions) and not name.lower().endswith(TAR_NAMES):
            found, other = label(name), label(kept)
            if found != other:
                raise PipelineError(
                    f"{path}: is of class {found!r}, and the same file as {stays}, of class {other!r}: make a copy of "
                    "it, or take one of the two away"
                )


def _check_known(root: str, unknown: Sequence[str], reading: Reading) -> None:
    """Raises PipelineError for files of no known kind, unless they may be passed over."""
    if not unknown or reading.skip_unknown:
        return
    kinds = ", ".join(reading.extensions)
    number = f"{len(unknown):,} {'file' if len(unknown) == 1 else 'files'}"
    mend = "take them away, or leave them out with --skip-unknown"
    if any(name.lower().endswith(TAR_NAMES) for name in unknown):
        mend = "unpack the tar that holds tars"
    elif any(name.lower().endswith(samples.SAID) for name in unknown):
        mend += "; what says a class must lie in a tar, next to what it is said of"
    raise PipelineError(
        f"{root}: {number} of no known kind, e.g. {', '.join(unknown[:SHOWN])}: expected {kinds} or tars of these: "
        f"{mend}"
    )


def _is_list(pattern: str) -> bool:
    return pattern.lower().endswith(LISTS) and (storage.is_remote(pattern) or Path(pattern).is_file())


def _read_list(path: str) -> Iterator[tuple[str, str]]:
    """Each file of a list, and its class.

    Raises:
        PipelineError: a line is not a path, a tab and a class, a file is listed for two classes, or none is.
    """
    folder = path.rpartition("/")[0] or "."
    seen: dict[str, str] = {}
    try:
        lines = storage.read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise PipelineError(f"--input {path}: not UTF-8 at byte {error.start}: convert it") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, tab, label = line.partition("\t")
        label = label.strip()
        if not (name and tab and label and label.isprintable()):
            raise PipelineError(f"--input {path}: line {number} is not a path, a tab and a class: {line[:60]!r}")
        file = name if storage.is_remote(name) or name.startswith("/") else storage.join(folder, *name.split("/"))
        file = file if storage.is_remote(file) else absolute(file)
        if seen.setdefault(file, label) != label:
            raise PipelineError(f"--input {path}: line {number}: {name} is {label!r} here, and {seen[file]!r} above")
        yield file, label
    if not seen:
        raise PipelineError(f"--input {path}: lists nothing: write a path, a tab and a class on each line")


def _check_listed(root: str, labels: Mapping[str, str], files: Collection[str]) -> None:
    """Raises PipelineError where a class is said of what is not one picture or clip: it would be lost."""
    for name, label in labels.items():
        if name not in files or name.lower().endswith(TAR_NAMES):
            raise PipelineError(
                f"{storage.join(root, name)}: listed as {label!r}, but a folder, a tar, or another name of a file that "
                "is named too: list pictures or clips, each under one name"
            )


def _check_silent(groups: Iterable[samples.Sample]) -> None:
    """Raises PipelineError where some samples of a tar say their class and others do not: these would be of a class
    that is called as the tar. (Of several tars each may say it in its own way.)
    """
    silent, said = None, None
    for one in (one for group in groups for one in group.listed):
        silent, said = (silent or one, said) if one.label is None else (silent, said or one)
    if silent and said:
        raise PipelineError(
            f"{silent.name}: nothing beside it says its class, as of {said.name}: add what is missing, or take the "
            "class from the name with --label-pattern"
        )


def _check_empty(patterns: Iterable[str]) -> None:
    """Raises PipelineError for a folder without files, as for a tar: a class that would be missing from the table."""
    for pattern in patterns:
        if not storage.is_remote(pattern) and (empty := finding.empty_folder(pattern)):
            raise PipelineError(f"{empty}: {EMPTY}")


def _tar(root: str, name: str, size: int, reading: Reading) -> tuple[Input, list[samples.Sample]]:
    """A tar as the plan has it, and what it holds."""
    path = storage.join(root, name)
    with storage.open_input(path) as stored:
        known_by = sample(stored, size)
        compression = compression_of(stored.read(MAGIC_BYTES))
        stored.seek(0)
        seekable = compression is None and not storage.is_remote(path)
        with naming(path, compression or "tar"), decompressed(stored, compression) as stream:
            groups = list(samples.listing(tars.listing(stream, name, seekable), reading))
    _check_silent(groups)
    return Input(name, size, "tar", compression, known_by), groups


def _listed(entry: Input, groups: Sequence[samples.Sample]) -> Iterator[Listed]:
    if entry.format == "file":
        yield Listed(entry.name, entry.label)
    for group in groups:
        yield from group.listed


def _places(groups: Sequence[samples.Sample], wanted: Sequence[bool]) -> Iterator[tuple[int, int, bool]]:
    """Where each sample starts and ends in its tar (-1: the tar's end), and whether it is wanted."""
    starts = [group.start for group in groups]
    yield from zip(starts, [*starts[1:], -1][: len(starts)], wanted, strict=True)


def deal(inputs: Inputs, num_bytes: int) -> list[Piece]:
    """All files and runs, in the order of a hash, as pieces for units of about so many bytes."""
    pieces: list[Piece] = []
    for entry in inputs.files:
        runs = inputs.runs.get(entry.name)
        pieces += [Piece(entry, 0, None)] if runs is None else _joined(entry, runs, max(1, num_bytes // RUNS_A_UNIT))
    return sorted(pieces, key=lambda piece: _place(piece.input.name, piece.start))


def _joined(entry: Input, runs: Iterable[tuple[int, int]], most: int) -> Iterator[Piece]:
    """Runs of samples that follow each other, as pieces of about `most` bytes."""
    first = last = -1
    for start, end in runs:
        if first >= 0 and (start != last or start - first >= most):
            yield Piece(entry, first, last)
            first = -1
        first, last = (start if first < 0 else first), end
    if first >= 0:
        yield Piece(entry, first, None if last < 0 else last)


def _place(name: str, start: int) -> bytes:
    return hashlib.blake2b(f"{name}:{start}".encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _below(root: str, path: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")
