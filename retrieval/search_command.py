"""`clearspan search`: the texts of a collection that queries find.

    queries -> vectors, by the model that made the dataset -> an index (`index`; by default, exact search) -> hits

Queries are embedded as by sentence-transformers' `encode_query`: with the model's query prompt before each query.
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, overload

from annotated_types import Ge, Le

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.command import Result
from clearspan.common import terminal
from clearspan.common.compute import Compute
from clearspan.common.encoder.prompts import QUERY, Prompts, quoted_prompt
from clearspan.common.options import Flag, Json
from clearspan.common.queries import Query, read_queries
from clearspan.common.terminal import UsageError, as_printed, warn
from clearspan.common.typed import checked
from clearspan.retrieval.answers import Answers
from clearspan.retrieval.collection import Collection, check_queries
from clearspan.retrieval.collection_command import CollectionCommand
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.hybrid import HYBRID_WEIGHT
from clearspan.retrieval.ranks import DEPTH
from clearspan.retrieval.where import Condition, ConditionError

WIDTH = 300
"""Number of characters of a text that are printed; JSON holds all of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search(CollectionCommand):
    """The command `search`: finds, for each query, the texts of the collections that match it best."""

    error_prefix: ClassVar[str] = "search"
    summary: ClassVar[str] = COMMANDS["search"].summary
    description: ClassVar[str] = (
        "Search a collection of texts: with the model that made its vectors, with BM25, or with both."
    )
    example: ClassVar[str] = 'clearspan search data/vectors "How do owls hunt?" --model runs/mine/model --top 5'

    words: Annotated[tuple[str, ...], Flag("QUERY", positional=True)] = ()
    """Texts to search for, each in quotes."""
    query: Annotated[tuple[str, ...], Flag("TEXT")] = ()
    """Text to search for; may be repeated."""
    queries: Annotated[Sequence[Query], Flag("FILE", parse=read_queries, path=True)] = ()
    """File of queries: one per line, or csv, tsv or jsonl with the field query and, to print the rank of the relevant
    document, text or id.
    """
    prompt_name: Annotated[str | None, Flag("NAME")] = None
    """Name of the model's prompt before each query; none: no prompt (default: as encode_query chooses)."""
    where: Annotated[str | None, Flag("CONDITION")] = None
    """Search only texts whose stored fields meet a condition, e.g. "year > 2020 and lang = 'de'"."""
    top: Annotated[int, Flag("N"), Ge(1)] = 10
    """Number of hits of each query."""
    hybrid: Annotated[float | None, Flag("W", const=HYBRID_WEIGHT), Ge(0), Le(1)] = None
    """Combine the model with BM25, which needs stored texts. W: weight of the model, from 0 (BM25 alone) to 1; without
    W 0.7 (default: the weight that the folder of `adapt` names, else the model alone).
    """
    json: Json = False
    """Print JSON instead of text."""

    def validate(self) -> None:
        super().validate()
        if self.model is not None:
            Prompts.read(Path(self.model)).of_side(QUERY, self.prompt_name)
        if not self.texts:
            raise ValueError("no query: write one after the folder, or pass `queries` FILE")
        check_queries(self.texts)
        if self.index and self.hybrid is not None:
            raise ValueError("`hybrid` scores every text: leave out `index`")
        self.condition  # noqa: B018  # is checked when it is parsed

    @functools.cached_property
    def condition(self) -> Condition | None:
        """The condition `where`, parsed once for the check of the option and for the search."""
        try:
            return None if self.where is None else Condition.parse(self.where)
        except ConditionError as error:
            raise ValueError(f"`where`: {error}") from None

    @property
    def asked(self) -> list[Query]:
        return [*map(Query, (*self.words, *self.query)), *self.queries]

    @property
    def texts(self) -> list[str]:
        return [query.text for query in self.asked]

    def run(self) -> "SearchResults":
        """Search the collections.

        Raises:
            UsageError: an option cannot be used with these collections.
            PipelineError: a dataset holds no vectors, or the model is not the one that made them.
            ManifestError, ShardError: a dataset is damaged.
        """
        self.use_store()
        collection = self.opened(keep=False)
        weight = collection.search_weight if self.hybrid is None else self.hybrid
        given = [name for name in ("stemmer", "k1", "b") if getattr(self, name) is not None]
        if weight == 1 and given:
            raise UsageError(f"`{given[0]}` has no effect, since the model alone ranks: leave it out, or add `hybrid`")
        if weight and collection.model is not None and collection.compute.message:
            warn(collection.compute.message)
        has_answers = any(query.has_answer for query in self.asked)
        depth = max(self.top, DEPTH) if has_answers else self.top
        ranked = collection.ranked(self.texts, depth, weight=weight, where=self.condition, prompt_name=self.prompt_name)
        answers = Answers.of(collection.texts, self.asked, ranked) if has_answers else None
        hits = collection.texts.hits([(rows[: self.top], scores[: self.top]) for rows, scores in ranked])
        return self._results(collection, hits, answers, weight)

    def _results(
        self, collection: Collection, hits: list[list[Hit]], answers: Answers | None, weight: float
    ) -> "SearchResults":
        made: dict[str, Any] = {"weight": weight, "bm25": str(collection.scoring) if weight < 1 else ""}
        if weight:
            prompts = collection.prompts
            made |= {"compute": collection.compute, "prompt": collection.query_prompt(self.prompt_name)}
            made["vectors_prompt"] = collection.vectors_prompt
            made["unused"] = "" if self.prompt_name or collection.prompt_name else prompts.unused(QUERY)
        return SearchResults(collection.folders, self.texts, hits, answers, **made)


@dataclasses.dataclass(frozen=True)
class SearchResults(Result):
    """Result of the command `search`: the hits of each query.

    Attributes:
        folders: the folders of the collections.
        queries: the texts of the queries.
        hits: for each query, its hits, best first.
        answers: the ranks of the relevant documents; None if no query names its relevant document.
        weight: the weight of the model's score when combined with BM25, from 0 (BM25 alone) to 1 (the model alone).
        bm25: BM25's k1, b and stemmer in words; "" if the model alone ranks.
        compute: device and precision with which queries were embedded; None if they were not embedded.
        prompt: the prompt that was put before each query; "" for none.
        vectors_prompt: the prompt that was put before each text when the vectors were made; "" for none.
        unused: a warning that the model has a query prompt that was not used; "" if there is nothing to warn about.
    """

    folders: Sequence[str]
    queries: Sequence[str]
    hits: list[list[Hit]]
    answers: Answers | None = None
    weight: float = 1.0
    bm25: str = ""
    compute: Compute | None = None
    prompt: str = ""
    vectors_prompt: str = ""
    unused: str = ""

    def to_json(self) -> str:
        pairs = zip(self.queries, self.hits, strict=True)
        results: list[dict[str, Any]] = [
            {"query": query, "hits": [dataclasses.asdict(hit) for hit in hits]} for query, hits in pairs
        ]
        made: dict[str, Any] = {"vectors": self.folders[0], "collections": list(self.folders), "weight": self.weight}
        if self.compute:
            made |= {"device": self.compute.device, "precision": self.compute.precision}
            made |= {"prompt": self.prompt, "vectors_prompt": self.vectors_prompt}
        if self.answers:
            for result, rank in zip(results, self.answers.ranks, strict=True):
                result["rank"] = rank
            of_queries = {"mrr": self.answers.mrr, "judged": self.answers.num_judged, "depth": DEPTH}
            made["answers"] = {**of_queries, "missing": self.answers.num_missing}
        return json.dumps({**made, "results": results})

    def __str__(self) -> str:
        lines = []
        for number, (query, hits) in enumerate(zip(self.queries, self.hits, strict=True)):
            rank = self.answers.ranks[number] if self.answers else None
            lines += [query if rank is None else f"{query} (the relevant document ranks {rank:,})", self._hits(hits)]
        if self.answers:
            lines.append(str(self.answers))
        if self.compute:
            lines.append(f"queries {self.compute}")
        if self.weight < 1:
            both = f"the model's, weight {self.weight:g}, and BM25's ({self.bm25}), in deviations from their means"
            lines.append(f"scores: {both if self.weight else f'BM25 alone ({self.bm25})'}")
        if self.prompt or self.vectors_prompt or self.unused:
            lines.append(
                f"{quoted_prompt(self.prompt)} before each query, {quoted_prompt(self.vectors_prompt)} before each text"
            )
        if self.unused:
            lines.append(as_printed(self.unused))
        return "\n".join(lines)

    def _hits(self, hits: Sequence[Hit]) -> str:
        """Return the hits of one query as text, as wide as the terminal: scores, and beside them places and texts."""
        rows = [(f"{hit.score:.4f}", self._paragraphs(hit)) for hit in hits]
        return terminal.hanging(rows, terminal.width()) if hits else "  no hit"

    def _paragraphs(self, hit: Hit) -> Iterator[str]:
        """Yield the place of a text in the inputs, its stored fields except the id, and its beginning."""
        place = hit.source if hit.record is None else f"{hit.source}:{hit.record}"
        inside = f" in {hit.collection}" if len(self.folders) > 1 else ""
        yield f"{place}, {hit.id_field or 'id'} {_short(hit.name)}{inside}"
        fields = {name: value for name, value in hit.fields.items() if name != hit.id_field and value not in (None, "")}
        if fields:
            yield "; ".join(f"{name}: {_short(value)}" for name, value in fields.items())
        if hit.text:
            yield terminal.shortened(hit.text, WIDTH)


def _short(value: Any) -> str:
    return terminal.shortened(str(value), 60)


@overload
def search(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
    vectors: str | Path,
    queries: str,
    model: str | Path,
    *,
    top: int = 10,
    prompt_name: str | None = None,
    index: str | None = None,
    hybrid: float | bool | None = False,
    where: str | None = None,
    device: str = "auto",
) -> list[Hit]: ...


@overload
def search(
    vectors: str | Path,
    queries: Sequence[str],
    model: str | Path,
    *,
    top: int = 10,
    prompt_name: str | None = None,
    index: str | None = None,
    hybrid: float | bool | None = False,
    where: str | None = None,
    device: str = "auto",
) -> list[list[Hit]]: ...


@checked
def search(
    vectors: str | Path,
    queries: str | Sequence[str],
    model: str | Path,
    *,
    top: int = 10,
    prompt_name: str | None = None,
    index: str | None = None,
    hybrid: float | bool | None = False,
    where: str | None = None,
    device: str = "auto",
) -> list[Hit] | list[list[Hit]]:
    """Find the texts of a dataset that are nearest to a query; return its hits, best first.

    Args:
        vectors: a dataset that `make_dataset("embed", ...)` made, or a folder that `adapt` made.
        queries: a text, or several; for a sequence of texts, also of one, return a list of hits for each.
        model: the folder of the model that made the vectors.
        top: number of hits for each query.
        prompt_name: name of the model's prompt to put before each query, or `none`; None: the query prompt.
        index: `faiss` for an approximate index, built on first use, or `module:Class` for one of your own; None for
            exact search. It searches by the model alone, and cannot be used with `hybrid`.
        hybrid: weight of the model's scores, from 0 to 1, in a combination with BM25 scores, for which the dataset must
            store the texts; True for 0.7. If it is None or False, only the model's scores count, except in a folder
            that `adapt` made: there, the weight that `adapt` wrote is used.
        where: a condition on the fields stored with the vectors, such as "year > 2020 and lang = 'de'"; texts that do
            not fulfill it are left out.
        device: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu.

    Raises:
        UsageError: an option cannot work.
        PipelineError: the dataset holds no vectors, a different model made them, or BM25 is to be used (`hybrid`) and
            the dataset does not store the texts.
        ManifestError, ShardError: the dataset is missing or damaged.
    """
    texts = (queries,) if isinstance(queries, str) else tuple(queries)
    weight = None if hybrid is None or hybrid is False else HYBRID_WEIGHT if hybrid is True else hybrid
    given: dict[str, Any] = {"top": top, "prompt_name": prompt_name, "index": index, "hybrid": weight, "device": device}
    given["where"] = where
    try:
        options = Search(folder=str(vectors), model=str(model), query=texts, quiet=True, **given)
    except ValueError as error:
        raise UsageError(str(error)) from None
    hits = options.run().hits
    return hits[0] if isinstance(queries, str) else hits


main = Search.main


if __name__ == "__main__":
    sys.exit(main())
