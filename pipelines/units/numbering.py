"""Count the line ends before each split of a file that is cut at lines, so that records get their line numbers.

    a.jsonl (3 units)   0 ......... 4 MB ......... 8 MB ......... end
    Split.lines         0           10,112         20,031

A worker that reads a split from the middle of a file does not know its line numbers. The line ends are therefore
counted once, before the work starts. Local files are counted at 2 to 4 GB/s, far faster than a model can embed them; a
file in a bucket of an object store is downloaded one more time. Tables and arrays need no count: their readers start at
the beginning of the file, or find row numbers in its metadata. If a file is edited after the count, an error is raised
when a worker reads it (`changes`).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from clearspan.common.progress import ProgressBar
from clearspan.pipelines.readers.formats import format_named
from clearspan.pipelines.readers.streams import BUFFER_BYTES
from clearspan.pipelines.units.plan import Unit
from clearspan.shards import storage


def numbered(root: str, units: Iterable[Unit], quiet: bool = False) -> list[Unit]:
    """Count the line ends before each split in its file; return the units with these numbers in `Split.lines`.

    The number is 0 for the first split of a file, and for splits of files that are not cut at lines, such as tables.

    Args:
        root: the common folder of the inputs.
        quiet: show no progress bar.
    """
    units = list(units)
    starts = dict[str, list[int]]()
    for unit in units:
        for split in unit.splits:
            if split.start and format_named(split.input.format).by_lines:
                starts.setdefault(split.input.name, []).append(split.start)
    size = sum(max(of_file) for of_file in starts.values())
    with ProgressBar(size, "counting lines", quiet or not starts, unit="B", unit_scale=True) as bar:
        files = list(starts)
        counted = storage.each(root, lambda name: _counts(storage.join(root, name), starts[name], bar), files)
        lines: dict[str, Mapping[int, int]] = dict(zip(files, counted, strict=True))
    return [
        dataclasses.replace(
            unit,
            splits=tuple(
                dataclasses.replace(split, lines=lines.get(split.input.name, {}).get(split.start, 0))
                for split in unit.splits
            ),
        )
        for unit in units
    ]


def _counts(path: str, starts: Sequence[int], bar: ProgressBar) -> dict[int, int]:
    """Count the line ends in a file up to several offsets; return byte offset -> number of line ends before it.

    Args:
        path: the path of the file.
        starts: the byte offsets.
        bar: the progress bar, which advances by the number of bytes read.
    """
    found = dict[int, int]()
    place = 0
    ends = 0
    with storage.open_input(path) as stream:
        for start in sorted(starts):
            while place < start and (part := stream.read(min(BUFFER_BYTES, start - place))):
                place += len(part)
                ends += part.count(b"\n")
                bar.update(len(part))
            found[start] = ends
    return found
