"""Unusable images, lists and tars: counted with a reason, or refused with an error that names them."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Command, logged
from tests.pipelines.test_images import classes_of, examples, per_class, picture, write_tar

BAD = {
    "cut.jpg": (picture()[:600], "truncated "),
    "empty.jpg": (b"", "not a readable image"),
    "page.webp": (b"<!DOCTYPE html><title>404 Not Found</title>", "not a readable image"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_bad_picture_is_counted_with_its_reason(direct: Command, zoo: Path, tmp_path: Path, name: str) -> None:
    data, reason = BAD[name]
    (zoo / "ant" / name).write_bytes(data)
    strict = direct("images", "--input", zoo)
    assert strict.code == 1 and f"1 of 13 records are bad, e.g. ant/{name}" in strict.err
    done = direct("images", "--input", zoo, "--max-bad-fraction", "0.1")
    assert done.code == 0 and "read 13 = kept 12, bad 1" in done.out
    (bad,) = logged(tmp_path / "out" / "_rejected")
    assert bad["source"] == f"ant/{name}" and bad["reason"].startswith(reason)


def test_files_of_no_known_kind_are_counted_and_named_once(direct: Command, zoo: Path, tmp_path: Path) -> None:
    (zoo / "ant" / "names.db").write_bytes(b"x")
    (zoo / "notes.txt").write_text("ants")
    write_tar(zoo / "more.tar", [("cow/1.jpg", picture()), ("cow/list.csv", b"a,b\n")])
    done = direct("images", "--input", zoo)
    assert done.code == 1
    assert "3 files of unknown type, e.g. ant/names.db, more.tar/cow/list.csv, notes.txt: expected .jpg" in done.err
    assert direct("images", "--input", zoo, "--skip-unknown").code == 0
    assert per_class(tmp_path / "out") == {"ant": 4, "barrel": 4, "bass": 4, "cow": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ant/a.jpg ant\n", "line 1 is not a path, a tab and a class: 'ant/a.jpg ant'"),
        ("\nant/a.jpg\t\n", "line 2 is not a path, a tab and a class"),
        ("a.jpg\tant\na.jpg\tbee\n", "line 2: a.jpg has the class 'bee' here, and 'ant' above"),
        ("nowhere.jpg\tant\n", "nowhere.jpg: no such file"),
        ("\n", "list.tsv: lists no file: write a path, a tab and a class on each line"),
    ],
)
def test_a_list_with_a_bad_line_is_refused(direct: Command, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "list.tsv").write_text(text)
    done = direct("images", "--input", tmp_path / "list.tsv")
    assert done.code == 1 and said in done.err


def test_a_sample_whose_class_is_not_found_is_refused(direct: Command, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("1.jpg", picture()), ("1.json", b'{"caption": "an ant", "kind": "ant"}')])
    done = direct("images", "--input", tar)
    assert (
        done.code == 1
        and 'a.tar/1.json: states no class of 1.jpg: it has no "label" with a text or an integer' in done.err
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
        (
            ["1.jpg", "1.cls=ant", "2.jpg"],
            "a.tar/2.jpg: no .cls or .json file states its class, unlike the class of a.tar/1.jpg",
        ),
        (["1.jpg", "1.cls=\udcff"], r"a.tar/1.cls: b'\xff' is not the name of a class"),
        (["1.jpg", f"1.cls={'An ant on a leaf. ' * 20}"], "a.tar/1.cls: b'An ant on a leaf. "),
        (["1.jpg", '1.json={"label": ""}'], 'a.tar/1.json: b\'{"label": ""}\' is not the name of a class'),
        (["1.jpg", "2.jpg", "1.cls=ant", "2.cls=bee"], "a.tar/1.cls: does not follow 1.jpg, whose class it may state"),
    ],
)
def test_samples_whose_class_is_in_doubt_are_refused(
    direct: Command, tmp_path: Path, members: list[str], said: str
) -> None:
    parts = [member.partition("=") for member in members]
    sides = [(name, text.encode(errors="surrogateescape") or picture()) for name, _, text in parts]
    tar = write_tar(tmp_path / "a.tar", sides)
    for options in ((), ("--skip-unknown",)):
        done = direct("images", "--input", tar, *options)
        assert done.code == 1 and said in done.err
