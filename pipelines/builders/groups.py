"""Groups of rows that are held out together: `--group-field NAME`, e.g. the software package that a text describes.

    rows, each with its group ──> hash of the group, and hashes of the texts ──> `units.linking`

All rows of a group are held out, or none. Versions of one document, and documents of one family, resemble each other
without sharing a text. If training saw one version, the held-out versions would be found more easily than new documents
are. Values are compared as texts, without whitespace at their ends; a number is compared as JSON writes it. A row
without the field, or with null, NaN or an empty text in it, is a group by itself.
"""

import contextlib
import hashlib
import math
from collections.abc import Sequence

import numpy as np

from clearspan.common.field_names import matching_name
from clearspan.pipelines.builders.kept_fields import number_text, types_of
from clearspan.pipelines.builders.text_inputs import utf8
from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.records import Inputs, ReadOptions, Record

OPTION = "group_field"
FIRST_RECORDS = 1000
"""Number of first records that are searched for the field. At least one of them must have it."""


def check_field(field: str, inputs: Inputs, reading: ReadOptions) -> None:
    """Raise PipelineError if the first records show that a field cannot name groups.

    If one of these records has a number, a boolean or a text that is not empty in the field, there is no error.
    Otherwise, it is an error if no record has the field, or if a record has a list or an object in it.

    Args:
        field: the name of the field.
        inputs: the input files.
        reading: the rules by which the readers find records in the inputs.
    """
    records = first_records(inputs.root, inputs.files, reading, FIRST_RECORDS, any_format=True)
    for record in records:
        with contextlib.suppress(RecordError):
            if group_of(record, field):
                return
    types_of([field], records, OPTION)  # raises, unless all values are null or empty


def group_of(record: Record, field: str | None) -> str:
    """Return the name of a record's group: the value of one of its fields, as a text; "" if the record is in no group.

    A record is in no group if it lacks the field, or if the value is null, NaN or a blank text.

    Args:
        field: the name of the field; None if the dataset has no groups. The result is then "".

    Raises:
        RecordError: the value is a list, an object, or a text that cannot be stored as UTF-8.
    """
    key = matching_name(record.value, field) if field is not None and isinstance(record.value, dict) else None
    value = None if key is None else record.value[key]
    if value is None or (isinstance(value, float) and math.isnan(value)):  # tables write NaN for a missing number
        return ""
    text = value.strip() if isinstance(value, str) else number_text(value)
    if text is None:
        raise RecordError(f'its "{field}" is {json_name(value)}: `{OPTION}` takes a text, a number, true or false')
    utf8(text)
    return text


def digests(groups: Sequence[str], row_hashes: np.ndarray) -> np.ndarray:
    """Return the hash of the group of each of n rows, (n, 1) uint64.

    Args:
        groups: the name of each row's group; "" for a row without a group.
        row_hashes: the hash of each row, (n,) uint64. A row without a group is a group by itself, with this hash.
    """
    hashes = row_hashes.copy()
    for row, group in enumerate(groups):
        if group:
            digest = hashlib.blake2b(group.encode(), digest_size=8, person=b"group").digest()
            hashes[row] = int.from_bytes(digest, "little")
    return hashes[:, None]
