"""Pairs of two fields of each record, such as a title and its text (E5, Wang et al. 2022, section 3), or of parts of
each text (`text.structure`): headings and sections, sentences and passages.

The dataset is one of triplets without negatives; of a text that is too long the beginning is kept. With `structure` the
counts are of pairs, and a text without any counts once.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from clearspan.common.options import Flag
from clearspan.pipelines.kinds.text import excluded_of
from clearspan.pipelines.kinds.text_inputs import Separator, TextField, TextInputs, TextPer, text_of
from clearspan.pipelines.kinds.triplets import LONG, TripletRow, Triplets, TripletWorker
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.tally import Counts, RecordError, Tally
from clearspan.pipelines.text import structure

TITLES = ("title", "headline", "summary", "question", "query", "subject")
TEXTS = ("text", "body", "abstract", "content", "article", "answer", "description")
"""Usual names of the two fields, the likelier ones first."""
USUAL = tuple(itertools.product(TITLES, TEXTS))
STRUCTURES = ("headings", "sentences")
WITHOUT_PAIR = "no_pair"


FIELDS = "the two fields (default: a title and a text by usual names, e.g. title,text or question,answer)"
PARTS = "in place of fields, the parts of each text: a heading and its section, a sentence and its passage"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(Triplets):
    """The command `pairs`. Without fields, a row is its first title and its first text, by usual names. With
    `structure`, records are texts, whose parts are the pairs.
    """

    columns: tuple[str, ...] | None = None
    nli: bool = False
    pair_fields: Annotated[tuple[str, ...] | None, Flag(FIELDS, "A,B", name="--fields", commas=True)] = None
    structure: Annotated[str | None, Flag(PARTS, choices=STRUCTURES)] = None
    text_field: TextField = None
    text_per: TextPer = "file"
    document_separator: Separator = None
    long: Annotated[Literal["drop", "cut"], Flag(LONG)] = "cut"

    command: ClassVar[str] = "pairs"
    option: ClassVar[str] = "--fields"
    summary: ClassVar[str] = "two fields of each record, such as title and text, or parts of each text -> pairs"
    example: ClassVar[str] = (
        "clearspan pairs --input articles.csv --fields title,text --output data/pairs --tokenizer MODEL"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        of_texts = {
            "--text-field": self.text_field,
            "--document-separator": self.document_separator,
            "--text-per line": self.text_per == "line",
        }
        given = [option for option, value in of_texts.items() if value]
        if given and not self.structure:
            raise ValueError(f"{given[0]} has no effect without --structure: leave it out, or add that")
        if self.structure and self.pair_fields is not None:
            raise ValueError(f"{self.option} and --structure: leave one of them out")

    @property
    def pairs(self) -> bool:
        return True

    @property
    def column_sets(self) -> tuple[tuple[str, ...], ...]:
        return (self.named,) if self.named else USUAL

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*super().reasons, *([WITHOUT_PAIR] if self.structure else []))

    def options(self) -> dict[str, Any]:
        if not self.structure:
            return super().options()
        return {**super().options(), **TextInputs.options(self), "structure": self.structure}

    def reading(self) -> Reading:
        return super(Triplets, self).reading() if self.structure else super().reading()

    def worker(self, resources: Mapping[str, bytes]) -> "PairWorker":
        return PairWorker(self, self.tokenization_of(resources), excluded_of(resources))

    def reasons_in_words(self, counts: Counts) -> dict[str, tuple[str, str]]:
        mend = f"add --structure {'sentences' if self.structure == 'headings' else 'headings'}"
        return {**super().reasons_in_words(counts), WITHOUT_PAIR: (f"have no {self.structure} to pair", mend)}


class PairWorker(TripletWorker):
    """Worker of the command `pairs`."""

    kind: Pairs

    def _rows(self, records: Iterable[Record], tally: Tally) -> Iterator[TripletRow]:
        """Yield the rows that hold texts; count the others."""
        if not self.kind.structure:
            yield from super()._rows(records, tally)
            return
        for record in records:
            try:
                text, _ = text_of(record, self.kind.text_field)
                pairs = self._parts(text)
            except RecordError as problem:
                tally.counts.read += 1
                tally.reject(record, problem)
                continue
            tally.counts.read += max(1, len(pairs))
            tally.counts.filtered[WITHOUT_PAIR] += not pairs
            for pair in pairs:
                row = self._prepared(pair, record.source)
                if self._is_left(row, tally.counts):
                    yield row

    def _parts(self, text: str) -> list[tuple[str, str]]:
        if self.kind.structure == "headings":
            return structure.headings(text)
        return structure.sentences(text, (*self.kind.languages, "en")[0])
