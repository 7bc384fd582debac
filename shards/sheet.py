"""A contact sheet: pictures, or the log-mel spectrograms of clips, each with the name of its class under it.

    picture      encoded bytes, brought to the size of its cell
    spectrogram  (frames, bins) float16: time to the right, the same for all; low frequencies below; colors of its own

Pillow decodes pictures one at a time, of the formats of photographs alone; matplotlib draws.
"""

import io
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from clearspan.common.terminal import visible
from clearspan.shards.reader import ShardError
from clearspan.shards.values import FORMATS, UNREADABLE

SUFFIXES = (".png", ".jpg", ".pdf", ".svg")
"""How the name of a file may end that a sheet is written to."""
USUAL, MOST = 25, 400
"""A sheet has so many cells, and at most so many: with more, none would be seen."""
CELL, CAPTION, GAP, DPI = 1.5, 0.24, 0.1, 120
"""Inches of a cell's side, of what is under it and between two; dots an inch."""
CONTRAST = (5, 99.5)
"""The percentiles of a clip's values that get the darkest and the brightest color: clips are recorded at levels so
different that colors common to all would show little in any. The lowest mel bin, always at the floor, is below the
first."""
CHARACTERS = 24
"""Of a name, so many fit under a cell."""


class Cell(NamedTuple):
    """An example on a sheet: an encoded picture or a spectrogram (frames, bins), and what is written under it."""

    value: bytes | np.ndarray
    caption: str


def draw(cells: Iterable[Cell], path: Path, title: str) -> None:
    """Draws a sheet, as high as wide where the number of cells allows, to a file of the type that its suffix says.

    A picture that cannot be decoded leaves a cell that says so.

    Raises:
        ShardError: no cell can be drawn.
        OSError: the file cannot be written.
    """
    import matplotlib.figure

    drawn = [(_small(value) if isinstance(value, bytes) else value.astype(np.float32), text) for value, text in cells]
    if drawn and all(values is None for values, _ in drawn):
        raise ShardError(
            f"{title}: none of {len(drawn):,} examples is a picture that can be decoded: leave --picture out"
        )
    across = int(np.ceil(np.sqrt(max(1, len(drawn)))))
    down = -(-max(1, len(drawn)) // across)
    width, height = across * (CELL + GAP) + GAP, down * (CELL + CAPTION) + 3 * GAP
    figure = matplotlib.figure.Figure(figsize=(width, height))

    def write(x: float, y: float, text: str, size: float, align: str = "center") -> None:
        # A name is no formula.
        figure.text(x / width, y / height, text, ha=align, va="center", fontsize=size, parse_math=False)

    longest = max((len(values) for values, _ in drawn if values is not None and values.ndim == 2), default=1)
    for place, (values, text) in enumerate(drawn):
        row, column = divmod(place, across)
        x, y = GAP + column * (CELL + GAP), (down - 1 - row) * (CELL + CAPTION) + CAPTION
        axes = figure.add_axes((x / width, y / height, CELL / width, CELL / height))
        axes.set_axis_off()
        is_spectrogram = values is not None and values.ndim == 2
        # A short clip ends long before its cell does: its name begins where it begins.
        place_of_name, align = (x, "left") if is_spectrogram else (x + CELL / 2, "center")
        write(place_of_name, y - CAPTION / 2, _cut(visible(text), CHARACTERS), 7, align)
        if values is None:
            write(x + CELL / 2, y + CELL / 2, "cannot be decoded", 7)
        elif is_spectrogram:
            low, high = np.percentile(values, CONTRAST) if values.size else (0, 1)
            axes.imshow(values.T, origin="lower", aspect="auto", vmin=low, vmax=high)
            axes.set_xlim(-0.5, longest - 0.5)
        else:
            axes.imshow(values)
    write(width / 2, height - 1.5 * GAP, _cut(visible(title), int(CHARACTERS * 0.8 * across)), 8)
    with warnings.catch_warnings():
        # Names of a script that the font lacks are boxes.
        warnings.filterwarnings("ignore", message="Glyph ")
        figure.savefig(path, dpi=DPI)


def _small(data: bytes) -> np.ndarray | None:
    """A picture of at most a cell's size, uint8 (height, width, 3); None: it cannot be decoded."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            picture.thumbnail((round(CELL * DPI), round(CELL * DPI)))
            return np.asarray(picture.convert("RGB"))
    except UNREADABLE:
        return None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2] + " …"
