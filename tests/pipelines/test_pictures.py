"""Any image to a bounded JPEG, compared with Pillow on real photographs; and refused images, with the reason."""

import io
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_images

from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.media.pictures import MAX_PIXELS, shrunk
from tests.conftest import ROOT

TIFF_OF_ORIENTATION = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"
TURNED = TIFF_OF_ORIENTATION + b"\x03\0\0\0\0\0\0"
RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.fixture(scope="module")
def photographs(shared_data: Path) -> list[Image.Image]:
    """Two detailed photographs of 640 x 427, and every hundredth of Caltech's, some of them grayscale."""
    found = sorted((shared_data / "images" / "caltech60").glob("*/*.jpg"))[::100]
    return [*map(Image.fromarray, load_sample_images().images), *(Image.open(path).convert("RGB") for path in found)]


@pytest.fixture(scope="module")
def photograph(shared_data: Path) -> bytes:
    """A JPEG of Caltech's whose short side is below 256."""
    for path in sorted((shared_data / "images" / "caltech60").glob("*/*.jpg")):
        picture = Image.open(path)
        if picture.mode == "RGB" and min(picture.size) < 256 and "progressive" not in picture.info:
            return path.read_bytes()
    raise AssertionError("no such picture")


def encoded(picture: Image.Image, name: str = "JPEG", **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, name, **options)
    return data.getvalue()


def decoded(data: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode) == ("JPEG", "RGB") and "progressive" not in picture.info
    picture.load()
    return picture


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return the mean absolute difference in gray levels."""
    assert one.size == other.size
    return float(np.abs(np.asarray(one, np.int16) - np.asarray(other.convert("RGB"), np.int16)).mean())


def reason(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        shrunk(data, 256)
    return str(caught.value)


def plain(color: tuple[int, ...] | int, mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (40, 30), color)


def center(data: bytes) -> tuple[int, ...]:
    picture = decoded(data)
    return picture.getpixel((picture.width // 2, picture.height // 2))


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(500, 375), (513, 770), (700, 525), (1024, 768), (1101, 825), (2304, 2049)])
def test_decoding_at_a_fraction_gives_what_the_whole_would(
    photographs: list[Image.Image], size: tuple[int, int]
) -> None:
    """Within 2 gray levels on average, before encoding, so that the encoder's loss does not count."""
    for photograph in photographs:
        data = encoded(photograph.resize(size, Image.Resampling.BICUBIC), quality=90)
        found = decoded(shrunk(data, 256))
        expected = Image.open(io.BytesIO(data)).resize(found.size, Image.Resampling.BILINEAR)
        assert difference(found, decoded(encoded(expected, quality=95))) < 2


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_every_format_is_read(photographs: list[Image.Image], name: str) -> None:
    options = {"lossless": True} if name == "WEBP" else {}
    found = decoded(shrunk(encoded(photographs[0], name, **options), 200))
    assert found.size == (300, 200)
    assert difference(found, photographs[0].resize((300, 200), Image.Resampling.BILINEAR)) < (8 if name == "GIF" else 3)


@pytest.mark.parametrize(
    ("size", "expected"), [((500, 375), (341, 256)), ((375, 500), (256, 341)), ((256, 900), (256, 900))]
)
def test_the_short_side_is_brought_down(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert decoded(shrunk(encoded(Image.new("RGB", size), "PNG"), 256)).size == expected


def test_a_jpeg_small_enough_keeps_its_bytes(photograph: bytes, shared_data: Path) -> None:
    assert shrunk(photograph, 256) is photograph
    with tarfile.open(sorted((shared_data / "images" / "tinyimagenet60").glob("*.tar"))[0]) as archive:
        for member in archive.getmembers()[:20]:
            data = archive.extractfile(member).read()
            assert shrunk(data, 64) == data or Image.open(io.BytesIO(data)).mode != "RGB"


@pytest.mark.parametrize("written", [{"progressive": True}, {"exif": TURNED}])
def test_a_progressive_or_turned_jpeg_is_written_anew(photographs: list[Image.Image], written: dict) -> None:
    data = encoded(photographs[0], **written)
    assert difference(decoded(shrunk(data, 1000)), ImageOps.exif_transpose(Image.open(io.BytesIO(data)))) < 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_applied(photographs: list[Image.Image], name: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(photographs[1], name, exif=exif, **({"quality": 90} if name in ("JPEG", "WEBP") else {}))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    found = decoded(shrunk(data, 200))
    assert difference(found, upright.resize(found.size, Image.Resampling.BILINEAR)) < 2.5


@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*\0\0\xff\xff", b"Exif\0\0garbage", TIFF_OF_ORIENTATION + b"c\0\0"])
def test_broken_exif_is_upright_as_stored(photographs: list[Image.Image], exif: bytes) -> None:
    found = decoded(shrunk(encoded(photographs[0], exif=exif), 200))
    assert difference(found, photographs[0].resize((300, 200), Image.Resampling.BILINEAR)) < 3


def test_transparency_is_drawn_on_white() -> None:
    half_red = (255, 127, 127)
    for mode, color, expected in (
        ("RGBA", (255, 0, 0, 128), half_red),
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("LA", (0, 128), (127, 127, 127)),
    ):
        assert center(shrunk(encoded(plain(color, mode), "PNG"), 256)) == pytest.approx(expected, abs=2)
        assert center(shrunk(encoded(plain(color, mode), "PNG"), 20)) == pytest.approx(expected, abs=2)
    palette = plain(0, "P")
    palette.putpalette([255, 0, 0, 0, 255, 0])
    assert center(shrunk(encoded(palette, "PNG", transparency=0), 20)) == pytest.approx(WHITE, abs=1)
    assert center(shrunk(encoded(palette, "PNG"), 20)) == pytest.approx(RED, abs=2)
    assert center(shrunk(encoded(plain(RED), "PNG", transparency=RED), 20)) == pytest.approx(WHITE, abs=1)


def test_every_mode_becomes_rgb() -> None:
    assert center(shrunk(encoded(plain(90, "L")), 256)) == pytest.approx((90, 90, 90), abs=2)
    assert center(shrunk(encoded(plain(1, "1"), "PNG"), 20)) == pytest.approx(WHITE, abs=1)
    sixteen = Image.fromarray(np.full((30, 40), 90 * 256 + 200, np.uint16))
    assert center(shrunk(encoded(sixteen, "PNG"), 20)) == pytest.approx((90, 90, 90), abs=2)
    cyan = plain(RED).convert("CMYK")
    assert center(shrunk(encoded(cyan, "TIFF"), 20)) == pytest.approx(RED, abs=3)


@pytest.mark.parametrize("size", [20, 256])
def test_cmyk_jpegs_are_as_adobe_writes_them(photographs: list[Image.Image], size: int) -> None:
    data = encoded(photographs[0].convert("CMYK"), quality=95)
    found = decoded(shrunk(data, size))
    expected = Image.open(io.BytesIO(data)).convert("RGB").resize(found.size, Image.Resampling.BILINEAR)
    assert difference(found, expected) < 5


def test_a_picture_in_parts_gives_its_first(photographs: list[Image.Image]) -> None:
    """MPO files come from phones."""
    data = encoded(photographs[0], "MPO", save_all=True, append_images=[photographs[1]], quality=95)
    assert difference(decoded(shrunk(data, 1000)), photographs[0]) < 4


@pytest.mark.parametrize("part", [0.5, 0.9, 0.999])
def test_a_jpeg_cut_in_its_scan_is_noticed(photographs: list[Image.Image], part: float) -> None:
    for options in ({}, {"progressive": True}):
        data = encoded(photographs[0], **options)
        assert reason(data[: int(part * len(data))]) == "truncated JPEG"
    small = encoded(photographs[0].resize((64, 64)))
    assert reason(small[: int(part * len(small))]) == "truncated JPEG"


def test_a_damaged_scan_is_noticed(photographs: list[Image.Image]) -> None:
    data = bytearray(encoded(photographs[0]))
    data[len(data) // 2 : len(data) // 2 + 3000] = bytes(3000)
    assert reason(bytes(data)).startswith("damaged JPEG: ")
    assert reason(bytes(data[:200])) == "truncated image"
    assert reason(bytes(data[:20])).startswith("not a readable image (unknown format): begins with")
    assert reason(b"") == "not a readable image (unknown format): no bytes"


def test_a_damaged_png_is_noticed(photographs: list[Image.Image]) -> None:
    data = encoded(photographs[1], "PNG")
    assert reason(data[: len(data) // 2]) == "truncated PNG"
    assert reason(data[:-12]) == "truncated PNG"
    place = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[place - 4 : place])
    checksum = place + 4 + length
    assert reason(data[:checksum] + b"\0\0\0\0" + data[checksum + 4 :]).startswith("damaged PNG: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["WEBP", "GIF", "BMP", "TIFF"])
def test_other_formats_cut_short_are_noticed(photographs: list[Image.Image], name: str) -> None:
    data = encoded(photographs[1], name)
    assert name in reason(data[: len(data) // 2]) or "image" in reason(data[: len(data) // 2])


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_too_many_pixels_are_refused_by_the_header() -> None:
    """Each file has only a few kilobytes: decoding does not even start."""
    for side, expected in ((50_000, f"more than {MAX_PIXELS:,} pixels"), (13_000, "truncated PNG")):
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
        bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000)))
        assert reason(bomb) == expected


def test_a_strip_too_long_for_a_jpeg_is_refused() -> None:
    assert reason(encoded(Image.new("L", (70_000, 2)), "PNG")).startswith("70,000 x 2 pixels after scaling")


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG"])
def test_animations_are_refused(photographs: list[Image.Image], name: str) -> None:
    first, *others = [picture.resize((32, 32)) for picture in photographs[:5]]
    data = encoded(first, name, save_all=True, append_images=others)
    assert reason(data) == f"animated {name}: 5 frames"
    assert reason(encoded(first, "TIFF", save_all=True, append_images=others)) == "TIFF of 5 pages"


@pytest.mark.slow
def test_nothing_reaches_the_screen(photographs: list[Image.Image], tmp_path: Path) -> None:
    """Pillow's warnings about damage stay hidden; tested in a process whose warning filters no test changes."""
    (tmp_path / "exif.jpg").write_bytes(encoded(photographs[0], exif=b"Exif\0\0MM\0*\0\0\xff\xff"))
    (tmp_path / "large.png").write_bytes(encoded(Image.new("1", (9_500, 9_500)), "PNG"))
    (tmp_path / "cut.tiff").write_bytes(encoded(photographs[0], "TIFF")[:2000])
    program = (
        "import pathlib, sys\nfrom clearspan.pipelines.media.pictures import shrunk\n"
        "from clearspan.pipelines.counter import RecordError\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    try: print(path.name, len(shrunk(path.read_bytes(), 64)) > 500)\n"
        "    except RecordError as error: print(path.name, error)\n"
    )
    command = [sys.executable, "-W", "default", "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stderr == "" and done.stdout.splitlines()[1:] == ["exif.jpg True", "large.png True"]
