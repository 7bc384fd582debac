"""Base class of the commands that search collections: its options name the collections, their model and the device."""

import dataclasses
from typing import Annotated

from clearspan.common.compute import AUTO, Device, check_device
from clearspan.common.model_forms import check_folder
from clearspan.common.options import Flag, Quiet
from clearspan.retrieval.collection import Collection
from clearspan.retrieval.stemming import STEMMERS
from clearspan.shards.command import StoreCommand

FOLDER = "dataset that `embed` wrote, local or on gs:// or s3://, or the output folder of `adapt`"
MODEL = "local folder of the model that made the vectors (default: the model that the folder of `adapt` names)"
ALSO = "another collection, embedded with the same model, to search together with DIR; may be repeated"
STEMMER = "language whose word endings BM25 ignores (extra `search`; default: none)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionCommand(StoreCommand):
    """Base class of the commands `search` and `serve`.

    Attributes:
        folder: the collection to search: the folder of a dataset of vectors, or an output folder of `adapt`.
        model: the folder of the model that made the vectors; None for the model that the collection names.
        also: the folders of further collections, which are searched together with `folder`.
        stemmer: the language whose word endings BM25 ignores; None: the language that the collection names, if any.
        device: the device that embeds the queries.
        quiet: if true, no progress bars are shown.
    """

    folder: Annotated[str, Flag(FOLDER, "DIR", positional=True, path=True)]
    model: Annotated[str | None, Flag(MODEL, "DIR", path=True)] = None
    also: Annotated[tuple[str, ...], Flag(ALSO, "DIR", path=True)] = ()
    stemmer: Annotated[str | None, Flag(STEMMER, "LANGUAGE", choices=STEMMERS)] = None
    device: Device = AUTO
    quiet: Quiet = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)
        if self.model is not None:
            check_folder(self.model)

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
        return Collection.open(
            self.folder,
            self.model,
            also=self.also,
            stemmer=self.stemmer,
            device=self.device,
            keep=keep,
            quiet=self.quiet,
        )
