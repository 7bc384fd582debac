"""Check early for problems that would stop `clearspan adapt` late: too few texts for a verdict, bad fields or records.

    inputs       is the expected number of held-out texts, number of records x held-out fraction, large enough?
                 can the last step, `embed`, store all records with their fields?
    DIR/texts    has each half of the held-out part enough texts that are different and long enough? One half chooses
                 checkpoints and weights, the other decides the verdict.

The hash of a text decides whether it is held out. So the exact number of held-out texts is known only when the dataset
DIR/texts is written.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from clearspan.adapt.options import Adapt
from clearspan.common import terminal
from clearspan.common.errors import PipelineError
from clearspan.common.field_names import matching_name
from clearspan.common.progress import counted
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.eval.data.heldout_data import MIN_TEXTS, read_dataset
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts
from clearspan.pipelines.builders.kept_fields import check_names, split
from clearspan.pipelines.builders.text_inputs import encoding_named
from clearspan.pipelines.builders.vectors import Vectors
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.columns import DEFAULT
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.run import RunOptions
from clearspan.pipelines.units.full_check import FullCheck, check_all
from clearspan.pipelines.units.plan import find_inputs
from clearspan.shards import held_out

NEEDED = 2 * MIN_TEXTS
"""Fewest held-out texts: one half chooses weights and checkpoints, the verdict is made on the other half."""
SURE = 2 * NEEDED
"""Number of texts to hold out so that both halves are very likely to have enough of them."""
MAX_HELD_OUT = 0.5
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
    advice = f", or hold out more with `holdout_fraction` {larger:g}" if larger <= MAX_HELD_OUT else ""
    raise UsageError(
        f"`input`: {counted(number, 'text')}: a verdict needs {NEEDED} held-out texts, but {fraction:.3g} "
        f"of the texts are about {fraction * number:.0f}: give {math.ceil(round(SURE / fraction, 6)):,} texts or "
        f"more{advice}"
    )


def count_texts(options: Adapt, max_records: int) -> int:
    """Return the number of records in the inputs that have a text and can be read, but at most `max_records`.

    Raises:
        PipelineError, ValueError: an input cannot be read.
    """
    reading = dataclasses.replace(reading_of(options), columns=(options.titles,) if options.titles else ())
    inputs = find_inputs(options.inputs, reading)
    records = (
        record
        for entry in inputs.files
        for record in first_records(inputs.root, [entry], reading, max_records, any_format=True)
    )
    return sum(1 for _ in itertools.islice(filter(_is_text, records), max_records))


def sample_texts(options: Adapt, number: int) -> list[str]:
    """Return the texts of the first records of the inputs, at most `number`; none if the inputs cannot be read."""
    reading = dataclasses.replace(reading_of(options), columns=(options.titles,) if options.titles else ())
    try:
        inputs = find_inputs(options.inputs, reading)
        records = first_records(inputs.root, inputs.files, reading, number, any_format=True)
    except (PipelineError, ValueError):
        return []
    values = [record.value for record in records if _is_text(record)]
    texts = [
        value.get(matching_name(value, reading.field or DEFAULT) or "") if isinstance(value, dict) else value
        for value in values
    ]
    return [text for text in texts if isinstance(text, str)]


def checked_fields(options: Adapt) -> tuple[str, ...]:
    """Check all records by the rules of the last step, `embed`; return the fields that search results will show.

    They are those that the user names (`--keep-fields`). Otherwise, they are `options.shown_fields`, changed so that no
    record is lost over a field that the user never named: a field whose values have several types is stored as text,
    and a field that holds lists or objects is left out.

    Raises:
        UsageError: --keep-fields names a field twice, or a field whose type cannot be inferred; or the inputs hold no
            records.
        CommandError: an input cannot be read, or too many records are bad.
    """
    fields = options.shown_fields
    try:
        check_names(fields)
        inputs = find_inputs(options.inputs, reading_of(options, skip_unknown=False))
        while True:
            look = look_at(options, inputs, fields)
            changed = fields if options.keep_fields else _storable(fields, look.wrong, options)
            if changed == fields:
                break
            fields = changed
        if look.counts.read == 0:
            raise UsageError("`input`: the inputs hold no records")
        check_bad(look.counts)
    except PipelineError as error:
        raise CommandError(terminal.one_line(error)) from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    return fields


def look_at(
    options: Adapt, inputs: Inputs, fields: tuple[str, ...], types: Mapping[str, str] = MappingProxyType({})
) -> FullCheck:
    """Read all records by the rules of the last step, `embed`.

    Args:
        options: the options of the call.
        inputs: the input files.
        fields: the fields to store, as in --keep-fields.
        types: name of a field -> its type in the finished dataset that is updated; empty for a new dataset.

    Raises:
        UsageError: a field to store is missing, or its type cannot be inferred.
        PipelineError: an input cannot be read, or too many records are bad.
    """
    title = options.titles[0] if options.titles else None
    reading = dataclasses.replace(reading_of(options, skip_unknown=False), max_bytes=Vectors.max_bytes)
    texts = EmbeddedTexts(reading.field, title, fields, tuple(types.items()), update=bool(types))
    reading = texts.reading(reading)
    try:
        texts = texts.infer_options(inputs, reading)
    except PipelineError as error:
        raise UsageError(str(error)) from None
    # A field that the user did not name may change yet: then no number of bad records ends the look before its end.
    max_bad_fraction = RunOptions.max_bad_fraction if options.keep_fields or types else 1.0
    return check_all(inputs, reading, texts, max_bad_fraction, options.quiet)


def check_bad(counts: Counts) -> None:
    """Raise PipelineError if more records are bad than the commands of the steps allow."""
    if counts.bad > RunOptions.max_bad_fraction * counts.read:
        raise PipelineError(
            f"`input`: {counts.complaint()}: correct or remove these records: at most "
            f"{RunOptions.max_bad_fraction:.1%} may be bad"
        )


def _storable(fields: tuple[str, ...], wrong: Mapping[str, str], options: Adapt) -> tuple[str, ...]:
    """Return fields that the user did not name, changed so that the values of all records can be stored.

    A field that some record cannot store is stored as text; if it is stored as text already, it is left out.

    Args:
        fields: the fields, as in --keep-fields.
        wrong: name of a field -> the problem of the first record whose value cannot be stored.
    """
    title = options.titles[0] if options.titles else None
    changed = []
    for word in fields:
        name, kind = split(word)
        if name not in wrong or name == title:
            changed.append(word)
        elif kind is None:
            changed.append(f"{name}:string")
        else:
            terminal.notice(f'search results will not show the field "{name}": {wrong[name].partition(", not ")[0]}')
    return tuple(changed)


def reading_of(options: Adapt, skip_unknown: bool = True) -> ReadOptions:
    """Return the rules by which the readers find the texts in the inputs, without titles and other fields."""
    return ReadOptions(
        encoding=options.encoding and encoding_named(options.encoding),
        skip_unknown=skip_unknown,
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
        for dev in (True, False):
            read_dataset(held_out.folder_of(str(texts)), dev=dev)
