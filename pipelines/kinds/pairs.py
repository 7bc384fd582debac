"""Pairs of two fields of each record, such as a title and its text (E5, Wang et al. 2022, section 3), or of parts of
each text (`text.structure`): headings and sections, sentences and passages.

The dataset is one of triplets without negatives; of a text that is too long the beginning is kept. With `structure` the
counts are of pairs, and a text without any counts once.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

from clearspan.pipelines.kinds.text import excluded_of
from clearspan.pipelines.kinds.text_inputs import TextInputs, text_of
from clearspan.pipelines.kinds.triplets import TripletRow, Triplets, TripletWorker
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.tally import Counts, RecordError, Tally
from clearspan.pipelines.text import structure

TITLES = ("title", "headline", "summary", "question", "query", "subject")
TEXTS = ("text", "body", "abstract", "content", "article", "answer", "description")
"""Usual names of the two fields, the likelier ones first."""
USUAL = tuple(itertools.product(TITLES, TEXTS))
STRUCTURES = ("headings", "sentences")
WITHOUT_PAIR = "no_pair"
OF_TEXTS = ("text_field", "document_separator")
"""Options of texts, for which two fields leave no use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(Triplets):
    """The command `pairs`. Without `columns`, a row is its first title and its first text, by usual names. With
    `structure`, records are texts, whose parts are the pairs.
    """

    pairs: bool = True
    long: str = "cut"
    structure: str | None = None

    command: ClassVar[str] = "pairs"
    option: ClassVar[str] = "--fields"
    summary: ClassVar[str] = "two fields of each record, such as title and text, or parts of each text -> pairs"
    example: ClassVar[str] = (
        "clearspan pairs --input articles.csv --fields title,text --output data/pairs --tokenizer MODEL"
    )

    @classmethod
    def add_reading_arguments(cls, parser: argparse.ArgumentParser) -> None:
        both = "the two fields (default: a title and a text by usual names, e.g. title,text or question,answer)"
        parser.add_argument(cls.option, dest="pair_fields", metavar="A,B", help=both)
        parts = "in place of fields, the parts of each text: a heading and its section, a sentence and its passage"
        parser.add_argument("--structure", choices=STRUCTURES, help=parts)
        TextInputs.add_reading_arguments(parser)
        parser.set_defaults(columns=None, nli=False)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace, **changed: Any) -> Self:
        given = [f"--{name.replace('_', '-')}" for name in OF_TEXTS if getattr(arguments, name)]
        given += ["--text-per line"] if arguments.text_per == "line" else []
        if given and not arguments.structure:
            raise ValueError(f"{given[0]} has no effect without --structure: leave it out, or add that")
        if arguments.structure and arguments.pair_fields is not None:
            raise ValueError(f"{cls.option} and --structure: leave one of them out")
        return super().from_arguments(arguments, structure=arguments.structure, **changed)

    @property
    def column_sets(self) -> tuple[tuple[str, ...], ...]:
        return (self.columns,) if self.columns else USUAL

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
