"""Audio: labeled clips as log-mel spectrograms.

    file or tar member -> mono, 16 kHz -> log-mel spectrogram, 128 bins, a frame every 10 ms -> at most `frames` frames

An example is {id, frames, label}. The id is a hash of the file's bytes, and the label is the number of the class, such
as the speaker. A longer clip is cut, or split into parts. Each part is an example and counts as one record read.
`pipelines.media.clips` does the conversion.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Le

from clearspan.cli.catalog import COMMANDS
from clearspan.common.options import Flag
from clearspan.pipelines.builders import Builder, Dedup
from clearspan.pipelines.builders.labeled import LabeledWorker, class_files, labels, taken_lines
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.labels import SelectionOptions
from clearspan.pipelines.records import Inputs, ReadOptions
from clearspan.shards.layouts import array_column
from clearspan.shards.schema import MEL_BINS, schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audio(Builder):
    """Builder of the kind `audio`: log-mel spectrograms of labeled clips."""

    frames: Annotated[int, Flag("N"), Ge(1), Le(100000)] = 1024
    """Maximum length of an example, in frames of 10 ms."""
    long: Annotated[Literal["cut", "split"], Flag()] = "cut"
    """Whether to cut a longer clip after its first --frames, or split it into several examples."""
    dedup: Dedup = False
    """Drop duplicates: keep only the first of equal examples."""
    selection: SelectionOptions = dataclasses.field(default_factory=SelectionOptions)

    name: ClassVar[str] = "audio"
    summary: ClassVar[str] = COMMANDS["audio"].summary
    description: ClassVar[str] = (
        "Make a dataset of log-mel spectrograms with classes, such as speakers, from wav, flac, ogg or mp3 clips in\n"
        "folders, tars or lists."
    )
    example: ClassVar[str] = (
        r"clearspan audio --input 'LibriSpeech/**/*.flac' --label-pattern '(\d+)-\d+-\d+\.flac' "
        "--output data/audio --top-classes 50"
    )
    extensions: ClassVar[tuple[str, ...]] = (".wav", ".flac", ".ogg", ".oga", ".mp3")
    max_bytes: ClassVar[int] = 600_000_000
    """Size of five hours of 16-bit samples at 16 kHz."""
    rate: ClassVar[float] = 12e6
    """Rate measured on the clips of `docs/benchmarks.md`, FLAC at 16 kHz."""

    def options(self) -> dict[str, Any]:
        return {"frames": self.frames, "long": self.long, **dataclasses.asdict(self.selection)}

    def reading(self) -> ReadOptions:
        return ReadOptions(as_bytes=True, extensions=self.extensions, wanted=self.selection)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        return class_files(inputs)

    def worker(self, resources: Mapping[str, bytes]) -> "AudioWorker":
        return AudioWorker(schema(self.name), labels(resources), self.frames, self.long)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the lines for the summary of the run: the number of files and classes that are used, if not all are,
        and, if there are long clips, a line about these.

        If long clips are cut, the line has the number of clips with as many frames as allowed: the clips that were cut,
        and any that had this length from the start. If long clips are split, it has the number of clips that were
        split.
        """
        lines = taken_lines(fingerprint)
        if number := sums.get("full"):
            lines.append(f"{number:,} clips have {self.frames:,} frames: longer ones were cut")
        if number := sums.get("split"):
            lines.append(f"{number:,} clips of more than {self.frames:,} frames are split, each piece an example")
        return lines


@dataclasses.dataclass(frozen=True)
class AudioWorker(LabeledWorker):
    """Worker of the kind `audio`.

    Attributes:
        frames: the maximum length of an example, in frames of 10 ms.
        long: "cut" or "split".
    """

    frames: int
    long: Literal["cut", "split"]

    def build(self, data: bytes, counts: Counts) -> Iterator[np.ndarray]:
        from clearspan.pipelines.media.clips import spectrograms  # its libraries may be missing if no audio is read

        for number, frames in enumerate(spectrograms(data, self.frames, self.long)):
            if self.long == "cut":
                counts.count("full", len(frames) == self.frames)
            else:
                counts.count("split", number == 1)
            yield frames

    def column(self, values: list[np.ndarray]) -> pa.Array:
        return array_column(values, MEL_BINS)
