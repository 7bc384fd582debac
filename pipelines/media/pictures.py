"""Conversion of any image to a baseline JPEG of bounded size: upright, RGB, with the same bytes on every machine.

    bytes -> header: format, scans, pixels     refused here, before memory is allocated
          -> pixels                            a JPEG is decoded at 1/8 to 4/8 of its size if that is large enough
          -> resized -> upright -> JPEG        bilinear, antialiased

The bilinear filter is the default of torchvision's Resize, and so of most training. Pillow reads all formats except
JPEG, in which it would let damage pass: libjpeg-turbo decodes those, with every warning an error. JPEGs, which are most
images, are resized with the same filter in vector instructions, in a third of Pillow's time and within one gray level.
Color profiles are dropped unread.
"""

import io
import logging
import math
import re
import warnings
from typing import Any

import cykooz_resizer as resizer
import numpy as np
import simplejpeg
from PIL import Image, UnidentifiedImageError

from clearspan.pipelines.media.identify import name_of_content
from clearspan.pipelines.tally import RecordError

MAX_PIXELS = 178_956_970
"""Largest image that Pillow opens."""
MAX_BYTES = 1_000_000_000
"""Most memory that a decoder may take for an image, estimated from the header."""
BYTES_A_PIXEL = {"WEBP": 16, "TIFF": 8}
"""Memory of a decoder per pixel, where it is more than Pillow's 4 bytes: WebP holds frames, TIFF strips."""
BAND_PIXELS = 1 << 21
"""An image of more pixels is converted and narrowed in bands of this many."""
QUALITY = 95
MARGIN = 1.25
"""A JPEG decoded at a fraction of its size stays at least this many times larger than the target, so that the result is
within 2 gray levels of a full decode."""
EIGHTHS = (1, 2, 3, 4)
"""Fractions, in eighths, that are decoded faster than the whole."""
MAX_SCANS = 64
"""A JPEG with more scans is refused before it is decoded: each scan takes a pass over the whole image, even if it has
only a few bytes. libjpeg writes 10 scans for a color image and 18 for CMYK; a file of 654 kB can hold 19,000."""
MAX_SIDE = 65_500
"""Longest side that libjpeg writes."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")
"""The beginning of a JPEG's segment. A byte of 255 in a scan, a restart marker and padding do not match."""
BASELINE, END, SCAN = b"\xc0", b"\xd9", b"\xda"
FRAMES = tuple(bytes([0xC0 + number]) for number in range(16) if number not in (4, 8, 12))
"""Markers of the frame header, which says how pixels are coded; BASELINE is one of them."""
MAGIC = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF", b"II*\0": "TIFF", b"MM\0*": "TIFF"}
"""First bytes of images."""
_ORIENTATION = 0x0112
_BILINEAR = resizer.ResizeAlg.convolution(resizer.FilterType.bilinear)

# Pillow's warnings about damage are in the reason already, or harmless.
warnings.filterwarnings("ignore", module=r"PIL\.|clearspan\.pipelines\.media\.pictures")
logging.getLogger("PIL").setLevel(logging.CRITICAL)


def shrunk(data: bytes, size: int) -> bytes:
    """Return an image as an upright RGB baseline JPEG of quality 95 (4:2:0) whose short side is at most `size` pixels.

    An image is never enlarged. An image that is such a JPEG already, of any quality, keeps its bytes after a full
    decode, without a second loss. Transparency is drawn on white; 16 bits per channel become 8.

    Args:
        data: a JPEG, PNG, WebP, GIF, BMP or TIFF with one frame; of a JPEG with more (MPO), the first frame is used.
        size: pixels.

    Raises:
        RecordError: the data are not an image, or the image is damaged, truncated, too large or animated.
    """
    picture = _opened(data)
    width, height = picture.size
    is_jpeg = picture.format in ("JPEG", "MPO")
    scans, is_baseline = _scans(data) if is_jpeg else (1, False)
    if scans > MAX_SCANS:
        raise RecordError(f"JPEG of {scans:,} scans: more than {MAX_SCANS}")
    # Of a JPEG with several scans the decoder holds all coefficients, 2 bytes each; of other JPEGs, a few rows.
    each = 2 * len(picture.getbands()) * (scans > 1) if is_jpeg else BYTES_A_PIXEL.get(str(picture.format), 4)
    most = min(MAX_PIXELS, MAX_BYTES // max(1, each))
    if width * height > most:
        what = "" if most == MAX_PIXELS else f", the limit of a {'progressive ' if is_jpeg else ''}{picture.format}"
        raise RecordError(f"{width:,} x {height:,} pixels: more than {most:,}{what}")
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
    if is_kept and orientation == 1 and is_baseline:
        return data
    upright = np.ascontiguousarray(_upright(pixels, orientation))
    encoded: bytes = simplejpeg.encode_jpeg(upright, quality=QUALITY, colorsubsampling="420")
    return encoded


def _opened(data: bytes) -> Image.Image:
    """Read an image's header."""
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError:
        raise RecordError(f"more than {MAX_PIXELS:,} pixels") from None
    except Exception as error:
        name = next((name for magic, name in MAGIC.items() if data.startswith(magic)), None)
        if not name:
            raise RecordError(f"{name_of_content(data)}, not an image of pixels") from None
        is_unknown = isinstance(error, UnidentifiedImageError)
        raise RecordError(f"{name} without a whole header" if is_unknown else _damage(name, error)) from None


def _damage(name: str, error: Exception) -> str:
    """Return the reason for an image on which a decoder failed."""
    message = " ".join(str(error).split())
    if any(word in message.lower() for word in ("truncated", "premature end of jpeg", "eof")):
        return f"truncated {name}"
    return f"damaged {name}: {message or type(error).__name__}"


def _jpeg(data: bytes, picture: Image.Image, target: tuple[int, int]) -> np.ndarray:
    """Decode a JPEG and resize it to `target` (width, height); return (height, width, 3) uint8."""
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
    """Decode an image of another format and resize it to `target` (width, height); return (height, width, 3) uint8."""
    name = picture.format
    if (frames := getattr(picture, "n_frames", 1)) > 1:
        raise RecordError(f"TIFF of {frames} pages" if name == "TIFF" else f"animated {name}: {frames} frames")
    if picture.mode in ("I", "F"):
        raise RecordError(f"{name} of 32 bits per channel")
    if name == "PNG":
        Image.open(io.BytesIO(data), formats=("PNG",)).verify()  # check the checksums, which decoding skips
    picture.load()
    if target == picture.size or math.prod(picture.size) <= BAND_PIXELS:
        picture = _plain(picture)
    else:
        picture = _narrowed(picture, target[0])
    if target != picture.size:
        picture = picture.resize(target, Image.Resampling.BILINEAR)
    if picture.mode in ("RGBA", "RGBa"):
        picture = Image.alpha_composite(Image.new("RGBA", target, "white"), picture.convert("RGBA"))
    return np.asarray(picture.convert("RGB"))


def _plain(picture: Image.Image) -> Image.Image:
    """Convert an image of at most 16 bits per channel to L, RGB or RGBA."""
    if picture.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    return picture if picture.mode in ("L", "RGB") else picture.convert("RGB")


def _narrowed(picture: Image.Image, width: int) -> Image.Image:
    """Convert a large image and resize it to its final width, band by band, without a copy of the whole.

    Pillow resizes rows first, then columns, each to 8 bits: resizing the result to the final height gives the same as
    one step. Transparency is premultiplied (RGBa), as Pillow does before it resizes.
    """
    rows = max(1, BAND_PIXELS // picture.width)
    bands = []
    for top in range(0, picture.height, rows):
        band = _plain(picture.crop((0, top, picture.width, min(top + rows, picture.height))))
        band = band.convert("RGBa") if band.mode == "RGBA" else band
        bands.append(band.resize((width, band.height), Image.Resampling.BILINEAR))
    whole = Image.new(bands[0].mode, (width, picture.height))
    for number, band in enumerate(bands):
        whole.paste(band, (0, number * rows))
    return whole


def _orientation(picture: Image.Image) -> int:
    """Return EXIF's orientation, 1 to 8; 1 (upright as stored) if EXIF is absent or broken."""
    try:
        value: Any = picture.getexif().get(_ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Rotate and mirror (height, width, 3) according to EXIF's orientation."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _scans(data: bytes) -> tuple[int, bool]:
    """Return the number of a JPEG's scans, and whether it is baseline: neither progressive nor arithmetic-coded."""
    scans, is_baseline, components, place = 0, False, b"", 2
    while (marker := MARKER.search(data, place)) and marker[1] != END:
        start = marker.end()
        if marker[1] in FRAMES:
            is_baseline, components = marker[1] == BASELINE, data[start + 7 : start + 8]
        elif marker[1] == SCAN:
            scans += 1
            if is_baseline and data[start + 2 : start + 3] == components:
                break  # its only scan, as in most images: the rest need not be searched
        place = start + int.from_bytes(data[start : start + 2], "big")
    return scans, is_baseline
