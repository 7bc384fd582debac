"""Find out whether inputs have titles, before a kind of dataset is chosen for them."""

from collections import Counter
from collections.abc import Sequence

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.pairs import USUAL
from clearspan.pipelines.kinds.text_inputs import encoding_named
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.columns import chosen, plain
from clearspan.pipelines.records import Reading
from clearspan.pipelines.units.plan import find_inputs

SAMPLE = 1000
"""Number of records that are looked at."""


def usual_fields(inputs: Sequence[str], encoding: str | None = None) -> tuple[str, str] | None:
    """Return the title and the text, by usual names (`kinds.pairs`), that more than half of the first records have.
    Return None if there are none, or if the inputs cannot be read.
    """
    try:
        reading = Reading(columns=USUAL, sparse=True, encoding=encoding and encoding_named(encoding), skip_unknown=True)
        found = find_inputs(inputs, reading)
        records = first_records(found.root, found.files, reading, SAMPLE)
    except (PipelineError, ValueError):  # the command that reads the inputs says what is wrong with them
        return None
    pairs: dict[tuple[str, ...], Counter[tuple[str, ...]]] = {}  # in small letters -> as records write them
    for record in records:
        value = record.value if isinstance(record.value, dict) else {}
        filled = [name for name, text in value.items() if isinstance(text, str) and text.strip()]
        if names := tuple(chosen(filled, reading) or ()):
            pairs.setdefault(tuple(map(plain, names)), Counter())[names] += 1
    most = max(pairs.values(), key=Counter.total, default=Counter())
    if 2 * most.total() <= len(records):
        return None
    (title, text), _ = most.most_common(1)[0]
    return title, text
