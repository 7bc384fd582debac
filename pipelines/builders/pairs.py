"""Pairs of two fields of each record, such as a title and its text (E5, Wang et al. 2022, section 3), or of parts of
each text (`text.structure`): a heading and its section, or a sentence and its passage.

If --tokenizer names a model's folder, the model's query prompt is put before the first text, and its document prompt
before the second (`text.prompts`).

The dataset is of the kind `triplets`, without negatives. The end of a text that is too long is cut off. A record that
lacks one of the fields, or whose two texts are equal, counts as filtered, not as bad. With `structure`, the counts are
numbers of pairs, not of records, and a text from which no pair can be made counts once.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from clearspan.common import same_text
from clearspan.common.catalog import COMMANDS
from clearspan.common.encoder.prompts import DOCUMENT, QUERY, Prompts
from clearspan.common.options import Flag
from clearspan.pipelines.builders import groups
from clearspan.pipelines.builders.text import excluded_of
from clearspan.pipelines.builders.text_inputs import TITLES, Separator, TextField, TextInputs, TextPer, text_in
from clearspan.pipelines.builders.triplets import LONG, NAMED, TripletRow, Triplets, TripletWorker
from clearspan.pipelines.counter import Counts, MissingFieldError, RecordCounter
from clearspan.pipelines.readers.columns import chosen
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.text import structure

TEXT_FIELDS = ("text", "body", "abstract", "content", "article", "answer", "description")
"""Usual names of the field with the second text, in the order in which they are tried."""
USUAL = tuple(itertools.product(TITLES, TEXT_FIELDS))
STRUCTURES = ("headings", "sentences")
MISSING, EQUAL, WITHOUT_PAIR = "missing_field", "equal_texts", "no_pair"


FIELDS = "the two fields of a pair (default: a title and a text under usual names, e.g. title,text or question,answer)"
PARTS = "pair parts of each text instead of two fields: a heading with its section, or a sentence with its passage"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(Triplets):
    """Options of the command `pairs`: pairs of two fields of each record, or, with `structure`, of two parts of each
    text.

    The fields from `columns` to `nli` hide options of `Triplets` that the command does not have.

    Attributes:
        fields: the names of the two fields; None to take the title and the text of each record, which are then found by
            their usual names.
        are_pairs: whether rows have only two texts.
        usual: pairs of usual field names, in the order in which they are tried.
        option: the option by which the user names the fields.
    """

    columns: tuple[str, ...] | None = None
    max_positives: int | None = None
    max_negatives: int | None = None
    nli: bool = False
    fields: Annotated[tuple[str, ...] | None, Flag(FIELDS, "A,B", commas=True)] = None
    structure: Annotated[str | None, Flag(PARTS, choices=STRUCTURES)] = None
    text_field: TextField = None
    text_per: TextPer = "file"
    document_separator: Separator = None
    long: Annotated[Literal["drop", "cut"], Flag(LONG)] = "cut"
    prompt_name: Annotated[
        tuple[str, ...], Flag(NAMED.format("as encode_query and encode_document choose"), "NAME", commas=True)
    ] = ()

    command: ClassVar[str] = "pairs"
    are_pairs: ClassVar[bool] = True
    usual: ClassVar[tuple[tuple[str, ...], ...]] = USUAL
    option: ClassVar[str] = "fields"
    summary: ClassVar[str] = COMMANDS["pairs"].summary
    description: ClassVar[str] = (
        "Make a dataset of positive pairs: two fields of each record, such as title and text, or parts of each text."
    )
    example: ClassVar[str] = (
        "clearspan pairs --input articles.csv --fields title,text --output data/pairs --tokenizer MODEL"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fields is not None and len(self.fields) != 2:
            raise ValueError("`fields` must name two different fields, e.g. title,body")
        of_texts = {
            "`text_field`": self.text_field,
            "`document_separator`": self.document_separator,
            "`text_per` line": self.text_per == "line",
        }
        given = [option for option, value in of_texts.items() if value]
        if given and not self.structure:
            raise ValueError(f"{given[0]} has no effect without `structure`: leave it out, or add `structure`")
        if self.structure and self.fields is not None:
            raise ValueError("`fields` and `structure`: leave one of them out")

    @property
    def named(self) -> tuple[str, ...] | None:
        return self.fields

    def usual_prompts(self, known: Prompts) -> tuple[str, ...]:
        """Return the model's prompts for the two texts of a pair: its query prompt, then its document prompt.

        Args:
            known: the prompts of the model.
        """
        return known.of_side(QUERY), known.of_side(DOCUMENT)

    def unused_prompts(self, known: Prompts) -> str:
        return known.unused(QUERY, DOCUMENT)

    @property
    def reasons(self) -> tuple[str, ...]:
        without = [WITHOUT_PAIR] if self.structure else []
        return (MISSING, EQUAL, *super().reasons, *without)

    def options(self) -> dict[str, Any]:
        own = {**TextInputs.options(self), "structure": self.structure} if self.structure else {}
        return {**super().options(), **own}

    def reading(self) -> ReadOptions:
        if self.structure:
            return self.reading_with_group()
        return dataclasses.replace(super().reading(), by_order=False)

    def check(self, record: Record) -> None:
        if self.structure:
            TextInputs.check(self, record)
        else:
            self.cells(record)  # a record without the fields is filtered

    def cells(self, record: Record) -> list[Any]:
        """Return the values of the two fields of a record that make a pair.

        If the user names no fields, the pairs of usual field names are tried in order: first for two fields that are
        not null, then for two fields that may be null.

        Raises:
            MissingFieldError: the record lacks one of the fields, or has no pair with usual names.
            RecordError: the record cannot be read, or is a text without fields.
        """
        value = record.value
        if isinstance(value, dict):
            filled = {name: field for name, field in value.items() if field is not None}
            if chosen(list(filled), self.rows):
                record = dataclasses.replace(record, value=filled)
        return super().cells(record)

    def worker(self, resources: Mapping[str, bytes]) -> "PairWorker":
        return PairWorker(self, self.tokenization_of(resources), excluded_of(resources))


class PairWorker(TripletWorker):
    """Worker of the command `pairs`, which makes rows of two texts."""

    builder: Pairs

    def _rows(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[TripletRow]:
        """Yield the rows (pairs of texts) to tokenize. Count the rows that are dropped in `counter`."""
        if not self.builder.structure:
            yield from super()._rows(records, counter)
            return
        for pairs, source, group in counter.made(records, lambda record: self._pairs(record, counter.counts)):
            counter.counts.read += max(1, len(pairs)) - 1  # the text was counted
            counter.counts.filtered[WITHOUT_PAIR] += not pairs
            for pair in pairs:
                row = self._prepared(pair, source, group)
                if self._is_kept(row, counter.counts):
                    yield row

    def _row(self, record: Record, counts: Counts) -> TripletRow | None:
        """Return the row of a record. If the record lacks a field of the pair, count it as filtered and return None.

        Raises:
            RecordError: the record is bad, or its fields do not hold the texts of a pair.
        """
        try:
            return super()._row(record, counts)
        except MissingFieldError as problem:
            counts.filtered[MISSING] += 1
            counts.lack(record.name, str(problem))
            return None

    def _is_kept(self, row: TripletRow, counts: Counts) -> bool:
        texts = set(map(same_text.key, row.texts))
        if len(texts) == 1 and "" not in texts:
            counts.filtered[EQUAL] += 1
            return False
        return super()._is_kept(row, counts)

    def _pairs(self, record: Record, counts: Counts) -> tuple[list[tuple[str, str]], str, str] | None:
        """Return (pairs, source, group) of a record. If its text is empty, count it as filtered and return None.

        Each pair consists of two parts of the text, such as a heading and its section; the list is empty if the text
        has no such parts. The source is the file and place of the record. The group is the name of the record's group;
        "" if it is in no group.

        Raises:
            RecordError: the record is bad.
        """
        if (found := text_in(record, self.builder.text_field, counts)) is None:
            return None
        text, _ = found
        group = groups.group_of(record, self.builder.group_field)
        if self.builder.structure == "headings":
            return structure.headings(text), record.source, group
        language = self.builder.languages[0] if self.builder.languages else "en"
        return structure.cloze_pairs(text, language), record.source, group
