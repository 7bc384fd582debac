"""BM25 on judged collections: words and stems, k1 and b, stop words and letter 4-grams, beside other implementations.

Each setting ranks all documents for each query. The figure is nDCG@10 in percent (for TREC-QA, which ranks candidates,
MAP), with the difference from whole words, k1 1.5 and b 0.75, and its 95 % interval over the queries. The peers are
bm25s with its own tokenizer, stemmer and stop words, and tantivy with its English analyzer if it is installed (`pip
install tantivy`). DIR is a folder in the layout of `clearspan eval --tasks retrieval`.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from benchmarks.report import command, finish, machine, option, tabulated
from clearspan.eval.scores import Examples, difference
from clearspan.eval.tasks import retrieval
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.scoring import Scoring
from clearspan.retrieval.stemming import Words

Split = Callable[[str], list[str]]
"""Function that splits a text into the words to compare."""
Peer = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Function of documents and queries that returns the scores, (queries, documents)."""
BASE = "words, k1 1.5"
SETTINGS: dict[str, tuple[str, float, float]] = {
    BASE: ("words", 1.5, 0.75),
    "words, k1 1.2": ("words", 1.2, 0.75),
    "stems, k1 1.5": ("stems", 1.5, 0.75),
    "stems, k1 1.2": ("stems", 1.2, 0.75),
    "stems, k1 0.9, b 0.4": ("stems", 0.9, 0.4),
    "stems, k1 0.6": ("stems", 0.6, 0.75),
    "stems, k1 1.5, b 0.9": ("stems", 1.5, 0.9),
    "stems without stop words, k1 1.2": ("stop", 1.2, 0.75),
    "stems and 4-grams, k1 1.2": ("grams", 1.2, 0.75),
}
"""Name of a setting -> its words, k1 and b."""
STOP_WORDS = frozenset(bm25s.stopwords.STOPWORDS_EN)


class Keyed:
    """A function of a text as `BM25` takes it."""

    key: ClassVar[dict[str, str | int]] = {}

    def __init__(self, split: Split) -> None:
        self.split = split

    def __call__(self, text: str) -> list[str]:
        return self.split(text)


def stems_without_stop_words(text: str) -> list[str]:
    stems = Stemmer.Stemmer("english").stemWords([word for word in Words()(text) if word not in STOP_WORDS])
    return list(stems)


def stems_and_grams(text: str) -> list[str]:
    """Return the stems of a text and, of stems of more than four letters, each four letters in a row."""
    stems = Words("english")(text)
    grams = [f"#{stem[i : i + 4]}" for stem in stems if len(stem) > 4 for i in range(len(stem) - 3)]
    return [*stems, *grams]


WORDS: dict[str, Any] = {
    "words": Words(),
    "stems": Words("english"),
    "stop": Keyed(stems_without_stop_words),
    "grams": Keyed(stems_and_grams),
}


def ours(documents: Sequence[str], queries: Sequence[str], setting: str) -> tuple[Any, Any]:
    """Return the vectors of the queries and of the documents, whose products are the scores."""
    words, k1, b = SETTINGS[setting]
    index = BM25.of(documents, Scoring(WORDS[words], k1, b)).astype(np.float32)
    return index.scores(queries, np.float32), index


def of_bm25s(documents: Sequence[str], queries: Sequence[str]) -> NDArray[np.float32]:
    """Return the scores of bm25s with its own tokenizer, stemmer, stop words and parameters, (queries, documents)."""
    split = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents), **split), show_progress=False)
    tokens = bm25s.tokenize(list(queries), return_ids=False, **split)
    return np.array([index.get_scores(each) for each in tokens], np.float32)


def of_tantivy(documents: Sequence[str], queries: Sequence[str]) -> NDArray[np.float32]:
    """Return the scores of tantivy with its English analyzer, k1 1.2 and b 0.75, (queries, documents)."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="en_stem")
    builder.add_unsigned_field("row", stored=True)
    index = tantivy.Index(builder.build())
    writer = index.writer()
    for row, text in enumerate(documents):
        writer.add_document(tantivy.Document(text=text, row=row))
    writer.commit()
    index.reload()
    searcher, scores = index.searcher(), np.zeros((len(queries), len(documents)), np.float32)
    for number, text in enumerate(queries):
        words = " ".join("".join(c if c.isalnum() else " " for c in text).split()).lower()
        query = index.parse_query(words, ["text"])
        for score, address in searcher.search(query, limit=min(1000, len(documents))).hits:
            scores[number, searcher.doc(address)["row"][0]] = score
    return scores


def peers() -> dict[str, Peer]:
    """Return the peers that are installed, by name and version."""
    found: dict[str, Peer] = {f"bm25s {version('bm25s')}, its tokenizer": of_bm25s}
    try:
        return found | {f"tantivy {version('tantivy')}, en_stem": of_tantivy}
    except PackageNotFoundError:
        return found


def measure_set(collection: RetrievalSet, with_peers: bool) -> dict[str, dict[str, Any]]:
    """Return name of a setting or of a peer -> its score, the difference from `BASE`, and seconds."""
    key = "map" if collection.candidates else "ndcg@10"
    values: dict[str, NDArray[np.float64]] = {}
    seconds: dict[str, float] = {}
    for name in SETTINGS:
        start = time.perf_counter()
        values[name] = retrieval.search(*ours(collection.documents, collection.queries, name), collection).figures[key]
        seconds[name] = time.perf_counter() - start
    for name, scored in peers().items() if with_peers else ():
        start = time.perf_counter()
        scores = scored(collection.documents, collection.queries)
        one_hot = np.eye(len(collection.documents), dtype=np.float32)
        values[name] = retrieval.search(scores, one_hot, collection).figures[key]
        seconds[name] = time.perf_counter() - start
    examples = {name: Examples.of("mean", each) for name, each in values.items()}
    rows = {}
    for name, of in examples.items():
        change = difference(examples[BASE], of)
        rows[name] = {
            "score": round(100 * float(values[name].mean()), 2),
            "difference": round(change.value, 2),
            "low": round(change.low, 2),
            "high": round(change.high, 2),
            "seconds": round(seconds[name], 2),
        }
    return rows


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for task in retrieval.load(arguments.data).tasks:
        assert isinstance(task, retrieval.RetrievalTask)
        collection = task.collection
        if len(collection.queries) > arguments.queries:
            step = len(collection.queries) // arguments.queries
            collection = collection.select(range(0, len(collection.queries), step))
        with_peers = len(collection.documents) <= arguments.peer_documents
        rows = measure_set(collection, with_peers)
        found[task.name] = {"documents": len(collection.documents), "queries": len(collection.queries), "rows": rows}
        print(f"{task.name}: ranked by each setting", flush=True)
    return {"machine": machine(), "versions": {"bm25s": version("bm25s")}, "sets": found}


def one_table(name: str, found: dict[str, Any]) -> str:
    figures = {"nDCG@10, or MAP": ("score", ".1f"), "difference": ("difference", "+.1f"), "low": ("low", "+.1f")}
    figures |= {"high": ("high", "+.1f"), "seconds": ("seconds", ".1f")}
    heading = f"{name}: {found['documents']:,} documents, {found['queries']:,} queries"
    return tabulated(heading, found["rows"], figures)


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    return "\n".join(one_table(name, found) for name, found in result["sets"].items())


def main() -> None:
    parser = command(__doc__, "bm25")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="a folder with retrieval/ in it")
    option(parser, "queries", 1500, "maximum number of queries of a collection, evenly spread")
    option(parser, "peer-documents", 3000, "maximum number of documents that the peers rank")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
