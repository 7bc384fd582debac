"""Classes in names, and the choice of a subset: functions of names alone."""

import random

import pytest

from clearspan.common.errors import PipelineError
from clearspan.pipelines.labels import Listed, SelectionOptions, find_classes

BREEDS = ["cat", "dog", "hen"]


def listed(*names: str) -> list[Listed]:
    return [Listed(name) for name in names]


def taken(ones: list[Listed], wanted: SelectionOptions) -> list[str]:
    found = find_classes(ones, wanted)
    known = frozenset(found.names)
    return [one.name for one in ones if found.is_selected(one.name, found.label(one), known)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train/cat/1.jpg", "train/dog/1.jpg"], ["cat", "dog"]),
        (["cat.tar/1.jpg", "dog.tar/1.jpg"], ["cat", "dog"]),
        (["cat.tar.gz/1.jpg", "b/dog.tgz/1.jpg"], ["cat", "dog"]),
        (["all.tar/set/cat/1.jpg", "all.tar/set/dog/1.jpg"], ["cat", "dog"]),
        (["cat.tar/././/1.jpg", "a.tar/b/../dog//1.jpg"], ["cat", "dog"]),
        (["train/cat/images/1.jpg", "train/dog/images/1.jpg"], ["cat", "dog"]),
        (["train/cat/images/1.jpg", "train/dog/2/1.jpg"], ["2", "images"]),
        (["train/cat/1.jpg", "val/cat/1.jpg", "val/dog/1.jpg"], ["cat", "dog"]),
        (["19/198/19-198-0.flac", "26/495/26-495-0.flac"], ["198", "495"]),
    ],
)
def test_the_class_is_the_folder_or_tar_that_tells_one_from_another(names: list[str], expected: list[str]) -> None:
    assert list(find_classes(listed(*names), SelectionOptions()).names) == expected


def test_a_pattern_finds_the_class_in_the_path() -> None:
    names = listed("0_george_0.wav", "1_jackson_12.wav")
    assert find_classes(names, SelectionOptions(label_pattern=r"_([a-z]+)_")).names == ("george", "jackson")
    assert find_classes(names, SelectionOptions(label_pattern=r"^\d")).names == ("0", "1")
    with pytest.raises(PipelineError, match=r"finds nothing in 1 of 3 files, e\.g\. george\.wav"):
        find_classes([*names, Listed("george.wav")], SelectionOptions(label_pattern=r"_([a-z]+)_"))


@pytest.mark.parametrize("pattern", ["x*", "", r"_(x)?", r"0( *)"])
def test_a_pattern_that_finds_nothing_but_the_empty_word_finds_no_class(pattern: str) -> None:
    with pytest.raises(PipelineError, match=r"finds nothing in 1 of 1 files, e\.g\. 0_george_0\.wav"):
        find_classes(listed("0_george_0.wav"), SelectionOptions(label_pattern=pattern))


@pytest.mark.parametrize("name", ["a.tar/../1.jpg", "a.tar/../../1.jpg"])
def test_a_name_above_its_tar_is_of_no_class(name: str) -> None:
    with pytest.raises(PipelineError, match=r"is in no folder .*`label_pattern`"):
        find_classes(listed(name, "a.tar/cat/1.jpg"), SelectionOptions())


def test_what_is_said_of_the_class_counts_before_the_name() -> None:
    assert find_classes([Listed("cat/1.jpg", "dog"), Listed("cat/2.jpg")], SelectionOptions()).names == ("cat", "dog")


@pytest.mark.parametrize(
    ("names", "order"), [(["10", "9", "100"], ["9", "10", "100"]), (["10", "9", "x"], ["10", "9", "x"])]
)
def test_classes_are_sorted_and_whole_numbers_by_value(names: list[str], order: list[str]) -> None:
    assert list(find_classes(listed(*(f"{name}/a.jpg" for name in names)), SelectionOptions()).names) == order


def test_a_subset_is_the_same_however_the_files_are_ordered_and_packed() -> None:
    folders = listed(*(f"{breed}/{breed}_{n}.jpg" for breed in BREEDS for n in range(100)))
    tars = listed(*(f"x/{breed}.tar/{breed}_{n}.jpg" for breed in BREEDS for n in range(100)))
    wanted = SelectionOptions(classes=2, per_class=30)
    first = taken(folders, wanted)
    assert len(first) == 60 and len({name.split("/")[0] for name in first}) == 2
    assert first != [f"{breed}/{breed}_{n}.jpg" for breed in ("cat", "dog") for n in range(30)]
    shuffled = random.Random(0).sample(folders, len(folders))
    assert sorted(taken(shuffled, wanted)) == sorted(first)
    assert {name.rpartition("/")[2] for name in taken(tars, wanted)} == {name.rpartition("/")[2] for name in first}


def test_a_subset_has_as_many_as_asked_for_where_names_repeat() -> None:
    ones = listed("a/dog/0.jpg", *(f"{part}/cat/{n}.jpg" for part in "abc" for n in range(10)))
    assert len(taken(ones, SelectionOptions(per_class=7, class_list=("cat",)))) == 7


def test_a_small_class_is_taken_whole_but_is_none_of_n_classes_of_m() -> None:
    ones = listed("cat/1.jpg", *(f"{breed}/{n}.jpg" for breed in ("dog", "hen") for n in range(5)))
    assert len(taken(ones, SelectionOptions(per_class=3))) == 7
    assert find_classes(ones, SelectionOptions(classes=2, per_class=3)).names == ("dog", "hen")
    with pytest.raises(PipelineError, match="`classes` 3: there are 2 classes of at least 3: lower it"):
        find_classes(ones, SelectionOptions(classes=3, per_class=3))


def test_the_largest_classes_and_those_named_can_be_taken() -> None:
    ones = listed(*(f"{breed}/{n}.jpg" for size, breed in enumerate(BREEDS, 3) for n in range(size)))
    assert find_classes(ones, SelectionOptions(top_classes=2)).names == ("dog", "hen")
    assert find_classes(ones, SelectionOptions(top_classes=1)).counts == {
        "files": 5,
        "of_files": 12,
        "classes": 1,
        "of_classes": 3,
    }
    assert len(taken(ones, SelectionOptions(class_list=("hen", "cat"), per_class=4))) == 7
    with pytest.raises(PipelineError, match=r"`class_list`: 1 of its classes do not occur in the inputs, e\.g\. 'cow'"):
        find_classes(ones, SelectionOptions(class_list=("cow", "cat")))
    with pytest.raises(PipelineError, match="`top_classes` 4: there are 3 classes"):
        find_classes(ones, SelectionOptions(top_classes=4))
