"""`clearspan search`: the texts of a dataset of vectors that are nearest to queries.

    queries -> vectors, by the model that made the dataset -> exact search (`nearest`, `hybrid`), or an index -> hits

The vectors of queries are those of sentence-transformers' `encode_query`: the model's prompt of queries is before each.

The score is the model's own similarity: the cosine, unless its folder names another.
"""

import dataclasses
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from clearspan.common import plugins, terminal
from clearspan.common.compute import Compute, resolve
from clearspan.common.encoder.folder import device_of
from clearspan.common.encoder.prompts import OTHER, QUERY, Side, shown
from clearspan.common.model_folder import EncoderError
from clearspan.common.options import Flag, Json, Quiet, lines_in
from clearspan.common.ranking import HYBRID_WEIGHT
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.vectors import PROMPT, ModelOptions, load_model
from clearspan.pipelines.search import hybrid, nearest
from clearspan.pipelines.search.nearest import Hit
from clearspan.shards.reader import Dataset

INDEXES = {"faiss": "clearspan.plugins.faiss_index:search"}
"""Choices of --index, and the parts that search them."""
WIDTH = 300
"""Number of characters of a text that are printed; JSON holds all of it."""


APPROXIMATE = "search an approximate index, built once and kept in CLEARSPAN_CACHE (extra `faiss`)"
BESIDE = f"add BM25 over the kept texts; W: the model's weight, 0 to 1 (default {HYBRID_WEIGHT})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search(ModelOptions):
    """The command `search`."""

    name: ClassVar[str] = "search"
    summary: ClassVar[str] = "find the texts of a dataset of vectors that are nearest to queries"
    example: ClassVar[str] = "clearspan search data/vectors --model runs/mine/model --query 'How do owls hunt?' --top 5"

    side: ClassVar[Side] = QUERY

    folder: Annotated[str, Flag("a dataset that `embed` made, local or on gs:// or s3://", "VECTORS", positional=True)]
    query: Annotated[tuple[str, ...], Flag("a text to search for; may be repeated", "TEXT")] = ()
    queries: Annotated[Sequence[str], Flag("a file with a query on each line", "FILE", parse=lines_in)] = ()
    prompt_name: Annotated[str | None, Flag(PROMPT.format("query", QUERY), "NAME")] = None
    top: Annotated[int, Flag("hits of each query", "N"), Ge(1)] = 10
    index: Annotated[str | None, Flag(APPROXIMATE, choices=tuple(INDEXES))] = None
    hybrid: Annotated[float | None, Flag(BESIDE, "W", const=HYBRID_WEIGHT), Ge(0), Le(1)] = None
    quiet: Quiet = False
    json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.texts:
            raise ValueError("no query: pass --query TEXT or --queries FILE")
        if any(not isinstance(text, str) or not text.strip() for text in self.texts):
            raise ValueError("--query must be a text, and not empty")
        if any(text != text.encode("utf-8", "ignore").decode() for text in self.texts):
            raise ValueError("--query must be valid UTF-8")
        if self.hybrid is not None and self.index:
            raise ValueError("--hybrid scores every text: leave out --index")

    @property
    def texts(self) -> list[str]:
        return [*self.query, *self.queries]

    @property
    def inputs(self) -> list[str]:
        """Return the paths that the command reads, perhaps in a bucket."""
        return [self.folder]

    def run(self) -> "Results":
        """Search a dataset.

        Raises:
            PipelineError: the dataset holds no vectors, or the model is not the one that made them.
            ManifestError, ShardError: the dataset is damaged.
        """
        dataset = Dataset(self.folder)
        made = dataset.manifest.fingerprint.get("options", {})
        if dataset.kind.name != "vectors" or "model" not in made:
            raise PipelineError(f"{self.folder}: holds {dataset.kind.name}, not vectors that `embed` made: name others")
        compute = resolve(device_of(Path(self.model), self.device), made["precision"], "embed --precision")
        if compute.line:
            print(compute.line, file=sys.stderr)
        model = load_model(self.model, made["model"], made["pooling"], *compute[:2])
        try:
            queries = model.encode_query(self.texts, prompt_name=self.prompt_name)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None
        if not np.isfinite(queries).all():
            raise PipelineError(f"--model {self.model}: the vector of a query is not finite")
        if self.hybrid is not None:
            of_queries = queries, self.texts, self.hybrid, self.top, self.quiet
            hits = hybrid.search(dataset, model.similarity, *of_queries)
        elif self.index:
            search_index = plugins.load_function(INDEXES[self.index], "a function that searches a dataset")
            hits = search_index(dataset, model.similarity_name, queries, self.top, self.quiet)
        else:
            hits = nearest.search(dataset, model.similarity, queries, self.top, self.quiet)
        # Earlier versions embedded with the default prompt, and recorded only the name of another one.
        before = made.get("prompt", self.prompts.of_side(OTHER, made.get("prompt_name")))
        unused = "" if self.prompt_name else self.prompts.unused(QUERY)
        return Results(self.folder, self.texts, hits, compute, self.prompt, before, unused)


@dataclasses.dataclass(frozen=True)
class Results:
    """Hits of each query, best first.

    Attributes:
        prompt: the prompt before each query; vectors_prompt: that before each text of the dataset.
        unused: a line on a prompt that was not used.
    """

    folder: str
    queries: Sequence[str]
    hits: list[list[Hit]]
    compute: Compute
    prompt: str = ""
    vectors_prompt: str = ""
    unused: str = ""

    def to_json(self) -> str:
        pairs = zip(self.queries, self.hits, strict=True)
        results = [{"query": query, "hits": [dataclasses.asdict(hit) for hit in hits]} for query, hits in pairs]
        device, precision = self.compute[:2]
        made = {"vectors": self.folder, "device": device, "precision": precision}
        return json.dumps({**made, "prompt": self.prompt, "vectors_prompt": self.vectors_prompt, "results": results})

    def __str__(self) -> str:
        lines = []
        for query, hits in zip(self.queries, self.hits, strict=True):
            texts = [textwrap.shorten(hit.text or "", WIDTH, placeholder=" ...") for hit in hits]
            rows = [(f"{hit.score:.4f}", str(hit.id), hit.source, text) for hit, text in zip(hits, texts, strict=True)]
            lines += [query, terminal.table(("score", "id", "source", "text"), rows, right=(0, 1))]
        lines.append(f"queries {self.compute}")
        if self.prompt or self.vectors_prompt or self.unused:
            lines.append(f"{shown(self.prompt)} before each query, {shown(self.vectors_prompt)} before each text")
        return "\n".join([*lines, *filter(None, [self.unused])])
