"""Short descriptions of binary values (encoded images, arrays) for a line of text and for JSON."""

import hashlib
import io
import warnings
from typing import Any

import numpy as np
from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP")
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""Exceptions that Pillow raises for an image that it cannot read."""


def pixels(data: bytes) -> tuple[int, int] | None:
    """Return the width and height in the header of an encoded image; None if it is not an image."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            return picture.size
    except UNREADABLE:
        return None


def in_words(value: Any) -> str:
    """Return a value as text: for bytes and arrays only their size."""
    if isinstance(value, np.ndarray):
        return " x ".join(f"{size:,}" for size in value.shape)
    if not isinstance(value, bytes):
        return str(value)
    size = pixels(value)
    return (f"{size[0]:,} x {size[1]:,} pixels, " if size else "") + f"{len(value):,} bytes"


def for_programs(value: Any) -> Any:
    """Return a value for JSON: for bytes and arrays their size and hash, for a vector its values."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value.tolist()
    if isinstance(value, np.ndarray):
        mean = float(value.mean(dtype=np.float64)) if value.size else None
        return {"shape": list(value.shape), "mean": mean, "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    if not isinstance(value, bytes):
        return value
    size = pixels(value)
    known = {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return known | ({"width": size[0], "height": size[1]} if size else {})
