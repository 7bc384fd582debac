"""Steps that the builders of labeled files share (`images`, `audio`): class labels, and the examples of a file.

    record (a file's bytes and class) -> build: values (decoded, scaled, encoded) -> batches, counted

The id of an example is a hash of its file's bytes. Copies of a file are therefore duplicates, and are all held out or
all trained on, whatever their names. The class names, a JSON list in the order of the label numbers, are stored beside
the shards.
"""

import dataclasses
import hashlib
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from clearspan.common.allocator import keep_blocks
from clearspan.pipelines.counter import Counts, RecordCounter, RecordError
from clearspan.pipelines.records import Inputs, Record
from clearspan.shards.classes import PATH as CLASSES

BATCH_BYTES = 1 << 22
BATCH_EXAMPLES = 4096


def class_files(inputs: Inputs) -> dict[str, bytes]:
    """Return the file with the class names, a JSON list in the order of the label numbers, as {path: content}."""
    assert inputs.classes is not None
    return {CLASSES: (json.dumps(inputs.classes.names, ensure_ascii=False) + "\n").encode()}


def labels(resources: Mapping[str, bytes]) -> dict[str, int]:
    """Return the label (a number) of each class, by the name of the class; prepare the process for decoding files."""
    keep_blocks()
    return {name: number for number, name in enumerate(json.loads(resources[CLASSES]))}


def taken_lines(fingerprint: Mapping[str, Any]) -> list[str]:
    """Return a line for the summary of a run, with the number of files and classes that are used; [] if all files are.

    Args:
        fingerprint: the fingerprint of the dataset.
    """
    taken = fingerprint["options"]["taken"]
    if taken["files"] == taken["of_files"]:
        return []
    files = f"{taken['files']:,} of {taken['of_files']:,} files"
    return [f"taken: {files}, {taken['classes']:,} of {taken['of_classes']:,} classes"]


@dataclasses.dataclass(frozen=True)
class LabeledWorker(ABC):
    """Worker of a builder of labeled files: it reads each file, and adds the label of its class.

    Attributes:
        schema: the Arrow schema of the batches.
        numbers: the label (a number) of each class, by the name of the class.
    """

    schema: pa.Schema
    numbers: Mapping[str, int]

    @abstractmethod
    def build(self, data: bytes, counts: Counts) -> Iterator[Any]:
        """Yield the value of each example that is made from a file: an image, or the spectrogram of a clip or of a part
        of it.

        Args:
            data: the content of the file.
            counts: the counts of the work unit, to which a builder may add counts of its own, such as of clips that
                were split.

        Raises:
            RecordError: no example can be made from the file; raised before the first value.
        """

    @abstractmethod
    def column(self, values: list[Any]) -> pa.Array:
        """Return the values of some examples as an Arrow column."""

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches.

        A record is a file. In `counter`, each example counts as one record that was read and kept, and each file from
        which no example can be made as one that was read and is bad.
        """
        ids: list[int] = []
        values: list[Any] = []
        labels: list[int] = []
        size = 0
        for record in records:
            try:
                if record.problem:
                    raise RecordError(record.problem)
                decoded = self.build(record.value, counter.counts)
                # Hours of sound give many examples: count each, and add it to the batch, as soon as it is made.
                for value, number in zip(decoded, file_ids(record.value), strict=False):
                    counter.counts.read += 1
                    counter.counts.kept += 1
                    ids.append(number)
                    values.append(value)
                    labels.append(self.numbers[record.label])
                    size += memoryview(value).nbytes
                    if size >= BATCH_BYTES or len(ids) >= BATCH_EXAMPLES:
                        yield self._batch(ids, values, labels)
                        ids = []
                        values = []
                        labels = []
                        size = 0
            except RecordError as problem:
                counter.counts.read += 1
                counter.reject(record, problem)
        if ids:
            yield self._batch(ids, values, labels)

    def _batch(self, ids: list[int], values: list[Any], labels: list[int]) -> pa.RecordBatch:
        columns = [pa.array(ids, pa.int64()), self.column(values), pa.array(labels, pa.int64())]
        return pa.record_batch(columns, schema=self.schema)


def file_ids(data: bytes) -> Iterator[int]:
    """Yield ids for the examples that are made from one file, without end. All of these ids have the same upper 31
    bits, so that the examples are all held out or all trained on.

    Args:
        data: the content of the file, which determines the ids.
    """
    whole = hashlib.blake2b(data).digest()  # hash the file once, however many examples it gives
    upper = int.from_bytes(whole[:4], "big") >> 1 << 32
    yield upper | int.from_bytes(whole[4:8], "big")
    for number in itertools.count(1):
        piece = hashlib.blake2b(whole + number.to_bytes(8, "little")).digest()
        yield upper | int.from_bytes(piece[:4], "big")
