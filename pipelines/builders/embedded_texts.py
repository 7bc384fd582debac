"""Texts to embed: the text of a record, the title that is put before it, and the fields that are stored with it.

    first records -> names and types of the fields -> for each record: its text, its title, the values of its fields

This part of the kind `vectors` needs no model. `adapt` therefore checks all records with it before it makes a model
(`units.full_check`).
"""

import dataclasses
import functools
from typing import NamedTuple, Self

from clearspan.common import same_text
from clearspan.common.compute import AUTO
from clearspan.common.errors import PipelineError
from clearspan.common.field_names import TITLES, matching_name
from clearspan.common.parsing import normalized_name
from clearspan.pipelines.builders.kept_fields import KeptFields, Plain, split, types_of
from clearspan.pipelines.builders.text_inputs import text_in
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.columns import DEFAULT
from clearspan.pipelines.records import Inputs, ReadOptions, Record

FIRST_RECORDS = 1000
"""Number of first records from which the types of the fields to store are inferred."""


class Text(NamedTuple):
    """A text to embed.

    Attributes:
        record: the record that holds the text.
        text: the whole text, or a chunk of it.
        size: number of bytes of `text`.
        title: title that is put before the text; "" for none.
        fields: values of the record's fields that are stored with the vector (`--keep-fields`).
        digest: hash of the whole text, by which texts are compared; empty if texts are not compared.
        document: id of the whole text; 0 if texts are not split into chunks.
        chunk: number of the chunk in the whole text, from 0.
    """

    record: Record
    text: str
    size: int = 0
    title: str = ""
    fields: tuple[Plain, ...] = ()
    digest: bytes = b""
    document: int = 0
    chunk: int = 0

    @property
    def model_input(self) -> str:
        """The text that is embedded after the prompt: the title, a space and the text, without whitespace at the ends.
        `clearspan eval` joins title and text in the same way.
        """
        return f"{self.title} {self.text.strip()}".strip()


@dataclasses.dataclass(frozen=True)
class EmbeddedTexts:
    """The fields of the records that `embed` reads, and the texts that it makes of them.

    Attributes:
        text_field: the name of the field that holds the text; None for the name "text".
        title_field: the name of the field that holds the title; None for no title; AUTO for the first of the usual
            names, which `infer_options` finds.
        keep_fields: the fields to store, as in `--keep-fields`.
        kept: (name, type) of each field to store. The types are inferred by `infer_options`.
        compares: whether texts are compared, so that each needs its hash.
        update: whether a finished dataset of these texts is updated.
    """

    text_field: str | None = None
    title_field: str | None = None
    keep_fields: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    compares: bool = False
    update: bool = False

    def reading(self, reading: ReadOptions) -> ReadOptions:
        """Return `reading` with the fields to read in addition to the text."""
        names = [name for name, _ in map(split, self.keep_fields)]
        if self.title_field == AUTO:
            names += TITLES
        elif self.title_field:
            names.append(self.title_field)
        return dataclasses.replace(reading, keep=tuple(dict.fromkeys(names)))

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        """Return a copy with the name of the title field, and the types of the fields to store.

        Types that are known already (`kept`) stay. The others are inferred from the first records.

        Args:
            inputs: the input files.
            reading: the rules by which the readers find records in the inputs, with the fields to read.

        Raises:
            PipelineError: the first records lack one of the fields, or values of one of them cannot be stored.
        """
        if not reading.keep:
            return self
        records = first_records(inputs.root, inputs.files, reading, FIRST_RECORDS, any_format=True)
        title = self._title_in(records) if self.title_field == AUTO else self.title_field
        known = dict(self.kept)
        words = [word if word not in known else f"{word}:{known[word]}" for word in self.keep_fields]
        types = types_of(words, records)
        if title is not None:
            types_of([title], records, "title_field")
            types |= {title: "string"}
        return dataclasses.replace(self, title_field=title, kept=tuple(types.items()))

    def _title_in(self, records: list[Record]) -> str:
        """Return the name of the title field: the first of the usual names (TITLES) under which a record has a text.

        Raises:
            PipelineError: the records have none of these fields.
        """
        objects = [record.value for record in records if isinstance(record.value, dict)]
        text = normalized_name(self.text_field or DEFAULT)
        for title in TITLES:
            if title != text and any(
                isinstance(value.get(matching_name(value, title) or ""), str) for value in objects
            ):
                return title
        raise PipelineError(f"`title_field`: the records have none of {', '.join(TITLES)}: name the field of the title")

    def build(self, record: Record, counts: Counts) -> Text | None:
        """Return the text of a record, with its title. If the text is empty, count the record as filtered and return
        None.

        Raises:
            RecordError: the record is bad, or a value to store with the vector does not have the type of its field.
        """
        if (text_and_bytes := text_in(record, self.text_field, counts)) is None:
            return None
        value, encoded = text_and_bytes
        fields = self.fields.of(record)
        title = fields[self._title] if self._title is not None else None
        text = Text(record, value, len(encoded), title.strip() if isinstance(title, str) else "", fields)
        return text._replace(digest=same_text.digest(text.model_input)) if self.compares else text

    @functools.cached_property
    def fields(self) -> KeptFields:
        """The record fields that are stored with the vectors."""
        rounded = [name for name, kind in map(split, self.keep_fields) if kind == "double"]
        return KeptFields(dict(self.kept), rounded, self.update)

    @functools.cached_property
    def _title(self) -> int | None:
        """The index in `fields` of the field with the title; None if texts have no title."""
        names = [name for name, _ in self.kept]
        return None if self.title_field is None else names.index(self.title_field)
