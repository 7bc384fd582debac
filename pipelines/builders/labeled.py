"""Base of the kinds `images` and `audio`: class labels, and the conversion of a labeled file to examples.

    record (a file's bytes and class) -> values (decoded, scaled, encoded) -> batches, counted

The id of an example is a hash of its file's bytes. Copies of a file are therefore duplicates, and are all held out or
all trained on, whatever their names. The class names, a JSON list in the order of the label numbers, are stored beside
the shards.
"""

import dataclasses
import hashlib
import itertools
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from clearspan.common.allocator import keep_blocks
from clearspan.pipelines.builders import Builder, Dedup, Worker
from clearspan.pipelines.counter import Counts, RecordCounter, RecordError
from clearspan.pipelines.labels import SelectionOptions
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.shards.classes import PATH as CLASSES
from clearspan.shards.schema import schema

BATCH_BYTES = 1 << 22
BATCH_EXAMPLES = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabeledBuilder(SelectionOptions, Builder):
    """Options of a kind whose records are files with a class label, such as images. The options of the base class
    `SelectionOptions` select some of the classes (`classes`, `top_classes` or `class_list`) and some files of each
    class (`per_class`).

    Attributes:
        extensions: the extensions of the files, in lower case.
    """

    dedup: Dedup = False

    extensions: ClassVar[tuple[str, ...]]

    def options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(SelectionOptions)}

    def reading(self) -> ReadOptions:
        return ReadOptions(as_bytes=True, extensions=self.extensions, wanted=self)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """Return the file with the class names, a JSON list in the order of the label numbers, as {path: content}."""
        assert inputs.classes is not None
        return {CLASSES: (json.dumps(inputs.classes.names, ensure_ascii=False) + "\n").encode()}

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return a line for the summary of the run, with the number of files and classes that are used; [] if all files
        are used.
        """
        taken = fingerprint["options"]["taken"]
        if taken["files"] == taken["of_files"]:
            return []
        files = f"{taken['files']:,} of {taken['of_files']:,} files"
        return [f"taken: {files}, {taken['classes']:,} of {taken['of_classes']:,} classes"]

    @abstractmethod
    def values(self, data: bytes, counts: Counts) -> Iterator[Any]:
        """Yield the value of each example that is made from a file: an image, or the spectrogram of a clip or of a part
        of it.

        Args:
            data: the content of the file.
            counts: the counts of the work unit, to which a kind may add counts of its own, such as of clips that were
                split.

        Raises:
            RecordError: no example can be made from the file; raised before the first value.
        """

    @abstractmethod
    def column(self, values: list[Any]) -> pa.Array:
        """Return the values of some examples as an Arrow column."""

    def worker(self, resources: Mapping[str, bytes]) -> Worker:
        keep_blocks()
        numbers = {name: number for number, name in enumerate(json.loads(resources[CLASSES]))}
        return LabeledWorker(self, schema(self.name), numbers)


@dataclasses.dataclass(frozen=True)
class LabeledWorker:
    """Object that makes the examples of an image or audio dataset: it reads each file, and adds the label of its class.

    Attributes:
        builder: the builder, with its options.
        schema: the Arrow schema of the batches.
        numbers: the label (a number) of each class, by the name of the class.
    """

    builder: LabeledBuilder
    schema: pa.Schema
    numbers: Mapping[str, int]

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
                decoded = self.builder.values(record.value, counter.counts)
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
        columns = [pa.array(ids, pa.int64()), self.builder.column(values), pa.array(labels, pa.int64())]
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
