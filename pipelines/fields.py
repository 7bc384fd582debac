"""Find out whether inputs have titles, before a kind of dataset is chosen for them."""

from collections.abc import Sequence

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.pairs import USUAL
from clearspan.pipelines.kinds.text_inputs import encoding_named
from clearspan.pipelines.readers import columns_of
from clearspan.pipelines.records import Reading
from clearspan.pipelines.units.plan import find_inputs


def usual_fields(inputs: Sequence[str], encoding: str | None = None) -> tuple[str, str] | None:
    """Return the title and the text of inputs that have columns or fields by usual names (`kinds.pairs`), of the first
    input that has columns; None if it has no such names, or if the inputs cannot be read.
    """
    try:
        reading = Reading(columns=USUAL, sparse=True, encoding=encoding and encoding_named(encoding), skip_unknown=True)
        found = find_inputs(inputs, reading)
        columns = columns_of(found.root, found.files, reading)
    except (PipelineError, ValueError):  # the command that reads the inputs says what is wrong with them
        return None
    return (columns[2][0], columns[2][1]) if columns and columns[2] else None
