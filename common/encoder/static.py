"""Static models, which embed a text as the mean of its token vectors, without sentence-transformers and torch.

    texts -> token ids, without special tokens -> mean of the ids' rows in a table -> unit length, if the model has
    the module `Normalize` -> the first `truncate_dim` dimensions

Importing sentence-transformers takes longer than embedding tens of thousands of texts with such a model. The embeddings
differ by at most 1e-5 from those of sentence-transformers' `encode`. `is_static_folder` returns whether this
module can load a folder. `common.encoder.library` loads all others, e.g. a folder with further modules of
sentence-transformers, or with weights that are not float32.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from clearspan.common import fast_tokenizer
from clearspan.common.encoder.prompts import Prompts
from clearspan.common.encoder.sentence_encoder import SPECIAL_TOKENS, Embedded, FolderEncoder
from clearspan.common.fast_tokenizer import FastTokenizer
from clearspan.common.model_folder import (
    MEND,
    EncoderError,
    check_largest,
    check_modules,
    check_tokenizer,
    read_inference,
    read_json,
    read_modules,
    refusing,
)
from clearspan.common.progress import ProgressBar
from clearspan.common.ragged import Ragged

LIBRARIES = ("gigatoken", "numpy", "scipy", "tokenizers")
WEIGHT = "embedding.weight"
BLOCK_CHARACTERS = 1 << 20
"""Texts are embedded in blocks of about this many characters, in their order, since there is no padding."""
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def is_static_folder(folder: Path) -> bool:
    """Return whether a folder holds a static model that `load_static` can load.

    Raises:
        EncoderError: the folder's list of modules or the settings of a module cannot be read.
    """
    modules = read_modules(folder)
    if [module.kind for module in modules] not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):
        return False
    for module in modules[1:]:
        settings = module.folder / "config.json"
        if settings.is_file() and _reads_tokens(settings):
            return False
    table = modules[0].folder
    try:
        with safe_open(table / "model.safetensors", "np") as file:
            weights = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is not a mapping
    except (OSError, SafetensorError):
        return False
    is_plain = list(weights) == [WEIGHT] and len(weights[WEIGHT].get_shape()) == 2
    return is_plain and weights[WEIGHT].get_dtype() == "F32" and (table / "tokenizer.json").is_file()


class StaticEncoder(FolderEncoder):
    """A static model.

    Args:
        folder: the model's folder.
        tokenizer: the model's tokenizer, which may truncate.
        table: the vector of each token id, (number of tokens, width) float32.
        normalize: whether embeddings are scaled to unit length.
        config: the content of `config_sentence_transformers.json`, which may set `truncate_dim` and
            `similarity_fn_name`; {} if the folder has no such file.
        most_tokens: the number of tokens at which `tokenizer` truncates; None if it does not truncate.
        counter: the same tokenizer without truncation; None if `tokenizer` does not truncate.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: FastTokenizer,
        table: NDArray[np.float32],
        normalize: bool,
        config: dict[str, Any],
        most_tokens: int | None = None,
        counter: FastTokenizer | None = None,
    ) -> None:
        dim = min(config.get("truncate_dim") or table.shape[1], table.shape[1])
        name = config.get("similarity_fn_name")
        super().__init__(folder, dim, name if name in SIMILARITIES else "cosine", SPECIAL_TOKENS, LIBRARIES)
        self._tokenizer = tokenizer
        self._normalize = normalize
        self._most_tokens = most_tokens
        self._counter = counter or tokenizer
        self._table = table if normalize else np.ascontiguousarray(table[:, :dim])

    def _embed(self, texts: Sequence[str], batch_tokens: int, progress: bool, prompt: str) -> Embedded:
        out, truncated = np.empty((len(texts), self.dim), dtype=np.float32), np.zeros(len(texts), dtype=bool)
        with ProgressBar(len(texts), f"embedding {len(texts):,} texts", not progress) as bar:
            for rows in _blocks(texts):
                block = [prompt + text for text in texts[rows]]
                ids = self._ids(block)
                truncated[rows] = self._are_truncated(block, ids.lengths)
                means = self._means(ids)  # which sorts the ids in place
                out[rows] = (_unit(means) if self._normalize else means)[:, : self.dim]
                bar.update(len(means))
        return Embedded(out, truncated)

    def _are_truncated(self, texts: Sequence[str], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of n texts has more tokens than the model reads, (n,) bool.

        Args:
            texts: the texts, each with its prompt.
            lengths: the number of tokens that the model reads of each text, (n,).
        """
        truncated = np.zeros(len(texts), dtype=bool)
        if self._most_tokens is not None:
            full = np.flatnonzero(lengths == self._most_tokens).tolist()
            truncated[full] = np.array(self._count_tokens([texts[row] for row in full]), np.int64) > self._most_tokens
        return truncated

    @property
    def most_tokens(self) -> int | None:
        return self._most_tokens

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        counts: list[int] = self._counter.quick(texts).lengths.tolist()
        return counts

    def _ids(self, texts: Sequence[str]) -> Ragged:
        ids = self._tokenizer.quick_if_equal(texts)
        check_largest(self.name, ids.values.max(initial=0), len(self._table))
        return ids

    def _means(self, ids: Ragged) -> NDArray[np.float32]:
        """Return the mean token vector of each text, (len(ids), width) float32; zeros for a text without tokens."""
        from scipy.sparse import csr_array  # imported late: `is_static_folder` is called where nothing is embedded

        lengths = ids.lengths
        ones = np.ones(len(ids.values), np.float32)
        counts = csr_array((ones, ids.values, ids.offsets), shape=(len(ids), len(self._table)))
        counts.sum_duplicates()  # in place: a frequent token is read once, and its sum has no rounding error
        means: NDArray[np.float32] = counts @ self._table
        means /= np.maximum(lengths, 1)[:, None].astype(np.float32)
        return means

    def similarity(self, left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the similarity of each row of `left` (n, dim) with each row of `right` (m, dim), (n, m) float32.

        The model's attribute `similarity_name` says which function is computed: cosine, dot, euclidean or manhattan.
        The distances (euclidean, manhattan) are negated, so that a higher value always means more similar.
        """
        if self.similarity_name in ("euclidean", "manhattan"):
            from scipy.spatial.distance import cdist

            metric = "cityblock" if self.similarity_name == "manhattan" else "euclidean"
            return np.asarray(-cdist(left, right, metric), np.float32)
        if self.similarity_name == "cosine":
            left, right = _unit(left), _unit(right)
        return np.asarray(left @ right.T, np.float32)


def load_static(folder: Path) -> StaticEncoder:
    """Load a static model from a folder for which `is_static_folder` returns True.

    Raises:
        EncoderError: the folder is incomplete or invalid.
    """
    modules = read_modules(folder)
    check_modules(folder, modules)
    first = modules[0].folder
    with refusing(f"{folder}: no usable model"):
        table = load_file(first / "model.safetensors")[WEIGHT]
        # A finite sum implies finite values, and takes a tenth of the time.
        with np.errstate(over="ignore", invalid="ignore"):
            is_finite = np.isfinite(table.sum()) or np.isfinite(table).all()
        if not is_finite or not table.size:
            raise EncoderError(f"{first}: {WEIGHT} holds a NaN or an infinity: {MEND}")
        config = read_inference(folder)
        tokenizer_json = (first / "tokenizer.json").read_bytes()
        prompts = Prompts.read(folder)
        tokenizer = fast_tokenizer.load_tokenizer(tokenizer_json, truncates=True, prompts=prompts.texts.values())
        check_tokenizer(first, tokenizer.get_vocab(), len(table))
        ids = FastTokenizer(tokenizer, np.int32)
        longest = (tokenizer.truncation or {}).get("max_length")
        counter = None
        if longest:
            whole = fast_tokenizer.load_tokenizer(tokenizer_json, prompts=prompts.texts.values())
            counter = FastTokenizer(whole, np.int32)
        model = StaticEncoder(folder, ids, table, len(modules) > 1, config, longest, counter)
        model.encode(["a text", "another text to try it on"])
    return model


def _reads_tokens(path: Path) -> bool:
    """Return whether a module, by its config.json, reads or writes anything other than the sentence embedding."""
    return any(value != "sentence_embedding" for value in read_json(path).values())


def _blocks(texts: Sequence[str]) -> Iterator[slice]:
    """Yield slices of consecutive texts; the texts of a slice have about a million characters together."""
    numbers = np.cumsum([len(text) for text in texts], dtype=np.int64) // BLOCK_CHARACTERS
    for _, rows in groupby(range(len(texts)), numbers.__getitem__):
        block = list(rows)
        yield slice(block[0], block[-1] + 1)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return n vectors, (n, width), each scaled to unit length; a vector of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-12)
    return scaled
