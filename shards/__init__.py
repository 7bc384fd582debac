"""The format between the pipelines and the trainer: tar shards, and a manifest that says which of them exist.

    ShardWriter -> documents-00003-001.tar ... -> Manifest (written last: the commit point) -> Dataset (verified reader)

Text members are zstd-compressed Arrow streams holding many examples each (`schema`); plain webdataset opens the tars
and `decode` is its one handler. This package imports nothing else of the project.
"""

from shards.manifest import Manifest, ShardInfo
from shards.reader import Dataset, ShardError, verify
from shards.schema import KINDS, decode, encode, token_type
from shards.writer import ShardWriter

__all__ = [
    "KINDS",
    "Dataset",
    "Manifest",
    "ShardError",
    "ShardInfo",
    "ShardWriter",
    "decode",
    "encode",
    "token_type",
    "verify",
]
