"""Audio: clips of speakers or classes, as log-mel frames.

    file or member of a tar -> mono, 16 kHz -> log-mel of 128 bins, 10 ms a frame -> at most `frames` of them

An example is {id, frames, label}: id from the bytes of the clip's file, label the number of its class, which is its
speaker where the folders are speakers'. A longer clip is cut, or split to pieces, each an example (and one that is
read). What is done to a clip is in `pipelines.media.clips`.
"""

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from clearspan.pipelines.kinds.labelled import LabelledKind
from clearspan.pipelines.media.clips import spectrograms
from clearspan.pipelines.tally import Counts
from clearspan.shards.layouts import array_column
from clearspan.shards.schema import MEL_BINS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audio(LabelledKind):
    """The kind "audio": an example has at most `frames` frames; of a longer clip they are the first, or it is split."""

    frames: int = 1024
    long: str = "cut"

    name: ClassVar[str] = "audio"
    summary: ClassVar[str] = "clips of speakers or classes: folders, tars, lists; wav, flac, ogg, mp3"
    example: ClassVar[str] = (
        r"python -m pipelines audio --input 'LibriSpeech/**/*.flac' --label-pattern '(\d+)-\d+-\d+\.flac' "
        "--output data/audio --top-classes 50"
    )
    extensions: ClassVar[tuple[str, ...]] = (".wav", ".flac", ".ogg", ".oga", ".mp3")
    max_bytes: ClassVar[int] = 600_000_000
    """Five hours of 16 bits at 16 kHz."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--frames", type=int, default=1024, metavar="N", help="at most, of 10 ms (default 1024)")
        parser.add_argument("--long", choices=("cut", "split"), default="cut", help="what becomes of a longer clip")

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        if not 1 <= arguments.frames <= 100_000:
            raise ValueError("--frames must be from 1 to 100,000")
        return super().from_arguments(arguments)

    @property
    def bytes_per_s(self) -> float:
        """Measured on the clips of `benchmarks.modalities`, FLAC of 16 kHz."""
        return 12e6

    def options(self) -> dict[str, Any]:
        return {"frames": self.frames, "long": self.long, **super().options()}

    def maker(self) -> "Clips":
        return Clips(self.frames, self.long)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Says how many clips were longer."""
        found = super().remarks(fingerprint, sums)
        if number := sums.get("full"):
            found.append(f"{number:,} clips have {self.frames:,} frames: what is longer is cut")
        if number := sums.get("split"):
            found.append(f"{number:,} clips of more than {self.frames:,} frames are split, each piece an example")
        return found


@dataclasses.dataclass(frozen=True)
class Clips:
    """The kind's way from a file to its examples."""

    frames: int
    long: str

    def examples(self, data: bytes, counts: Counts) -> Iterator[np.ndarray]:
        for number, frames in enumerate(spectrograms(data, self.frames, self.long)):
            if self.long == "cut":
                counts.count("full", len(frames) == self.frames)
            else:
                counts.count("split", number == 1)
            yield frames

    def column(self, values: list[np.ndarray]) -> pa.Array:
        return array_column(values, MEL_BINS)

    def num_bytes(self, value: np.ndarray) -> int:
        return value.nbytes
