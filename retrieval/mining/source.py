"""The texts of a dataset of pairs or triplets, each stored once, and its rows, which refer to the texts by index.

    batches of the shards -> token ids -> texts without prompts -> distinct texts (`common.same_text`) -> MiningSource

Texts that differ only in white space, letter case or Unicode form count as one. Memory holds the distinct texts and
their token ids. The held-out part is a separate dataset, which is never read here.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clearspan.common import same_text
from clearspan.common.errors import PipelineError
from clearspan.common.fast_tokenizer import load_tokenizer
from clearspan.common.progress import ProgressBar
from clearspan.common.ragged import Ragged
from clearspan.common.token_ids import without_prompt
from clearspan.shards.reader import Dataset
from clearspan.shards.schema import columns_named

Ids = np.ndarray
"""Indices of texts or titles, (n,) int64."""


class Distinct:
    """Collection of distinct texts, indexed in the order in which they are added.

    Texts that differ only in white space, letter case or Unicode form count as one text; the first of them is stored.

    Attributes:
        texts: the texts.
        tokens: the token ids of each text.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[np.ndarray] = []
        self._indices: dict[bytes, int] = {}

    def add(self, texts: Sequence[str], tokens: Ragged) -> Ids:
        """Add texts to the collection, unless it has them already; return the index of each text in the collection.

        Args:
            texts: the texts.
            tokens: the token ids of each text.
        """
        indices = np.empty(len(texts), np.int64)
        for row, text in enumerate(texts):
            number = self._indices.setdefault(same_text.digest(text), len(self.texts))
            if number == len(self.texts):
                self.texts.append(text)
                self.tokens.append(tokens[row].copy())  # a view would keep the whole batch in memory
            indices[row] = number
        return indices

    def find(self, text: str) -> int:
        """Return the index of a text; -1 if it is not in the collection.

        Differences in white space, letter case and Unicode form are ignored.
        """
        return self._indices.get(same_text.digest(text), -1)


@dataclasses.dataclass(frozen=True)
class MiningSource:
    """The rows of a dataset of pairs or triplets, in the order of the dataset. Each distinct text is stored once.

    Attributes:
        titles: the distinct first texts of the rows, which are the queries of the search for negatives.
        title_of: for each row, the index of its first text in `titles`, (rows,) int64.
        texts: the distinct texts that are a positive or a negative of a row.
        tokens: the token ids of each text in `texts`.
        positives, negatives: for each row, the indices of its positives, and of its negatives, in `texts`.
        of_title: for each title, the indices in `texts` of the texts that must not be mined as negatives of rows with
            this title: the positives of all these rows, and the text that equals the title, if there is one.
    """

    titles: list[str]
    title_of: Ids
    texts: list[str]
    tokens: Ragged
    positives: Ragged
    negatives: Ragged
    of_title: Ragged

    @functools.cached_property
    def num_shared(self) -> int:
        """The number of rows whose first text is also the first text of another row."""
        counts = np.bincount(self.title_of)
        return int(counts[counts > 1].sum())

    def not_negatives(self, row: int) -> Ids:
        """Return the indices of the texts that must not be mined as negatives of a row.

        They are the positives of all rows with the same first text, the text that equals this first text, if there is
        one, and the negatives that the row already has.

        Args:
            row: the index of the row.
        """
        return np.concatenate([self.of_title[self.title_of[row]], self.negatives[row]])


def read_source(dataset: Dataset, quiet: bool = False) -> MiningSource:
    """Read the rows and texts of a dataset of the kind `triplets`. Its held-out part is not read.

    Args:
        dataset: the dataset.
        quiet: if true, no progress is shown.

    Raises:
        PipelineError: the positives and the negatives have different prompts.
        ShardError: a shard or the tokenizer is damaged.
    """
    prompts = dataset.manifest.prompts
    tokenizer = load_tokenizer((dataset.local_tokenizer() / "tokenizer.json").read_bytes(), prompts=prompts.values())
    before = [prompts.get(name, "") for name in ("tokens", "positive", "negative")]
    titles, texts = Distinct(), Distinct()
    rows: list[Ids] = []
    by_sort: dict[str, list[list[int]]] = {"positive": [], "negative": []}

    with ProgressBar(dataset.num_examples, f"reading {dataset.num_examples:,} rows", quiet, unit="row") as bar:
        for batch in dataset:
            tokens = Ragged.from_arrow(batch.column("tokens"))
            rows.append(titles.add(_decoded(tokenizer, tokens, before[0]), tokens))
            for sort, prompt in (("positive", before[1]), ("negative", before[2])):
                columns = columns_named(sort, batch.schema.names)
                if columns and prompt != before[1]:
                    raise PipelineError(
                        f"{dataset.folder}: its positives have the prompt {before[1]!r} and its negatives the prompt "
                        f"{prompt!r}, "
                        "although a mined negative is a positive of another row: make the dataset with one "
                        f"`prompt` for "
                        "both"
                    )
                by_sort[sort] += _added(batch, columns, functools.partial(_decoded, tokenizer, prompt=prompt), texts)
            bar.update(batch.num_rows)
    positives, negatives = (_ragged(by_sort[sort]) for sort in ("positive", "negative"))
    title_of = np.concatenate([np.empty(0, np.int64), *rows])
    of_title: list[set[int]] = [{texts.find(title)} - {-1} for title in titles.texts]
    for title, indices in zip(title_of.tolist(), positives, strict=True):
        of_title[title].update(indices.tolist())
    dtype = texts.tokens[0].dtype if texts.tokens else np.dtype(np.uint16)
    return MiningSource(
        titles.texts,
        title_of,
        texts.texts,
        Ragged.of(texts.tokens, dtype),
        positives,
        negatives,
        _ragged([sorted(indices) for indices in of_title]),
    )


def _decoded(tokenizer: Any, tokens: Ragged, prompt: str) -> list[str]:
    return without_prompt(tokenizer, [ids.tolist() for ids in tokens], prompt)


def _added(
    batch: pa.RecordBatch, columns: Sequence[str], decode: Callable[[Ragged], list[str]], texts: Distinct
) -> list[list[int]]:
    """Add the texts in some columns of a batch to a collection of distinct texts.

    Args:
        batch: rows of the dataset.
        columns: the columns, which hold the token ids of positives, or of negatives.
        decode: function that turns the token ids of texts into the texts, without their prompt.
        texts: the collection.

    Returns:
        For each row of the batch, the indices of its texts in the collection.
    """
    indices: list[list[int]] = [[] for _ in range(batch.num_rows)]
    for name in columns:
        tokens = Ragged.from_arrow(batch.column(name))
        present = np.flatnonzero(tokens.lengths)
        tokens = tokens.take(present)
        for row, number in zip(present.tolist(), texts.add(decode(tokens), tokens).tolist(), strict=True):
            indices[row].append(number)
    return indices


def _ragged(lists: Sequence[Sequence[int]]) -> Ragged:
    return Ragged.of([np.array(indices, np.int64) for indices in lists], np.int64)
