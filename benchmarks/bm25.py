"""BM25 on judged collections: words and stems, k1 and b, stop words and n-grams, beside other implementations.

Each setting ranks all documents for each query. The figure is nDCG@10 in percent (for TREC-QA, which ranks candidates,
MAP), with the difference from whole words, k1 1.2 and b 0.75, and its 95 % interval over the queries. Stems are those
of the language of the documents. Stop words and 4-grams are measured for English, and pairs of characters for texts of
languages without a stemmer, such as Chinese. The peers are
bm25s with its own tokenizer, stemmer and stop words, and tantivy with its English analyzer if it is installed (`pip
install tantivy`). DIR is a folder in the layout of `clearspan eval --tasks retrieval`.
"""

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import bm25s
import numpy as np
import regex
import Stemmer
from numpy.typing import NDArray

from benchmarks.report import command, finish, machine, option, tabulated
from clearspan.common.scripts import UNSPACED
from clearspan.common.words import folded
from clearspan.eval.scores import Examples, difference
from clearspan.eval.tasks import retrieval
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.scoring import K1, B, Scoring
from clearspan.retrieval.stemming import Words, spread, stemmer_of

Split = Callable[[str], list[str]]
"""Function that splits a text into the words to compare."""
Peer = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Function of documents and queries that returns the scores, (queries, documents)."""
BASE = "words"
SETTINGS: dict[str, tuple[str, float, float]] = {
    BASE: ("words", K1, B),
    "words, k1 1.5": ("words", 1.5, B),
    "stems": ("stems", K1, B),
    "stems, k1 1.5": ("stems", 1.5, B),
    "stems, k1 0.9": ("stems", 0.9, B),
    "stems, k1 0.6": ("stems", 0.6, B),
    "stems, b 0.4": ("stems", K1, 0.4),
    "stems, b 0.9": ("stems", K1, 0.9),
    "stems without stop words": ("stop", K1, B),
    "stems and 4-grams": ("grams", K1, B),
    "stems and pairs of characters": ("pairs", K1, B),
}
"""Name of a setting -> its words, k1 and b."""
UNSPACED_RUNS = regex.compile(rf"[{UNSPACED}]{{2,}}")
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


def with_pairs(stems: Words, text: str) -> list[str]:
    """Return the stems of a text and, of scripts without spaces between words, each two characters in a row."""
    runs = UNSPACED_RUNS.findall(folded(text))
    return [*stems(text), *(run[at : at + 2] for run in runs for at in range(len(run) - 1))]


def words_of(language: str | None) -> dict[str, Any]:
    """Return name -> function of a text, for the words of SETTINGS that suit a language."""
    stems = Words(language)
    found: dict[str, Any] = {"words": Words()} | ({"stems": stems} if language else {})
    if language == "english":
        found |= {"stop": Keyed(stems_without_stop_words), "grams": Keyed(stems_and_grams)}
    return found if language else found | {"stems": stems, "pairs": Keyed(functools.partial(with_pairs, stems))}


def ours(documents: Sequence[str], queries: Sequence[str], scoring: Scoring) -> tuple[Any, Any]:
    """Return the vectors of the queries and of the documents, whose products are the scores."""
    index = BM25.of(documents, scoring).astype(np.float32)
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
    words = words_of(stemmer_of(spread(collection.documents)))
    scorings = {name: Scoring(words[kind], k1, b) for name, (kind, k1, b) in SETTINGS.items() if kind in words}
    for name, scoring in scorings.items():
        start = time.perf_counter()
        made = ours(collection.documents, collection.queries, scoring)
        values[name] = retrieval.search(*made, collection).figures[key]
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
