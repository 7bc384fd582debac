"""Base class of the commands that search collections: its options name the collections, their model and the device."""

import dataclasses
from typing import Annotated

from clearspan.common.compute import AUTO, Device, check_device
from clearspan.common.hub import model_folder
from clearspan.common.model_forms import check_folder
from clearspan.common.options import Flag, Quiet
from clearspan.retrieval.collection import Collection, open_collection
from clearspan.retrieval.index import index_class
from clearspan.retrieval.scoring import ScoringOptions
from clearspan.shards.command import StoreCommand


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionCommand(ScoringOptions, StoreCommand):
    """Base class of the commands `search` and `serve`."""

    folder: Annotated[str, Flag("DIR", positional=True, path=True)]
    """Dataset that `embed` wrote, local or on gs:// or s3://, or the output folder of `adapt`."""
    model: Annotated[str | None, Flag("DIR", path=True, resolve=model_folder)] = None
    """Folder of the model that made the vectors, or hf:ORG/NAME[@REVISION], which is fetched from the hub (default: the
    model that the folder of `adapt` names).
    """
    also: Annotated[tuple[str, ...], Flag("DIR", path=True)] = ()
    """Another collection, embedded with the same model, to search together with DIR; may be repeated."""
    index: Annotated[str | None, Flag("NAME")] = None
    """Search by the model with an index, which may miss a hit: faiss, built once and kept in CLEARSPAN_CACHE (extra
    `faiss`), or module:Class for one of your own. A condition and chunks search it deeper; BM25 scores every text
    (default: the model scores every text).
    """
    device: Device = AUTO
    """Device to use: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu."""
    quiet: Quiet = False
    """Show no progress bar."""

    def validate(self) -> None:
        super().validate()
        check_device(self.device)
        if self.model is not None:
            check_folder(self.model)
        if self.index is not None:
            index_class(self.index)

    def paths(self) -> list[str]:
        return [self.folder, *self.also]

    def opened(self, keep: bool) -> Collection:
        """Open the collections that the options name, to be searched as one collection.

        Args:
            keep: if true, texts and vectors stay in memory for later searches, if they take at most half of the
                machine's memory.

        Raises:
            UsageError, PipelineError, ManifestError: an option, the model or a dataset cannot be used.
        """
        return open_collection(
            self.folder,
            self.model,
            also=self.also,
            stemmer=self.stemmer,
            k1=self.k1,
            b=self.b,
            index=self.index,
            device=self.device,
            keep=keep,
            quiet=self.quiet,
        )
