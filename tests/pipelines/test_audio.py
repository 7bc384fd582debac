"""Audio: clips in folders, tars and lists become shards of log-mel spectrograms; each clip is counted with its class.

The tests of images cover what the kinds of labeled files share; these tests cover what clips add.
"""

import hashlib
import io
import itertools
import json
import shutil
import signal
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import webdataset as wds

from clearspan.pipelines.__main__ import main
from clearspan.pipelines.kinds.audio import Clips
from clearspan.pipelines.kinds.labeled import LabeledWorker, file_ids
from clearspan.pipelines.media import clips
from clearspan.pipelines.media.clips import spectrograms
from clearspan.pipelines.records import Record
from clearspan.pipelines.tally import Tally
from clearspan.shards import Dataset, Manifest, verify
from clearspan.shards.layouts import array_of
from clearspan.shards.schema import schema
from tests.pipelines.conftest import Command, killed, peak_memory
from tests.pipelines.test_bad_input import rejected
from tests.pipelines.test_images import classes_of, write_tar

Example = tuple[str, bytes]


@pytest.fixture(scope="module")
def speakers(shared_data: Path) -> Path:
    """Fifty folders, one per speaker, of ten WAVs of 1.2 s."""
    return shared_data / "audio" / "librispeech_50spk_x10_wav"


@pytest.fixture(scope="module")
def utterances(shared_data: Path) -> Path:
    """Ten folders, one per speaker, of ten FLACs of 2 to 23 s, with texts beside them."""
    return shared_data / "audio" / "librispeech_test-other_10spk_flac"


@pytest.fixture(scope="module")
def digits(shared_data: Path) -> Path:
    """Six hundred spoken digits in one folder, named DIGIT_SPEAKER_NUMBER."""
    return shared_data / "audio" / "fsdd"


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


def wav(samples: np.ndarray, rate: int = 16_000, **options: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", **options)
    return file.getvalue()


def tone(seconds: float = 0.3, rate: int = 16_000) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


@pytest.fixture(scope="module")
def spoken(speakers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the fifty speakers."""
    folder = tmp_path_factory.mktemp("spoken") / "out"
    assert main(["audio", "--input", str(speakers), "--output", str(folder), "--quiet", "--workers", "1"]) == 0
    return folder


@pytest.mark.exhaustive
def test_folders_of_speakers_give_every_clip_of_its_speaker(spoken: Path, speakers: Path) -> None:
    manifest = Manifest.load(str(spoken))
    assert manifest.counts == {"read": 500, "kept": 500, "filtered": {}, "bad": 0}
    assert classes_of(spoken) == sorted((path.name for path in speakers.iterdir()), key=int)
    assert Counter(name for _, name, _ in rows(spoken)) == dict.fromkeys(classes_of(spoken), 10)
    assert verify(spoken) == []
    path = sorted((speakers / "1040").iterdir())[3]
    (frames,) = spectrograms(path.read_bytes(), 1024, "cut")
    assert ("1040", frames.tobytes()) in examples(spoken)


@pytest.mark.slow
def test_the_manifests_statistics_are_those_of_all_frames(spoken: Path) -> None:
    values = np.concatenate([frames.ravel() for _, _, frames in rows(spoken)]).astype(np.float64)
    found = json.loads((spoken / "manifest.json").read_text())["statistics"]
    assert found == pytest.approx({"mean": values.mean(), "std": values.std()}, rel=1e-12)


@pytest.mark.slow
def test_plain_webdatasets_own_decoder_reads_frames_and_labels(spoken: Path) -> None:
    tars = sorted(map(str, spoken.glob("*.tar")))
    samples = list(wds.WebDataset(tars, shardshuffle=False).decode().to_tuple("npy", "cls"))
    assert len(samples) == 500
    names = classes_of(spoken)
    for (frames, label), (_, name, expected) in zip(samples, rows(spoken), strict=True):
        assert frames.dtype == np.float16 and frames.shape == (len(expected), 128)
        assert names[label] == name and np.array_equal(frames, expected)


@pytest.fixture(scope="module")
def whole_and_split(utterances: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two datasets of the hundred utterances: cut at 1,024 frames, and split."""
    folder = tmp_path_factory.mktemp("utterances")
    for how in ("cut", "split"):
        words = ["audio", "--input", str(utterances), "--skip-unknown", "--long", how, "--quiet", "--workers", "1"]
        assert main([*words, "--holdout-fraction", "0.3", "--output", str(folder / how)]) == 0
    return {how: folder / how for how in ("cut", "split")}


@pytest.mark.exhaustive
def test_utterances_are_cut_each_one_example(whole_and_split: dict[str, Path]) -> None:
    folder = whole_and_split["cut"]
    counts = Manifest.load(str(folder)).counts
    assert counts["read"] == 100 and counts["kept"] + counts["filtered"]["held_out"] == 100
    sizes = [len(frames) for part in (folder, folder / "validation") for _, _, frames in rows(part)]
    assert max(sizes) == 1024 and sizes.count(1024) == 21 and min(sizes) > 200


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


@pytest.mark.exhaustive
def test_a_pattern_finds_speakers_and_another_digits(direct: Command, digits: Path, tmp_path: Path) -> None:
    speaker = direct("audio", "--input", digits, "--label-pattern", r"_(\w+)_", "--output", tmp_path / "speaker")
    assert "read 600 = kept 600, bad 0" in speaker.out and "classes 6, of 100 examples each" in speaker.out
    assert classes_of(tmp_path / "speaker") == ["george", "jackson", "lucas", "nicolas", "theo", "yweweler"]
    words = ("--label-pattern", r"^\d", "--per-class", "5", "--output", tmp_path / "digit")
    assert direct("audio", "--input", digits, *words).code == 0
    assert Counter(name for _, name, _ in rows(tmp_path / "digit")) == {str(digit): 5 for digit in range(10)}


def test_the_largest_classes_are_taken_and_of_each_so_many(direct: Command, few: Path, tmp_path: Path) -> None:
    smallest, *others = sorted(few.iterdir())
    next(smallest.iterdir()).unlink()
    done = direct("audio", "--input", few, "--top-classes", "2", "--per-class", "2")
    assert "taken: 4 of 8 files, 2 of 3 classes" in done.out
    assert Counter(name for _, name, _ in rows(tmp_path / "out")) == {folder.name: 2 for folder in others}


def _tars(few: Path, into: Path) -> Path:
    for folder in few.iterdir():
        write_tar(into / f"{folder.name}.tar", [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())])
    return into


def _samples(few: Path, into: Path) -> Path:
    members = []
    for number, path in enumerate(sorted(few.rglob("*.wav"))):
        members += [(f"{number}.cls", path.parent.name.encode()), (f"{number}.wav", path.read_bytes())]
    return write_tar(into / "few.tar.gz", members)


def _list(few: Path, into: Path) -> Path:
    lines = [f"{path}\t{path.parent.name}\n" for path in few.rglob("*.wav")]
    (into / "few.tsv").write_text("".join(lines))
    return into / "few.tsv"


@pytest.mark.parametrize("pack", [_tars, _samples, _list], ids=["tars", "samples", "list"])
def test_clips_in_tars_and_lists_give_what_folders_give(
    direct: Command, few: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    (tmp_path / "in").mkdir()
    assert direct("audio", "--input", few, "--output", tmp_path / "folders").code == 0
    done = direct("audio", "--input", pack(few, tmp_path / "in"))
    assert done.code == 0, done.err
    assert examples(tmp_path / "out") == examples(tmp_path / "folders")
    assert len(examples(tmp_path / "out")) == 9


def test_copies_of_a_file_are_duplicates_but_its_pieces_are_not(direct: Command, few: Path, tmp_path: Path) -> None:
    first = sorted(few.rglob("*.wav"))[0]
    shutil.copy(first, first.with_name("copy.wav"))
    done = direct("audio", "--input", few, "--dedup", "--long", "split", "--frames", "50")
    # 1.2 s are 118 frames: three pieces of each of nine clips, and of the copy.
    assert "read 30 = kept 27, 3 duplicate, bad 0" in done.out
    assert "10 clips of more than 50 frames are split" in done.out


@pytest.fixture(scope="module")
def words(digits: Path) -> list[str]:
    """Command without --output: several units, clips in pieces, a held-out part."""
    inputs = ["--input", str(digits), "--label-pattern", r"_(\w+)_", "--classes", "3", "--per-class", "12"]
    return ["audio", *inputs, "--unit-bytes", "80000", "--long", "split", "--frames", "20", "--holdout-fraction", "0.2"]


@pytest.fixture(scope="module")
def made(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "out"
    assert main([*words, "--output", str(folder), "--quiet", "--workers", "1"]) == 0
    assert len(Dataset(folder).shards) > 2
    return folder


@pytest.mark.exhaustive
def test_two_workers_write_the_same_bytes(words: list[str], made: Path, tree, tmp_path: Path) -> None:
    assert main([*words, "--output", str(tmp_path / "out"), "--quiet", "--workers", "2"]) == 0
    assert tree(tmp_path / "out") == tree(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_done/00001.json", "out/manifest.json"])
def test_killed_and_run_again_it_ends_with_the_same_bytes(
    words: list[str], made: Path, tree, tmp_path: Path, name: str
) -> None:
    command = [*words, "--output", str(tmp_path / "out"), "--quiet"]
    assert killed("before", name, *command) == -signal.SIGKILL
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert main(command) == 0
    assert tree(tmp_path / "out") == tree(made)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.wav", wav(tone())[:30], "damaged WAV: "),
        ("a.wav", wav(tone())[:-1000], "truncated WAV: 1,000 bytes fewer than its header declares"),
        ("a.wav", wav(np.append(tone(), np.nan), subtype="FLOAT"), "samples that are not numbers"),
        ("a.wav", wav(np.zeros(16_000)), "silent: all samples are the same"),
        ("a.wav", wav(np.zeros(0)), "WAV without samples"),
        ("a.wav", b"", "no bytes, not a clip of sound"),
        ("a.flac", b"What was said, not its sound.\n" * 9, "a text, not a clip of sound"),
        ("a.mp3", wav(tone()[:399]), "24.9 ms: shorter than a frame of 25 ms"),
    ],
    ids=["cut in its header", "cut", "not a number", "silent", "no samples", "empty", "text", "short"],
)
def test_each_bad_clip_is_counted_with_its_reason(
    direct: Command, few: Path, tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    folder = sorted(few.iterdir())[0]
    (folder / name).write_bytes(data)
    strict = direct("audio", "--input", few)
    assert strict.code == 1 and "1 of 10 records are bad" in strict.err
    done = direct("audio", "--input", few, "--max-bad-fraction", "0.2")
    assert done.code == 0 and "read 10 = kept 9, bad 1" in done.out
    (bad,) = rejected(tmp_path / "out")
    assert bad["source"] == f"{folder.name}/{name}" and bad["reason"].startswith(reason)
    assert len(examples(tmp_path / "out")) == 9


@pytest.mark.exhaustive
def test_five_hours_are_cut_in_little_memory(tmp_path: Path) -> None:
    """The samples alone, at 16 kHz, would take 1.15 GB."""
    rate, folder = 4_000, tmp_path / "in" / "long"
    folder.mkdir(parents=True)
    with soundfile.SoundFile(folder / "a.flac", "w", rate, 1) as sound:
        sound.write(tone(1.0, rate))
        for _ in range(5):
            sound.write(np.zeros(3600 * rate, np.int16))
    assert peak_memory("audio", "--input", folder, "--output", tmp_path / "out") < 1_000_000
    ((_, name, frames),) = rows(tmp_path / "out")
    assert name == "long" and frames.shape == (1024, 128)


@pytest.mark.slow
def test_a_clip_of_many_pieces_is_many_batches(
    direct: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of split sound then take no more memory than a batch."""
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000 * 20)
    (tmp_path / "in").mkdir()
    soundfile.write(tmp_path / "in" / "a.flac", noise, 16_000)
    monkeypatch.setattr("clearspan.pipelines.kinds.labeled.BATCH_BYTES", 100_000)
    assert direct("audio", "--input", tmp_path / "in", "--long", "split", "--frames", "10").code == 0
    batches = list(Dataset(tmp_path / "out"))
    assert sum(batch.num_rows for batch in batches) == 200
    assert [batch.num_rows for batch in batches[:-1]] == [40] * (len(batches) - 1)


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
    worker = LabeledWorker(Clips(1024, "split"), schema("audio"), {"a": 0})
    tally = Tally((), 0.0)
    data = file.getvalue()
    tracemalloc.start()
    batches = worker.examples([Record("a.flac", 0, data, data, label="a")], tally)
    num_frames = sum(len(batch["frames"].flatten()) for batch in batches)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_frames == 1 + (16 * len(samples) - 400) // 160 and tally.counts.kept == -(-num_frames // 1024)
    assert tally.counts.sums == {"split": 1}
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
    (bad,) = rejected(tmp_path / "out")
    assert bad["source"] == f"{speaker.name}/cut.flac" and bad["reason"].startswith("damaged FLAC: ")


def test_a_file_is_hashed_once_for_all_of_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first id is 63 bits of the file's hash; all ids share the upper 31. Hours of sound have thousands of ids."""
    hashed: list[int] = []
    usual = hashlib.blake2b
    monkeypatch.setattr(hashlib, "blake2b", lambda data: (hashed.append(len(data)), usual(data))[1])
    ids = list(itertools.islice(file_ids(bytes(1000)), 50))
    assert ids[0] == int.from_bytes(usual(bytes(1000)).digest()[:8], "big") >> 32 >> 1 << 32 | ids[0] & 0xFFFF_FFFF
    assert len(set(ids)) == 50 and len({number >> 32 for number in ids}) == 1
    assert hashed.count(1000) == 1
