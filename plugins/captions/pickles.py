"""Read the image features and captions of SentEval's COCO data from pickles, without running code from the pickles.

    {train,valid,test}.pkl ──> restricted unpickler ──> structure checked ──> Captioned

A pickle is a program that runs when it is loaded. To create arrays, it names functions of numpy. This module replaces
these few functions by its own functions, which check their arguments and do not use numpy's unpickling. A pickle that
names any other function or class raises an error; plain containers, numbers and texts need no names. To allow numpy's
own classes would not be safe: a pickled dtype that hides its object flag makes numpy use bytes of the file as pointers.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from clearspan.common.records import DataError, MissingDataError, head
from clearspan.eval.data.senteval import single_spaced

CAPTIONS_PER_IMAGE = 5


@dataclass(frozen=True)
class Captioned:
    """Images, as feature vectors computed by another network, and five captions of each image.

    Attributes:
        images: the features of n images, (n, dim) float32.
        captions: 5n texts; the captions of image i are captions[5i:5i + 5].
    """

    images: NDArray[np.float32]
    captions: list[str]

    def __len__(self) -> int:
        return len(self.images)


def read_captioned(path: Path) -> Captioned:
    """Read a split of COCO, `{train,valid,test}.pkl`.

    The pickle holds a dict with three entries: `features`, a row of numbers for each image; `image_to_caption_ids`,
    which maps the index of an image to the ids of its captions; and `captions`, which maps an id to a dict with the
    text `cleaned_caption`. As in SentEval, only an image's first five captions are used, " ." is appended to each,
    and Python 2's byte strings are read as Latin-1.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the pickle needs more than arrays of numbers and plain containers, is truncated, or has a different
            structure.
    """
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingDataError(f"no file {path}") from None
    with file:
        try:
            content = _Unpickler(_Bounded(file), encoding="latin1").load()
        except _RefusedError as error:
            raise DataError(f"{path}: {error}: restore the file from the original") from None
        except OSError:
            raise
        except Exception as error:  # a damaged pickle can raise nearly any exception
            reason = "it ends too soon" if isinstance(error, EOFError) else head(str(error) or type(error).__name__)
            raise DataError(f"{path}: not a complete pickle ({reason}): restore the file from the original") from None
    return _captioned(content, path)


def _captioned(content: Any, path: Path) -> Captioned:
    keys = ("features", "image_to_caption_ids", "captions")
    if not isinstance(content, dict) or any(key not in content for key in keys):
        raise DataError(f"{path}: expected a dict with {', '.join(keys)}, found {_shown(content)}")
    images = _images(content["features"], path)
    captions = []
    for image in range(len(images)):
        ids = _item(content["image_to_caption_ids"], image)
        if not isinstance(ids, (list, tuple)) or len(ids) < CAPTIONS_PER_IMAGE:
            raise DataError(
                f"{path}: image_to_caption_ids of image {image} must be a list of at least {CAPTIONS_PER_IMAGE} "
                f"ids of captions, found {_shown(ids)}"
            )
        for number in ids[:CAPTIONS_PER_IMAGE]:
            caption = _item(content["captions"], number)
            text = _item(caption, "cleaned_caption")
            if not isinstance(text, str):
                raise DataError(
                    f"{path}: caption {_shown(number)} of image {image} must be in captions, as a dict with a text "
                    f"cleaned_caption, found {_shown(caption)}"
                )
            captions.append(single_spaced(f"{text} ."))
    return Captioned(images, captions)


def _images(features: Any, path: Path) -> NDArray[np.float32]:
    rows = [_numbers(row) for row in features] if isinstance(features, list) else _numbers(features)
    # A pickle may repeat one row without limit; in a real one, each number takes at least one byte of the file.
    num_numbers = sum(len(row) for row in rows if row is not None) if isinstance(rows, list) else 0
    if num_numbers > path.stat().st_size:
        raise DataError(f"{path}: features hold more numbers than the file has bytes: restore it from the original")
    try:
        images = np.array(rows, np.float32)
    except (TypeError, ValueError, OverflowError):
        images = np.empty(0, np.float32)
    if images.ndim != 2 or 0 in images.shape:
        raise DataError(f"{path}: features must hold a row of numbers for each image, all of the same length")
    if not np.isfinite(images).all():
        raise DataError(f"{path}: features hold a NaN or an infinity: restore the file from the original")
    return images


def _numbers(row: Any) -> Any:
    """Return the numbers in `row`, a value from a pickle.

    Of an array (`_Array`), the content is returned; a list or tuple of numbers is returned unchanged. None is returned
    for anything else.
    """
    if isinstance(row, _Array):
        return row.values
    is_plain = isinstance(row, (list, tuple)) and all(isinstance(number, (int, float)) for number in row)
    return row if is_plain else None


def _shown(value: Any) -> str:
    """Return a description of a pickle's value, for an error message.

    A text (cut to 60 characters), None or a small integer is shown. Of all other values, only the type is named.
    """
    if isinstance(value, str):
        return head(value)
    is_short = value is None or (isinstance(value, int) and abs(value) < 1 << 63)
    return str(value) if is_short else f"a {type(value).__name__}"


def _item(container: Any, key: Any) -> Any:
    """Return `container[key]`; None if there is no such item, or if the types of the arguments are wrong."""
    is_valid = isinstance(container, (dict, list, tuple)) and isinstance(key, (str, int, float))
    try:
        return container[key] if is_valid else None
    except (KeyError, IndexError, TypeError):
        return None


class _RefusedError(Exception):
    """A pickle needs something that the pickles of COCO do not need. The message says what it is."""


class _Bounded:
    """A wrapper of a file that never asks the file for more bytes than are left in it.

    A pickle may state any length for a text, and Python would first allocate memory of this length.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = file.seek(0, 2)
        file.seek(0)

    def read(self, size: int) -> bytes:
        return self._count(self._file.read(min(size, self._left)))

    def readline(self) -> bytes:
        return self._count(self._file.readline())

    def _count(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


_STEPS: dict[int, Callable[[Any], None]] = dict(pickle._Unpickler.dispatch)


class _Unpickler(pickle._Unpickler):
    """Unpickler that reads numbers, texts, arrays of numbers and plain containers, and refuses everything else.

    It extends the standard library's unpickler that is written in Python, because there the function of each opcode
    can be replaced. For COCO, it takes a few seconds more than the unpickler written in C. Keys of dicts must be
    numbers, texts or bytes, because hashing a key of deeply nested tuples overflows the C stack and kills the process.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_STEPS)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise _RefusedError(
                f"the pickle needs {head(f'{module}.{name}')}, and only arrays of numbers and plain containers are read"
            )
        return _NAMES[module, name]

    def _set_one(self) -> None:
        _check_keys(self.stack[-2:-1])
        _STEPS[pickle.SETITEM[0]](self)

    def _set_many(self) -> None:
        _check_keys(self.stack[::2])
        _STEPS[pickle.SETITEMS[0]](self)

    def _dict(self) -> None:
        _check_keys(self.stack[::2])
        _STEPS[pickle.DICT[0]](self)

    def _set_state(self) -> None:
        if not isinstance(self.stack[-2], (_Array, _Dtype)):
            raise _RefusedError("the pickle sets the state of an object that is no array")
        _STEPS[pickle.BUILD[0]](self)

    def _refuse(self) -> None:
        raise _RefusedError("the pickle holds a set, and only arrays of numbers and plain containers are read")

    dispatch |= {pickle.SETITEM[0]: _set_one, pickle.SETITEMS[0]: _set_many, pickle.DICT[0]: _dict}
    dispatch |= {pickle.BUILD[0]: _set_state}
    dispatch |= dict.fromkeys((pickle.EMPTY_SET[0], pickle.ADDITEMS[0], pickle.FROZENSET[0]), _refuse)


def _check_keys(keys: list[Any]) -> None:
    if not all(isinstance(key, (str, int, float, bytes)) for key in keys):
        raise _RefusedError("the pickle holds a dict with keys that are neither numbers nor texts")


_NDARRAY = "ndarray"


class _Dtype:
    """Object that the unpickler creates in place of a numpy dtype. Only dtypes of plain numbers are allowed.

    As for a numpy dtype, the pickle creates the object from a code such as `f4`, and then sets its byte order
    (`__setstate__`).
    """

    def __init__(self, code: str) -> None:
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise _RefusedError("the pickle holds a dtype whose state is not one of plain numbers")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Object that the unpickler creates in place of a numpy array.

    As for a numpy array, the pickle creates the object empty, and then sets its content (`__setstate__`).

    Attributes:
        values: the content, as an array of numbers.
    """

    def __init__(self) -> None:
        self.values: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _RefusedError("the pickle holds an array whose state is not numpy's")
        _, shape, dtype, in_columns, data = state
        # Python 2's byte strings are decoded as Latin-1 text, and encoded again here as by numpy.
        raw = data.encode("latin-1") if isinstance(data, str) else data
        self.values = _values(raw, dtype, shape, "F" if in_columns else "C")


def _values(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(dtype, _Dtype) or not isinstance(data, (bytes, bytearray)):
        raise _RefusedError("the pickle holds an array that is not of plain numbers")
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise _RefusedError("the pickle holds an array whose shape is not a tuple of sizes")
    return np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(subtype: Any, shape: Any, code: Any) -> _Array:
    if subtype is not _NDARRAY:
        raise _RefusedError("the pickle holds a subclass of an array")
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.values = _values(data, dtype, shape, order)
    return array


def _dtype(code: Any, *_: Any) -> _Dtype:
    if not isinstance(code, str) or code not in _CODES:
        raise _RefusedError(f"the pickle holds an array of dtype {_shown(code)}, and only plain numbers are read")
    return _Dtype(code)


def _encode(text: Any, encoding: Any) -> bytes:
    """Return bytes that a pickle stores as text. This function is used in place of `_codecs.encode`.

    Python 3 stores bytes as a call of `_codecs.encode` if it writes a pickle that Python 2 can read.

    Args:
        text: the bytes, decoded as Latin-1.
        encoding: the encoding that the pickle names, which must be Latin-1.

    Raises:
        _RefusedError: the encoding is not Latin-1.
    """
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _RefusedError("the pickle holds bytes in another encoding than Latin-1")
    return text.encode("latin-1")


_CODES = {"f2", "f4", "f8", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8))}
_NAMES: dict[tuple[str, str], str | Callable[..., Any]] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("_codecs", "encode"): _encode,
}
