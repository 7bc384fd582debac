"""Check early for problems that would stop `clearspan adapt` late: too few texts for a verdict, missing fields.

    inputs       is the expected number of held-out texts, number of records x held-out fraction, large enough?
    DIR/texts    has each half of the held-out part enough texts that are different and long enough? One half chooses
                 checkpoints and weights, the other decides the verdict.

The hash of a text decides whether it is held out. So the exact number of held-out texts is known only when the dataset
DIR/texts is written.
"""

import dataclasses
import itertools
import math
from pathlib import Path

from clearspan.adapt.options import Adapt
from clearspan.common.flags import flag
from clearspan.common.progress import counted
from clearspan.common.terminal import UsageError
from clearspan.eval.data.heldout_data import FEWEST_TEXTS, read_dataset
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.kept_fields import check_names, split, types_of
from clearspan.pipelines.kinds.text_inputs import encoding_named
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.units.plan import find_inputs
from clearspan.shards import held_out

NEEDED = 2 * FEWEST_TEXTS
"""Fewest held-out texts: one half chooses weights and checkpoints, the verdict is made on the other half."""
SURE = 2 * NEEDED
"""Number of texts to hold out so that both halves are very likely to have enough of them."""
LOOKED_AT = 1000
"""Number of records that are searched for the fields of --keep-fields."""
MOST_HELD_OUT = 0.5
"""Largest held-out fraction that a message suggests."""


def check_inputs(options: Adapt) -> None:
    """Raise UsageError if the inputs have too few texts for a verdict.

    If the inputs cannot be read or hold no text, do nothing, since the command that reads them later reports that.
    """
    fraction = options.holdout_fraction
    least = math.ceil(round(NEEDED / fraction, 6))
    try:
        number = count_texts(options, least)
    except (PipelineError, ValueError):
        return
    if not 0 < number < least:
        return
    larger = math.ceil(100 * SURE / number) / 100
    advice = f", or hold out more with {flag('--holdout-fraction')} {larger:g}" if larger <= MOST_HELD_OUT else ""
    raise UsageError(
        f"{flag('--input')}: {counted(number, 'text')}: a verdict needs {NEEDED} held-out texts, but {fraction:.3g} "
        f"of the texts are about {fraction * number:.0f}: give {math.ceil(round(SURE / fraction, 6)):,} texts or "
        f"more{advice}"
    )


def count_texts(options: Adapt, max_records: int) -> int:
    """Return the number of records in the inputs that have a text and can be read, but at most `max_records`.

    Raises:
        PipelineError, ValueError: an input cannot be read.
    """
    reading = dataclasses.replace(_reading(options), columns=(options.titles,) if options.titles else ())
    inputs = find_inputs(options.inputs, reading)
    records = (
        record
        for entry in inputs.files
        for record in first_records(inputs.root, [entry], reading, max_records, any_format=True)
    )
    return sum(1 for _ in itertools.islice(filter(_is_text, records), max_records))


def check_keep_fields(options: Adapt) -> None:
    """Raise UsageError if --keep-fields names a field twice, or names a field whose type cannot be inferred.

    The type of a field is inferred from the first records, unless the user states it. It cannot be inferred if all of
    these records lack the field, or if one of them holds a list or an object in it. Without this check, the problem
    would be reported only after training, by the command `embed`. If the inputs cannot be read, do nothing, since an
    earlier command reports that.
    """
    if not options.keep_fields or not options.shown_fields:
        return
    try:
        check_names(options.shown_fields)
        names = [split(word)[0] for word in options.shown_fields]
        reading = dataclasses.replace(_reading(options), keep=tuple(names))
        inputs = find_inputs(options.inputs, reading)
        records = first_records(inputs.root, inputs.files, reading, LOOKED_AT, any_format=True)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except PipelineError:
        return
    try:
        types_of(options.shown_fields, records)
    except PipelineError as error:
        raise UsageError(str(error)) from None


def _reading(options: Adapt) -> Reading:
    return Reading(
        encoding=options.encoding and encoding_named(options.encoding),
        skip_unknown=True,
        field=options.titles[1] if options.titles else options.text_field,
        text_per=options.text_per,
    )


def _is_text(record: Record) -> bool:
    return not record.problem


def check_held_out(texts: Path) -> None:
    """Raise DataError if a dataset has too few held-out texts for a verdict.

    Args:
        texts: the folder of the dataset; if there is no dataset in it yet, nothing is checked.
    """
    if held_out.is_dataset(str(texts)):
        for picking in (True, False):
            read_dataset(held_out.folder_of(str(texts)), picking=picking)
