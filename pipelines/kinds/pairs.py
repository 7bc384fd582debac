"""Pairs of two fields of each record, such as a title and its text (E5, Wang et al. 2022, section 3).

The dataset is one of triplets without negatives; of a text that is too long the beginning is kept.
"""

import argparse
import dataclasses
import itertools
from typing import ClassVar

from clearspan.pipelines.kinds.triplets import Triplets

TITLES = ("title", "headline", "summary", "question", "query", "subject")
TEXTS = ("text", "body", "abstract", "content", "article", "answer", "description")
"""Usual names of the two fields, the likelier ones first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(Triplets):
    """The command `pairs`. Without `columns`, a row is its first title and its first text, by usual names."""

    pairs: bool = True
    long: str = "cut"

    command: ClassVar[str] = "pairs"
    option: ClassVar[str] = "--fields"
    summary: ClassVar[str] = "two fields of each record, such as a title and its text -> dataset of positive pairs"
    example: ClassVar[str] = (
        "clearspan pairs --input articles.csv --fields title,text --output data/pairs --tokenizer MODEL"
    )

    @classmethod
    def add_reading_arguments(cls, parser: argparse.ArgumentParser) -> None:
        both = "the two fields (default: a title and a text by usual names, e.g. title,text or question,answer)"
        parser.add_argument(cls.option, dest="pair_fields", metavar="A,B", help=both)
        cls.add_file_arguments(parser)
        parser.set_defaults(columns=None, nli=False, text_field=None, text_per="file", document_separator=None)

    @property
    def column_sets(self) -> tuple[tuple[str, ...], ...]:
        return (self.columns,) if self.columns else tuple(itertools.product(TITLES, TEXTS))
