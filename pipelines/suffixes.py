"""Extensions of tars and of compressed files, shared by planning, readers and labels."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
TARS = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
TAR_NAMES = (*TARS, *(f".tar{end}" for end in COMPRESSED))
"""Complete extensions of tars, compressed or not."""
