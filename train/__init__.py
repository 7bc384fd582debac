"""Shards to a model, on DeepSpeed: objectives over one packed forward of a shared encoder."""

import sys
from pathlib import Path

# `python -m` looks in the working folder first, where a file of the user's may bear the name of a package of ours.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).resolve().parents[1]:
    del sys.path[0]
