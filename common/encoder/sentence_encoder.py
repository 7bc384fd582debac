"""Interfaces of models that embed texts: `Encoder` for all models, `FolderEncoder` for models from a folder."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearspan.common.compute import BATCH_TOKENS
from clearspan.common.encoder.fingerprint import digest, folder_fingerprint
from clearspan.common.encoder.pooling_names import OF_PLAIN_FOLDER
from clearspan.common.encoder.prompts import DOCUMENT, OTHER, QUERY, Prompts, Side
from clearspan.common.model_folder import EncoderError, model_name, refusing
from clearspan.common.options import Flag

Pooling = Annotated[str | None, Flag(choices=OF_PLAIN_FOLDER)]
"""The option `--pooling` for a plain Hugging Face folder; `common.encoder.library_pooling` defines the poolings."""
SPECIAL_TOKENS = {"special tokens": "text"}
"""Part of a fingerprint: special tokens that a text spells out are read as text, unless a prompt spells out one."""


class Encoder(ABC):
    """A model that embeds texts.

    Attributes:
        dim: the width of the embeddings.
        folder: the model's folder, which fine-tuning needs; None for word vectors and Python functions.
        prompts: the model's prompts; word vectors and Python functions have none.
        batch_tokens: the number of tokens of a batch, unless a caller gives another: more on a GPU with much memory.
    """

    dim: int
    folder: Path | None = None
    prompts: Prompts = Prompts()
    batch_tokens: int = BATCH_TOKENS

    @property
    @abstractmethod
    def fingerprint(self) -> str | None:
        """Hash of everything that affects an embedding, except the prompt; None if it cannot be computed.

        Embeddings are cached on disk under this hash. It cannot be computed for a Python function, for example, so the
        embeddings of such a model are not cached.
        """

    def cache_key(self, prompt: str) -> str | None:
        """Return the hash under which embeddings with a prompt are cached; None if `fingerprint` is None.

        Args:
            prompt: the text that is put before each text; "" for no prompt.
        """
        if self.fingerprint is None or not any(self.prompts.texts.values()):
            return self.fingerprint
        return digest(model=self.fingerprint, prompt=prompt)

    def encode(
        self,
        texts: str | Iterable[str],
        batch_tokens: int | None = None,
        progress: bool = False,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """Return the embeddings of n texts, in their order: (n, dim) float32; of a single text, (dim,).

        Args:
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                text has a batch of its own. None for `self.batch_tokens`.
            progress: whether to show a progress bar.
            prompt_name: the name of the model's prompt to put before each text, or `none` for no prompt; None for the
                model's default prompt.

        Raises:
            EncoderError: a text cannot be encoded or is not a string, or the model has no such prompt.
        """
        return self._of_side(OTHER, texts, batch_tokens, progress, prompt_name)

    def encode_query(
        self,
        texts: str | Iterable[str],
        batch_tokens: int | None = None,
        progress: bool = False,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """Return the embeddings of n queries, in their order: (n, dim) float32; of a single query, (dim,).

        Args:
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                query has a batch of its own. None for `self.batch_tokens`.
            progress: whether to show a progress bar.
            prompt_name: the name of the model's prompt to put before each query, or `none` for no prompt; None for the
                model's prompt for queries.

        Raises:
            EncoderError: a query cannot be encoded or is not a string, or the model has no such prompt.
        """
        return self._of_side(QUERY, texts, batch_tokens, progress, prompt_name)

    def encode_document(
        self,
        texts: str | Iterable[str],
        batch_tokens: int | None = None,
        progress: bool = False,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """Return the embeddings of n documents, in their order: (n, dim) float32; of a single document, (dim,).

        Args:
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                document has a batch of its own. None for `self.batch_tokens`.
            progress: whether to show a progress bar.
            prompt_name: the name of the model's prompt to put before each document, or `none` for no prompt; None for
                the model's prompt for documents.

        Raises:
            EncoderError: a document cannot be encoded or is not a string, or the model has no such prompt.
        """
        return self._of_side(DOCUMENT, texts, batch_tokens, progress, prompt_name)

    def encode_after(
        self, prompt: str, texts: Iterable[str], batch_tokens: int | None = None, progress: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of n texts, each after the text `prompt`, in their order: (n, dim) float32.

        Args:
            prompt: the text to put before each text; "" for no prompt.
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                text has a batch of its own. None for `self.batch_tokens`.
            progress: whether to show a progress bar.

        Raises:
            EncoderError: a text cannot be encoded or is not a string, or the model takes no prompts and `prompt` is
                not "".
        """
        if prompt:
            raise EncoderError(
                f"this model has no folder and therefore no prompts: {prompt!r} cannot be put before a text"
            )
        return self.encode_list(listed(texts), self.batch_tokens if batch_tokens is None else batch_tokens, progress)

    @abstractmethod
    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of n texts, in their order: (n, dim) float32. No prompt is put before a text.

        Args:
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                text has a batch of its own.
            progress: whether to show a progress bar.
        """

    def _of_side(
        self, side: Side, texts: str | Iterable[str], batch_tokens: int | None, progress: bool, prompt_name: str | None
    ) -> NDArray[np.float32]:
        prompt = self.prompts.of_side(side, prompt_name)
        if isinstance(texts, str):
            return self.encode_after(prompt, [texts], batch_tokens, progress).reshape(self.dim)
        return self.encode_after(prompt, texts, batch_tokens, progress)


class Embedded(NamedTuple):
    """Embeddings of n texts.

    Attributes:
        vectors: the embeddings, each of width `dim`, (n, dim) float32.
        truncated: whether each text was truncated, because it is longer than the model's limit, (n,) bool. Models that
            sentence-transformers runs and that have no transformer do not report it: all are False.
    """

    vectors: NDArray[np.float32]
    truncated: NDArray[np.bool_]


class FolderEncoder(Encoder):
    """An encoder loaded from a model folder (`common.encoder.folder.load_folder`).

    Args:
        folder: the model's folder.
        dim: the width of the embeddings.
        similarity_name: the function that `similarity` computes: cosine, dot, euclidean or manhattan.
        settings: name -> value of each setting that affects the embeddings and is not in the folder's files.
        libraries: the names of the packages that compute the embeddings; their versions are part of the fingerprint.

    Attributes:
        name: the model's name, which is made from the folder's path (`model_name`).
        is_packed: whether the model's transformer runs without padding; None for a model without a transformer.
    """

    folder: Path
    is_packed: bool | None = None

    def __init__(
        self, folder: Path, dim: int, similarity_name: str, settings: Mapping[str, str], libraries: Sequence[str]
    ) -> None:
        self.folder = folder
        self.name = model_name(folder)
        self.dim = dim
        self.similarity_name = similarity_name
        self.prompts = Prompts.read(folder)
        self._settings = dict(settings)
        self._libraries = libraries

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """Hash of everything that affects an embedding, except the prompt; computed on first use, and never None.

        It covers the folder's files, the settings that are not in these files, and the versions of the packages that
        compute the embeddings.
        """
        return folder_fingerprint(self.folder, self._settings, self._libraries)

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of n texts, in their order: (n, dim) float32. No prompt is put before a text.

        Texts are truncated at the model's length limit.

        Args:
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                text has a batch of its own.
            progress: whether to show a progress bar.

        Raises:
            EncoderError: a text cannot be encoded, or the model has no embedding for one of its token ids.
        """
        return self.embed(texts, batch_tokens, progress, "").vectors

    def encode_after(
        self, prompt: str, texts: Iterable[str], batch_tokens: int | None = None, progress: bool = False
    ) -> NDArray[np.float32]:
        return self.embed(listed(texts), batch_tokens, progress, prompt).vectors

    def embed(
        self, texts: Sequence[str], batch_tokens: int | None = None, progress: bool = False, prompt: str | None = None
    ) -> Embedded:
        """Return the embeddings of texts, in their order, and whether each text was truncated.

        Texts are truncated at the model's length limit.

        Args:
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                text has a batch of its own. None for `self.batch_tokens`.
            progress: whether to show a progress bar.
            prompt: the text to put before each text; None for the model's default prompt.

        Raises:
            EncoderError: a text cannot be encoded, or the model has no embedding for one of its token ids.
        """
        if prompt is None:
            prompt = self.prompts.of_side(OTHER)
        with refusing(f"{self.name}: cannot encode every text"):
            return self._embed(texts, self.batch_tokens if batch_tokens is None else batch_tokens, progress, prompt)

    def embed_windows(
        self, windows: Iterable[Sequence[str]], batch_tokens: int | None = None, prompt: str | None = None
    ) -> Iterator[Embedded]:
        """Yield the embeddings of each window of texts, in order.

        Args:
            windows: lists of texts. Some models read a few windows ahead, to tokenize them while earlier windows are
                embedded.
            batch_tokens: the largest number of tokens in a batch, including padding if the model needs any; a longer
                text has a batch of its own. None for `self.batch_tokens`.
            prompt: the text to put before each text; None for the model's default prompt.

        Raises:
            EncoderError: a text cannot be encoded, or the model has no embedding for one of its token ids.
        """
        if prompt is None:
            prompt = self.prompts.of_side(OTHER)
        return self._embed_windows(windows, self.batch_tokens if batch_tokens is None else batch_tokens, prompt)

    def _embed_windows(self, windows: Iterable[Sequence[str]], batch_tokens: int, prompt: str) -> Iterator[Embedded]:
        for window in windows:
            yield self.embed(window, batch_tokens, prompt=prompt)

    @property
    def most_tokens(self) -> int | None:
        """The most tokens that the model reads of a text, without special tokens; None if there is no limit."""
        return None

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text before truncation, not counting special tokens.

        If the model has no tokenizer, return the number of characters of each text.

        Raises:
            EncoderError: a text cannot be tokenized.
        """
        with refusing(f"{self.name}: cannot tokenize every text"):
            return self._count_tokens(texts)

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    @abstractmethod
    def _embed(self, texts: Sequence[str], batch_tokens: int, progress: bool, prompt: str) -> Embedded:
        """Return the embeddings of texts, each behind the prompt; any exception becomes an EncoderError in `embed`."""

    @abstractmethod
    def similarity(self, left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the similarity of each row of `left` (n, dim) with each row of `right` (m, dim), (n, m) float32.

        The model's attribute `similarity_name` says which function is computed: cosine, dot, euclidean or manhattan.
        The distances (euclidean, manhattan) are negated, so that a higher value always means more similar.
        """


def listed(texts: Iterable[str]) -> list[str]:
    """Return texts as a list; raise EncoderError if an element is not a string."""
    rows = list(texts) if isinstance(texts, Iterable) else [texts]
    if other := [type(text).__name__ for text in rows if not isinstance(text, str)]:
        raise EncoderError(f"texts must be a text or a list of texts, not {other[0]}")
    return rows
