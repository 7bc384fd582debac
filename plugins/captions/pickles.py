"""Read the image features and captions of SentEval's COCO data from pickles, without running code from the pickles.

    {train,valid,test}.pkl ──> unpickler of numbers, texts, containers and records ──> structure checked ──> Captioned

A pickle is a program that runs when it is loaded: it names functions and calls them, and whoever wrote the file chooses
both. Here `find_class` knows a list of numpy's names and nothing else, and answers even these with a `_Record`, which
notes the arguments and does nothing. No callable is reached, so nothing is run; arrays are made from the records
afterwards (`_array`). To answer with numpy's own classes would not be safe: a pickled dtype that hides its object flag
makes numpy use bytes of the file as pointers.
"""

import mmap
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
        try:  # a pickle may state any length for a text: a map gives no more bytes than there are, and takes no memory
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                loaded = _Unpickler(content, encoding="latin1").load()
        except _RefusedError as error:
            raise DataError(f"{path}: {error}: restore the file from the original") from None
        except OSError:
            raise
        except Exception as error:  # a damaged pickle can raise nearly any exception
            reason = "it ends too soon" if isinstance(error, EOFError) else head(str(error) or type(error).__name__)
            raise DataError(f"{path}: not a complete pickle ({reason}): restore the file from the original") from None
    return _captioned(loaded, path)


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
    num_numbers = sum(np.size(row) for row in rows if row is not None) if isinstance(rows, list) else 0
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
    """Return the array of a record, or a list or tuple of numbers unchanged; None for anything else."""
    if isinstance(row, _Record):
        return _array(row)
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


class _Record:
    """A name of numpy, or what a pickle would have numpy make by it: the arguments of the call, and the state then set.

    A pickle can do nothing with it but call it, which gives another record, and set its state, which is only kept.
    """

    def __init__(self, name: str, arguments: tuple[Any, ...] | None = None) -> None:
        self.name, self.arguments, self.state = name, arguments, None

    def __call__(self, *arguments: Any) -> "_Record":
        return _Record(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


_NAMES = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
_NAMES |= {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}
_NAMES |= {(f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")}
_CODES = {"f2", "f4", "f8", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8))}
Step = Callable[[Any], None]
_STEPS: dict[int, Step] = dict(pickle._Unpickler.dispatch)


def _with_keys(code: bytes, keys: slice) -> Step:
    """Return the step of an opcode that fills a dict, behind a check of the keys, which are `stack[keys]`."""
    step = _STEPS[code[0]]

    def checked(unpickler: "_Unpickler") -> None:
        if not all(isinstance(key, (str, int, float, bytes)) for key in unpickler.stack[keys]):
            raise _RefusedError("the pickle holds a dict with keys that are neither numbers nor texts")
        step(unpickler)

    return checked


def _refuse(_: "_Unpickler") -> None:
    raise _RefusedError("the pickle holds a set or refers to other data, and only arrays and plain containers are read")


class _Unpickler(pickle._Unpickler):
    """Unpickler that makes numbers, texts, plain containers and records, and refuses every other name.

    It extends the standard library's unpickler that is written in Python. The one in C dies of what a pickle may hold
    without naming anything: of the hash of a key of deeply nested tuples, which overflows its stack (keys must be
    numbers, texts or bytes, and there are no sets), and of a memo index of 2^32, for which it fills memory. A bytearray
    is read as bytes, since its memory would be filled before the file has given the bytes. For COCO, it takes a few
    seconds more.
    """

    stack: list[Any]
    dispatch: ClassVar[dict[int, Step]] = {
        **_STEPS,
        **dict.fromkeys((each[0] for each in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)), _refuse),
        **dict.fromkeys((each[0] for each in (pickle.EXT1, pickle.EXT2, pickle.EXT4)), _refuse),
        **dict.fromkeys((each[0] for each in (pickle.PERSID, pickle.BINPERSID)), _refuse),
        pickle.SETITEM[0]: _with_keys(pickle.SETITEM, slice(-2, -1)),
        pickle.SETITEMS[0]: _with_keys(pickle.SETITEMS, slice(0, None, 2)),
        pickle.DICT[0]: _with_keys(pickle.DICT, slice(0, None, 2)),
        pickle.BYTEARRAY8[0]: _STEPS[pickle.BINBYTES8[0]],
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise _RefusedError(
                f"the pickle needs {head(f'{module}.{name}')}, and only arrays of numbers and plain containers are read"
            )
        return _Record(name)


def _array(record: _Record) -> NDArray[Any] | None:
    """Return the array of numbers that numpy would make by a record; None if it would make anything else."""
    match record.name, record.arguments, record.state:
        case "_reconstruct", (_Record(name="ndarray", arguments=None), _, _), (_, shape, dtype, in_columns, data):
            order = "F" if in_columns else "C"
        case "_frombuffer", (data, dtype, shape, ("C" | "F") as order), None:
            pass
        case _:
            return None
    is_shape = isinstance(shape, tuple) and all(isinstance(size, int) and size >= 0 for size in shape)
    try:
        content, numbers = _bytes(data), _dtype(dtype)
        if content is None or numbers is None or not is_shape:
            return None
        return np.frombuffer(content, numbers).reshape(shape, order=order)
    except (ValueError, OverflowError):  # text that is no bytes, or a shape of another number of bytes
        return None


def _dtype(record: Any) -> "np.dtype[Any] | None":
    """Return the dtype of plain numbers that a record of numpy's `dtype` describes; None for anything else."""
    match record:
        case _Record(name="dtype", arguments=(str(code), *_), state=state) if code in _CODES:
            order = "=" if state is None else state[1] if isinstance(state, tuple) and len(state) > 1 else None
            return np.dtype(order + code) if order in ("<", ">", "|", "=") else None
    return None


def _bytes(data: Any) -> bytes | None:
    """Return the bytes of an array's content; None if there are none, and ValueError for text that is not Latin-1.

    Python 2's byte strings were decoded as Latin-1. Python 3 writes a call of `_codecs.encode` for Python 2's sake.
    """
    match data:
        case _Record(name="encode", arguments=(str(text), "latin1" | "latin-1")) | str(text):
            return text.encode("latin-1")
    return data if isinstance(data, bytes) else None
