"""Contact sheet of examples: images or spectrograms, each with the name of its class under it.

    image        encoded bytes, scaled down to its cell
    spectrogram  (frames, bins) float16: time to the right, on one scale for all; low frequencies at the bottom; its own
                 color range

Pillow decodes the images one at a time, only from the formats of photographs; matplotlib draws.
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
"""Suffixes of the files that a sheet can be written to."""
USUAL, MOST = 25, 400
"""Default and largest number of cells: with more, the cells would be too small to see."""
CELL, CAPTION, GAP, DPI = 1.5, 0.24, 0.1, 120
"""Side of a cell, height of its caption and gap between cells, in inches; dots per inch."""
CONTRAST = (5, 99.5)
"""Percentiles of a spectrogram's values for the darkest and the brightest color. Recording levels differ so much that a
common range would show little of any clip. The lowest mel bin, always at the floor, lies below the first percentile."""
CHARACTERS = 24
"""Number of characters of a caption that fit under a cell."""


class Cell(NamedTuple):
    """An example on a sheet: an encoded image or a spectrogram (frames, bins), and its caption."""

    value: bytes | np.ndarray
    caption: str


def draw(cells: Iterable[Cell], path: Path, title: str) -> None:
    """Draw a sheet, as square as the number of cells allows, to a file of the type that its suffix says.

    The cell of an image that cannot be decoded says so.

    Raises:
        ShardError: no image can be decoded.
        OSError: the file cannot be written.
    """
    import matplotlib.figure

    drawn = [(_small(value) if isinstance(value, bytes) else value.astype(np.float32), text) for value, text in cells]
    if drawn and all(values is None for values, _ in drawn):
        raise ShardError(
            f"{title}: none of {len(drawn):,} examples is an image that can be decoded: leave out --picture"
        )
    across = int(np.ceil(np.sqrt(max(1, len(drawn)))))
    down = -(-max(1, len(drawn)) // across)
    width, height = across * (CELL + GAP) + GAP, down * (CELL + CAPTION) + 3 * GAP
    figure = matplotlib.figure.Figure(figsize=(width, height))

    def write(x: float, y: float, text: str, size: float, align: str = "center") -> None:
        # parse_math: a $ in a name does not begin a formula
        figure.text(x / width, y / height, text, ha=align, va="center", fontsize=size, parse_math=False)

    longest = max((len(values) for values, _ in drawn if values is not None and values.ndim == 2), default=1)
    for index, (values, text) in enumerate(drawn):
        row, column = divmod(index, across)
        x, y = GAP + column * (CELL + GAP), (down - 1 - row) * (CELL + CAPTION) + CAPTION
        axes = figure.add_axes((x / width, y / height, CELL / width, CELL / height))
        axes.set_axis_off()
        is_spectrogram = values is not None and values.ndim == 2
        # A short clip ends long before its cell does: its caption is aligned with its beginning.
        caption_x, align = (x, "left") if is_spectrogram else (x + CELL / 2, "center")
        write(caption_x, y - CAPTION / 2, _cut(visible(text), CHARACTERS), 7, align)
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
        # Characters that the font lacks are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph ")
        figure.savefig(path, dpi=DPI)


def _small(data: bytes) -> np.ndarray | None:
    """Return an image scaled down to a cell, uint8 (height, width, 3); None if it cannot be decoded."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            picture.thumbnail((round(CELL * DPI), round(CELL * DPI)))
            return np.asarray(picture.convert("RGB"))
    except UNREADABLE:
        return None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2] + " …"
