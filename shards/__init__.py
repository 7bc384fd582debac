"""The format between the pipelines and the trainer: tar shards, and a manifest that says which of them exist.

    ShardWriter -> documents-00003-001.tar ... -> Manifest (written last: the commit point) -> Dataset (verified reader)

A kind of dataset has its columns and a layout (`schema`, `layouts`): text is packed many examples a member, as
zstd-compressed Arrow streams; images lie as plain files, a key an example. Plain webdataset opens all of them. This
package imports nothing else of the project.
"""

from clearspan.shards.manifest import Manifest, ShardInfo
from clearspan.shards.reader import Dataset, ShardError
from clearspan.shards.schema import KINDS, token_type
from clearspan.shards.verification import verify
from clearspan.shards.writer import ShardWriter

__all__ = [
    "KINDS",
    "Dataset",
    "Manifest",
    "ShardError",
    "ShardInfo",
    "ShardWriter",
    "token_type",
    "verify",
]
