"""Images: pictures of classes, decoded for real and brought to a size, as JPEG.

    file or member of a tar -> decoded, upright, RGB -> short side at most `size` -> JPEG of quality 95

An example is {id, image, label}: id from the bytes of the picture's file, label the number of its class. What is done
to a picture is in `pipelines.media.pictures`.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import pyarrow as pa

from clearspan.pipelines.kinds.labelled import LabelledKind
from clearspan.pipelines.media.pictures import shrunk
from clearspan.pipelines.tally import Counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images(LabelledKind):
    """The kind "images": `size` is what the short side of a picture is brought down to, in pixels."""

    size: int = 256

    name: ClassVar[str] = "images"
    summary: ClassVar[str] = "pictures of classes: folders, tars (a class each, of folders, webdataset's), lists"
    example: ClassVar[str] = "python -m pipelines images --input ILSVRC/train --output data/images"
    extensions: ClassVar[tuple[str, ...]] = (".jpg", ".jpeg", ".png", ".webp")
    max_bytes: ClassVar[int] = 200_000_000

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--size", type=int, default=256, metavar="N", help="of a larger short side (default 256)")

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        if not 8 <= arguments.size <= 4096:
            raise ValueError("--size must be from 8 to 4096")
        return super().from_arguments(arguments)

    @property
    def bytes_per_s(self) -> float:
        """Measured on the photographs of 500x375 of `benchmarks.modalities`."""
        return 16e6

    def options(self) -> dict[str, Any]:
        return {"size": self.size, **super().options()}

    def maker(self) -> "Pictures":
        return Pictures(self.size)


@dataclasses.dataclass(frozen=True)
class Pictures:
    """The kind's way from a file to an example."""

    size: int

    def examples(self, data: bytes, counts: Counts) -> Iterator[bytes]:
        yield shrunk(data, self.size)

    def column(self, values: list[bytes]) -> pa.Array:
        return pa.array(values, pa.binary())

    def num_bytes(self, value: bytes) -> int:
        return len(value)
