"""A contact sheet: pictures, or the log-mel spectrograms of clips, with the name of each one's class under it.

    picture      encoded bytes, brought to the size of its cell
    spectrogram  (frames, bins) float16: time to the right, low frequencies below; all on one scale

Pillow decodes pictures one at a time, of the formats of photographs alone; matplotlib draws.
"""

import io
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from shards.terminal import visible
from shards.values import FORMATS, UNREADABLE

SUFFIXES = (".png", ".jpg", ".pdf", ".svg")
"""How the name of a file may end that a sheet is written to."""
USUAL, MOST = 25, 400
"""A sheet has so many cells, and at most so many: with more, none would be seen."""
CELL, CAPTION, GAP, DPI = 1.5, 0.24, 0.1, 120
"""Inches of a cell's side, of what is under it and between two; dots an inch."""
CHARACTERS = 24
"""Of a name, so many fit under a cell."""


class Cell(NamedTuple):
    """An example on a sheet: an encoded picture or a spectrogram (frames, bins), and what is written under it."""

    value: bytes | np.ndarray
    caption: str


class Scale(NamedTuple):
    """What all spectrograms of a sheet share: the lowest and the highest value, and the frames of the longest."""

    low: float
    high: float
    longest: int


def draw(cells: Iterable[Cell], path: Path, title: str) -> None:
    """Draws a sheet, as high as wide where the number of cells allows, to a file of the type that its suffix says.

    A picture that cannot be decoded leaves a cell that says so.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib.figure

    drawn = [(_small(value) if isinstance(value, bytes) else value.astype(np.float32), text) for value, text in cells]
    across = int(np.ceil(np.sqrt(max(1, len(drawn)))))
    down = -(-max(1, len(drawn)) // across)
    width, height = across * (CELL + GAP) + GAP, down * (CELL + CAPTION) + 3 * GAP
    figure = matplotlib.figure.Figure(figsize=(width, height))

    def write(x: float, y: float, text: str, size: float) -> None:
        # A name is no formula.
        figure.text(x / width, y / height, text, ha="center", va="center", fontsize=size, parse_math=False)

    scale = _scale([values for values, _ in drawn if values is not None and values.ndim == 2 and values.size])
    for place, (values, text) in enumerate(drawn):
        row, column = divmod(place, across)
        x, y = GAP + column * (CELL + GAP), (down - 1 - row) * (CELL + CAPTION) + CAPTION
        axes = figure.add_axes((x / width, y / height, CELL / width, CELL / height))
        axes.set_axis_off()
        if values is None:
            write(x + CELL / 2, y + CELL / 2, "cannot be decoded", 7)
        elif values.ndim == 3:
            axes.imshow(values)
        else:
            axes.imshow(values.T, origin="lower", aspect="auto", vmin=scale.low, vmax=scale.high)
            axes.set_xlim(-0.5, scale.longest - 0.5)
        write(x + CELL / 2, y - CAPTION / 2, _cut(visible(text), CHARACTERS), 7)
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


def _scale(spectrograms: Sequence[np.ndarray]) -> Scale:
    lows, highs = [float(one.min()) for one in spectrograms], [float(one.max()) for one in spectrograms]
    return Scale(min(lows, default=0), max(highs, default=1), max(map(len, spectrograms), default=1))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2] + " …"
