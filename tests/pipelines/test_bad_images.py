"""Unusable images, lists and tars: counted with a reason, or refused with an error that names them."""

import errno
import io
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from PIL import Image

from clearspan.shards import storage
from tests.pipelines.conftest import Command, peak_memory
from tests.pipelines.test_bad_input import rejected
from tests.pipelines.test_images import classes_of, examples, members, per_class, picture, write_tar
from tests.pipelines.test_pictures import chunk


def animated(name: str) -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), (shade, 0, 0)) for shade in (0, 120, 240)]
    frames[0].save(file, name, save_all=True, append_images=frames[1:])
    return file.getvalue()


def bomb() -> bytes:
    """A PNG of a few bytes that declares 2.5 billion pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000)))


BAD = {
    "cut.jpg": (picture()[:600], "truncated JPEG"),
    "text.jpg": (b"Call me Ishmael. Some years ago, never mind how long precisely.", "a text, not an image"),
    "empty.jpg": (b"", "no bytes, not an image"),
    "drawing.png": (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG, not an image"),
    "page.webp": (b"<!DOCTYPE html><title>404 Not Found</title>", "an HTML page, not an image"),
    "bomb.png": (bomb(), "more than 178,956,970 pixels"),
    "waving.png": (animated("GIF"), "animated GIF: 3 frames"),
    "moving.png": (animated("PNG"), "animated PNG: 3 frames"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_bad_picture_is_counted_with_its_reason(direct: Command, zoo: Path, tmp_path: Path, name: str) -> None:
    data, reason = BAD[name]
    (zoo / "ant" / name).write_bytes(data)
    strict = direct("images", "--input", zoo)
    assert strict.code == 1 and f"1 of 13 records are bad, e.g. ant/{name}" in strict.err
    done = direct("images", "--input", zoo, "--max-bad-fraction", "0.1")
    assert done.code == 0 and "read 13 = kept 12, bad 1" in done.out
    (bad,) = rejected(tmp_path / "out")
    assert bad["source"] == f"ant/{name}" and bad["reason"].startswith(reason)


def test_a_picture_of_broken_exif_is_kept(direct: Command, zoo: Path, tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 0, 0)).save(file, "JPEG", exif=b"Exif\0\0MM\0*\0\0\xff\xff")
    (zoo / "ant" / "broken.jpg").write_bytes(file.getvalue())
    done = direct("images", "--input", zoo)
    assert done.code == 0 and done.err == "" and "read 13 = kept 13, bad 0" in done.out


def test_a_gif_by_its_name_is_of_no_known_kind(direct: Command, zoo: Path, tmp_path: Path) -> None:
    (zoo / "ant" / "waving.gif").write_bytes(animated("GIF"))
    done = direct("images", "--input", zoo)
    assert done.code == 1 and "1 file of unknown type, e.g. ant/waving.gif: expected .jpg" in done.err


@pytest.mark.exhaustive
def test_a_hundred_megapixels_take_little_memory(tmp_path: Path) -> None:
    (tmp_path / "in" / "large").mkdir(parents=True)
    Image.new("RGB", (10_000, 10_000), (9, 99, 199)).save(tmp_path / "in" / "large" / "a.png", compress_level=1)
    assert peak_memory("images", "--input", tmp_path / "in", "--output", tmp_path / "out") < 1_000_000
    ((name, data),) = examples(tmp_path / "out")
    assert name == "large" and Image.open(io.BytesIO(data)).size == (256, 256)


def test_a_class_of_bad_pictures_keeps_its_number_and_one_of_a_single_one_is_named(
    direct: Command, zoo: Path, tmp_path: Path
) -> None:
    for path in sorted((zoo / "barrel").iterdir()):
        path.write_bytes(b"")
    for path in sorted((zoo / "bass").iterdir())[1:]:
        path.unlink()
    done = direct("images", "--input", zoo, "--max-bad-fraction", "0.5")
    assert "1 without an example: barrel" in done.out and "1 with a single example: bass" in done.out
    assert per_class(tmp_path / "out") == {"ant": 4, "bass": 1}


def test_an_empty_class_folder_is_refused(direct: Command, zoo: Path, tmp_path: Path) -> None:
    (zoo / "cow").mkdir()
    done = direct("images", "--input", zoo)
    assert done.code == 1
    assert f"{zoo / 'cow'}: a class without files: fill or remove it, or add --skip-unknown" in done.err
    assert direct("images", "--input", zoo, "--skip-unknown").code == 0
    assert classes_of(tmp_path / "out") == ["ant", "barrel", "bass"]


def test_an_empty_class_tar_is_refused(direct: Command, zoo: Path, tmp_path: Path) -> None:
    write_tar(zoo / "cow.tar", [])
    done = direct("images", "--input", zoo)
    assert done.code == 1 and f"{zoo / 'cow.tar'}: a class without files: fill or remove it" in done.err
    assert direct("images", "--input", zoo, "--skip-unknown").code == 0


def test_two_classes_that_differ_in_case_are_refused(direct: Command, zoo: Path) -> None:
    shutil.copytree(zoo / "ant", zoo / "Ant")
    done = direct("images", "--input", zoo)
    assert done.code == 1 and "classes 'Ant' and 'ant' differ only in case" in done.err


@pytest.mark.parametrize("inputs", ["", "*", "**/*"])
def test_licences_and_readmes_are_passed_over_and_counted(direct: Command, zoo: Path, inputs: str) -> None:
    (zoo / "LICENSE.TXT").write_text("CC BY 4.0\n")
    (zoo / "ant" / "README.md").write_text("Ants.\n")
    write_tar(zoo / "more.tar", [("cow/1.jpg", picture()), ("COPYING", b"As you like.\n")])
    done = direct("images", "--input", zoo / inputs)
    assert done.code == 0 and "read 13 = kept 13" in done.out and "3 inputs of unknown type skipped" in done.out


def test_a_readme_that_is_named_itself_is_no_picture(direct: Command, zoo: Path) -> None:
    (zoo / "README.md").write_text("Animals.\n")
    done = direct("images", "--input", zoo, zoo / "README.md")
    assert done.code == 1 and "1 file of unknown type, e.g. README.md" in done.err


def test_files_of_no_known_kind_are_counted_and_named_once(direct: Command, zoo: Path, tmp_path: Path) -> None:
    (zoo / "ant" / "names.db").write_bytes(b"x")
    (zoo / "notes.txt").write_text("ants")
    write_tar(zoo / "more.tar", [("cow/1.jpg", picture()), ("cow/list.csv", b"a,b\n")])
    done = direct("images", "--input", zoo)
    assert done.code == 1
    assert "3 files of unknown type, e.g. ant/names.db, more.tar/cow/list.csv, notes.txt: expected .jpg" in done.err
    assert direct("images", "--input", zoo, "--skip-unknown").code == 0
    assert per_class(tmp_path / "out") == {"ant": 4, "barrel": 4, "bass": 4, "cow": 1}


def test_a_file_that_cannot_be_read_stops_the_run_with_its_name(
    direct: Command, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, usual = next((zoo / "ant").iterdir()), storage.open_input

    def refusing(name: str) -> BinaryIO:
        if name == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return usual(name)

    monkeypatch.setattr(storage, "open_input", refusing)
    done = direct("images", "--input", zoo)
    assert (done.code, done.err) == (1, f"pipelines: [Errno 13] Permission denied: '{path}'\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ant/a.jpg ant\n", "line 1 is not a path, a tab and a class: 'ant/a.jpg ant'"),
        ("\nant/a.jpg\t\n", "line 2 is not a path, a tab and a class"),
        ("a.jpg\tant\na.jpg\tbee\n", "line 2: a.jpg is 'bee' here, and 'ant' above"),
        ("nowhere.jpg\tant\n", "nowhere.jpg: no such file"),
        ("\n", "list.tsv: lists nothing: write a path, a tab and a class on each line"),
    ],
)
def test_a_list_with_a_bad_line_is_refused(direct: Command, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "list.tsv").write_text(text)
    done = direct("images", "--input", tmp_path / "list.tsv")
    assert done.code == 1 and said in done.err


def test_a_list_named_from_the_working_folder_gives_its_classes(
    direct: Command, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(path.relative_to(tmp_path) for path in zoo.rglob("*.jpg"))
    (tmp_path / "list.tsv").write_text("".join(f"./{path}\tof {path.parent.name}\n" for path in paths))
    monkeypatch.chdir(tmp_path)
    assert direct("images", "--input", "list.tsv").code == 0
    assert classes_of(tmp_path / "out") == [f"of {name}" for name in sorted({path.parent.name for path in paths})]


def test_a_tar_of_tars_is_to_be_unpacked(direct: Command, zoo: Path, tmp_path: Path) -> None:
    inner = write_tar(tmp_path / "ant.tar", members(zoo / "ant"))
    done = direct("images", "--input", write_tar(tmp_path / "all.tar", [("ant.tar", inner.read_bytes())]))
    assert done.code == 1 and "1 file of unknown type, e.g. all.tar/ant.tar" in done.err
    assert done.err.endswith("unpack the tar that holds tars\n")


@pytest.mark.parametrize("what", ["ant", "more.tar", "again.jpg"])
def test_a_class_of_what_is_no_single_file_is_refused(direct: Command, tmp_path: Path, what: str) -> None:
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / "1.jpg").write_bytes(picture())
    (tmp_path / "again.jpg").symlink_to(tmp_path / "ant" / "1.jpg")
    write_tar(tmp_path / "more.tar", [("1.jpg", picture())])
    (tmp_path / "list.tsv").write_text(f"{what}\tbee\n")
    done = direct("images", "--input", tmp_path / "list.tsv", tmp_path / "ant")
    assert (
        done.code == 1
        and f"{tmp_path / what}: listed as 'bee', but it is a folder, a tar, or a second name" in done.err
    )


def test_a_sample_whose_class_is_not_found_is_refused(direct: Command, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("1.jpg", picture()), ("1.json", b'{"caption": "an ant", "kind": "ant"}')])
    done = direct("images", "--input", tar)
    assert (
        done.code == 1
        and 'a.tar/1.json: states no class of 1.jpg: it has no "label" that is a text or a whole' in done.err
    )
    assert direct("images", "--input", tar, "--label-field", "kind").code == 0
    assert classes_of(tmp_path / "out") == ["ant"]


Sides = list[tuple[str, bytes]]


@pytest.mark.parametrize(
    ("sides", "options", "expected"),
    [
        ([("1.CLS", b"ant")], (), ["ant"]),
        ([("1.Json", b'{"label": " ant\\n"}')], (), ["ant"]),
        ([("1.cls", b"ant"), ("1.json", b'{"label": "bee"}')], (), ["ant"]),
        ([("1.json", b'{"label": "bee"}'), ("1.cls", b"ant")], (), ["ant"]),
        ([("1.json", b'{"kind": "bee"}'), ("1.cls", b"ant")], ("--label-field", "kind"), ["bee"]),
        ([("1.cls", b"ant"), ("1.json", b'{"kind": "bee"}')], ("--label-field", "kind"), ["bee"]),
    ],
)
def test_the_order_of_a_samples_files_decides_nothing(
    direct: Command, tmp_path: Path, sides: Sides, options: tuple[str, ...], expected: list[str]
) -> None:
    data = picture()
    for name, files in (("a", [*sides, ("1.JPG", data)]), ("b", [("1.JPG", data), *sides])):
        out = tmp_path / name
        done = direct("images", "--input", write_tar(tmp_path / f"{name}.tar", files), "--output", out, *options)
        assert done.code == 0, done.err
        assert classes_of(out) == expected and len(examples(out)) == 1


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (["v1.0.jpg", "v1.0.cls=ant", "v1.1.jpg", "v1.1.cls=bee"], "v1.1.cls: says 'bee', and v1.0.cls of the same"),
        (["1.jpg", "1.cls=ant", "2.jpg"], "a.tar/2.jpg: no file beside it states its class, unlike a.tar/1.jpg"),
        (["1.jpg", "1.cls=\udcff"], r"a.tar/1.cls: b'\xff' is not a class"),
        (["1.jpg", f"1.cls={'An ant on a leaf. ' * 20}"], "a.tar/1.cls: b'An ant on a leaf. "),
        (["1.jpg", '1.json={"label": ""}'], 'a.tar/1.json: b\'{"label": ""}\' is not a class'),
        (
            ["1.jpg", "2.jpg", "1.cls=ant", "2.cls=bee"],
            "a file that states a class must be in a tar, next to its example",
        ),
    ],
)
def test_samples_whose_class_is_in_doubt_are_refused(
    direct: Command, tmp_path: Path, members: list[str], said: str
) -> None:
    parts = [member.partition("=") for member in members]
    sides = [(name, text.encode(errors="surrogateescape") or picture()) for name, _, text in parts]
    done = direct("images", "--input", write_tar(tmp_path / "a.tar", sides))
    assert done.code == 1 and said in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--classes", "2", "--top-classes", "2"), "--classes and --top-classes: choose one"),
        (("--per-class", "0"), "--per-class must be at least 1"),
        (("--size", "0"), "--size must be from 8 to 4,096"),
        (("--label-pattern", "("), "--label-pattern: (: missing ) at position 1"),
        (("--class-list", "nowhere.txt"), "--class-list: nowhere.txt: No such file or directory"),
    ],
)
def test_options_that_make_no_sense_are_bad_usage(
    direct: Command, zoo: Path, options: tuple[str, ...], said: str
) -> None:
    done = direct("images", "--input", zoo, *options)
    assert done.code == 2 and said in done.err


@pytest.mark.parametrize("link", [Path.hardlink_to, Path.symlink_to])
@pytest.mark.parametrize("apart", [False, True])
def test_a_file_that_is_linked_into_two_classes_is_refused(
    direct: Command, zoo: Path, link: Callable[[Path, Path], None], apart: bool
) -> None:
    """A file counts once, so that one class would lose it silently; within one class, links are fine."""
    linked = next((zoo / "ant").iterdir())
    link(zoo / "ant" / "same.jpg", linked)
    inputs = [zoo / name for name in ("ant", "barrel", "bass")] if apart else [zoo]
    assert "read 12 = kept 12" in direct("images", "--input", *inputs).out
    link(zoo / "bass" / "ant.jpg", linked)
    done = direct("images", "--input", *inputs)
    assert done.code == 1 and "of class 'bass'" in done.err and "of class 'ant'" in done.err
    assert done.err.endswith("make a copy of it, or remove one of the two\n")
