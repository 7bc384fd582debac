"""The contact sheet of `cat --picture`: what is in its cells, read back from the file."""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearspan.shards import Dataset, sheet
from clearspan.shards.__main__ import main
from clearspan.shards.layouts import array_of
from clearspan.shards.sheet import CAPTION, CELL, DPI, GAP, Cell, draw
from clearspan.shards.values import pixels
from tests.shards.conftest import MemoryStore


def cell(path: Path, row: float, column: int) -> np.ndarray:
    """The pixels of a cell, uint8 (height, width, 3)."""
    with Image.open(path) as picture:
        whole = np.asarray(picture.convert("RGB"))
    top, left = 3 * GAP + row * (CELL + CAPTION), GAP + column * (CELL + GAP)
    return whole[round(top * DPI) : round((top + CELL) * DPI), round(left * DPI) : round((left + CELL) * DPI)]


def plain(color: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 60), color).save(file, "JPEG", quality=95)
    return file.getvalue()


COLORS = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (200, 200, 0), (0, 200, 200)]


def test_pictures_stand_in_order_row_by_row(tmp_path: Path) -> None:
    draw([Cell(plain(color), "x") for color in COLORS], tmp_path / "sheet.png", "five")
    for number, color in enumerate(COLORS):
        found = cell(tmp_path / "sheet.png", *divmod(number, 3))
        assert np.abs(found[40:-40, 40:-40].astype(int) - color).max() < 6
    assert (cell(tmp_path / "sheet.png", 1, 2) == 255).all()


def test_time_runs_to_the_right_the_same_for_all_and_low_frequencies_are_below(tmp_path: Path) -> None:
    long, short = np.zeros((200, 128), np.float16), np.zeros((100, 128), np.float16)
    long[150:, :64] = 9
    draw([Cell(long, "long"), Cell(short, "short")], tmp_path / "sheet.png", "two")
    first = cell(tmp_path / "sheet.png", 0, 0)[6:-6, 6:-6]
    loud, quiet = first[-20, -20], first[20, 20]
    assert loud.astype(int).sum() > quiet.astype(int).sum() + 200
    height, width = first.shape[:2]
    is_loud = (np.abs(first.astype(int) - loud).sum(axis=2) < 20)[:, : width - 1]
    assert is_loud[height // 2 + 5 :, round(0.78 * width) :].all()
    assert not is_loud[: height // 2 - 5].any() and not is_loud[:, : round(0.72 * width)].any()
    second = cell(tmp_path / "sheet.png", 0, 1)
    assert (second[10:-10, 10:80] == quiet).all() and (second[:, 100:] == 255).all()


def test_a_quiet_clip_has_the_contrast_of_a_loud_one(tmp_path: Path) -> None:
    """Whatever its level, and with one click that is far louder than the rest."""
    loud = np.tile(np.linspace(-4, 4, 128, dtype=np.float16), (100, 1))
    quiet = loud / 8 - 9
    quiet[50, 3] = 60
    draw([Cell(loud, "loud"), Cell(quiet, "quiet")], tmp_path / "sheet.png", "two")
    first, second = (cell(tmp_path / "sheet.png", 0, column)[8:-8, 8:80].astype(int) for column in (0, 1))
    assert np.abs(first - second).max() < 30
    assert second[0].sum(axis=1).mean() > second[-1].sum(axis=1).mean() + 200


def test_the_name_of_a_short_clip_begins_where_the_clip_does(tmp_path: Path) -> None:
    clips = [np.random.default_rng(0).normal(0, 1, (frames, 128)).astype(np.float16) for frames in (400, 20)]
    draw([Cell(clip, "1688") for clip in clips], tmp_path / "sheet.png", "two")
    below = cell(tmp_path / "sheet.png", CELL / (CELL + CAPTION), 1)[: round(CAPTION * DPI)]
    columns = np.flatnonzero((below < 128).any(axis=(0, 2)))
    assert len(columns) and columns[0] < 6 and columns[-1] < below.shape[1] / 4


def test_a_name_is_written_as_it_is(tmp_path: Path) -> None:
    """Not as a formula, not to steer anything, and without a warning of a script that the font lacks."""
    names = ["$x^{", "a_b$c$", "\u202e\x1b[2J", "\u4e00\u4e2a", "x" * 500]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw([Cell(plain(COLORS[0]), name) for name in names], tmp_path / "sheet.png", "$" * 500)


def test_what_is_no_picture_leaves_a_cell_that_says_so(tmp_path: Path) -> None:
    draw([Cell(b"no picture", "a"), Cell(plain(COLORS[0]), "b")], tmp_path / "sheet.png", "t")
    found = cell(tmp_path / "sheet.png", 0, 0)
    assert 0 < (found < 128).any(axis=2).sum() < 2000
    assert pixels(b"no picture") is None and pixels(plain(COLORS[0])) == (60, 60)


def test_cat_draws_pictures_with_their_classes(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[list[Cell], Path, str]] = []
    usual = sheet.draw
    monkeypatch.setattr(sheet, "draw", lambda *given: (drawn.append(given), usual(*given)))
    path = tmp_path / "sheet.png"
    assert main(["cat", str(images), "--picture", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 9 examples of 3 classes\n"
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    rows = [row for batch in Dataset(images) for row in batch.to_pylist()]
    names = ["ant", "barrel", "bass"]
    assert drawn == [([Cell(row["image"], names[row["label"]]) for row in rows], path, str(images))]
    assert main(["cat", str(images), "--picture", str(path), "--limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"picture": str(path), "examples": 2, "classes": 1}


def test_cat_draws_clips(audio: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(audio), "--picture", str(tmp_path / "cat.png")]) == 0
    spectrograms = [array_of(value) for batch in Dataset(audio) for value in batch["frames"]]
    cells = map(Cell, spectrograms, ("george", "jackson", "jackson"))
    draw(cells, tmp_path / "drawn.png", str(audio))
    assert (tmp_path / "cat.png").read_bytes() == (tmp_path / "drawn.png").read_bytes()


def test_cat_draws_what_is_on_an_object_store(
    images: Path, store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in filter(Path.is_file, images.rglob("*")):
        store.objects[f"mem://data/{path.relative_to(images)}"] = path.read_bytes()
    assert main(["cat", "mem://data", "--picture", str(tmp_path / "a.png")]) == 0
    assert "9 examples of 3 classes" in capsys.readouterr().out


def test_texts_are_nothing_to_draw(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(dataset), "--picture", str(tmp_path / "a.png")]) == 1
    said = f"shards: {dataset}: documents have nothing to draw: leave out --picture\n"
    assert capsys.readouterr().err == said and not (tmp_path / "a.png").exists()


def test_a_sheet_on_which_nothing_can_be_drawn_is_an_error(
    many_classes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cat", str(many_classes), "--picture", str(tmp_path / "a.png")]) == 1
    said = "none of 25 examples is an image that can be decoded: leave out --picture"
    captured = capsys.readouterr()
    assert captured.err == f"shards: {many_classes}: {said}\n" and captured.out == ""
    assert not (tmp_path / "a.png").exists()


def test_a_folder_that_is_not_there_is_one_line(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "a.png"
    assert main(["cat", str(images), "--picture", str(path)]) == 1
    assert capsys.readouterr().err == f"shards: [Errno 2] No such file or directory: '{path}'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cat", "--picture", "a.bmp2"], "a.bmp2: the name of an image must end in .png, .jpg, .pdf, .svg"),
        (["ls", "--histogram", "a.txt"], "a.txt: the name of an image must end in .png, .jpg, .pdf, .svg"),
        (
            ["cat", "--picture", "a.png", "--limit", "401"],
            "--limit 401: an image shows at most 400 examples: lower it",
        ),
        (["cat", "--picture", "a.png", "--limit", "0"], "--limit must be at least 1"),
        (["cat", "--picture", "a.png", "--tokenizer", "x"], "--picture shows no text: leave out --tokenizer"),
    ],
)
def test_what_makes_no_sense_is_bad_usage(
    images: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main([*words, str(images)])
    assert error.value.code == 2 and said in capsys.readouterr().err
