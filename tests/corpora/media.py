"""Pictures and clips: parts of the photographs that scikit-learn and matplotlib have, and sounds like vowels."""

import io
import random
import tarfile
from pathlib import Path

import matplotlib
import numpy as np
import soundfile
from PIL import Image
from sklearn.datasets import load_sample_images

NAMES = """
accordion anchor ant apple barrel bass beaver bell bicycle bonsai book bottle bridge butterfly camera candle canoe
castle chair clock cup daisy dolphin drum eagle elephant feather ferry flute fox guitar hammer harp hat helicopter
heron horse kettle lamp lantern laptop lemon lily lobster lotus mask maple owl piano pigeon rabbit rose sailboat
saxophone scissors starfish sunflower tulip violin windmill
"""
RATE = 16_000


def photographs() -> list[Image.Image]:
    """Return two photographs of 640 x 427 and a portrait of 512 x 600."""
    portrait = Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    return [*map(Image.fromarray, load_sample_images().images), Image.open(portrait).convert("RGB")]


def part(photograph: Image.Image, size: tuple[int, int], draws: random.Random) -> Image.Image:
    """Return a random part of a photograph in this size."""
    scale = draws.uniform(0.3, 1) * min(photograph.width / size[0], photograph.height / size[1])
    width, height = size[0] * scale, size[1] * scale
    left, top = draws.uniform(0, photograph.width - width), draws.uniform(0, photograph.height - height)
    return photograph.resize(size, Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))


def write_folders(folder: Path) -> None:
    """Write Caltech's layout: 60 folders of 20 JPEGs, most of 300 x 200; one of eight is gray."""
    draws, sources = random.Random(2), photographs()
    for label, name in enumerate(NAMES.split()):
        (folder / name).mkdir(parents=True)
        for number in range(1, 21):
            size = (300, draws.choice([225, 300, 197, 200]))
            picture = part(sources[label % 3], size if number % 10 else size[::-1], draws)
            picture = picture.convert("L") if draws.random() < 1 / 8 else picture
            picture.save(folder / name / f"image_{number:04}.jpg", quality=85)


def write_tars(folder: Path) -> None:
    """Write ImageNet's layout: 60 tars of 120 JPEGs of 64 x 64."""
    draws, sources = random.Random(3), [each.reduce(3) for each in photographs()]
    folder.mkdir(parents=True)
    for label in range(60):
        name = f"n{1_443_537 + 98_765 * label:08}"
        with tarfile.open(folder / f"{name}.tar", "w") as archive:
            for number in sorted(range(120), key=str):
                picture, data = part(sources[label % 3], (64, 64), draws), io.BytesIO()
                picture.convert("L" if draws.random() < 1 / 60 else "RGB").save(data, "JPEG", quality=75)
                member = tarfile.TarInfo(f"{name}_{number}.JPEG")
                member.size = data.tell()
                data.seek(0)
                archive.addfile(member, data)


def voiced(seconds: float, pitch: float, draws: np.random.Generator, rate: int = RATE) -> np.ndarray:
    """Return harmonics of a wavering pitch in syllables, with some noise, float32 in [-1, 1]."""
    times = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.05 * np.sin(2 * np.pi * draws.uniform(2, 5) * times))) / rate
    formants = draws.uniform(300, 2500, 3)
    strengths = [sum(np.exp(-(((pitch * k - f) / 200) ** 2)) for f in formants) + 0.05 / k for k in range(1, 16)]
    sound = np.polynomial.polynomial.polyval(np.exp(1j * phase).astype(np.complex64), [0, *strengths]).imag
    syllables = np.clip(np.sin(2 * np.pi * draws.uniform(2, 4) * times + draws.uniform(0, 6)), 0, 1)
    sound = sound * syllables + draws.normal(0, 0.01, len(times))
    return (0.5 * sound / np.abs(sound).max()).astype(np.float32)


def write_clips(folder: Path) -> None:
    """Write LibriSpeech's layouts, one folder a speaker, as WAV and FLAC, and spoken digits at 8 kHz."""
    draws = np.random.default_rng(4)
    for speaker in range(50):
        (place := folder / "librispeech_50spk_x10_wav" / str(1034 + 37 * speaker)).mkdir(parents=True)
        for number in range(10):
            sound = voiced(1.2, 80 + 4 * speaker, draws)
            soundfile.write(place / f"{place.name}-{number:02}.wav", sound, RATE, subtype="PCM_16")
    for speaker in range(10):
        (place := folder / "librispeech_test-other_10spk_flac" / str(367 + 211 * speaker)).mkdir(parents=True)
        for number in range(10):
            sound = voiced(2 + 4 * draws.random() + 15 * (number == 3), 90 + 15 * speaker, draws)
            soundfile.write(place / f"{place.name}-130732-{number:04}.flac", sound, RATE)
    (folder / "fsdd").mkdir()
    for digit in range(10):
        for name, pitch in (("george", 110), ("jackson", 140)):
            for number in range(5):
                sound = voiced(0.3 + 0.3 * draws.random(), pitch + 3 * digit, draws, 8000)
                soundfile.write(folder / "fsdd" / f"{digit}_{name}_{number}.wav", sound, 8000, subtype="PCM_16")
