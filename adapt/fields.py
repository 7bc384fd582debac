"""Find the fields of titles and texts in inputs by their usual names, and the fields of ids and links.

A file has titles if most of its first records have a title and a text under usual names. The kind of dataset follows:

    all files have titles     pairs of title and text
    no file has titles        texts alone
    some files have titles    an error that advises to use --fields or --text-field

Files that differ from the other files are ignored if they have together at most 1 % of all bytes.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from clearspan.common.errors import PipelineError
from clearspan.common.field_names import IDS, LINKS, matching_name
from clearspan.common.parsing import normalized_name
from clearspan.common.progress import counted
from clearspan.common.terminal import UsageError
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts
from clearspan.pipelines.builders.pairs import USUAL
from clearspan.pipelines.builders.text_inputs import encoding_named
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.columns import chosen
from clearspan.pipelines.readers.formats import format_named
from clearspan.pipelines.records import Input, Inputs, ReadOptions, Record
from clearspan.pipelines.units.plan import find_inputs

SAMPLE = 1000
"""Number of records that are read to find titles, spread over all files."""
MIXED = 0.01
"""Fraction of all bytes above which files with other titles than most are an error."""
KEPT = (IDS, LINKS)
"""Usual names of the fields that a search result should show with the title; one field is taken from each group."""
KEPT_FILES = 16
"""Number of files whose first records are searched for the fields in KEPT."""
NAMED = 3
"""Number of files that a message names."""
Names = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Titles:
    """The fields of titles and texts in the inputs.

    Attributes:
        names: the names of the fields of title and text; None if the inputs have no titles.
        note: a remark for the user on how many of the first records have titles; "" if all or none of them have.
    """

    names: Names | None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class _File:
    """The fields of title and text in an input file, according to the file's first records.

    Attributes:
        entry: the file.
        names: the names of the fields of title and text in most of the records; None if there are no such names.
        titled: the number of records with a title and a text; 0 if `names` is None.
        records: the number of records that were read.
    """

    entry: Input
    names: Names | None
    titled: int
    records: int


def find_titles(inputs: Sequence[str], encoding: str | None = None) -> Titles:
    """Find the fields of titles and texts in the first records of every file, by usual names such as title and text.

    If the inputs cannot be read, return no titles, since the command that reads them later reports the problem.

    Args:
        inputs: paths, folders or globs.
        encoding: the encoding of text files, or `auto`; None for UTF-8.

    Raises:
        UsageError: some files have titles, and others have none, or have them under different names. Such other files
            are ignored if they have together at most 1 % of all bytes.
    """
    try:
        reading = ReadOptions(encoding=encoding and encoding_named(encoding), skip_unknown=True)
        found = find_inputs(inputs, reading)
    except (PipelineError, ValueError):
        return Titles(None)
    files = list(_sampled(found, dataclasses.replace(reading, columns=USUAL)))
    sizes = Counter[tuple[str, ...]]()
    for file in files:
        sizes[tuple(map(normalized_name, file.names or ()))] += file.entry.bytes
    main = max(sizes, key=sizes.__getitem__, default=())
    others = [file for file in files if tuple(map(normalized_name, file.names or ())) != main]
    if sizes.total() - sizes[main] > MIXED * sizes.total():
        raise UsageError(_mixture(files, found.files))
    names = Counter(file.names for file in files if file not in others).most_common(1)
    if not names or names[0][0] is None:
        return Titles(None)
    titled, records = sum(file.titled for file in files if file not in others), sum(file.records for file in files)
    return Titles(names[0][0], f"in {titled:,} of the first {records:,} records" if titled < records else "")


def _sampled(found: Inputs, reading: ReadOptions) -> Iterator[_File]:
    """Yield the fields of title and text in each file, or in about 1,000 evenly spread files if there are more.

    Args:
        found: the files of the inputs.
        reading: the settings for reading the files; its `columns` are the usual names of the fields of title and text.
    """
    entries, step = found.files, max(1, -(-len(found.files) // SAMPLE))
    number = max(1, SAMPLE // max(1, len(entries[::step])))
    for entry in entries[::step]:
        try:
            records = (
                first_records(found.root, [entry], reading, number) if format_named(entry.format).has_fields else []
            )
        except PipelineError:  # it lacks the columns, or is damaged
            records = []
        pairs: dict[tuple[str, ...], Counter[tuple[str, ...]]] = {}  # in small letters -> as records write them
        for record in records:
            value = record.value if isinstance(record.value, dict) else {}
            filled = [name for name, text in value.items() if isinstance(text, str) and text.strip()]
            if names := tuple(chosen(filled, reading) or ()):
                pairs.setdefault(tuple(map(normalized_name, names)), Counter())[names] += 1
        most = max(pairs.values(), key=Counter.total, default=Counter())
        if 2 * most.total() > len(records):
            (title, text), _ = most.most_common(1)[0]
            yield _File(entry, (title, text), most.total(), len(records))
        else:
            yield _File(entry, None, 0, len(records))


def _mixture(files: Sequence[_File], entries: Sequence[Input]) -> str:
    """Return the error message for inputs with titles in only some of the files, or under different names.

    Args:
        files: the fields of title and text in each file whose first records were read.
        entries: all files of the inputs.
    """
    groups: dict[Names | None, list[str]] = {}
    for file in sorted(files, key=lambda file: -file.entry.bytes):
        groups.setdefault(file.names, []).append(file.entry.name)
    parts = []
    for names, members in groups.items():
        listed = ", ".join(members[:NAMED]) + (f" and {len(members) - NAMED:,} more" if len(members) > NAMED else "")
        parts.append(f"{' and '.join(names) if names else 'no titles'} in {listed}")
    title, text = next(filter(None, groups))
    return (
        f"`input`: {counted(len(entries), 'file')}, not all with titles of the same names: "
        f"{'; '.join(parts)}: `fields` {title},{text} takes these pairs and leaves other records out, "
        f"`text_field` {text} takes that field of all files as texts without titles"
    )


def find_id_and_link(
    inputs: Sequence[str], encoding: str | None = None, text_field: str | None = None
) -> tuple[str, ...]:
    """Find the field of ids and the field of links in the first records of the inputs, by their usual names.

    Search results show these fields, so that a user recognizes a text. A field that holds lists or objects is passed
    over, since it cannot be stored with the texts. If the inputs cannot be read, return no fields, since the command
    that reads them later reports the problem.

    Args:
        inputs: paths, folders or globs.
        encoding: the encoding of text files, or `auto`; None for UTF-8.
        text_field: the field or column of the text; None for the name "text".

    Returns:
        The names of the fields that were found: first for ids, then for links. A field that was not found is left out.
    """
    try:
        reading = ReadOptions(encoding=encoding and encoding_named(encoding), skip_unknown=True)
        found = find_inputs(inputs, reading)
    except (PipelineError, ValueError):
        return ()
    tables = [entry for entry in found.files if format_named(entry.format).has_fields][:KEPT_FILES]
    kept: list[str] = []
    for group in KEPT:
        for name in group:
            records: list[Record] = []
            for entry in tables:
                with contextlib.suppress(PipelineError):  # it has no such column
                    records += first_records(found.root, [entry], dataclasses.replace(reading, columns=((name,),)), 10)
            values = [record.value for record in records if isinstance(record.value, dict)]
            written = [
                each
                for value in values
                for each in [matching_name(list(value), name)]
                if each and value[each] is not None
            ]
            if written and _can_be_stored(written[0], found, dataclasses.replace(reading, field=text_field)):
                kept.append(written[0])
                break
    return tuple(kept)


def _can_be_stored(name: str, found: Inputs, reading: ReadOptions) -> bool:
    """Return whether `embed` can store a field with the texts, by the first records, from which it infers the type."""
    texts = EmbeddedTexts(text_field=reading.field, keep_fields=(name,))
    try:
        texts.infer_options(found, texts.reading(reading))
    except PipelineError:
        return False
    return True
