"""Decode the texts of a dataset of token ids, in batches, with the dataset's own tokenizer.

    shards ──> all examples, or a sample of them ──> token ids of each column ──> texts without prompts

A sample consists of the examples whose ids have the lowest hashes. It therefore depends only on the ids, not on the
shards or on the order of the examples. Memory holds one batch of examples, and the hashes of a sample.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clearspan.common.fast_tokenizer import TokenizerError, load_tokenizer
from clearspan.common.records import DataError
from clearspan.common.token_ids import without_prompt
from clearspan.shards import Dataset, ShardError, keyed
from clearspan.shards.manifest import ManifestError
from clearspan.shards.schema import columns_named

SEED = 0
"""The seed of the hashes that choose a sample, and of the positions of crops."""
DECODED = 1024
"""The number of texts that are decoded in one call, in several threads of the `tokenizers` library."""
Row = tuple[int, tuple[str, ...]]
"""The id of an example, and its texts: either one text, or a query, such as a title, followed by its relevant texts."""


class DatasetTexts:
    """The texts of a dataset. Iterating yields a pair for each example: its id, and the tuple of its texts.

    The texts are decoded from the token ids in the shards. Prompts that are stored before them are removed.

    Args:
        folder: the folder of a dataset of documents, sentences or triplets. Of a triplet, the anchor and the positives
            are read, and the negatives are not.
        limit: the maximum number of examples to read. If the dataset is larger, the examples whose ids have the lowest
            hashes are read.
        few_shards: if True, the first `limit` examples are read instead, and so fewer shards. This is faster, but the
            result depends on the order of the shards.

    Raises:
        DataError: the folder is not a dataset of texts. Iterating raises it if a shard is damaged.
    """

    def __init__(self, folder: str | Path, limit: int, few_shards: bool = False) -> None:
        self.folder = str(folder)
        self._limit = limit
        self._few_shards = few_shards
        try:
            self._dataset = Dataset(folder)
            kind = self._dataset.kind
            if not kind.has_tokens:
                raise DataError(f"{folder}: holds {kind.name}, not text: give documents, sentences or triplets")
            self._prompts = self._dataset.manifest.prompts
            tokenizer = (self._dataset.local_tokenizer() / "tokenizer.json").read_bytes()
            self.tokenizer = load_tokenizer(tokenizer, prompts=self._prompts.values())
        except (ManifestError, ShardError, TokenizerError) as error:
            raise DataError(str(error)) from None

    def __len__(self) -> int:
        """Return the number of examples in the dataset, including examples that `limit` leaves out."""
        return self._dataset.num_examples

    @property
    def is_of_pairs(self) -> bool:
        """True for a dataset of triplets.

        Of an example, the anchor and the positives are read, which form pairs. The negatives are not read.
        """
        return self._dataset.kind.name == "triplets"

    def round_trip(self, text: str) -> str:
        """Return a text as it would be read if it were stored in the dataset.

        The text is tokenized and decoded, which may change it slightly. If the dataset cuts long texts, it is cut at
        the dataset's maximum number of tokens.
        """
        options = self._dataset.manifest.fingerprint.get("options", {})
        prompt = self._prompts.get("positive" if self.is_of_pairs else "tokens", "")
        ids = self.tokenizer.encode(prompt + text, add_special_tokens=False).ids
        most = options.get("max_tokens") if options.get("long") == "cut" else None
        return without_prompt(self.tokenizer, [ids[:most]], prompt)[0]

    def __iter__(self) -> Iterator[Row]:
        try:
            if self._limit <= 0:
                return
            if self._few_shards:
                yield from itertools.islice(self._in_order(self._dataset), self._limit)
                return
            highest = _highest_hash(self._dataset, self._limit) if len(self) > self._limit else None
            for batch in self._dataset:
                if highest is not None:
                    batch = batch.filter(pa.array(_hashes(batch) <= highest))
                yield from self._in_order([batch])
        except (ManifestError, ShardError) as error:
            raise DataError(str(error)) from None

    def _in_order(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        for batch in batches:
            for start in range(0, len(batch), DECODED):
                yield from self._decoded(batch.slice(start, DECODED))

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[Row]:
        names = ["tokens", *columns_named("positive", batch.schema.names)]
        columns = [self._texts(batch.column(name), name) for name in names]
        numbers = batch.column("id").to_pylist()
        for number, first, *others in zip(numbers, *columns, strict=True):
            yield number, (first, *(text for text in others if text is not None))

    def _texts(self, column: pa.Array, name: str) -> list[str | None]:
        prompt = self._prompts.get(name) or self._prompts.get(name.partition("_")[0], "")
        ids = column.to_pylist()
        texts = iter(without_prompt(self.tokenizer, [each for each in ids if each is not None], prompt))
        return [None if each is None else next(texts) for each in ids]


def sorted_by_hash(rows: Iterable[Row]) -> list[Row]:
    """Return rows, which are pairs (id, texts), sorted by the hashes of their ids in ascending order.

    If several rows have the same id, only the last of them is returned.
    """
    by_id = dict(rows)
    numbers = np.fromiter(by_id, np.int64, len(by_id))
    order = np.argsort(keyed.mix(SEED, numbers), kind="stable") if len(numbers) else numbers
    return [(number, by_id[number]) for number in numbers[order].tolist()]


def _hashes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    hashes: NDArray[np.int64] = keyed.mix(SEED, batch.column("id").to_numpy())
    return hashes


def _highest_hash(dataset: Dataset, limit: int) -> int:
    """Return the `limit`-th lowest hash of a dataset's distinct ids, or the highest; one batch at a time is read."""
    kept = np.empty(0, np.int64)
    for batch in dataset:
        kept = np.unique(np.concatenate([kept, _hashes(batch)]))[:limit]
    return int(kept[-1])
