"""Extensions of files, for planning, readers and labels. Letter case is ignored: `A.CSV.GZ` is read as `a.csv.gz`."""

import functools

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
TARS = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
TAR_NAMES = (*TARS, *(f".tar{end}" for end in COMPRESSED))
"""Complete extensions of tars, compressed or not."""


@functools.lru_cache(maxsize=256)  # a format after another asks for the same name
def suffixes_of(path: str) -> tuple[str, ...]:
    """Return the last two extensions of a file's name in lower case, e.g. ".tar", ".gz"; none for macOS "._" files."""
    name = path.rpartition("/")[2]
    _, *ends = [""] if name.startswith("._") else name.lstrip(".").split(".")
    return tuple(f".{end.lower()}" for end in ends[-2:])


def type_suffix(path: str) -> str:
    """Return the extension that tells a file's type, in lower case: the last one that does not name a compression."""
    kept = [suffix for suffix in suffixes_of(path) if suffix not in COMPRESSED]
    return kept[-1] if kept else ""
