"""A collection to search: vectors, the model that made them, and BM25 over the texts; opened once, searched many times.

    write_collection(folder, vectors, model, weight)      search.json: where these are, by paths relative to the folder
    Collection.open(folder)                               a folder with search.json, or a dataset that `embed` made
        .search(["How do owls hunt?"], top=5)             -> the hits of each query, best first

The model and the index of words are loaded by the first search that needs them and stay loaded. One search runs at a
time; another thread's waits.
"""

import dataclasses
import functools
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from clearspan.common.compute import AUTO, Compute, resolve
from clearspan.common.encoder.folder import device_of
from clearspan.common.encoder.prompts import OTHER, Prompts
from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.common.files import write_bytes
from clearspan.common.model_folder import EncoderError
from clearspan.common.sealed import build, seal, unseal
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.vectors import load_model
from clearspan.pipelines.search import hybrid, nearest
from clearspan.pipelines.search.hits import Hit
from clearspan.shards import storage
from clearspan.shards.reader import Dataset

NAME = "search.json"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The content of search.json.

    Attributes:
        vectors: path of the dataset of vectors, relative to the folder.
        model: path of the model's folder, relative to the folder; None: it must be named.
        weight: weight of the model's scores beside BM25's, 0 to 1; None: the model alone.
    """

    vectors: str
    model: Any = None
    weight: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, str | None):
            raise ValueError("model must be a path or null")
        if self.weight is not None and not (type(self.weight) in (int, float) and 0 <= self.weight <= 1):
            raise ValueError("weight must be a number from 0 to 1, or null")


def write_collection(
    folder: str | Path, vectors: str | Path, model: str | Path | None = None, weight: float | None = None
) -> Path:
    """Write search.json, which makes a folder a collection to search; return its path.

    Args:
        vectors: the dataset of vectors. model: the folder of the model that made it.
        weight: weight of the model's scores beside BM25's, 0 to 1; None: the model alone.
    """
    paths = [None if path is None else Path(os.path.relpath(path, folder)).as_posix() for path in (vectors, model)]
    settings = Settings(str(paths[0]), paths[1], weight)
    write_bytes(Path(folder) / NAME, seal(dataclasses.asdict(settings), indent=1))
    return Path(folder) / NAME


def read_settings(folder: str) -> Settings:
    """Return what search.json says, with paths that are no longer relative; of a dataset, the dataset alone.

    Raises:
        PipelineError: search.json is damaged.
    """
    path = storage.join(folder, NAME)
    if not storage.exists(path):
        return Settings(folder)
    try:
        settings = build(Settings, unseal(storage.read_bytes(path)))
    except ValueError as error:
        raise PipelineError(f"{path}: damaged ({error}): make the collection again") from None
    model = None if settings.model is None else os.path.normpath(Path(folder) / settings.model)
    vectors = os.path.normpath(Path(folder) / settings.vectors)
    return Settings(vectors, model, settings.weight)


class Collection:
    """Texts to search. Use `Collection.open`.

    Attributes:
        folder: as it was given.
        model: the model's folder; None if BM25 alone can search.
        weight: weight of the model's scores beside BM25's in searches that name none, 0 to 1.
        options: the options that made the vectors, by name.
    """

    def __init__(
        self, folder: str, dataset: Dataset, model: str | None, weight: float, device: str, quiet: bool
    ) -> None:
        self.folder, self.model, self.weight, self.quiet = folder, model, weight, quiet
        self.options: Mapping[str, Any] = dataset.manifest.fingerprint.get("options", {})
        self._dataset, self._device, self._lock = dataset, device, threading.Lock()

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str | Path | None = None,
        *,
        also: Sequence[str | Path] = (),
        device: str = AUTO,
        quiet: bool = True,
    ) -> Self:
        """Open a collection. Only manifests are read.

        Args:
            folder: a dataset that `embed` made, or a folder with search.json, such as that of `adapt`.
            model: the folder of the model that made the vectors; None: the one that search.json names.
            also: further collections, searched together with the first as if they were one.
            device: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu.
            quiet: show no progress bars.

        Raises:
            PipelineError: the folder is no collection.
            ManifestError: the dataset is missing or damaged.
        """
        settings = read_settings(str(folder))
        dataset = Dataset(settings.vectors)
        if dataset.kind.name != "vectors" or "model" not in dataset.manifest.fingerprint.get("options", {}):
            raise PipelineError(
                f"{settings.vectors}: holds {dataset.kind.name}, not vectors that `embed` made: name others"
            )
        weight = 1.0 if settings.weight is None else float(settings.weight)
        return cls(str(folder), dataset, settings.model if model is None else str(model), weight, device, quiet)

    @property
    def num_texts(self) -> int:
        """Number of texts; of chunks, where documents are cut."""
        return self._dataset.num_examples

    @property
    def has_texts(self) -> bool:
        """Whether the texts are kept, as BM25 needs."""
        return bool(self.options.get("keep_text"))

    @property
    def fields(self) -> list[str]:
        """Names of the kept fields, by which `where` filters."""
        return list(self.options.get("keep_fields") or ())

    @functools.cached_property
    def compute(self) -> Compute:
        """Where and how queries are embedded."""
        return resolve(
            device_of(Path(self._model_folder), self._device), self.options["precision"], "embed --precision"
        )

    @property
    def prompts(self) -> Prompts:
        """The model's prompts."""
        return Prompts.read(Path(self._model_folder))

    @property
    def vectors_prompt(self) -> str:
        """The prompt before each text of the collection."""
        # Earlier versions embedded with the default prompt, and recorded only the name of another one.
        return str(self.options.get("prompt", self.prompts.of_side(OTHER, self.options.get("prompt_name"))))

    def search(
        self,
        queries: Sequence[str],
        top: int = 10,
        *,
        weight: float | None = None,
        where: str | None = None,
        prompt_name: str | None = None,
    ) -> list[list[Hit]]:
        """Return the `top` best texts for each query, best first.

        The score is the model's similarity for weight 1, BM25's score for weight 0, and between them w z(similarity) +
        (1 - w) z(BM25), where z has mean 0 and deviation 1 over all texts for a query. For weight 0 only texts that
        hold a word of the query are hits. Of equal scores (to six decimals) the higher id is first.

        Args:
            queries: texts.
            weight: weight of the model's scores beside BM25's, 0 to 1; None: the collection's own. 0 loads no model.
            where: a condition on the kept fields, such as "year > 2020 and lang = 'de'"; other texts are no hits.
            prompt_name: the model's prompt before each query, or `none`; None: its prompt of queries.

        Raises:
            PipelineError: no model is named, it is not the one that made the vectors, or the texts are not kept.
            ShardError: a shard is damaged.
        """
        with self._lock:
            weight = self.weight if weight is None else weight
            if where is not None:
                raise PipelineError("where: cannot be used yet")
            embedded = self._embedded(queries, prompt_name)
            if weight == 1:
                found = nearest.search(self._dataset, self._encoder.similarity, embedded, top, self.quiet)
            else:
                similarity = self._encoder.similarity
                found = hybrid.search(self._dataset, similarity, embedded, queries, weight, top, self.quiet)
            return [
                [Hit(hit.score, hit.id, hit.source, hit.text, collection=self.folder) for hit in hits] for hits in found
            ]

    @property
    def _model_folder(self) -> str:
        if self.model is None:
            raise PipelineError(f"{self.folder}: names no model: pass --model DIR, the model that made the vectors")
        return self.model

    @functools.cached_property
    def _encoder(self) -> FolderEncoder:
        made = self.options
        return load_model(self._model_folder, made["model"], made["pooling"], *self.compute[:2])

    def _embedded(self, queries: Sequence[str], prompt_name: str | None) -> np.ndarray:
        try:
            vectors = self._encoder.encode_query(list(queries), prompt_name=prompt_name)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None
        if not np.isfinite(vectors).all():
            raise PipelineError(f"--model {self.model}: the vector of a query is not finite")
        return vectors
