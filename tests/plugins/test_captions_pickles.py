"""COCO's pickles are read as arrays, containers and texts, and none of their code runs."""

import array
import collections
import copyreg
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearspan.common.records import DataError, MissingDataError
from clearspan.plugins.captions.pickles import read_captioned

FEATURES = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


def coco(features: Any = FEATURES) -> dict[str, Any]:
    """Return the content of a split of COCO: two images with six captions each, with ids like COCO's."""
    ids = {image: [1000 * image + number for number in range(6)] for image in range(2)}
    captions = {i: {"cleaned_caption": f"a man  rides horse {i}", "imgid": i // 1000} for j in ids.values() for i in j}
    return {"features": features, "image_to_caption_ids": ids, "captions": captions}


def written(folder: Path, content: Any) -> Path:
    path = folder / "train.pkl"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


def refused(folder: Path, content: Any) -> str:
    path = written(folder, content)
    with pytest.raises(DataError) as error:
        read_captioned(path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "<i8", "u1"])
def test_arrays_of_every_protocol_and_kind_of_number_are_read(tmp_path: Path, protocol: int, dtype: str) -> None:
    features = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    for one in (features, np.asfortranarray(features), features[:, ::-1]):
        found = read_captioned(written(tmp_path, pickle.dumps(coco(one), protocol)))
        assert found.images.dtype == np.float32
        np.testing.assert_array_equal(found.images, one.astype(np.float32))


@pytest.mark.guarantee("coco-captions")
def test_the_first_five_captions_count_with_a_full_stop(tmp_path: Path) -> None:
    found = read_captioned(written(tmp_path, coco()))
    assert found.captions == [f"a man rides horse {1000 * image + i} ." for image in range(2) for i in range(5)]
    assert len(found) == 2
    content = coco()
    said = ["A man.", "a man .", "MAN", "Cafe\u0301 \u00ad\x07", "sixth"]
    content["image_to_caption_ids"][1] = [9, 2, 7, 2, 8, 1]
    for number, text in zip((9, 2, 7, 8, 1), said, strict=True):
        content["captions"][number] = {"cleaned_caption": text}
    found = read_captioned(written(tmp_path, content))
    assert found.captions[5:] == ["A man. .", "a man . .", "MAN .", "a man . .", "Cafe\u0301 \u00ad\x07 ."], (
        "in the order of ids"
    )


@pytest.mark.parametrize(
    "features", [list(FEATURES), [row.tolist() for row in FEATURES], FEATURES.tolist()], ids=["rows", "lists", "whole"]
)
def test_features_may_be_a_list_of_rows(tmp_path: Path, features: Any) -> None:
    np.testing.assert_allclose(read_captioned(written(tmp_path, coco(features))).images, FEATURES)


@pytest.mark.guarantee("coco-captions")
def test_ids_and_captions_may_be_lists(tmp_path: Path) -> None:
    content = {
        "features": FEATURES,
        "image_to_caption_ids": [list(range(5)), tuple(range(5))],
        "captions": [{"cleaned_caption": f"horse {i}"} for i in range(5)],
    }
    assert read_captioned(written(tmp_path, content)).captions == [f"horse {i} ." for i in range(5)] * 2


def python_2_array(values: np.ndarray) -> bytes:
    """Return an array as numpy pickled it under Python 2: old module names, byte strings for codes and numbers."""
    raw = values.astype("<f4").tobytes()
    shape = b"".join(b"K" + bytes([size]) for size in values.shape)
    dtype = b"cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return start + b"(K\x01(" + shape + b"t" + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"


def python_2_text(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text


@pytest.mark.guarantee("coco-captions")
def test_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    caption = b"}" + python_2_text(b"cleaned_caption") + python_2_text("ein Café".encode("latin-1")) + b"s"
    ids = b"}" + b"".join(b"K" + bytes([image]) + b"](K\x07K\x07K\x07K\x07K\x07es" for image in range(2))
    content = b"\x80\x02}" + python_2_text(b"features") + python_2_array(FEATURES) + b"s"
    content += python_2_text(b"image_to_caption_ids") + ids + b"s"
    content += python_2_text(b"captions") + b"}K\x07" + caption + b"ss."
    found = read_captioned(written(tmp_path, content))
    np.testing.assert_array_equal(found.images, FEATURES)
    assert found.captions == ["ein Café ."] * 10


class Runs:
    """An object that would write a file when unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.proof}",)


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["features", "captions", "more"])
def test_code_in_a_pickle_is_named_and_not_run(tmp_path: Path, place: str, protocol: int) -> None:
    content = {**coco(), place: [Runs(tmp_path / "ran")]}
    message = refused(tmp_path, pickle.dumps(content, protocol))
    assert "needs 'posix.system'" in message and "restore the file from the original" in message
    assert not (tmp_path / "ran").exists()


@pytest.mark.guarantee("coco-captions")
@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"cbuiltins\neval\n(V1\ntR.", "builtins.eval"),
        (b"c__builtin__\ngetattr\n.", "__builtin__.getattr"),
        (b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.", "numpy.load"),
        (b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.", "numpy.ndarray.__init__"),
        (b"(Vtrue\nios\nsystem\n.", "os.system"),
        (pickle.dumps(collections.OrderedDict()), "collections.OrderedDict"),
        (pickle.dumps(np.float32(1)), "numpy._core.multiarray.scalar"),
        (pickle.dumps(array.array("f", [1])), "array._array_reconstructor"),
        (pickle.dumps({1}, 2), "__builtin__.set"),
    ],
)
def test_any_other_name_is_refused(tmp_path: Path, content: bytes, name: str) -> None:
    assert f"needs '{name}'" in refused(tmp_path, content)


def as_features(value: bytes) -> bytes:
    """Return a pickle of a split of COCO, whose features the opcodes `value` leave on the stack."""
    return b"(Vfeatures\n" + value + b"Vimage_to_caption_ids\n}Vcaptions\n}d."


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
EMPTY = RECONSTRUCT + b"(cnumpy\nndarray\n(I0\ntVb\ntR"
DTYPE = b"cnumpy\ndtype\n"
F4 = DTYPE + b"(Vf4\ntR"


def state(shape: bytes = b"(I1\nI1\nt", dtype: bytes = F4, data: bytes = b"Vabcd\n") -> bytes:
    return b"(I1\n" + shape + dtype + b"I00\n" + data + b"tb"


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize(
    "value",
    [
        DTYPE + b"(VO\ntR",
        EMPTY + state(dtype=DTYPE + b"(VO\ntR"),
        EMPTY + state(dtype=DTYPE + b"(VO8\ntR"),
        EMPTY + state(dtype=DTYPE + b"(VV4\ntR"),
        EMPTY + state(dtype=DTYPE + b"(VU1\ntR"),
        EMPTY + state(dtype=DTYPE + b"((Vf4\nttR"),
        EMPTY + state(dtype=DTYPE),
        EMPTY + state(dtype=b"Vf4\n"),
        EMPTY + state(dtype=F4 + b"(I3\nV?\ntb"),
        EMPTY + state(dtype=F4 + b"}Vnames\nVO\nsb"),
        RECONSTRUCT + b"(N(I0\ntVb\ntR" + state(),
        RECONSTRUCT + b"(" + RECONSTRUCT + b"(I0\ntVb\ntR" + state(),
        RECONSTRUCT + b"(" + DTYPE + b"(I0\ntVb\ntR" + state(),
        RECONSTRUCT + b"(cnumpy\nndarray\n)R(I0\ntVb\ntR" + state(),
        b"cnumpy\nndarray\n(I9\ntR",
        b"cnumpy\nndarray\n(I9\ntR" + state(),
        EMPTY,
        EMPTY + b"Vno state\nb",
        EMPTY + state(shape=b"(I1\nI-1\nt"),
        EMPTY + state(shape=b"(I1\nF1.0\nt"),
        EMPTY + state(shape=b"I1\n"),
        EMPTY + state(shape=b"(I1\nI999999999\nt"),
        EMPTY + state(shape=b"(I4294967296\nI4294967296\nI4294967296\nt"),
        EMPTY + state(data=b"V\\u0161\\u0161\\u0161\\u0161\n"),
        EMPTY + state(data=b"](VO\ne"),
        EMPTY + state(data=b"c_codecs\nencode\n(Vabcd\nVrot13\ntR"),
        DTYPE + b"}b",
        b"cnumpy.core.numeric\n_frombuffer\n(I5\n" + F4 + b"(I1\ntVC\ntR",
        b"cnumpy.core.numeric\n_frombuffer\n(Vabcd\n" + F4 + b"(I1\nI1\ntVK\ntR",
        b"](" + EMPTY + state(shape=b")") + b"e",
    ],
)
def test_what_numpy_would_make_of_other_arrays_is_never_asked(tmp_path: Path, value: bytes) -> None:
    assert "features must" in refused(tmp_path, as_features(value))
    assert "image_to_caption_ids of image 0" in refused(tmp_path, as_features(EMPTY + state())), "a whole array is read"


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize("value", [b"}", b"]", b"Vtext\n", b"I1\n", b"N", b"(t"])
@pytest.mark.parametrize("given", [b"}V__class__\nNs", b"N}V__class__\nNs\x86"])
def test_no_other_value_s_attributes_can_be_set(tmp_path: Path, value: bytes, given: bytes) -> None:
    assert "not a complete pickle" in refused(tmp_path, as_features(value + given + b"b"))


@pytest.mark.guarantee("coco-captions")
def test_no_class_is_there_to_make_an_object_of(tmp_path: Path) -> None:
    for name in (b"cnumpy\nndarray\n", DTYPE, b"c_codecs\nencode\n"):
        assert "not a complete pickle" in refused(tmp_path, as_features(name + b")\x81"))
        assert "not a complete pickle" in refused(tmp_path, as_features(name + b")}\x92"))


@pytest.mark.guarantee("coco-captions")
@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize("content", [b"P1\n.", b"\x80\x02K\x01Q.", b"\x80\x02\x82\xf0.", b"\x80\x02\x83\xf0\x00."])
def test_other_data_is_not_referred_to(tmp_path: Path, content: bytes) -> None:
    """Also by a code that the process knows already, for which the standard library asks nobody."""
    copyreg.add_extension("os", "system", 0xF0)
    copyreg._extension_cache[0xF0] = os.system  # type: ignore[attr-defined]
    try:
        assert "refers to other data" in refused(tmp_path, content)
    finally:
        copyreg._extension_cache.pop(0xF0)  # type: ignore[attr-defined]
        copyreg.remove_extension("os", "system", 0xF0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02})" + b"\x85" * 300_000 + b"K\x01s.", "keys that are neither"),
        (b"\x80\x02}()" + b"\x85" * 300_000 + b"K\x01u.", "keys that are neither"),
        (b"()" + b"\x85" * 300_000 + b"K\x01d.", "keys that are neither"),
        (pickle.dumps({1}, 4), "holds a set"),
        (pickle.dumps(frozenset({1}), 4), "holds a set"),
        (b"\x80\x02)" + b"\x85" * 300_000 + b".", "found a tuple"),
        (b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".", "found a list"),
        (b"\x80\x02" + DTYPE + b"q\x00" + b"h\x00" * 300_000 + b"N" + b"\x85R" * 300_000 + b".", "found a _Record"),
        (b"\x80\x02" + EMPTY + b"q\x00" + b"h\x00h\x00b" * 1000 + b".", "found a _Record"),
        (b"\x80\x02K\x01r\xff\xff\xff\xff.", "found 1"),
    ],
    ids=range(10),
)
def test_a_pickle_that_would_take_the_process_down_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refused(tmp_path, content)


def test_a_caption_s_id_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    nested: Any = ()
    for _ in range(300):
        nested = (nested,)
    message = refused(tmp_path, {**coco(), "image_to_caption_ids": {0: [nested] * 5}})
    assert "caption a tuple of image 0" in message


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_a_truncated_pickle_is_no_whole_one(tmp_path: Path, share: float) -> None:
    whole = pickle.dumps(coco())
    assert "not a complete pickle" in refused(tmp_path, whole[: int(share * len(whole))])


@pytest.mark.parametrize(
    "content",
    [
        b"not a pickle\n",
        b"\x80\x63.",
        b"\x8e" + struct.pack("<Q", 1 << 62) + b"abc",
        b"\x96" + struct.pack("<Q", 1 << 30) + b"abc",
        b"T\xff\xff\xff\x7fabc",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"K\x01",
    ],
    ids=["text", "protocol 99", "4 EiB of bytes", "1 GiB of a bytearray", "2 GiB of text", "4 EiB of a frame"],
)
def test_bytes_that_are_no_pickle_are_refused_without_taking_what_they_claim(tmp_path: Path, content: bytes) -> None:
    tracemalloc.start()
    try:
        assert "not a complete pickle" in refused(tmp_path, content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in coco().items() if name != key}


laughs: list[Any] = ["ha"]
for _ in range(60):
    laughs = [laughs, laughs]


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "features, image_to_caption_ids, captions"),
        (["features", "image_to_caption_ids", "captions"], "expected a dict with features"),
        (without("features"), "expected a dict with features"),
        (without("captions"), "expected a dict with features"),
        (coco(np.zeros(3, np.float32)), "features must"),
        (coco(np.zeros((0, 3), np.float32)), "features must"),
        (coco([[1.0, 2.0], [1.0]]), "features must"),
        (coco([["a"], ["b"]]), "features must"),
        (coco([[10**400], [1]]), "features must"),
        (coco(laughs), "features must"),
        (coco([[0.5] * 1000] * 1000), "more numbers"),
        (coco(np.array([[1, np.nan, 2]], np.float32)), "a NaN or an infinity"),
        ({**coco(), "image_to_caption_ids": {0: [1, 2]}}, "of image 0 must be a list"),
        ({**coco(), "image_to_caption_ids": laughs}, "of image 0 must be a list"),
        ({**coco(), "image_to_caption_ids": {0: [laughs] * 5}}, "caption a list of image 0"),
        (coco(np.zeros((3, 2), np.float32)), "of image 2 must be a list"),
        ({**coco(), "captions": {}}, "caption 0 of image 0"),
        ({**coco(), "captions": {0: {"cleaned_caption": 5}}}, "found a dict"),
        ({**coco(), "captions": {0: {"cleaned_caption": b"bytes"}}}, "cleaned_caption"),
    ],
    ids=range(19),
)
def test_a_pickle_that_is_built_otherwise_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    assert message in refused(tmp_path, content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"no file .*valid\.pkl"):
        read_captioned(tmp_path / "valid.pkl")
