"""Check the first records before the work starts, so that a wrong field, format or encoding ends the run in seconds.

    some of the inputs, evenly spread -> their first records -> check by the kind of dataset -> an error if most fail

Only the inputs of a long run are checked: a short run soon finds the same problems, and counts them exactly. The first
records may not be typical of all records. The run therefore ends here only if more than half of them are bad, if all of
them lack columns that the dataset needs, or if too many are not UTF-8. `--max-bad-fraction` is applied to all records
at the end of the run.
"""

from collections.abc import Callable, Sequence
from typing import Any

from clearspan.common.errors import PipelineError
from clearspan.common.progress import counted
from clearspan.pipelines.counter import NUM_EXAMPLES, Counts, MissingFieldError, RecordError, encoding_advice
from clearspan.pipelines.readers import first_records, open_content
from clearspan.pipelines.readers.formats import PLAIN_TEXT
from clearspan.pipelines.readers.sniff import FIRST_BYTES, is_utf8
from clearspan.pipelines.records import Input, ReadOptions, Record
from clearspan.shards import storage

LONG_S = 5.0
"""Estimated duration of the work, in seconds, from which the first records are checked."""
RECORDS = 1000
MAX_WRONG = 0.05
"""Largest fraction of the first records that may be in a wrong encoding. It is small, because a wrong encoding affects
the whole file, unlike an odd header."""


def check_first(
    root: str, entries: Sequence[Input], reading: ReadOptions, check: Callable[[Record], Any], most_bad: float
) -> None:
    """Check the first records of some inputs, which are taken evenly from all inputs.

    If all inputs are plain text, and the user has set neither an encoding nor a separator of records, it is also
    checked whether the inputs begin with bytes that are not UTF-8. Nothing is checked if `most_bad` is 0.5 or more.

    Args:
        root: the common folder of the inputs.
        entries: all inputs.
        reading: the rules for reading records from the inputs.
        check: a function that raises RecordError if a record is bad; its result is ignored.
        most_bad: the fraction of bad records that the user allows (`--max-bad-fraction`). Here it limits two fractions:
            of the inputs, those that begin with bytes that are not UTF-8; and of the records that are read, those that
            are not UTF-8. For the second one, the limit is 5 % (MAX_WRONG) if `most_bad` is smaller.

    Raises:
        PipelineError: more than half of the records are bad, all of them lack columns that the dataset needs, too many
            inputs or records are not UTF-8, or an input is damaged.
    """
    if most_bad < 0.5:
        _check_encodings(root, entries, reading, most_bad)
        _check_records(first_records(root, entries, reading, RECORDS, any_format=True), check, most_bad)


def _check_records(records: Sequence[Record], check: Callable[[Record], Any], most_bad: float) -> None:
    num_read, problems = 0, list[tuple[Record, RecordError]]()
    for record in records:
        if not record.skipped:
            num_read += 1
            try:
                check(record)
            except RecordError as problem:
                problems.append((record, problem))
    lacking = sum(isinstance(problem, MissingFieldError) for _, problem in problems)
    wrong = sum(record.is_not_utf8 for record, _ in problems)
    are_bad = 2 * (len(problems) - lacking) > num_read or wrong > max(most_bad, MAX_WRONG) * num_read
    if problems and (are_bad or lacking == num_read):
        examples = [[record.source, str(problem)] for record, problem in problems[:NUM_EXAMPLES]]
        counts = Counts(num_read, bad=len(problems), not_utf8=wrong, bad_examples=examples)
        raise PipelineError(f"of the first records of the inputs, {counts.complaint()}")


def _check_encodings(root: str, entries: Sequence[Input], reading: ReadOptions, most_bad: float) -> None:
    """Raise PipelineError if too many of the inputs begin with bytes that are not UTF-8.

    Nothing is checked if at least one input has a format other than plain text, or if the user has set an encoding or a
    separator of records.

    Args:
        root: the common folder of the inputs.
        entries: all inputs.
        most_bad: the fraction of the inputs that may begin with such bytes.
    """
    if reading.encoding or reading.separator or any(entry.format != PLAIN_TEXT for entry in entries):
        return
    by_name = {entry.name: entry for entry in entries}

    def begins_wrong(name: str) -> bool:
        with open_content(root, by_name[name]) as stream:
            head = stream.read(FIRST_BYTES)
        return not is_utf8(head, is_whole=len(head) < FIRST_BYTES)

    wrong = [
        name for name, is_wrong in zip(by_name, storage.each(root, begins_wrong, by_name), strict=True) if is_wrong
    ]
    if len(wrong) > most_bad * len(entries):
        raise PipelineError(
            f"not UTF-8: {len(wrong):,} of {counted(len(entries), 'file')}, e.g. {', '.join(wrong[:NUM_EXAMPLES])} "
            f"(allowed: `max_bad_fraction` {most_bad:g}): {encoding_advice()}"
        )
