"""Images: labeled image files, fully decoded and scaled down, as JPEG.

    file or tar member -> decoded, upright, RGB -> short side at most `size` pixels -> JPEG, quality 95

An example is {id, image, label}. The id is a hash of the file's bytes, and the label is the number of the class.
`pipelines.media.pictures` does the conversion.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from annotated_types import Ge, Le

from clearspan.cli.catalog import COMMANDS
from clearspan.common.options import Flag
from clearspan.pipelines.builders import Builder, Dedup
from clearspan.pipelines.builders.labeled import LabeledWorker, class_files, labels, taken_lines
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.labels import SelectionOptions
from clearspan.pipelines.records import Inputs, ReadOptions
from clearspan.shards.schema import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images(Builder):
    """Builder of the kind `images`: labeled images as JPEG.

    Attributes:
        max_bytes: the default maximum size of an image file, in bytes. A larger file is a bad record.
        rate: the number of input bytes that one process handles per second.
    """

    size: Annotated[int, Flag("N"), Ge(8), Le(4096)] = 256
    """Scale larger images down so that the short side has N pixels."""
    dedup: Dedup = False
    """Drop duplicates: keep only the first of equal examples."""
    selection: SelectionOptions = dataclasses.field(default_factory=SelectionOptions)

    name: ClassVar[str] = "images"
    summary: ClassVar[str] = COMMANDS["images"].summary
    description: ClassVar[str] = (
        "Make a dataset of images with classes, from folders, lists, webdatasets, or other tars (of one class each,\n"
        "or with a folder per class)."
    )
    example: ClassVar[str] = "clearspan images --input ILSVRC/train --output data/images"
    extensions: ClassVar[tuple[str, ...]] = (".jpg", ".jpeg", ".png", ".webp")
    max_bytes: ClassVar[int] = 200_000_000
    rate: ClassVar[float] = 16e6
    """Rate measured on the 500 x 375 photographs of `docs/benchmarks.md`."""

    def options(self) -> dict[str, Any]:
        return {"size": self.size, **dataclasses.asdict(self.selection)}

    def reading(self) -> ReadOptions:
        return ReadOptions(as_bytes=True, extensions=self.extensions, wanted=self.selection)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        return class_files(inputs)

    def worker(self, resources: Mapping[str, bytes]) -> "ImageWorker":
        return ImageWorker(schema(self.name), labels(resources), self.size)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        return taken_lines(fingerprint)


@dataclasses.dataclass(frozen=True)
class ImageWorker(LabeledWorker):
    """Worker of the kind `images`.

    Attributes:
        size: the maximum length of the short side, in pixels.
    """

    size: int

    def build(self, data: bytes, counts: Counts) -> Iterator[bytes]:
        from clearspan.pipelines.media.pictures import shrunk  # its libraries may be missing if no image is read

        yield shrunk(data, self.size)

    def column(self, values: list[bytes]) -> pa.Array:
        return pa.array(values, pa.binary())
