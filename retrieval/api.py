"""Search from Python: the command `search` with keyword arguments, and collections to search many times."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from clearspan.common.terminal import UsageError
from clearspan.common.typed import checked
from clearspan.retrieval.collection import Collection
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.hybrid import HYBRID_WEIGHT
from clearspan.retrieval.search_command import Search


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
        index: `faiss` for an approximate index, built on first use; None for exact search.
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


@checked
def open_collection(
    folder: str | Path,
    model: str | Path | None = None,
    *,
    also: Sequence[str | Path] = (),
    stemmer: str | None = None,
    device: str = "auto",
    keep: bool = True,
) -> Collection:
    """Open a collection to search it many times: `open_collection("data/vectors", model).search("How do owls hunt?")`.

    Args:
        folder: a dataset that `make_dataset("embed", ...)` made, or a folder that `adapt` made.
        model: the folder of the model that made the vectors; None: the model that the folder's search.json names, which
            `adapt` writes.
        also: folders of further collections, with vectors of the same model, that are searched together with the first
            as if they were one.
        stemmer: language whose word endings BM25 ignores, such as `german`; None: the language that search.json names;
            if it names none, BM25 compares whole words.
        device: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu.
        keep: True: hold texts and vectors in memory for later searches, if they fit in half of the machine's memory.
            Otherwise each search reads them again.

    Raises:
        UsageError: an argument cannot be used.
        PipelineError: a folder is not a collection.
        ManifestError: a dataset is missing or damaged.
    """
    return Collection.open(folder, model, also=also, stemmer=stemmer, device=device, keep=keep)
