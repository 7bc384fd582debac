"""Clips to log-mel spectrograms, compared with the definition and the library on real speech; and refused files."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.media import clips
from clearspan.pipelines.media.clips import blocks, log_mel, spectrograms


def read_clip(data: bytes) -> np.ndarray:
    return np.concatenate(list(blocks(data)))


def written(samples: np.ndarray, rate: int = 16_000, name: str = "WAV", subtype: str | None = None) -> bytes:
    data = io.BytesIO()
    soundfile.write(data, samples, rate, format=name, subtype=subtype)
    return data.getvalue()


def tone(hertz: float = 440, seconds: float = 1.0, rate: int = 16_000) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def noise(seconds: float) -> np.ndarray:
    return np.random.default_rng(7).normal(0, 0.05, round(seconds * 16_000)).astype(np.float32)


def reason(data: bytes, how: str = "split") -> str:
    with pytest.raises(RecordError) as caught:
        next(spectrograms(data, 1024, how))
    return str(caught.value)


def changed(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


@pytest.fixture(scope="module")
def speech(shared_data: Path) -> list[bytes]:
    """Whole utterances of LibriSpeech (FLAC), slices of 1.2 s (WAV), and spoken digits at 8 kHz."""
    audio = shared_data / "audio"
    flacs = sorted((audio / "librispeech_test-other_10spk_flac").rglob("*.flac"))[:3]
    wavs = sorted((audio / "librispeech_50spk_x10_wav").rglob("*.wav"))[:3]
    digits = sorted((audio / "fsdd").glob("*.wav"))[:3]
    assert flacs and wavs and digits
    return [path.read_bytes() for path in (*flacs, *wavs, *digits)]


def defined(samples: np.ndarray) -> np.ndarray:
    """Compute Kaldi's log-mel spectrogram from its definition, in float64, of the waveform minus its mean."""
    samples = samples.astype(np.float64) - samples.mean(dtype=np.float64)

    def mel(hertz: np.ndarray | float) -> np.ndarray:
        return 1127 * np.log(1 + np.asarray(hertz) / 700)

    edges = np.linspace(mel(20), mel(8000), 130)
    bins = mel(np.arange(257) * 16_000 / 512)
    rising = (bins[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[None, 2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    triangles = np.maximum(0, np.minimum(rising, falling))
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)
    rows = []
    for start in range(0, len(samples) - 399, 160):
        frame = samples[start : start + 400] - samples[start : start + 400].mean()
        frame = frame - 0.97 * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs(np.fft.rfft(frame * hann, 512)) ** 2
        rows.append(np.log(np.maximum(power @ triangles, 1.192092955078125e-07)))
    return np.array(rows)


def test_frames_are_as_they_are_defined(speech: list[bytes]) -> None:
    """Within half a step of float16: 2^-8 for values from 8 to 16."""
    for samples in [*map(read_clip, speech), tone(), noise(2.0)]:
        found, expected = log_mel(samples), defined(samples)
        assert found.dtype == np.float16 and found.shape == expected.shape == (1 + (len(samples) - 400) // 160, 128)
        assert np.abs(found.astype(np.float64) - expected).max() < 2**-8 + 1e-3


def test_frames_of_a_piece_are_the_wholes(speech: list[bytes]) -> None:
    whole = log_mel(read_clip(speech[0]))
    pieces = list(spectrograms(speech[0], 100, "split"))
    assert [len(piece) for piece in pieces[:-1]] == [100] * (len(pieces) - 1)
    assert np.array_equal(np.concatenate(pieces), whole)
    assert np.array_equal(*spectrograms(speech[0], 100, "cut"), whole[:100])
    assert np.array_equal(*spectrograms(speech[0], len(whole), "split"), whole)


@pytest.mark.parametrize(("samples", "expected"), [(400, [1]), (559, [1]), (560, [2]), (880, [3, 1]), (1040, [3, 2])])
def test_pieces_hold_each_frame_once(samples: int, expected: list[int]) -> None:
    data = written(noise(0.1)[:samples])
    assert [len(piece) for piece in spectrograms(data, 3, "split")] == expected
    assert [len(piece) for piece in spectrograms(data, 3, "cut")] == expected[:1]


def test_cut_reads_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage behind the cut is not noticed."""
    monkeypatch.setattr(clips, "BLOCK", 20_000)
    data = written(noise(10.0), name="FLAC")
    damaged = changed(data, int(0.9 * len(data)), b"\x12\x34\x56\x78")
    assert np.array_equal(*spectrograms(damaged, 100, "cut"), *spectrograms(data, 100, "cut"))
    assert reason(damaged).startswith("damaged FLAC: ")


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_a_tone_sounds_the_same_at_every_rate(rate: int) -> None:
    found = read_clip(written(tone(rate=rate), rate, subtype="FLOAT"))
    assert abs(len(found) - 16_000) <= 1
    assert np.abs(found[1600:14_400] - tone()[1600:14_400]).max() < 1e-3
    peaks = log_mel(found).argmax(axis=1)
    assert (peaks == log_mel(tone()).argmax(axis=1)[0]).mean() > 0.97


@pytest.mark.parametrize(
    ("name", "tolerance"), [("WAV", 1e-4), ("FLAC", 1e-4), ("AIFF", 1e-4), ("RF64", 1e-4), ("OGG", 0.03), ("MP3", 0.03)]
)
def test_every_format_gives_the_same_tone(name: str, tolerance: float) -> None:
    found = read_clip(written(tone(), name=name))
    assert len(found) == 16_000
    assert np.abs(found - tone())[800:-800].max() < tolerance


def test_a_wav_from_a_pipe_is_taken_as_long_as_it_is() -> None:
    """The header declares the largest size, because the true one is unknown."""
    data = written(tone())
    piped = changed(data, data.index(b"data") + 4, b"\xff\xff\xff\xff")
    assert np.array_equal(read_clip(piped), read_clip(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "not a readable clip of sound (Format not recognised.): no bytes"),
        (b"<html>404</html>", "not a readable clip of sound (Format not recognised.): begins with b'<html>404</h'"),
        (written(tone())[:30], "not a readable clip of sound ("),
        (written(tone())[:44], "truncated WAV: 32,000 bytes fewer than its header declares"),
        (written(tone())[:-1000], "truncated WAV: 1,000 bytes fewer than its header declares"),
        (written(tone(), name="AIFF")[:-1000], "truncated AIFF: 1,000 bytes fewer"),
        (written(tone(), name="RF64")[:-1000], "truncated RF64: 1,000 bytes fewer"),
        (written(tone(), name="AU")[:-1000], "AU, which is not read: convert it to WAV or FLAC"),
        (written(noise(1.0), name="OGG") * 2, "OGG of 2 streams, of which only one would be read"),
        (written(noise(1.0), name="FLAC")[:-5000], "damaged FLAC: "),
        (written(noise(1.0), name="OGG")[:-10], "truncated OGG: without its last page"),
        (written(noise(9.0), name="OGG")[:-9000], "OGG"),
        (written(noise(2.0), name="MP3")[:-3000], "truncated MP3: "),
        (written(np.append(tone(), np.nan), subtype="FLOAT"), "samples that are not numbers"),
        (written(np.zeros(16_000)), "silent: "),
        (written(np.zeros(0)), "WAV without samples"),
        (written(tone()[:399]), "24.9 ms: shorter than a frame of 25 ms"),
        (changed(written(tone()), 24, struct.pack("<I", 3)), "3 samples per second: expected 1,000 to 768,000"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(data: bytes, expected: str) -> None:
    found = reason(data)
    assert found.startswith(expected) or (expected == "OGG" and "OGG" in found)


@pytest.fixture(scope="module", params=["VORBIS", "OPUS"])
def ogg(request: pytest.FixtureRequest, speech: list[bytes]) -> bytes:
    """An utterance of 15 s as an Ogg with pages of about 4 kB."""
    return written(read_clip(speech[0]), name="OGG", subtype=request.param)


def test_a_whole_ogg_is_read_whatever_follows_its_last_page(ogg: bytes, speech: list[bytes]) -> None:
    whole = read_clip(ogg)
    assert len(whole) == len(read_clip(speech[0])) and ogg.count(b"OggS") > 5
    assert np.array_equal(read_clip(ogg + b"TAG of a player" * 9), whole)


@pytest.mark.parametrize("cut", ["half", "between pages"])
def test_an_ogg_without_its_end_is_noticed(ogg: bytes, cut: str) -> None:
    end = len(ogg) // 2 if cut == "half" else ogg.rindex(b"OggS")
    assert reason(ogg[:end]) == "truncated OGG: without its last page"


@pytest.mark.parametrize("place", [0.2, 0.4, 0.6, 0.8])
def test_a_damaged_frame_of_a_flac_is_noticed(shared_data: Path, place: float) -> None:
    folder = shared_data / "audio" / "librispeech_test-other_10spk_flac"
    data = sorted(folder.rglob("*.flac"))[0].read_bytes()
    assert reason(changed(data, int(place * len(data)), b"\x12\x34\x56\x78")).startswith("damaged FLAC: ")
