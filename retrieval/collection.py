"""Collections to search: vectors, the model that made them, and BM25 over the texts; opened once, searched many times.

    write_collection(folder, settings)      search.json: where vectors and model are, by paths relative to the folder
    open_collection(folder)                 a folder with search.json, or a dataset that `embed` made
        .search("How do owls hunt?", 5)     -> its hits, best first; for several queries, the hits of each

The model and the index of words are loaded by the first search that needs them and stay loaded. One search runs at a
time; a search from another thread waits for it.
"""

import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, overload

import numpy as np
from annotated_types import Ge, Le

from clearspan.common.checksummed import build, dump_checksummed, load_checksummed
from clearspan.common.compute import AUTO, Compute, check_device, resolve
from clearspan.common.encoder.checked_model import load_model
from clearspan.common.encoder.folder import device_of
from clearspan.common.encoder.pooling_names import from_record
from clearspan.common.encoder.prompts import QUERY, Prompts
from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.common.errors import PipelineError
from clearspan.common.field_names import id_field
from clearspan.common.files import write_bytes
from clearspan.common.hub import model_folder
from clearspan.common.model_folder import EncoderError
from clearspan.common.model_forms import check_folder
from clearspan.common.terminal import UsageError, one_line, warn
from clearspan.common.typed import checked
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.exact import Exact
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.index import Index, Ranked, ScoredQueries, index_class
from clearspan.retrieval.index_cache import index_of
from clearspan.retrieval.scoring import EARLIER_B, EARLIER_K1, K1, B, Scoring
from clearspan.retrieval.similar import SimilarityFunction
from clearspan.retrieval.stemming import AUTO as STEMMER_AUTO
from clearspan.retrieval.stemming import NO_STEMMER, VERSION, Words, check_packages, of_language, words_named
from clearspan.retrieval.texts import Texts, options_of
from clearspan.retrieval.where import Condition, ConditionError
from clearspan.shards import storage
from clearspan.shards.reader import Dataset

NAME = "search.json"


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """The content of search.json.

    Attributes:
        vectors: path of the dataset of vectors. In search.json, it is relative to the folder of search.json.
        model: path of the folder of the model that made the vectors. In search.json, it is relative to the folder of
            search.json. None: the user must name the model.
        weight: weight of the model's scores, 0 to 1; BM25 has the weight 1 - `weight`. None: 1, a search without BM25.
        stemmer: language whose word endings BM25 ignores, such as german (`retrieval.stemming.STEMMERS`); None or
            `none`: BM25 compares whole words. `auto`, if there is no search.json: the language of the texts.
        prompt_name: name of the model's prompt to put before each query; None: the model's prompt for queries.
        id_field: name of the field, stored with the vectors, that holds the user's id of a text; None: the stored field
            with a usual name for ids, if there is one.
        k1, b: BM25's parameters (`retrieval.scoring.Scoring`). Their defaults are those of a search.json without them.
    """

    vectors: str
    model: str | None = None
    weight: Annotated[float, Ge(0), Le(1)] | None = None
    stemmer: str | None = None
    prompt_name: str | None = None
    id_field: str | None = None
    k1: float = EARLIER_K1
    b: float = EARLIER_B

    def __post_init__(self) -> None:
        Scoring(Words(None if self.stemmer in (STEMMER_AUTO, NO_STEMMER) else self.stemmer), self.k1, self.b)

    def with_paths(self, change_path: Callable[[str], str]) -> "SearchSettings":
        """Return a copy of the settings in which each path is replaced by `change_path(path)`."""
        model = None if self.model is None else change_path(self.model)
        return dataclasses.replace(self, vectors=change_path(self.vectors), model=model)


def write_collection(folder: str | Path, settings: SearchSettings) -> Path:
    """Write search.json, which makes a folder a collection to search; return the path of the file.

    Args:
        settings: the settings to write. Their paths must be absolute, or relative to the current working folder; the
            file gets paths relative to `folder`.

    Raises:
        ValueError: a setting has the wrong type or is out of range.
    """
    record = dataclasses.asdict(settings.with_paths(lambda path: Path(os.path.relpath(path, folder)).as_posix()))
    build(SearchSettings, record)  # checks it
    write_bytes(Path(folder) / NAME, dump_checksummed(record, indent=1))
    return Path(folder) / NAME


def read_settings(folder: str) -> SearchSettings:
    """Return the settings in search.json of a folder, with the folder put before their relative paths.

    If there is no search.json, return the default settings, with the folder itself as the dataset of vectors. It is not
    checked here that the folder is such a dataset.

    Raises:
        PipelineError: search.json is damaged.
    """
    path = storage.join(folder, NAME)
    if not storage.exists(path):
        return SearchSettings(folder, stemmer=STEMMER_AUTO, k1=K1, b=B)
    try:
        settings = build(SearchSettings, load_checksummed(storage.read_bytes(path)))
    except ValueError as error:
        raise PipelineError(f"{path}: damaged ({error}): make the collection again") from None
    return settings.with_paths(functools.partial(_from_folder, folder))


def _from_folder(folder: str, path: str) -> str:
    """Return the full path for a path that is relative to a folder; the folder may be in an object store."""
    return storage.join(folder, path) if storage.is_remote(folder) else os.path.normpath(Path(folder) / path)


class Collection:
    """Texts to search, of one or several collections. Create it with `open_collection`.

    Attributes:
        folder: the folder of the first collection, as the caller of `open_collection` wrote it.
        folders: the folders of all collections, which are searched together.
        model: the folder of the model that made the vectors; None if it is not known, so that only BM25 can search.
        weight: default weight of the model's scores in a search, 0 to 1; BM25 has the weight 1 - `weight`.
        prompt_name: name of the model's prompt to put before each query if a search names none; None: the model's
            prompt for queries.
        index: the index that searches by the model alone: `faiss`, or `module:Class`; None: every text is scored.
        options: name -> value of the options with which the first collection's vectors were made.
        texts: the rows of all collections: their texts, or chunks of them, with the vectors.
    """

    def __init__(self, texts: Texts, settings: SearchSettings, device: str, index: str | None = None) -> None:
        self.folder = texts.folders[0]
        self.folders = list(texts.folders)
        self.model = settings.model
        self.weight = 1.0 if settings.weight is None else float(settings.weight)
        self.prompt_name = settings.prompt_name
        self._settings = settings
        self.index = index
        self.options = options_of(texts.datasets[0])
        self.texts = texts
        self._device = device
        self._lock = threading.Lock()

    @property
    def num_texts(self) -> int:
        """Number of texts in all collections, or of chunks if documents are cut into chunks."""
        return self.texts.num_rows

    @property
    def has_texts(self) -> bool:
        """Return whether the datasets of vectors also store the texts, which BM25 needs."""
        return all(options_of(dataset).get("keep_text") for dataset in self.texts.datasets)

    @property
    def fields(self) -> list[str]:
        """Names of the fields that are stored with the vectors; the condition `where` of a search may use them."""
        return list(
            dict.fromkeys(name for each in self.texts.datasets for name in options_of(each).get("keep_fields") or ())
        )

    @property
    def search_weight(self) -> float:
        """The model's weight in a search that names none: 1 with an index, otherwise the collection's."""
        return self.weight if self.index is None else 1.0

    @functools.cached_property
    def scoring(self) -> Scoring:
        """The words, k1 and b by which BM25 scores the texts."""
        return Scoring(self.words, self._settings.k1, self._settings.b)

    @functools.cached_property
    def words(self) -> Words:
        """The function that splits a text into the words that BM25 compares.

        If neither the caller nor search.json names a stemmer, it is that of the language of the texts, which is
        identified once for a collection (`retrieval.index_cache`).
        """
        if self._settings.stemmer != STEMMER_AUTO:
            return words_named(self._settings.stemmer, list)
        check_packages(STEMMER_AUTO)
        built_by: dict[str, str | int] = {"version": VERSION, "py3langid": version("py3langid")}
        with index_of(self.texts.datasets, "stemmer", built_by, self._write_stemmer) as path:
            return words_named(path.read_text(encoding="utf-8"), list)

    def _write_stemmer(self, path: Path) -> None:
        stemmer = words_named(STEMMER_AUTO, self.texts.sample).stemmer
        if stemmer and not self.texts.quiet:
            warn(of_language(stemmer))
        path.write_text(stemmer or NO_STEMMER, encoding="utf-8")

    @functools.cached_property
    def compute(self) -> Compute:
        """Return the device and precision with which queries are embedded.

        Raises:
            PipelineError: no model is named, or its folder cannot be used.
        """
        return resolve(
            device_of(Path(self._model_folder), self._device), self.options["precision"], "embed `precision`"
        )

    @property
    def prompts(self) -> Prompts:
        """The model's prompts."""
        return Prompts.read(Path(self._model_folder))

    def query_prompt(self, name: str | None = None) -> str:
        """Return the text that is put before each query; "" if there is no prompt.

        Args:
            name: the name of a prompt of the model, or `none` for no prompt; None for the collection's default.

        Raises:
            EncoderError: the model has no such prompt.
            PipelineError: no model is named, or its folder cannot be used.
        """
        return self.prompts.of_side(QUERY, self.prompt_name if name is None else name)

    @property
    def vectors_prompt(self) -> str:
        """The prompt that was put before each text of the first collection when its vectors were made; "" for none."""
        return str(self.options.get("prompt", ""))

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        queries: str,
        top: int = 10,
        *,
        weight: float | None = None,
        where: str | Condition | None = None,
        prompt_name: str | None = None,
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        queries: Sequence[str],
        top: int = 10,
        *,
        weight: float | None = None,
        where: str | Condition | None = None,
        prompt_name: str | None = None,
    ) -> list[list[Hit]]: ...

    @checked
    def search(
        self,
        queries: str | Sequence[str],
        top: int = 10,
        *,
        weight: float | None = None,
        where: str | Condition | None = None,
        prompt_name: str | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """Return the `top` best texts for a query, best first. If documents are cut into chunks, return documents.

        If the weight is 1, the score of a text is the model's similarity. If it is 0, the score is BM25's, and only
        texts that hold a word of the query are found. For a weight w between them, the score is
        w z(similarity) + (1 - w) z(BM25), where z shifts and scales a query's scores so that they have mean 0 and
        standard deviation 1 over all texts. A document has the score of its best chunk. Scores are compared after
        rounding to six decimals; among equal scores, the text with the higher id is first.

        Args:
            queries: a query, or several; for a sequence of queries, also of one, return a list of hits for each.
            top: the maximum number of texts for each query.
            weight: weight of the model's scores, 0 to 1; BM25 has the weight 1 - `weight`. None: the collection's
                weight, or 1 if it was opened with an index. If it is 0, no model is loaded.
            where: a condition on the stored fields, such as "year > 2020 and lang = 'de'", as a text or parsed. Only
                texts that fulfill it are returned; it does not change their scores. None: all texts.
            prompt_name: name of the model's prompt to put before each query, or `none` for no prompt; None: the prompt
                that search.json names, or if it names none, the model's prompt for queries.

        Raises:
            UsageError: an argument cannot be used.
            PipelineError: no model is named, a different model made the vectors, or BM25 needs texts that are not
                stored.
            ShardError: a shard is damaged.
        """
        hits = self.texts.hits(self.ranked(queries, top, weight=weight, where=where, prompt_name=prompt_name))
        return hits[0] if isinstance(queries, str) else hits

    def ranked(
        self,
        queries: str | Sequence[str],
        top: int = 10,
        *,
        weight: float | None = None,
        where: str | Condition | None = None,
        prompt_name: str | None = None,
    ) -> Ranked:
        """Return, for each query, the indices in `texts` of the `top` best rows, and their scores; best first.

        If rows are chunks of documents, only the best row of each document is returned.

        `search` calls this method with its arguments, and turns the rows into hits by `texts.hits`.

        Args:
            queries: a query, or several.
            top: the maximum number of rows for each query.
            weight: weight of the model's scores, 0 to 1; BM25 has the weight 1 - `weight`. None: the collection's
                weight, or 1 if it was opened with an index.
            where: a condition on the stored fields, as a text or parsed, which the rows must fulfill; None: all rows.
            prompt_name: name of the model's prompt to put before each query, or `none` for no prompt; None: the
                collection's default.

        Raises:
            UsageError: an argument cannot be used.
            PipelineError: no model is named, a different model made the vectors, or BM25 needs texts that are not
                stored.
            ShardError: a shard is damaged.
        """
        asked = check_queries(queries)
        weight = self.search_weight if weight is None else weight
        if top < 1:
            raise UsageError("`top` must be at least 1")
        if not 0 <= weight <= 1:
            raise UsageError("`weight` must be from 0 to 1")
        condition = None if where is None else self._condition(where)
        with self._lock:
            similarity = None if weight == 0 else SimilarityFunction(self._encoder)
            embedded = None if weight == 0 else self.embed(asked, prompt_name)[0]
            words = None if weight == 1 else self._words
            index = self._index if weight == 1 and self.index is not None else Exact(self.texts)
            try:
                return index.search(ScoredQueries(weight, similarity, embedded, words, asked), top, condition)
            except ConditionError as error:
                raise UsageError(f"`where`: {error}") from None

    def _condition(self, where: str | Condition) -> Condition:
        try:
            condition = Condition.parse(where) if isinstance(where, str) else where
            condition.check_fields(self.fields)
        except ConditionError as error:
            raise UsageError(f"`where`: {error}") from None
        return condition

    @functools.cached_property
    def _index(self) -> Index:
        assert self.index is not None
        return index_class(self.index)(self.texts, SimilarityFunction(self._encoder))

    @functools.cached_property
    def _words(self) -> BM25:
        return BM25.of_collection(self.texts, self.scoring)

    @property
    def _model_folder(self) -> str:
        if self.model is None:
            raise PipelineError(f"{self.folder}: names no model: pass `model` DIR, the model that made the vectors")
        try:
            check_folder(self.model)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None
        return self.model

    @functools.cached_property
    def _encoder(self) -> FolderEncoder:
        made = self.options
        for dataset in self.texts.datasets[1:]:
            if options_of(dataset)["model"] != made["model"]:
                raise PipelineError(
                    f"{dataset.folder}: its vectors and the vectors of {self.folder} were made by different models: "
                    "search one at a "
                    f"time, or with BM25 alone (`hybrid` 0)"
                )
        return load_model(self._model_folder, made["model"], from_record(made["pooling"]), *self.compute[:2])

    def embed(self, queries: Sequence[str], prompt_name: str | None = None) -> tuple[np.ndarray, str]:
        """Return the vectors of n queries, (n, dim), and the name of the model's similarity function.

        Args:
            prompt_name: name of the model's prompt to put before each query, or `none` for no prompt; None: the
                collection's default.

        Raises:
            UsageError: the model has no such prompt.
            PipelineError: no model is named, a different model made the vectors, or the model cannot embed a query.
        """
        prompt_name = self.prompt_name if prompt_name is None else prompt_name
        try:
            self.query_prompt(prompt_name)
        except EncoderError as error:
            raise UsageError(str(error)) from None
        try:
            vectors = self._encoder.encode_query(list(queries), prompt_name=prompt_name)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None
        if not np.isfinite(vectors).all():
            raise PipelineError(f"`model` {self.model}: the vector of a query is not finite")
        return vectors, self._encoder.similarity_name


@checked
def open_collection(
    folder: str | Path,
    model: str | Path | None = None,
    *,
    also: Sequence[str | Path] = (),
    stemmer: str | None = None,
    k1: float | None = None,
    b: float | None = None,
    index: str | None = None,
    device: str = AUTO,
    keep: bool = True,
    quiet: bool = True,
) -> Collection:
    """Open a collection to search it many times: `open_collection("data/vectors", model).search("How do owls hunt?")`.

    This reads only manifests; searches read the vectors and texts.

    Args:
        folder: a dataset that `make_dataset("embed", ...)` made, or a folder with search.json, such as the output of
            `adapt`.
        model: the folder of the model that made the vectors, or `hf:ORG/NAME[@REVISION]` for a model of the Hugging
            Face hub, which is fetched; None: the model that search.json of the first collection names, or else of the
            next one that names a model.
        also: folders of further collections, with vectors of the same model, that are searched together with the first
            as if they were one.
        stemmer: language whose word endings BM25 ignores, such as `german`, or `none` to compare whole words; None: as
            search.json of the first collection says, or without a search.json, the language of the texts.
        k1: how much further occurrences of a word add to BM25's score, above 0; None: as search.json of the first
            collection says, or without a search.json, 1.2.
        b: how much the length of a text counts for BM25, 0 to 1; None: as search.json says, or else 0.75.
        index: `faiss` for an approximate index, built on first use, or `module:Class` for one of your own
            (`retrieval.index.VectorIndex`): searches by the model alone ask it, and may miss a hit; those with BM25
            score every text. A search that names no weight is then by the model alone. None: every text is scored.
        device: cpu, cuda, cuda:1, ...; auto: cpu if the model is static or there is no GPU, otherwise cuda.
        keep: hold texts and vectors in memory for later searches, if they fit in half of the machine's memory.
            Otherwise each search reads them again.
        quiet: show no progress bars.

    Raises:
        UsageError: an argument cannot be used.
        PipelineError: a folder is not a collection, or a search.json is damaged.
        ManifestError: a dataset is missing or damaged.
    """
    folders = [str(folder), *map(str, also)]
    all_settings = [read_settings(name) for name in folders]
    places = [_place(settings.vectors) for settings in all_settings]
    if twice := [name for name, place in zip(folders, places, strict=True) if places.count(place) > 1]:
        raise UsageError(f"{twice[-1]}: is given twice: name each collection once")
    datasets = [_vectors_of(settings) for settings in all_settings]
    first = all_settings[0]
    given = None if model is None else _named(str(model))
    chosen = (str(each) for each in (given, *(settings.model for settings in all_settings)) if each is not None)
    try:
        check_device(device)
        asked: dict[str, Any] = {"stemmer": stemmer, "k1": k1, "b": b}
        first = dataclasses.replace(first, **{name: each for name, each in asked.items() if each is not None})
        if index is not None:
            index_class(index)
    except ValueError as error:
        raise UsageError(str(error)) from None
    named = next(chosen, None)
    if index is not None and named is None:
        raise UsageError(f"`index` searches by a model, and {folder} names none: pass `model` DIR")
    id_fields = [
        settings.id_field or id_field(options_of(dataset).get("keep_fields") or ())
        for settings, dataset in zip(all_settings, datasets, strict=True)
    ]
    texts = Texts(datasets, folders, id_fields, keep, quiet)
    return Collection(texts, dataclasses.replace(first, model=named), device, index)


def _named(model: str) -> str:
    """Return the folder of the model that a caller names."""
    try:
        return model_folder(model)
    except EncoderError as error:
        raise UsageError(f"`model` {error}") from None


def _place(path: str) -> str:
    """Return the canonical form of a path, to detect that a collection is named twice."""
    return path if storage.is_remote(path) else str(Path(path).resolve())


def _vectors_of(settings: SearchSettings) -> Dataset:
    """Open the dataset of vectors that the settings of a collection name.

    Raises:
        PipelineError: the dataset does not hold vectors that `embed` made.
    """
    dataset = Dataset(settings.vectors)
    if dataset.kind.name != "vectors" or "model" not in options_of(dataset):
        kind = dataset.kind.name
        raise PipelineError(
            f"{settings.vectors}: holds {kind}, not vectors that `clearspan embed` made: name a dataset of vectors"
        )
    return dataset


def check_queries(queries: str | Sequence[str]) -> list[str]:
    """Return one or several queries as a list, stripped of whitespace.

    Raises:
        UsageError: there is no query, or a query is not a str, is empty or is not valid UTF-8.
    """
    texts = [queries] if isinstance(queries, str) else list(queries)
    if not texts:
        raise UsageError("no query: pass a text, or several")
    if any(not isinstance(text, str) or not text.strip() for text in texts):
        raise UsageError("a query must be a text, and not empty")
    if any(text != text.encode("utf-8", "ignore").decode() for text in texts):
        raise UsageError("a query must be valid UTF-8")
    return [text.strip() for text in texts]
