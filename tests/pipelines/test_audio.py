"""Audio: clips in folders, tars and lists become shards of log-mel spectrograms; each clip is counted with its class.

The tests of images cover what the kinds of labeled files share; these tests cover what clips add.
"""

import io
import shutil
import tracemalloc
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import soundfile

from clearspan.pipelines.__main__ import main
from clearspan.pipelines.builders.audio import AudioWorker
from clearspan.pipelines.counter import RecordCounter
from clearspan.pipelines.media import clips
from clearspan.pipelines.records import Record
from clearspan.shards import Dataset, Manifest
from clearspan.shards.layouts import array_of
from clearspan.shards.schema import schema
from tests.pipelines.conftest import Command, logged
from tests.pipelines.test_images import classes_of

Example = tuple[str, bytes]


@pytest.fixture(scope="module")
def speakers(shared_data: Path) -> Path:
    """Fifty folders, one per speaker, of ten WAVs of 1.2 s."""
    return shared_data / "audio" / "librispeech_50spk_x10_wav"


@pytest.fixture(scope="module")
def utterances(shared_data: Path) -> Path:
    """Ten folders, one per speaker, of ten FLACs of 2 to 23 s, with texts beside them."""
    return shared_data / "audio" / "librispeech_test-other_10spk_flac"


@pytest.fixture
def few(speakers: Path, tmp_path: Path) -> Path:
    """Three of the speakers, with three clips each."""
    for folder in sorted(speakers.iterdir())[:3]:
        (tmp_path / "few" / folder.name).mkdir(parents=True)
        for path in sorted(folder.iterdir())[:3]:
            shutil.copy(path, tmp_path / "few" / folder.name)
    return tmp_path / "few"


def rows(folder: Path) -> list[tuple[int, str, np.ndarray]]:
    """Return the id, class and frames of each example, in order."""
    names = classes_of(folder)
    return [
        (number, names[label], array_of(frames))
        for batch in Dataset(folder)
        for number, label, frames in zip(
            batch["id"].to_pylist(), batch["label"].to_pylist(), batch["frames"], strict=True
        )
    ]


def examples(folder: Path) -> list[Example]:
    """Return the class and the bytes of the frames of each example, sorted."""
    return sorted((name, frames.tobytes()) for _, name, frames in rows(folder))


def clips_of(folder: Path) -> dict[int, list[np.ndarray]]:
    """Return the pieces of each clip, by the bits that the ids of a clip share."""
    found = defaultdict(list)
    for number, _, frames in rows(folder):
        found[number >> 32].append(frames)
    return found


def tone(seconds: float = 0.3, rate: int = 16_000) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


@pytest.fixture(scope="module")
def whole_and_split(utterances: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two datasets of the hundred utterances: cut at 1,024 frames, and split."""
    folder = tmp_path_factory.mktemp("utterances")
    for how in ("cut", "split"):
        words = ["audio", "--input", str(utterances), "--skip-unknown", "--long", how, "--quiet", "--workers", "1"]
        assert main([*words, "--holdout-fraction", "0.3", "--output", str(folder / how)]) == 0
    return {how: folder / how for how in ("cut", "split")}


@pytest.mark.slow
def test_utterances_are_split_to_pieces_that_hold_each_frame_once(
    whole_and_split: dict[str, Path], utterances: Path
) -> None:
    parts = {how: clips_of(folder) | clips_of(folder / "validation") for how, folder in whole_and_split.items()}
    assert parts["cut"].keys() == parts["split"].keys() and len(parts["cut"]) == 100
    lengths = []
    for clip, pieces in parts["split"].items():
        assert [len(piece) for piece in pieces[:-1]] == [1024] * (len(pieces) - 1)
        lengths.append(sum(map(len, pieces)))
        (beginning,) = parts["cut"][clip]
        assert np.array_equal(np.concatenate(pieces)[:1024], beginning)
    expected = [1 + (soundfile.info(path).frames - 400) // 160 for path in utterances.rglob("*.flac")]
    assert sorted(lengths) == sorted(expected)
    counts = Manifest.load(str(whole_and_split["split"])).counts
    assert counts["read"] == sum(map(len, parts["split"].values())) > 100


@pytest.mark.slow
def test_pieces_of_one_clip_are_held_out_together(whole_and_split: dict[str, Path]) -> None:
    folder = whole_and_split["split"]
    kept, held_out = clips_of(folder), clips_of(folder / "validation")
    assert not kept.keys() & held_out.keys() and 10 < len(held_out) < 50
    for part in (kept, held_out):
        assert any(len(pieces) > 1 for pieces in part.values())


@pytest.mark.slow
@pytest.mark.parametrize("hours", [0.5, 1.0])
def test_the_pieces_of_hours_of_sound_take_no_more_memory_than_those_of_minutes(
    monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    """A FLAC of a few kilobytes at 1,000 Hz holds hours; an hour of frames takes 92 MB. The frames here are empty."""
    file = io.BytesIO()
    samples = np.append(tone(1.0, 1000), np.zeros(round(3600 * hours) * 1000, np.float32))
    soundfile.write(file, samples, 1000, format="FLAC")
    monkeypatch.setattr(clips, "log_mel", lambda part: np.zeros((1 + (len(part) - 400) // 160, 128), np.float16))
    worker = AudioWorker(schema("audio"), {"a": 0}, 1024, "split")
    counter = RecordCounter((), 0.0)
    data = file.getvalue()
    tracemalloc.start()
    batches = worker.examples([Record("a.flac", 0, data, data, label="a")], counter)
    num_frames = sum(len(batch["frames"].flatten()) for batch in batches)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_frames == 1 + (16 * len(samples) - 400) // 160 and counter.counts.kept == -(-num_frames // 1024)
    assert counter.counts.sums == {"split": 1}
    assert peak < 50_000_000


@pytest.mark.slow
def test_a_long_clip_that_is_damaged_gives_no_piece_and_is_one_bad_record(
    direct: Command, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces are made one by one, so that the whole clip must be decoded before the first is returned."""
    monkeypatch.setattr(clips, "HELD_FRAMES", 40)
    monkeypatch.setattr(clips, "BLOCK", 16_000)
    file, noise = io.BytesIO(), np.random.default_rng(0).normal(0, 0.1, 16_000 * 20)
    soundfile.write(file, noise, 16_000, format="FLAC")
    speaker = sorted(few.iterdir())[0]
    for name, data in (("whole.flac", file.getvalue()), ("cut.flac", file.getvalue()[:-5000])):
        (speaker / name).write_bytes(data)
    done = direct("audio", "--input", few, "--long", "split", "--frames", "20", "--max-bad-fraction", "0.5")
    # 1.2 s are 118 frames: six pieces of each of nine clips, and 100 of the 20 s.
    assert "read 155 = kept 154, bad 1" in done.out
    (bad,) = logged(tmp_path / "out" / "_rejected")
    assert bad["source"] == f"{speaker.name}/cut.flac" and bad["reason"].startswith("damaged FLAC: ")
