"""Conversion of any audio clip to a log-mel spectrogram, as in AST and SSAST: Kaldi's filter banks.

    bytes -> blocks of mono samples at 16 kHz -> frames: 25 ms Hann windows, one every 10 ms
          -> mean subtracted, pre-emphasis 0.97, |FFT 512|^2 -> 128 mel bins from 20 Hz to 8 kHz -> log

A clip is read and resampled block by block, so that hours of sound take little memory. A frame depends only on its own
400 samples; so if a long clip is split into several spectrograms, their frames are the same as in one spectrogram of
the clip. SSAST also subtracts the mean of the waveform; this would have no effect here, because the mean of each frame
is subtracted. Frames are neither padded nor normalized. Training does both, with the mean and standard deviation in the
dataset's manifest (`shards.moments`).
"""

import collections
import functools
import io
import itertools
import math
import os
import warnings
from collections.abc import Iterator
from typing import Literal

import numpy as np
import soundfile
import soxr

from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.media import unreadable
from clearspan.shards.schema import MEL_BINS

RATE = 16_000
"""Samples per second, after resampling."""
WINDOW, HOP = 400, 160
"""Number of samples of a frame (WINDOW), and from the start of a frame to the start of the next (HOP)."""
FLOOR = 1.192092955078125e-07
"""Smallest energy of a mel bin, float32's epsilon. Silence has the logarithm of this value."""
RATES = range(1_000, 768_001)
"""Accepted sampling rates of a file, in samples per second."""
BLOCK = 1 << 20
"""Number of values (samples of all channels) of a block, before or after resampling, whichever is more."""
HELD_FRAMES = 1 << 16
"""Maximum number of frames (11 minutes, 17 MB) in memory until the whole clip is checked. A
longer clip is decoded twice.
"""
LOUDEST = 1e15
"""Largest absolute value of a sample, where full scale is 1. Beyond it, the energy of a frame exceeds float32."""
FORMATS = ("WAV", "WAVEX", "RF64", "AIFF", "FLAC", "OGG", "MP3")
"""Formats in which a truncated file is detected. Files of other formats are rejected."""
FIRST_PAGE = b"OggS\0\2"
"""First bytes of each stream of an Ogg."""
STRIP, NUM_STRIPS = 16, 64
"""Frames in a strip (STRIP), and strips in a call of the library (NUM_STRIPS). The library loops over the frames of a
strip, and computes many strips at once. This takes half the time of one long strip, with the same result.
"""


def spectrograms(data: bytes, frames: int, long_clips: str) -> Iterator[np.ndarray]:
    """Yield a clip's log-mel spectrogram in parts of at most `frames` frames. Each part is float16 (n, 128): n frames
    of 128 mel bins.

    The part of the clip that is used is decoded before anything is yielded; if it is damaged, nothing is yielded. To
    save memory, a clip of many parts is then decoded a second time.

    Args:
        data: the content of a WAV, FLAC, Ogg, MP3 or AIFF file.
        frames: maximum number of frames of a part; there is a frame every 10 ms.
        long_clips: what to do with a clip of more than `frames` frames. "cut": use only its beginning, and yield one
            part; the rest is not read. "split": yield consecutive parts, in which each frame occurs once; samples at
            the end that do not fill a frame (25 ms) are left out.

    Raises:
        RecordError: the data are not a clip, or the clip is damaged, truncated, silent or shorter than a frame.
    """
    span = WINDOW + HOP * (frames - 1)
    parts = _parts(blocks(data, span if long_clips == "cut" else None), frames, span)
    most = max(2, HELD_FRAMES // frames)
    held = list(itertools.islice(parts, most))
    if len(held) == most:
        collections.deque(blocks(data), maxlen=0)
    yield from held
    yield from parts


def _parts(samples: Iterator[np.ndarray], frames: int, span: int) -> Iterator[np.ndarray]:
    """Yield the spectrogram of each part of a clip. The last part may be shorter, but has at least one frame.

    Args:
        samples: the clip's samples, in blocks.
        frames: number of frames of a part.
        span: number of samples from which this number of frames is computed.

    Raises:
        RecordError: the clip is shorter than a frame.
    """
    rest, is_whole = np.empty(0, np.float32), True
    for block in samples:
        rest = np.concatenate([rest, block])
        while len(rest) >= span:
            yield log_mel(rest[:span])
            rest, is_whole = rest[frames * HOP :], False
    if is_whole or len(rest) >= WINDOW:
        yield log_mel(rest)


def blocks(data: bytes, max_samples: int | None = None) -> Iterator[np.ndarray]:
    """Yield a clip's samples in order, as consecutive blocks, each float32 (samples,).

    They are at 16 kHz, and the mean of all channels. Full scale is 1.

    Args:
        data: the content of a WAV, FLAC, Ogg, MP3 or AIFF file.
        max_samples: maximum number of samples to yield; None for all. The rest of the clip is not read.

    Raises:
        RecordError: the data are not a clip, or what is read of it is damaged, truncated or silent.
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
    """Open a clip for decoding.

    Raises:
        RecordError: the clip cannot be read or has an unsupported format, or its header or its end shows that it is
            incomplete.
    """
    try:
        sound = soundfile.SoundFile(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        raise RecordError(unreadable(data, "clip of sound", error.error_string)) from None
    if sound.format not in FORMATS:
        raise RecordError(f"{sound.format}, which is not read: convert it to WAV or FLAC")
    if sound.format in ("WAV", "WAVEX", "RF64", "AIFF") and (missing := _missing(data)):
        name = "WAV" if sound.format == "WAVEX" else sound.format
        raise RecordError(f"truncated {name}: {missing:,} bytes fewer than its header declares")
    if sound.format == "OGG":
        _check_last_page(data)
    if not sound.frames:
        raise RecordError(f"{sound.format} without samples")
    if sound.samplerate not in RATES:
        raise RecordError(f"{sound.samplerate:,} samples per second: expected {RATES[0]:,} to {RATES[-1]:,}")
    return sound


def _read(sound: soundfile.SoundFile) -> np.ndarray:
    """Return the next block of samples, float32 (samples, channels). At the end of the clip, the block is empty.

    Raises:
        RecordError: the clip is damaged.
    """
    try:
        num_samples = BLOCK * min(sound.samplerate, RATE) // (RATE * sound.channels)
        block: np.ndarray = sound.read(max(1, num_samples), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise RecordError(f"damaged {sound.format}: {error.error_string}") from None
    return block


def _missing(data: bytes) -> int:
    """Return the number of bytes that a WAV or AIFF has less than its header declares; 0 if it is complete.

    libsndfile, which decodes the file, does not check this.
    """
    order: Literal["little", "big"] = "big" if data.startswith((b"FORM", b"RIFX")) else "little"
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], order)
        if data[place : place + 4] in (b"data", b"SSND"):
            if data.startswith(b"RF64"):  # the size, four gigabytes and more, is in the first chunk
                size = int.from_bytes(data[28:36], "little")
                return max(0, place + 8 + size - len(data))
            # A program that writes to a pipe does not know the size, and declares the largest.
            return 0 if size >= 0xFFFFFF00 else max(0, place + 8 + size - len(data))
        place += 8 + size + size % 2
    return 0


def _check_last_page(data: bytes) -> None:
    """Raise RecordError if an Ogg lacks its last page or holds a second stream. libsndfile reports neither."""
    if (streams := data.count(FIRST_PAGE)) > 1:
        raise RecordError(f"OGG of {streams} streams, of which only one would be read: convert it to one stream")
    page = data[data.rfind(b"OggS") :]
    sizes = page[27 : 27 + page[26]] if len(page) > 27 else b""
    if not sizes or not page[5] & 4 or len(page) < 27 + len(sizes) + sum(sizes):
        raise RecordError("truncated OGG: without its last page")


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Return the log-mel spectrogram of a waveform, float16 (frames, 128), in natural logarithms.

    It equals the result of the numpy path of `transformers`' ASTFeatureExtractor without padding and normalization.
    There are 1 + (samples - 400) // 160 frames; remaining samples are ignored.

    Args:
        samples: the waveform at 16 kHz, float32 (samples,).

    Raises:
        RecordError: there are fewer than 400 samples.
    """
    num_frames = 1 + (len(samples) - WINDOW) // HOP
    if num_frames < 1:
        raise RecordError(f"{1000 * len(samples) / RATE:.1f} ms: shorter than a frame of 25 ms")
    frames = np.empty((num_frames, MEL_BINS), np.float16)
    starts = range(0, num_frames, STRIP)
    strips = [samples[HOP * start : HOP * (min(start + STRIP, num_frames) - 1) + WINDOW] for start in starts]
    spectrogram = _spectrogram()
    for first in range(0, len(strips), NUM_STRIPS):
        spectrograms_of_strips = spectrogram(strips[first : first + NUM_STRIPS])
        for start, strip in zip(starts[first : first + NUM_STRIPS], spectrograms_of_strips, strict=True):
            frames[start : start + STRIP] = strip.T
    return frames


@functools.cache
def _spectrogram() -> functools.partial[list[np.ndarray]]:
    """Return the function of transformers that computes the spectrograms of several waveforms, with the settings of AST
    (mel filters, window and so on) filled in.

    It is built in the first call, and returned again by later calls.
    """
    # Without this, the library warns in each worker that PyTorch is absent.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import audio_utils  # takes a second, and only audio needs it

    with warnings.catch_warnings():
        # The lowest filter lies between two frequencies of the FFT: its bin is always at the floor, as in AST.
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
