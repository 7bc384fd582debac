"""The format between the pipelines and the trainer: tar shards and a manifest that lists them.

    ShardWriter -> documents-00003-001.tar ... -> Manifest (written last: the commit point) -> Dataset (verified reader)

Each kind of dataset has its columns (`schema`) and a layout, the form in which rows are stored in a tar (`layouts`). In
a shard of texts, a tar member holds many examples as a zstd-compressed Arrow stream. In a shard of images, each image
is a file of its own, with one webdataset key per example. The `webdataset` library can open all shards. This package
imports only `common` from this project.
"""

from clearspan.shards.manifest import Manifest, ShardInfo
from clearspan.shards.reader import Dataset, ShardError
from clearspan.shards.schema import KINDS, token_type
from clearspan.shards.verification import verify
from clearspan.shards.writer import ShardWriter

__all__ = ["KINDS", "Dataset", "Manifest", "ShardError", "ShardInfo", "ShardWriter", "token_type", "verify"]
