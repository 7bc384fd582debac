"""Any clip of sound to log-mel frames, as AST and SSAST compute them: Kaldi's filter banks.

    bytes -> blocks of mono samples at 16 kHz -> 25 ms Hann windows, each 10 ms after the one before
          -> less their mean, pre-emphasis 0.97, |FFT 512|^2 -> 128 mel bins from 20 Hz to 8 kHz -> log

A clip is read and resampled block by block, so that hours of sound take little memory. Each frame is made of its own
400 samples alone: a piece's frames are those of the whole clip, and the mean of the whole waveform, which SSAST
subtracts first, drops out with the mean of each frame. Frames keep their true number and scale: who trains pads them,
and normalizes them by the mean and deviation that a dataset's shards tell (`shards.moments`).
"""

import collections
import functools
import io
import itertools
import math
import os
import warnings
import zlib
from collections.abc import Iterator
from typing import Literal

import numpy as np
import soundfile
import soxr

from clearspan.pipelines.media.identify import found_instead
from clearspan.pipelines.tally import RecordError
from clearspan.shards.schema import MEL_BINS

RATE = 16_000
"""Samples a second, after resampling."""
WINDOW, HOP = 400, 160
"""Samples of a frame, and samples from one frame to the next."""
FLOOR = 1.192092955078125e-07
"""The least energy, float32's epsilon: its logarithm is that of silence."""
RATES = range(1_000, 768_001)
"""Samples a second that sound is recorded with."""
BLOCK = 1 << 20
"""Number of values in a block, counted after resampling where that makes more of them."""
HELD_FRAMES = 1 << 16
"""Most frames (11 minutes, 17 MB) that are held until the clip is known to be whole. A longer clip is decoded twice."""
LOUDEST = 1e15
"""Full scale is 1: beyond this, the energy of a frame is beyond float32."""
FORMATS = ("WAV", "WAVEX", "RF64", "AIFF", "FLAC", "OGG", "MP3")
"""Those whose end is checked; of others a part would be taken for the whole."""
MAGIC = {
    b"RIFF": "WAV",
    b"RIFX": "WAV",
    b"RF64": "RF64",
    b"fLaC": "FLAC",
    b"OggS": "OGG",
    b"FORM": "AIFF",
    b"ID3": "MP3",
}
MAGIC |= dict.fromkeys((b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2"), "MP3")
"""How clips begin."""
FIRST_PAGE = b"OggS\0\2"
"""How each stream of an Ogg begins."""
PAGE_BYTES = 27
"""An Ogg page's header, before the sizes of its segments."""
MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in reverse order."""
STRIP, NUM_STRIPS = 16, 64
"""The library loops over the frames of a strip, and does many strips at once: half of the time that one long strip
takes, with the same result."""


def spectrograms(data: bytes, frames: int, how: str) -> Iterator[np.ndarray]:
    """Yields a clip's log-mel frames in pieces of at most `frames`, each as float16 (frames, 128).

    A clip that is bad anywhere yields nothing: before the first piece of one with many, the whole is decoded once.

    Args:
        data: a WAV, FLAC, Ogg, MP3 or AIFF file.
        frames: of 10 ms.
        how: what is done with a longer clip: "cut" reads and keeps its beginning alone, "split" makes it successive
            pieces that hold each frame once; what is left of less than a frame (25 ms) is in none.

    Raises:
        RecordError: it is no clip, damaged, cut short, silent or shorter than a frame.
    """
    span = WINDOW + HOP * (frames - 1)
    pieces = _pieces(blocks(data, span if how == "cut" else None), frames, span)
    most = max(2, HELD_FRAMES // frames)
    held = list(itertools.islice(pieces, most))
    if len(held) == most:
        collections.deque(blocks(data), maxlen=0)
    yield from held
    yield from pieces


def _pieces(found: Iterator[np.ndarray], frames: int, span: int) -> Iterator[np.ndarray]:
    """Yields the frames of each `span` samples, which are `frames`, then those of the rest, if it holds a frame."""
    rest, is_whole = np.empty(0, np.float32), True
    for block in found:
        rest = np.concatenate([rest, block])
        while len(rest) >= span:
            yield log_mel(rest[:span])
            rest, is_whole = rest[frames * HOP :], False
    if is_whole or len(rest) >= WINDOW:
        yield log_mel(rest)


def read_clip(data: bytes, max_samples: int | None = None) -> np.ndarray:
    """Reads a clip's samples, float32 (samples,): 64 kB a second. Takes and raises what `blocks` does."""
    return np.concatenate(list(blocks(data, max_samples)))


def blocks(data: bytes, max_samples: int | None = None) -> Iterator[np.ndarray]:
    """Yields a clip's samples in order, float32 (samples,) at 16 kHz, full scale 1: the mean of its channels.

    Args:
        data: a WAV, FLAC, Ogg, MP3 or AIFF file.
        max_samples: so many are yielded at most, and no more is read than these need.

    Raises:
        RecordError: it is no clip, damaged, cut short, or silent as far as it was read.
    """
    left = math.inf if max_samples is None else max_samples
    low, high = math.inf, -math.inf
    with _opened(data) as sound:
        resample = soxr.ResampleStream(sound.samplerate, RATE, 1, dtype="float32", quality="HQ")
        num_read, is_last = 0, False
        while left > 0 and not is_last:
            block = _read(sound)
            num_read, is_last = num_read + len(block), not len(block)
            if not is_last:
                if not -LOUDEST <= block.min() <= block.max() <= LOUDEST:
                    raise RecordError("samples that are not numbers, infinite or beyond 1e15 of full scale")
            elif num_read < sound.frames or not num_read:
                raise RecordError(f"truncated {sound.format}: {num_read:,} of {sound.frames:,} samples")
            mono = block.mean(axis=1) if sound.channels > 1 else block[:, 0]
            if sound.samplerate != RATE:
                mono = resample.resample_chunk(mono, last=is_last)
            if len(mono):
                mono = mono[: int(min(left, len(mono)))]
                left -= len(mono)
                low, high = min(low, float(mono.min())), max(high, float(mono.max()))
                yield mono
    if low == high:
        raise RecordError("silent: all samples are the same")


def _opened(data: bytes) -> soundfile.SoundFile:
    """Opens a clip that is whole as far as its header and its end tell."""
    try:
        sound = soundfile.SoundFile(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        known = next((name for magic, name in MAGIC.items() if data.startswith(magic)), None)
        said = f"damaged {known}: {error.error_string}" if known else f"{found_instead(data)}, not a clip of sound"
        raise RecordError(said) from None
    if sound.format not in FORMATS:
        raise RecordError(f"{sound.format}, which is not read: convert it to WAV or FLAC")
    if sound.format in ("WAV", "WAVEX", "RF64", "AIFF") and (missing := _missing(data)):
        name = "WAV" if sound.format == "WAVEX" else sound.format
        raise RecordError(f"truncated {name}: {missing:,} bytes fewer than its header declares")
    if sound.format == "OGG":
        _check_pages(data)
    if not sound.frames:
        raise RecordError(f"{sound.format} without samples")
    if sound.samplerate not in RATES:
        raise RecordError(f"{sound.samplerate:,} samples a second: expected {RATES[0]:,} to {RATES[-1]:,}")
    return sound


def _read(sound: soundfile.SoundFile) -> np.ndarray:
    """The next block, float32 (samples, channels); none at the end."""
    try:
        num_samples = BLOCK * min(sound.samplerate, RATE) // (RATE * sound.channels)
        return sound.read(max(1, num_samples), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise RecordError(f"damaged {sound.format}: {error.error_string}") from None


def _missing(data: bytes) -> int:
    """How many bytes a WAV or AIFF has fewer than its samples' chunk declares, of which libsndfile says nothing."""
    order: Literal["little", "big"] = "big" if data.startswith((b"FORM", b"RIFX")) else "little"
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], order)
        if data[place : place + 4] in (b"data", b"SSND"):
            if data.startswith(b"RF64"):  # of four gigabytes and more: the size is in the first chunk
                size = int.from_bytes(data[28:36], "little")
                return max(0, place + 8 + size - len(data))
            # Who writes to a pipe does not know the size, and declares the largest.
            return 0 if size >= 0xFFFFFF00 else max(0, place + 8 + size - len(data))
        place += 8 + size + size % 2
    return 0


def _check_pages(data: bytes) -> None:
    """Walks an Ogg page by page up to its last one; libsndfile passes over pages that are damaged or missing.

    Raises:
        RecordError: a page is cut, damaged or missing, or there is more than one stream.
    """
    if (streams := data.count(FIRST_PAGE)) > 1:
        raise RecordError(f"OGG of {streams} streams, of which one would be read: make it one")
    place, before, is_last = 0, None, False
    while not is_last:
        head = data[place : place + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
        sizes = data[place + PAGE_BYTES : place + PAGE_BYTES + head[26]]
        end = place + PAGE_BYTES + head[26] + sum(sizes)
        if end > len(data):
            raise RecordError("truncated OGG: without its last page")
        if head[:4] != b"OggS" or _checksum(data[place:end]) != head[22:26]:
            raise RecordError(f"damaged OGG: no whole page at byte {place:,}")
        stream, number = head[14:18], int.from_bytes(head[18:22], "little")
        if before not in (None, (stream, number - 1)):
            raise RecordError(f"damaged OGG: page {number:,} at byte {place:,} does not follow the one before it")
        place, before, is_last = end, (stream, number), bool(head[5] & 4)


def _checksum(page: bytes) -> bytes:
    """The four bytes of an Ogg page's own checksum: the CRC of zlib's polynomial over mirrored bits, from zero."""
    mirrored = page.translate(MIRRORED)
    crc = zlib.crc32(mirrored[:22] + bytes(4) + mirrored[26:], 0xFFFFFFFF) ^ 0xFFFFFFFF
    return crc.to_bytes(4, "big").translate(MIRRORED)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Computes the log-mel frames of float32 (samples,) at 16 kHz -> float16 (frames, 128), natural logarithms.

    They are those of `transformers`' ASTFeatureExtractor in its numpy path, neither padded nor normalized. There are
    1 + (samples - 400) // 160 frames: what is left at the end is in none.

    Raises:
        RecordError: there are less than 400 samples.
    """
    num_frames = 1 + (len(samples) - WINDOW) // HOP
    if num_frames < 1:
        raise RecordError(f"{1000 * len(samples) / RATE:.1f} ms: shorter than a frame of 25 ms")
    frames = np.empty((num_frames, MEL_BINS), np.float16)
    starts = range(0, num_frames, STRIP)
    strips = [samples[HOP * start : HOP * (min(start + STRIP, num_frames) - 1) + WINDOW] for start in starts]
    spectrogram = _spectrogram()
    for first in range(0, len(strips), NUM_STRIPS):
        made = spectrogram(strips[first : first + NUM_STRIPS])
        for start, strip in zip(starts[first : first + NUM_STRIPS], made, strict=True):
            frames[start : start + STRIP] = strip.T
    return frames


@functools.cache
def _spectrogram() -> functools.partial:
    """The library's spectrograms of many waveforms, with AST's filters and window made once."""
    # Without it, the library tells every worker that PyTorch is absent.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import audio_utils  # takes a second, and only audio needs it

    with warnings.catch_warnings():
        # The lowest filter lies between two frequencies of the FFT: its bin is always at the floor, in AST's too.
        warnings.simplefilter("ignore")
        filters = audio_utils.mel_filter_bank(
            num_frequency_bins=257,
            num_mel_filters=MEL_BINS,
            min_frequency=20,
            max_frequency=RATE // 2,
            sampling_rate=RATE,
            norm=None,
            mel_scale="kaldi",
            triangularize_in_mel_space=True,
        )
    return functools.partial(
        audio_utils.spectrogram_batch,
        window=audio_utils.window_function(WINDOW, "hann", periodic=False),
        frame_length=WINDOW,
        hop_length=HOP,
        fft_length=512,
        power=2.0,
        center=False,
        preemphasis=0.97,
        mel_filters=filters,
        log_mel="log",
        mel_floor=FLOOR,
        remove_dc_offset=True,
    )
