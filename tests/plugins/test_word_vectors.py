"""Word vectors: SentEval's bag of words, from all formats in which vectors are published."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.model_folder import EncoderError
from clearspan.plugins.word_vectors import load_word_vectors

WORDS = {"the": [0.5, -1.0, 2.0], "owl": [0.25, 3.0, -0.125], "The": [7.0, 8.0, 9.0], ".": [1.0, 1.0, 1.0]}
Vectors = dict[str, list[float]]


def glove(words: Vectors) -> bytes:
    return "".join(f"{word} {' '.join(map(str, values))}\n" for word, values in words.items()).encode()


def word2vec_text(words: Vectors) -> bytes:
    """Return word2vec's text format as its program and fastText write it, with a space at the end of each line."""
    return f"{len(words)} 3\n".encode() + glove(words).replace(b"\n", b" \n")


def word2vec_binary(words: Vectors) -> bytes:
    rows = [f"{word} ".encode() + struct.pack("<3f", *values) + b"\n" for word, values in words.items()]
    return f"{len(words)} 3\n".encode() + b"".join(rows)


def word2vec_binary_without_new_lines(words: Vectors) -> bytes:
    """Return word2vec's binary format as gensim writes it."""
    rows = [f"{word} ".encode() + struct.pack("<3f", *values) for word, values in words.items()]
    return f"{len(words)} 3\n".encode() + b"".join(rows)


def as_json(words: Vectors) -> bytes:
    return json.dumps(words).encode()


FORMATS = [glove, word2vec_text, word2vec_binary, word2vec_binary_without_new_lines, as_json]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("written_as", FORMATS)
def test_a_text_is_the_mean_of_its_known_words_in_every_format(
    written_as: Callable[[Vectors], bytes], tmp_path: Path
) -> None:
    model = load_word_vectors(written(tmp_path / "vectors", written_as(WORDS)))
    assert (model.dim, model.folder) == (3, None)
    texts = ["the owl", "owl owl the", "The  owl saw\tthe mouse", "OWL", "saw mouse", ""]
    mean = {text: np.mean([WORDS[word] for word in text.split() if word in WORDS], axis=0) for text in texts[:3]}
    embeddings = model.encode(texts)
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, [*mean.values(), [0] * 3, [0] * 3, WORDS["."]], rtol=1e-6)
    np.testing.assert_array_equal(model.encode(texts[::-1]), embeddings[::-1])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \n", b""])
def test_a_words_own_spaces_are_its_own(end: bytes, tmp_path: Path) -> None:
    """GloVe 840B has words such as `. . .` and `at name@domain.com`."""
    lines = [b"the 1 2", b". . . 3 4", b"at name@domain.com 5 6", b"owl 7 8"]
    model = load_word_vectors(written(tmp_path / "glove.txt", (end or b"\n").join(lines) + end))
    np.testing.assert_array_equal(model.encode(["the", ". .", "at", "owl"]), [[1, 2], [0, 0], [0, 0], [7, 8]])


@pytest.mark.parametrize(
    "content", [b"owl 1 2\nowl 3 4\n", b"2 2\nowl 1 2\nowl 3 4\n", b'{"owl": [1, 2], "owl": [3, 4]}']
)
def test_of_a_word_that_is_there_twice_the_first_counts(content: bytes, tmp_path: Path) -> None:
    np.testing.assert_array_equal(load_word_vectors(written(tmp_path / "vectors", content)).encode(["owl"]), [[1, 2]])


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    model = load_word_vectors(written(tmp_path / "vectors.txt", b"\xef\xbb\xbfthe 1 2\nowl 3 4\n"))
    np.testing.assert_array_equal(model.encode(["the", "owl"]), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (
            b"the 1 2 3\nowl 1 2\n",
            r":2: expected a word and 3 numbers,",
        ),
        (word2vec_binary(WORDS).replace(b"4 3", b"3 3"), "goes on after the 3 words"),
        (b"just a line of text\n", r":1: expected a word"),
        (b"the 1 2\nowl 1 two\n", "'owl' is not 2 finite"),
        (b"the 1 2\nowl 1 nan\n", "'owl' is not 2 finite"),
        (b"the 1 2\nowl 1 1e99\n", "'owl' is not 2 finite"),
        (b"3 2\nthe 1 2\nowl 1 2\n", "holds 2 of the 3 words"),
        (b"2 0\nthe\nowl\n", ":1: declares vectors of 0 numbers"),
        (word2vec_binary(WORDS)[:-3], "ends within word 4"),
        (word2vec_binary({**WORDS, "owl": [0, np.nan, 0]}), "'owl' is not 3 finite"),
        (b'{"owl": [1, 2], "the": [1]}', "all of one length"),
        (b'{"owl": [1, "2"]}', "all of one length"),
        (b'{"owl": [1, NaN]}', "'owl' is not 2 finite"),
        (b'{"owl": [1, 2]', "must be a JSON object"),
        (
            b"\x80\x04\x95",
            "is no file of word vectors",
        ),
    ],
)
def test_a_file_that_is_not_whole_or_of_another_kind_is_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "vectors.txt", content)
    with pytest.raises(EncoderError, match=message) as error:
        load_word_vectors(path).encode(["the owl"])
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_the_fingerprint_is_of_the_file(tmp_path: Path) -> None:
    one, same = written(tmp_path / "one", glove(WORDS)), written(tmp_path / "same", glove(WORDS))
    other = written(tmp_path / "other", glove({**WORDS, "owl": [0, 0, 0]}))
    assert (
        load_word_vectors(one).fingerprint
        == load_word_vectors(same).fingerprint
        != load_word_vectors(other).fingerprint
    )
