"""Check all records by the rules of `embed` before a model exists, as `adapt` does before its first step.

    all inputs -> records -> texts to embed (`builders.embedded_texts`) -> their ids, and the counts of the bad records

The check reads the inputs once, in one process, and embeds nothing.
"""

import array
import dataclasses
from collections.abc import Mapping

import numpy as np

from clearspan.common.progress import ProgressBar
from clearspan.common.same_text import text_id
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts, Text
from clearspan.pipelines.builders.kept_fields import FieldError
from clearspan.pipelines.builders.text_inputs import EMPTY
from clearspan.pipelines.counter import Counts, RecordCounter
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.records import Inputs, ReadOptions, Record, Split


@dataclasses.dataclass(frozen=True)
class FullCheck:
    """Result of reading all records as `embed` reads them.

    Attributes:
        ids: the ids of the n texts, (n,) int64.
        counts: the counts of the records.
        wrong: name of a field to store -> the problem of the first record whose value cannot be stored.
    """

    ids: np.ndarray
    counts: Counts
    wrong: Mapping[str, str]


def check_all(
    inputs: Inputs, reading: ReadOptions, texts: EmbeddedTexts, max_bad_fraction: float, quiet: bool
) -> FullCheck:
    """Read all records, and make the texts to embed of them.

    Args:
        inputs: the input files.
        reading: the rules by which the readers find records in the inputs.
        texts: the fields to read, with their types.
        max_bad_fraction: the fraction of the records that may be bad, as in `--max-bad-fraction`.
        quiet: show no progress bar.

    Raises:
        PipelineError: an input is damaged, or at least 1,000 records and more than half of those read so far are bad.
    """
    counter, ids, wrong = RecordCounter((EMPTY,), max_bad_fraction), array.array("q"), dict[str, str]()

    def made(record: Record) -> Text | None:
        try:
            return texts.build(record, counter.counts)
        except FieldError as problem:
            wrong.setdefault(problem.field, f"{record.source}: {problem}")
            raise

    records = read_splits(inputs.root, [Split(entry, 0, None) for entry in inputs.files], reading)
    with ProgressBar(None, "checking the texts", quiet, unit=" texts") as bar:
        for text in counter.made(counter.readable(records), made):
            ids.append(text_id(text.model_input.encode()))
            counter.rejected.clear()  # the run lists them; a check only counts them
            bar.update()
    return FullCheck(np.array(ids, np.int64), counter.counts, wrong)
