"""Search a collection by its model, by BM25 and by both, and describe the hits as JSON.

The hits of each of these systems come from `Collection.search`, which the command `search` calls too. One search runs
at a time, because a tokenizer must not be shared between threads, and because a search uses all CPU cores.
"""

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from clearspan.common.errors import PipelineError
from clearspan.common.field_names import IDS, LINKS, TITLES
from clearspan.common.model_folder import model_name
from clearspan.common.parsing import finite_number, whole_number
from clearspan.common.progress import counted
from clearspan.common.terminal import UsageError
from clearspan.retrieval.collection import NAME as SETTINGS
from clearspan.retrieval.collection import Collection
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.hybrid import HYBRID_WEIGHT
from clearspan.retrieval.stemming import WordFunction
from clearspan.retrieval.where import Condition, ConditionError, quoted_name
from clearspan.serve.passages import content_words, marked_spans, passage
from clearspan.shards import storage

MAX_QUERY, MAX_WHERE, MAX_TOP, MAX_LENGTH = 2000, 1000, 100, 100_000
"""Limits of a request: characters of the query, characters of `where`, hits of each system, characters of each text."""
PASSAGE = 260
"""Number of characters of a text that the page shows until the user unfolds the text."""
HEADINGS = (*TITLES, "name")
"""Names of fields that can be the heading of a hit."""
UNUSUAL = (*HEADINGS, *IDS, *LINKS)
"""Names of fields that users rarely filter by, and that the example of a condition therefore avoids."""


def _with_a_word(text: str) -> str:
    if not text.strip():
        raise ValueError("the query is empty")
    return text


class SearchRequest(BaseModel):
    """A request to search. Its attributes are the parameters of `/api/search`, as texts.

    Attributes:
        q: the query.
        top: the number of hits of each system.
        where: a condition on the stored fields; "" for no condition.
        weight: the model's weight in the combined search, 0 to 1; BM25 has 1 - weight. None for the default weight.
        length: the maximum number of characters of each text in the answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # pydantic alone would read the number 1_0, and nan.
    q: Annotated[str, Field(max_length=MAX_QUERY), AfterValidator(_with_a_word)]
    top: Annotated[int, Ge(1), Le(MAX_TOP), BeforeValidator(whole_number)] = 10
    where: Annotated[str, Field(max_length=MAX_WHERE)] = ""
    weight: Annotated[float | None, Ge(0), Le(1), BeforeValidator(finite_number)] = None
    length: Annotated[int, Ge(1), Le(MAX_LENGTH), BeforeValidator(whole_number)] = 4000


class SideBySide:
    """A collection, and the systems that can search it: its model, BM25, and both combined.

    The model can search if the collection names a model, and BM25 can search if the collection stores its texts.

    Args:
        collection: the collection.
        weight: the default for the model's weight in the combined search, 0 to 1; BM25 has 1 - weight. None: the weight
            that the collection's settings (search.json) name. If they name none, or the weight 0 (BM25 alone) or 1 (the
            model alone), the default is HYBRID_WEIGHT (0.7).

    Attributes:
        weight: the default for the model's weight, after None is resolved.
        num_searches: the number of requests answered by `search`.
        example: an example of a condition on the stored fields; "" until `load` has found one.
    """

    def __init__(self, collection: Collection, weight: float | None) -> None:
        self.collection = collection
        # A collection whose weight selects the model alone, or BM25 alone, has no weight for both together.
        own = collection.weight if 0 < collection.weight < 1 else HYBRID_WEIGHT
        self.weight = own if weight is None else weight
        self.num_searches = 0
        self.example = ""
        self._lock = threading.Lock()

    def __str__(self) -> str:
        names = {key: name for key, name, _ in self.systems() if key != "both"}
        missing = {
            "model": "no model is named: `model` DIR",
            "bm25": "no texts are kept: embed `keep_text`",
        }
        why = [f" alone ({line})" for key, line in missing.items() if key not in names]
        by = " and ".join(names.values()) + "".join(why)
        return f"{self.collection.folder}: {counted(self.collection.num_texts, self.unit)}, searched by {by}"

    @property
    def chosen(self) -> str | None:
        """The key of the system that the collection's settings for searches select: "model", "bm25" or "both".

        It is None if the collection has no file of such settings (search.json).
        """
        if not storage.exists(storage.join(self.collection.folder, SETTINGS)):
            return None
        weight = self.collection.weight
        return "bm25" if weight == 0 else "model" if weight == 1 else "both"

    @property
    def unit(self) -> str:
        """The noun for what a query is compared with: "chunk" if documents are cut into chunks, otherwise "text"."""
        return "chunk" if self.collection.options.get("chunk_tokens") else "text"

    @property
    def model_name(self) -> str | None:
        """The name of the model; None if the collection names no model."""
        return None if self.collection.model is None else model_name(self.collection.model)

    def systems(self, weight: float | None = None) -> Iterator[tuple[str, str, float]]:
        """Yield (key, name to show, weight of the model) for each system that can search the collection.

        The key is "model", "both" or "bm25".

        Args:
            weight: the model's weight in the combined search, 0 to 1; None for the default weight.
        """
        model, has_words = self.model_name, self.collection.has_texts
        if model:
            yield "model", model, 1.0
        if model and has_words:
            yield "both", f"{model} + BM25", self.weight if weight is None else weight
        if has_words:
            yield "bm25", "BM25", 0.0

    def load(self) -> None:
        """Search once by each system, so that the model is loaded and the index of words is built; set `example`.

        Raises:
            PipelineError: the collection cannot be searched.
        """
        if not any(self.systems()):
            raise PipelineError(
                f"{self.collection.folder}: names no model, and stores no texts for BM25: pass `model` DIR"
            )
        for _, _, weight in self.systems():
            for hit in self.collection.search("text", 1, weight=weight):
                self.example = self.example or example(hit.fields)

    def about(self) -> dict[str, Any]:
        """Return the answer to a request of `/api/collection`: the collection's properties, and its systems."""
        systems = [{"key": key, "name": name, "weight": weight} for key, name, weight in self.systems()]
        return {
            "name": Path(self.collection.folder).resolve().name,
            "num_texts": self.collection.num_texts,
            "unit": self.unit,
            "weight": self.weight,
            "fields": self.collection.fields,
            "example": self.example,
            "has_texts": self.collection.has_texts,
            "chosen": self.chosen,
            "systems": systems,
        }

    def search(self, request: SearchRequest) -> dict[str, Any]:
        """Return the answer to a request of `/api/search`: the hits of each system.

        Raises:
            UsageError: the condition or the query cannot be used; the message says why.
            PipelineError: the collection cannot be searched.
            ManifestError, ShardError, OSError: the collection is damaged.
        """
        words, results = content_words(request.q, self.collection.words), []
        try:
            where = Condition.parse(request.where) if request.where else None
        except ConditionError as error:
            raise UsageError(f"`where`: {error}") from None
        began = time.perf_counter()
        with self._lock:
            for key, name, weight in self.systems(request.weight):
                hits = self.collection.search(request.q, request.top, weight=weight, where=where)
                results.append((key, name, weight, hits))
            self.num_searches += 1
        seconds = time.perf_counter() - began
        return {
            "query": request.q,
            "top": request.top,
            "where": request.where,
            "num_texts": self.collection.num_texts,
            "seconds": round(seconds, 4),
            "systems": [
                {
                    "key": key,
                    "name": name,
                    "weight": weight,
                    "hits": [described(hit, words, self.collection.words, request.length) for hit in hits],
                }
                for key, name, weight, hits in results
            ],
        }


def example(fields: Mapping[str, Any]) -> str:
    """Return an example of a condition to show to the user, such as "year > 2020".

    It is made from a field of a hit that holds a number or a short text; "" if there is no such field.

    Args:
        fields: name of a stored field -> the value that the hit has.
    """
    usable = {name: value for name, value in fields.items() if name.lower() not in UNUSUAL}
    for kind, most, sign in ((int | float, 20, ">"), (str, 24, "=")):
        for name, value in usable.items():
            if isinstance(value, kind) and not isinstance(value, bool) and 0 < len(str(value)) <= most:
                shown = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value - 1)
                return f"{quoted_name(name)} {sign} {shown}"
    return ""


def described(hit: Hit, query_words: Set[str], words: WordFunction, length: int) -> dict[str, Any]:
    """Return a hit as a dict for JSON: its attributes, and further entries for the page.

    `title` is the name of the field to show as the heading; None if there is no such field. `text` is cut to `length`
    characters around the words of the query, and `is_cut` says whether it was longer. `marks` and `title_marks` are the
    spans, (start, end) in characters, of the query's words in the cut text and in the heading. `passage` is the span of
    the cut text that the page shows first. If the dataset stores no texts, `is_cut`, `marks` and `passage` are missing.

    Args:
        query_words: the words of the query, from `content_words`.
        words: function that splits a text into the words that BM25 compares.
        length: the maximum number of characters of the text.
    """
    described = dataclasses.asdict(hit)
    title = next((name for head in HEADINGS for name in hit.fields if name.lower() == head and hit.fields[name]), None)
    described |= {
        "title": title,
        "title_marks": marked_spans(str(hit.fields[title]), query_words, words) if title else [],
    }
    if hit.text is not None:
        marks = marked_spans(hit.text, query_words, words)
        start, end = passage(hit.text, marks, length)
        text = hit.text[start:end]
        marks = [(first - start, last - start) for first, last in marks if start <= first and last <= end]
        described |= {"text": text, "is_cut": len(text) < len(hit.text), "marks": marks}
        described["passage"] = passage(text, marks, min(PASSAGE, length))
    return described
