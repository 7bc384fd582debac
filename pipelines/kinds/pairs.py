"""Pairs of two fields of each record, such as a title and its text (E5, Wang et al. 2022, section 3).

The dataset is one of triplets without negatives; of a text that is too long the beginning is kept.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.text_inputs import encoding_named
from clearspan.pipelines.kinds.triplets import Triplets
from clearspan.pipelines.readers import columns_of
from clearspan.pipelines.records import Reading
from clearspan.pipelines.units.plan import find_inputs

TITLES = ("title", "headline", "summary", "question", "query", "subject")
TEXTS = ("text", "body", "abstract", "content", "article", "answer", "description")
"""Usual names of the two fields, the likelier ones first."""
USUAL = tuple(itertools.product(TITLES, TEXTS))


def usual_fields(inputs: Sequence[str], encoding: str | None = None) -> tuple[str, str] | None:
    """Return the title and the text of inputs that have columns or fields by usual names; None if they have none.

    Raises:
        PipelineError: there are no inputs.
    """
    reading = Reading(columns=USUAL, sparse=True, encoding=encoding and encoding_named(encoding), skip_unknown=True)
    found = find_inputs(inputs, reading)
    try:
        columns = columns_of(found.root, found.files, reading)
    except PipelineError:  # a table without two such columns
        return None
    return (columns[2][0], columns[2][1]) if columns and columns[2] else None


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
        return (self.columns,) if self.columns else USUAL
