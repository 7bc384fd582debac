"""Inputs by path, folder and glob: each file once, whatever links there are, and nothing passed over."""

import os
from pathlib import Path

import pytest

from clearspan.shards import storage


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Four files in three folders, and hidden ones."""
    for name in ("b.txt", "a/c.txt", "a/d.jsonl", "a/deep/e.txt", ".hidden/f.txt", "a/.g.txt"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "corpus"


def found(folder: Path, pattern: str) -> list[str]:
    return [os.path.relpath(path, folder) for path in storage.find(pattern)]


ALL = ["a/c.txt", "a/d.jsonl", "a/deep/e.txt", "b.txt"]


@pytest.mark.guarantee("object-stores")
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ALL),
        ("/**", ALL),
        ("/**/*.txt", ["a/c.txt", "a/deep/e.txt", "b.txt"]),
        ("/a/**/e.txt", ["a/deep/e.txt"]),
        ("/**/deep/**", ["a/deep/e.txt"]),
        ("/*/deep", ["a/deep/e.txt"]),
        ("/**/deep", ["a/deep/e.txt"]),
        ("/*/*.txt", ["a/c.txt"]),
        ("/*", ALL),
        ("/*/d*", ["a/d.jsonl", "a/deep/e.txt"]),
        ("/a", ["a/c.txt", "a/d.jsonl", "a/deep/e.txt"]),
        ("/.hidden/*", [".hidden/f.txt"]),
        ("/a/.g.txt", ["a/.g.txt"]),
    ],
)
def test_patterns_name_files(corpus: Path, pattern: str, names: list[str]) -> None:
    assert found(corpus, f"{corpus}{pattern}") == names


ENGINES = ["_SUCCESS", "_temporary/0/part-0.txt", "_temporary/0/_x/y.txt", "year=1/_started_7", "year=1/_z.txt"]


@pytest.mark.parametrize(
    ("pattern", "names", "num_left_out"),
    [
        ("", [*ALL, "year=1/p.txt", "_k=2/q.txt"], 5),
        ("/**", [*ALL, "year=1/p.txt", "_k=2/q.txt"], 5),
        ("/*", [*ALL, "year=1/p.txt", "_k=2/q.txt"], 5),
        ("/**/*.txt", ["_k=2/q.txt", "a/c.txt", "a/deep/e.txt", "b.txt", "year=1/p.txt"], 3),
        ("/*/*.txt", ["_k=2/q.txt", "a/c.txt", "year=1/p.txt"], 1),
        ("/_temporary", ["_temporary/0/part-0.txt"], 1),
        ("/_t*/0/*.txt", ["_temporary/0/part-0.txt"], 0),
        ("/_SUCCESS", ["_SUCCESS"], 0),
        ("/year=1/_*", ["year=1/_started_7", "year=1/_z.txt"], 0),
    ],
)
def test_what_engines_leave_is_left_out_unless_it_is_named(
    corpus: Path, pattern: str, names: list[str], num_left_out: int
) -> None:
    for name in (*ENGINES, "year=1/p.txt", "_k=2/q.txt", "_temporary/.crc"):
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(name)
    left_out = set[str]()
    files = storage.find(f"{corpus}{pattern}", left_out)
    assert [os.path.relpath(path, corpus) for path in files] == sorted(names)
    assert len(left_out) == num_left_out and all(Path(path).is_file() for path in left_out)
    assert not left_out & files.keys()


def test_a_folder_of_leftovers_alone_says_how_they_are_read(corpus: Path) -> None:
    (corpus / "a" / "deep" / "e.txt").rename(corpus / "a" / "deep" / "_e.txt")
    with pytest.raises(FileNotFoundError, match=r"only files below names that begin with _, e\.g\. .*/a/deep/_e\.txt"):
        storage.find(f"{corpus}/a/deep")


@pytest.mark.parametrize("pattern", ["", "/**", "/**/*"])
def test_links_that_lead_in_circles_end_and_add_nothing(corpus: Path, pattern: str) -> None:
    (corpus / "self").symlink_to(".")
    (corpus / "a" / "up").symlink_to("..")
    (corpus / "a" / "deep" / "other").symlink_to(corpus / "self")
    (corpus / "0.txt").symlink_to("b.txt")
    assert found(corpus, f"{corpus}{pattern}") == ALL


@pytest.mark.parametrize("pattern", ["", "/**", "/**/*", "/**/*.txt"])
def test_links_in_circles_through_names_that_are_left_out_end_too(corpus: Path, pattern: str) -> None:
    (corpus / "_temporary").mkdir()
    (corpus / "_temporary" / "part.txt").write_text("part")
    for link in ("_up", "a/_up", "a/_again", "a/deep/_root", "_temporary/up", "_temporary/_up"):
        (corpus / link).symlink_to(corpus)
    left_out = set[str]()
    storage.find(f"{corpus}{pattern}", left_out)
    assert {os.path.realpath(path) for path in left_out} == {str(corpus / "_temporary" / "part.txt")}
    assert len(left_out) < 8


def test_a_linked_folder_outside_is_part_of_the_corpus(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "h.txt").write_text("h")
    (corpus / "link").symlink_to(tmp_path / "elsewhere")
    assert found(corpus, str(corpus)) == [*ALL, "link/h.txt"]


@pytest.mark.parametrize("pattern", ["", "/*.txt", "/lost.txt", "/**"])
def test_a_link_that_leads_nowhere_is_an_error(corpus: Path, pattern: str) -> None:
    (corpus / "lost.txt").symlink_to("gone.txt")
    with pytest.raises(FileNotFoundError, match=r"lost\.txt: a broken link"):
        storage.find(f"{corpus}{pattern}")


def test_what_is_no_file_is_an_error(corpus: Path) -> None:
    os.mkfifo(corpus / "pipe")
    with pytest.raises(FileNotFoundError, match="pipe: neither a file nor a folder"):
        storage.find(str(corpus))


@pytest.mark.parametrize(("pattern", "complaint"), [("/x.txt", "no such file"), ("/empty", "no files in it")])
def test_nothing_at_all_is_an_error(corpus: Path, pattern: str, complaint: str) -> None:
    (corpus / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=complaint):
        storage.find(f"{corpus}{pattern}")
