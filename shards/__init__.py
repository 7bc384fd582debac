"""The format between the pipelines and the trainer: tar shards and a manifest that lists them.

    ShardWriter -> documents-00003-001.tar ... -> Manifest (written last: the commit point) -> Dataset (verified reader)

A kind of dataset has its columns and a layout (`schema`, `layouts`): a member of a text shard holds many examples as a
zstd-compressed Arrow stream; images are plain files, one key per example. Plain webdataset opens all shards. This
package imports only `common` from this project.
"""

from clearspan.shards.manifest import Manifest, ShardInfo
from clearspan.shards.reader import Dataset, ShardError
from clearspan.shards.schema import KINDS, token_type
from clearspan.shards.verification import verify
from clearspan.shards.writer import ShardWriter

__all__ = ["KINDS", "Dataset", "Manifest", "ShardError", "ShardInfo", "ShardWriter", "token_type", "verify"]
