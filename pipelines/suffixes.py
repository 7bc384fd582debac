"""How the names of tars and of compressed files end: the same to planning, to readers and to what tells classes."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
TARS = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
TAR_NAMES = (*TARS, *(f".tar{end}" for end in COMPRESSED))
"""How a whole name ends, where the last of its ends is not looked at alone."""
