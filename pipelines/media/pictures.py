"""Conversion of any image to a baseline JPEG of bounded size: upright, RGB, with the same bytes on every machine.

    bytes -> header: format, size              an image that is too large is refused here, before memory is allocated
          -> pixels                            a JPEG is decoded at 1/8 to 4/8 of its size if that is large enough
          -> resized -> upright -> JPEG        bilinear, antialiased

The bilinear filter is the default of torchvision's Resize, and therefore of most training. Pillow reads all formats
except JPEG, because it does not report all damage in a JPEG. JPEGs are decoded with libjpeg-turbo, and each of its
warnings counts as an error. Pillow resizes all other formats. JPEGs, the most frequent format, are resized by
cykooz_resizer in a third of the time, with the same filter; the results differ from Pillow's by at most one gray level.
Color profiles are dropped without being read.
"""

import io
import logging
import math
import warnings
from typing import Any

import cykooz_resizer as resizer
import numpy as np
import simplejpeg
from PIL import Image, UnidentifiedImageError

from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.media import unreadable

MAX_PIXELS = 178_956_970
"""Number of pixels of the largest image that Pillow opens."""
QUALITY = 95
MARGIN = 1.25
"""A JPEG is decoded at a fraction of its size only if the result is at least this many times larger than the target. It
is then within 2 gray levels of a full decode.
"""
EIGHTHS = (1, 2, 3, 4)
"""Fractions of a JPEG's size, in eighths, at which it is decoded faster than at its full size."""
MAX_SIDE = 65_500
"""Longest side of an image that libjpeg writes, in pixels."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_ORIENTATION = 0x0112
_BILINEAR = resizer.ResizeAlg.convolution(resizer.FilterType.bilinear)

# Damage is reported as the reason, so Pillow's warnings about it are not needed. Its other warnings are harmless.
warnings.filterwarnings("ignore", module=r"PIL\.|clearspan\.pipelines\.media\.pictures")
logging.getLogger("PIL").setLevel(logging.CRITICAL)


def shrunk(data: bytes, size: int) -> bytes:
    """Return an image as an upright RGB baseline JPEG of quality 95 (4:2:0) whose short side is at most `size` pixels.

    An image is never enlarged. If it is already an upright RGB baseline JPEG and small enough, it is decoded as a
    check, and its bytes are returned unchanged, whatever its quality. Transparency is drawn on white; 16 bits per
    channel become 8.

    Args:
        data: the content of a JPEG, PNG, WebP, GIF, BMP or TIFF with one frame. Of a JPEG with several frames (MPO),
            the first is used.
        size: the maximum length of the short side, in pixels.

    Raises:
        RecordError: the data are not an image, or the image is damaged, truncated, too large or animated.
    """
    picture = _opened(data)
    width, height = picture.size
    is_jpeg = picture.format in ("JPEG", "MPO")
    scale = min(1.0, size / min(width, height))
    target = (max(1, round(width * scale)), max(1, round(height * scale)))
    if max(target) > MAX_SIDE:
        raise RecordError(f"{target[0]:,} x {target[1]:,} pixels after scaling: a JPEG has at most {MAX_SIDE:,} a side")
    try:
        pixels = _jpeg(data, picture, target) if is_jpeg else _other(data, picture, target)
    except (RecordError, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise anything on damaged data
        raise RecordError(_damage(picture.format or "image", error)) from None
    orientation = _orientation(picture)
    is_kept = picture.format == "JPEG" and picture.mode == "RGB" and target == picture.size
    if is_kept and orientation == 1 and "progressive" not in picture.info:
        return data
    upright = np.ascontiguousarray(_upright(pixels, orientation))
    encoded: bytes = simplejpeg.encode_jpeg(upright, quality=QUALITY, colorsubsampling="420")
    return encoded


def _opened(data: bytes) -> Image.Image:
    """Open an image, which reads only its header. Raise RecordError if it cannot be read."""
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError:
        raise RecordError(f"more than {MAX_PIXELS:,} pixels") from None
    except UnidentifiedImageError:
        raise RecordError(unreadable(data, "image", "unknown format")) from None
    except Exception as error:
        raise RecordError(_damage("image", error)) from None


def _damage(name: str, error: Exception) -> str:
    """Return the error message for an image on which a decoder failed.

    Args:
        name: the image's format, or "image".
        error: the decoder's error.
    """
    message = " ".join(str(error).split())
    if any(word in message.lower() for word in ("truncated", "premature end of jpeg", "eof")):
        return f"truncated {name}"
    return f"damaged {name}: {message or type(error).__name__}"


def _jpeg(data: bytes, picture: Image.Image, target: tuple[int, int]) -> np.ndarray:
    """Decode a JPEG and resize it; return its pixels in RGB, (height, width, 3) uint8.

    If the JPEG is damaged, the decoder's error is raised, which may be of any type.

    Args:
        data: the content of the file.
        picture: the same image, as Pillow opened it: its size and color mode are read from it.
        target: the (width, height) of the result.
    """
    width, height = picture.size
    enough = MARGIN * max(target[0] / width, target[1] / height) * 8
    eighths = next((number for number in EIGHTHS if number >= enough), 8)
    least = {"min_width": math.ceil(width * eighths / 8), "min_height": math.ceil(height * eighths / 8)}
    least = least if eighths < 8 else {}
    if picture.mode == "CMYK":
        inks = simplejpeg.decode_jpeg(data, colorspace="cmyk", **least)
        # CMYK JPEGs come from Adobe's programs, which invert the inks.
        pixels = np.asarray(Image.fromarray(255 - inks, "CMYK").convert("RGB"))
    else:
        pixels = simplejpeg.decode_jpeg(data, colorspace="rgb", **least)
    if target == picture.size:
        return pixels
    # A side that is not a multiple of the fraction is rounded up: its last pixel lies partly beyond the image.
    box = resizer.CropBox(0, 0, width * eighths / 8, height * eighths / 8)
    source = resizer.ImageData(pixels.shape[1], pixels.shape[0], resizer.PixelType.U8x3, pixels.tobytes())
    resized = resizer.ImageData(*target, resizer.PixelType.U8x3)
    options = resizer.ResizeOptions(resize_alg=_BILINEAR, crop_box=box, use_alpha=False)
    resizer.Resizer().resize(source, resized, options)
    return np.frombuffer(resized.get_buffer(), np.uint8).reshape(target[1], target[0], 3)


def _other(data: bytes, picture: Image.Image, target: tuple[int, int]) -> np.ndarray:
    """Decode an image that is not a JPEG and resize it; return its pixels in RGB, (height, width, 3) uint8.

    If the image is damaged, Pillow's error is raised, which may be of any type.

    Args:
        data: the content of the file.
        picture: the same image, as Pillow opened it.
        target: the (width, height) of the result.

    Raises:
        RecordError: the image is animated, has several pages, or has 32 bits per channel.
    """
    name = picture.format
    if (frames := getattr(picture, "n_frames", 1)) > 1:
        raise RecordError(f"TIFF of {frames} pages" if name == "TIFF" else f"animated {name}: {frames} frames")
    if picture.mode in ("I", "F"):
        raise RecordError(f"{name} of 32 bits per channel")
    if name == "PNG":
        Image.open(io.BytesIO(data), formats=("PNG",)).verify()  # check the checksums, which decoding skips
    picture.load()
    picture = _plain(picture)
    if target != picture.size:
        picture = picture.resize(target, Image.Resampling.BILINEAR)
    if picture.mode == "RGBA":
        picture = Image.alpha_composite(Image.new("RGBA", target, "white"), picture)
    return np.asarray(picture.convert("RGB"))


def _plain(picture: Image.Image) -> Image.Image:
    """Convert an image to 8 bits per channel, in Pillow's mode L (gray), RGB, or, if it has transparency, RGBA.

    Args:
        picture: an image of at most 16 bits per channel.
    """
    if picture.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    return picture if picture.mode in ("L", "RGB") else picture.convert("RGB")


def _orientation(picture: Image.Image) -> int:
    """Return EXIF's orientation, 1 to 8; 1 (upright as stored) if EXIF is absent or broken."""
    try:
        value: Any = picture.getexif().get(_ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return an image rotated and mirrored so that it is upright.

    Args:
        pixels: the image as stored, (height, width, 3).
        orientation: its orientation in EXIF, 1 (already upright) to 8.
    """
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
