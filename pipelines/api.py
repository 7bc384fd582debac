"""Datasets, tokenizers and search from Python: the commands of `clearspan` with keyword arguments.

Datasets and tokenizers are made in a process of their own: in that of a notebook Beam would look for its interactive
runner, and a worker that dies would end the notebook.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clearspan.common.child_commands import CommandError, Option, UsageError, naming_keywords, run_module, words
from clearspan.common.ranking import HYBRID_WEIGHT
from clearspan.common.typed import checked
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.search.collection import Collection
from clearspan.pipelines.search.hits import Hit
from clearspan.pipelines.search.search_command import Search
from clearspan.shards import Dataset

Inputs = str | Path | Iterable[str | Path]


@checked
def make_dataset(
    kind: str,
    inputs: Inputs,
    output: str | Path,
    *,
    beam: str | Sequence[str] = (),
    quiet: bool = False,
    **options: Option,
) -> Dataset:
    """Make a dataset of verified shards from a corpus. A call that was stopped continues when it is repeated.

    Args:
        kind: `documents`, `sentences`, `pairs`, `triplets`, `images`, `audio`, `embed` for the vectors of texts,
            or `module:Class` for a kind of your own.
        inputs: files, folders and globs.
        output: a new or empty folder, or that of the same call to continue.
        beam: options of Beam, such as `["--runner=DataflowRunner"]`.
        quiet: print no summary.
        options: options of `clearspan KIND --help` by their names with underscores: `min_tokens=512`,
            `dedup=True`, `no_dedup=True`, `exclude=["test.txt"]`.

    Raises:
        UsageError: an option is unknown, missing or cannot work.
        PipelineError: the dataset cannot be made; the message says why and what to do.
    """
    own = {"input": _listed(inputs), "output": output, **options}
    _run(kind, own, quiet, [beam] if isinstance(beam, str) else beam)
    return Dataset(output)


@checked
def make_tokenizer(
    inputs: Inputs, output: str | Path, *, size: int = 32000, quiet: bool = False, **options: Option
) -> Path:
    """Learn a byte-level BPE tokenizer from a corpus, for a domain or a language that has none; return its folder.

    Args:
        inputs: files, folders and globs.
        output: a folder on this machine: new or empty, or that of the same call, whose tokenizer is kept.
        size: number of token ids, special tokens included.
        quiet: print no summary.
        options: options of `clearspan vocabulary --help` by their names with underscores.

    Raises:
        UsageError: an option is unknown or cannot work.
        PipelineError: the tokenizer cannot be made; the message says why and what to do.
    """
    _run("vocabulary", {"input": _listed(inputs), "output": output, "size": size, **options}, quiet)
    return Path(output)


@checked
def mine_negatives(
    pairs: str | Path,
    output: str | Path,
    *,
    model: str | Path | None = None,
    negatives: int = 4,
    bm25: int = 0,
    quiet: bool = False,
    **options: Option,
) -> Dataset:
    """Add hard negatives to a dataset of pairs or triplets, from its own texts; return the new dataset.

    A call that was stopped continues when it is repeated.

    Args:
        pairs: a dataset that `make_dataset("pairs", ...)` or `make_dataset("triplets", ...)` made.
        output: a new or empty folder, or that of the same call to continue.
        model: the folder of the model that finds them; not needed if all are found by BM25.
        negatives: number of hard negatives of each row.
        bm25: how many of them to take by BM25 in place of the model.
        quiet: print no summary.
        options: options of `clearspan mine --help` by their names with underscores: `relative_margin=0.1`,
            `sampling_strategy="random"`.

    Raises:
        UsageError: an option is unknown or cannot work.
        PipelineError: the negatives cannot be mined; the message says why and what to do.
    """
    own = {"output": output, **({"model": model} if model is not None else {}), "negatives": negatives, "bm25": bm25}
    _run("mine", {**own, **options}, quiet, [str(pairs)])
    return Dataset(output)


@checked
@naming_keywords()
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
) -> list[list[Hit]]:
    """Find the texts of a dataset that are nearest to queries; return the hits of each query, best first.

    Args:
        vectors: a dataset that `make_dataset("embed", ...)` made.
        queries: a text, or several.
        model: the folder of the model that made it.
        top: number of hits of each query.
        prompt_name: the model's prompt to put before each query, or `none`; None: its prompt of queries.
        index: `faiss` for an approximate index, built on first use; None for exact search.
        hybrid: True to add BM25's scores over the texts, which the dataset must keep; a number from 0 to 1 for the
            weight of the model's scores beside BM25's.
        where: a condition on the kept fields, such as "year > 2020 and lang = 'de'"; other texts are no hits.
        device: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu.

    Raises:
        UsageError: an option cannot work.
        PipelineError: the dataset holds no vectors, another model made them, or it keeps no texts for `hybrid`.
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
    return options.run().hits


@checked
@naming_keywords()
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
        model: the folder of the model that made the vectors; None: the one that `adapt` named.
        also: further collections of the same model, searched together with the first as if they were one.
        stemmer: language whose endings BM25 leaves out, such as `german`; None: as the folder says, or none.
        device: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu.
        keep: hold texts and vectors in memory for later searches, if they fit in half of it.

    Raises:
        UsageError: an argument cannot be used.
        PipelineError: a folder is no collection.
        ManifestError: a dataset is missing or damaged.
    """
    return Collection.open(folder, model, also=also, stemmer=stemmer, device=device, keep=keep)


def _listed(inputs: Inputs) -> list[str | Path]:
    return [inputs] if isinstance(inputs, str | Path) else list(inputs)


@naming_keywords()
def _run(command: str, options: dict[str, Option], quiet: bool, more: Sequence[str] = ()) -> None:
    try:
        run_module("clearspan.pipelines", [command, *words(options), *more], quiet)
    except CommandError as error:
        raise PipelineError(str(error)) from None
