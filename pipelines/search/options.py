"""Options of the commands that search collections: the collections, the model and the device."""

import dataclasses
from typing import Annotated

from clearspan.common.compute import AUTO, Device
from clearspan.common.options import Flag, Options, Quiet
from clearspan.common.stemming import STEMMERS
from clearspan.pipelines.kinds.vector_options import check_device, check_folder
from clearspan.pipelines.search.collection import Collection

FOLDER = "a dataset that `embed` made, local or on gs:// or s3://, or adapt's folder"
MODEL = "the local folder of the model that made the vectors (default: the one that adapt's folder names)"
ALSO = "another collection of the same model, searched together with the first; may be repeated"
STEMMER = "leave out the endings of a language in BM25's words (extra `search`)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionOptions(Options):
    """Options that name the collections to search, their model and the device."""

    folder: Annotated[str, Flag(FOLDER, "DIR", positional=True)]
    model: Annotated[str | None, Flag(MODEL, "DIR")] = None
    also: Annotated[tuple[str, ...], Flag(ALSO, "DIR")] = ()
    stemmer: Annotated[str | None, Flag(STEMMER, "LANGUAGE", choices=STEMMERS)] = None
    device: Device = AUTO
    quiet: Quiet = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)
        if self.model is not None:
            check_folder(self.model)

    @property
    def inputs(self) -> list[str]:
        """The paths that the command reads. They may be in a bucket."""
        return [self.folder, *self.also]

    def opened(self, keep: bool) -> Collection:
        """Open the collections that the options name, to be searched as one collection.

        Args:
            keep: whether texts and vectors stay in memory for later searches, if they fit in half of the machine's
                memory.

        Raises:
            UsageError: an option cannot be used.
            PipelineError, ManifestError: a collection cannot be searched, or is damaged.
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
