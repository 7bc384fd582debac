"""What a picture or a spectrogram of an example is, where its bytes cannot stand: in a line of words, or in JSON."""

import hashlib
import io
import warnings
from typing import Any

import numpy as np
from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP")
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for a picture that it cannot read."""


def pixels(data: bytes) -> tuple[int, int] | None:
    """The width and the height of an encoded picture, by its header; None: it is no picture."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            return picture.size
    except UNREADABLE:
        return None


def in_words(value: Any) -> str:
    """A value of an example for a line: of bytes and of spectrograms only how large they are."""
    if isinstance(value, np.ndarray):
        return " x ".join(f"{size:,}" for size in value.shape)
    if not isinstance(value, bytes):
        return str(value)
    size = pixels(value)
    return (f"{size[0]:,} x {size[1]:,} pixels, " if size else "") + f"{len(value):,} bytes"


def for_programs(value: Any) -> Any:
    """A value of an example as JSON can say it: of bytes and of spectrograms, how many and which."""
    if isinstance(value, np.ndarray):
        mean = float(value.mean(dtype=np.float64)) if value.size else None
        return {"shape": list(value.shape), "mean": mean, "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    if not isinstance(value, bytes):
        return value
    size = pixels(value)
    known = {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return known | ({"width": size[0], "height": size[1]} if size else {})
