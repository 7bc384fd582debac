"""`clearspan search`: the texts of a dataset of vectors that are nearest to queries.

    queries -> vectors, by the model that made the dataset -> exact search (`nearest`, `hybrid`), or an index -> hits

The score is the model's own similarity: the cosine, unless its folder names another.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clearspan.common import terminal
from clearspan.common.compute import AUTO, Compute, resolve
from clearspan.common.encoder.folder import device_of
from clearspan.common.model_folder import EncoderError
from clearspan.common.ranking import HYBRID_WEIGHT
from clearspan.common.terminal import one_line
from clearspan.pipelines import faiss_index, hybrid, nearest
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.vectors import add_model_arguments, check_device, check_folder, check_prompt, load_model
from clearspan.pipelines.nearest import Hit
from clearspan.shards.reader import Dataset

NAME = "search"
SUMMARY = "find the texts of a dataset of vectors that are nearest to queries"
EXAMPLE = "clearspan search data/vectors --model runs/mine/model --query 'How do owls hunt?' --top 5"
INDEXES = ("faiss",)
WIDTH = 300
"""Number of characters of a text that are printed; JSON holds all of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Options of the command. Raise ValueError for an impossible value."""

    folder: str
    model: str
    queries: Sequence[str]
    top: int = 10
    index: str | None = None
    hybrid: float | None = None
    prompt_name: str | None = None
    device: str = AUTO
    quiet: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.top, int) or self.top < 1:
            raise ValueError("--top must be at least 1")
        if not self.queries:
            raise ValueError("no query: pass --query TEXT or --queries FILE")
        if any(not isinstance(query, str) or not query.strip() for query in self.queries):
            raise ValueError("--query must be a text, and not empty")
        if any(_is_broken(query) for query in self.queries):
            raise ValueError("--query must be valid UTF-8")
        if self.index not in (None, *INDEXES):
            raise ValueError(f"--index {self.index}: choose {', '.join(INDEXES)}, or leave it out")
        if self.hybrid is not None:
            if not isinstance(self.hybrid, int | float) or not 0 <= self.hybrid <= 1:
                raise ValueError(f"--hybrid {self.hybrid}: must be from 0 to 1, the model's weight beside BM25's")
            if self.index:
                raise ValueError("--hybrid scores every text: leave out --index")
        check_device(self.device)
        check_folder(self.model)
        check_prompt(self.model, self.prompt_name)

    @property
    def inputs(self) -> list[str]:
        """Return the paths that the command reads, perhaps in a bucket."""
        return [self.folder]

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("folder", metavar="VECTORS", help="a dataset that `embed` made, local or on gs:// or s3://")
        add_model_arguments(parser)
        add("--query", action="append", default=[], metavar="TEXT", help="a text to search for; may be repeated")
        add("--queries", metavar="FILE", help="a file with a query on each line")
        add("--top", type=int, default=10, metavar="N", help="hits of each query (default 10)")
        approximate = "search an approximate index, built once and kept in CLEARSPAN_CACHE (extra `faiss`)"
        add("--index", choices=INDEXES, help=approximate)
        beside = f"add BM25's scores over the kept texts; W: the model's weight, 0 to 1 (default {HYBRID_WEIGHT})"
        add("--hybrid", nargs="?", type=float, const=HYBRID_WEIGHT, metavar="W", help=beside)
        add("--quiet", action="store_true", help="no progress bar")
        add("--json", action="store_true", help="print the hits as JSON")

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "Search":
        """Return the options of a command line. Raise ValueError if an option has an impossible value."""
        queries = [*arguments.query, *(_read_queries(arguments.queries) if arguments.queries else [])]
        names = ("folder", "model", "top", "index", "hybrid", "prompt_name", "device", "quiet")
        return cls(queries=queries, **{name: getattr(arguments, name) for name in names})


def _is_broken(text: str) -> bool:
    """Return whether a text holds half of a surrogate pair, as that of bytes that are not UTF-8."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _read_queries(path: str) -> list[str]:
    """Return the lines of a file that are not blank. Raise ValueError if it is unreadable or has none."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--queries {path}: {getattr(error, 'strerror', None) or error}") from None
    if not (queries := [line.strip() for line in lines if line.strip()]):
        raise ValueError(f"--queries {path}: holds no query")
    return queries


@dataclasses.dataclass(frozen=True)
class Results:
    """Hits of each query, best first."""

    folder: str
    queries: Sequence[str]
    hits: list[list[Hit]]
    compute: Compute

    def to_json(self) -> str:
        pairs = zip(self.queries, self.hits, strict=True)
        results = [{"query": query, "hits": [dataclasses.asdict(hit) for hit in hits]} for query, hits in pairs]
        device, precision, _ = self.compute
        return json.dumps({"vectors": self.folder, "device": device, "precision": precision, "results": results})

    def __str__(self) -> str:
        lines = []
        for query, hits in zip(self.queries, self.hits, strict=True):
            rows = [(f"{hit.score:.4f}", str(hit.id), hit.source, _beginning(hit.text or "")) for hit in hits]
            lines += [query, terminal.table(("score", "id", "source", "text"), rows, right=(0, 1))]
        return "\n".join([*lines, f"queries {self.compute}"])


def _beginning(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH]} ..."


def run(options: Search) -> Results:
    """Search a dataset.

    Raises:
        PipelineError: the dataset holds no vectors, or the model is not the one that made them.
        ManifestError, ShardError: the dataset is damaged.
    """
    dataset = Dataset(options.folder)
    made = dataset.manifest.fingerprint.get("options", {})
    if dataset.kind.name != "vectors" or "model" not in made:
        raise PipelineError(f"{options.folder}: holds {dataset.kind.name}, not vectors that `embed` made: name others")
    compute = resolve(device_of(Path(options.model), options.device), made["precision"], "embed --precision")
    if compute.line:
        print(compute.line, file=sys.stderr)
    model = load_model(options.model, made["model"], made["pooling"], *compute[:2], options.prompt_name)
    try:
        queries = model.encode(options.queries)
    except EncoderError as error:
        raise PipelineError(one_line(error)) from None
    if not np.isfinite(queries).all():
        raise PipelineError(f"--model {options.model}: the vector of a query is not finite")
    if options.hybrid is not None:
        of_queries = queries, options.queries, options.hybrid, options.top, options.quiet
        hits = hybrid.search(dataset, model.similarity, *of_queries)
    elif options.index:
        hits = faiss_index.search(dataset, model.similarity_name, queries, options.top, options.quiet)
    else:
        hits = nearest.search(dataset, model.similarity, queries, options.top, options.quiet)
    return Results(options.folder, options.queries, hits, compute)
