"""File extensions, for planning, readers and class labels. Case is ignored: `A.CSV.GZ` is treated as `a.csv.gz`."""

import functools

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
TARS = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
TAR_NAMES = (*TARS, *(f".tar{end}" for end in COMPRESSED))
"""All extensions of tar files, compressed or not."""


@functools.lru_cache(maxsize=256)  # every format asks for the extensions of the same name
def suffixes_of(path: str) -> tuple[str, ...]:
    """Return the last extensions of a path, at most two, in lower case, e.g. (".tar", ".gz").

    Return () for the metadata files of macOS, whose names begin with "._".
    """
    name = path.rpartition("/")[2]
    _, *ends = [""] if name.startswith("._") else name.lstrip(".").split(".")
    return tuple(f".{end.lower()}" for end in ends[-2:])


def type_suffix(path: str) -> str:
    """Return the extension that tells a file's type, in lower case; "" if there is none.

    It is the last extension that does not stand for a compression: ".csv" for `a.csv.gz`.
    """
    kept = [suffix for suffix in suffixes_of(path) if suffix not in COMPRESSED]
    return kept[-1] if kept else ""
