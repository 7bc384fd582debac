"""Triplets: rows of a sentence, a positive and optionally a hard negative (supervised SimCSE).

    record -> cells of its columns -> texts of a row: sentence, positives, negatives -> the steps of `builders.rows`

If the option `nli` is set, a row is a premise, a hypothesis and a label (`builders.nli`). `builders.pairs` makes rows
of two texts, from two fields of a record or from parts of a text.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from annotated_types import Ge

from clearspan.cli.catalog import COMMANDS
from clearspan.common.encoder.prompts import OTHER, Prompts
from clearspan.common.options import Flag
from clearspan.common.parsing import normalized_name
from clearspan.common.progress import counted
from clearspan.pipelines.builders import Builder, Dedup, groups, nli
from clearspan.pipelines.builders.row_prompts import PromptOptions, RowPlan, prompt_lines
from clearspan.pipelines.builders.rows import (
    GroupField,
    Long,
    MaxTokens,
    MinTokens,
    RowWorker,
    cells,
    cut_lines,
    reading,
    row_options,
)
from clearspan.pipelines.builders.text import BuiltTexts
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, checked_text
from clearspan.pipelines.builders.text_steps import MAX_TOKENS, TextSteps, Whitespace, excluded_lines, excluded_of
from clearspan.pipelines.counter import Counts, MissingFieldError, RecordCounter, RecordError
from clearspan.pipelines.readers.columns import chosen
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.text.filters import Filter, LanguageOptions
from clearspan.pipelines.text.prompts import COLUMNS as TEXT_COLUMNS
from clearspan.shards.schema import numbered

MAX_NUMBERED = 18
"""Columns of negatives are found by their names if there are fewer of them than this number."""
COLUMNS = (
    ("sent0", "sent1", "hard_neg"),
    ("sent0", "sent1"),
    ("anchor", "positive", "negative"),
    ("anchor", "positive"),
    ("query", "pos", "neg"),
    ("query", "pos"),
    *(("anchor", "positive", *numbered("negative", count)) for count in range(2, MAX_NUMBERED)),
    *(("anchor", "positive", *numbered("negative", count)[1:]) for count in range(2, MAX_NUMBERED)),
)
"""Column names in published files, such as sentence-transformers' tuples and FlagEmbedding's lists. A file that has
none of these sets of names, but two or three columns, is read in the order of its columns.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Triplets(Builder):
    """Builder of the kind `triplets`: rows of several texts.

    Attributes:
        rate: the number of input bytes that one process handles per second.
        shares_texts: true, because different rows may share a text; they are then all held out or all trained on.
    """

    columns: Annotated[tuple[str, ...] | None, Flag("A,B[,C...]", commas=True)] = None
    """Columns of the sentence, the positive and the negatives (default: by usual names, or all of 2 or 3 columns)."""
    max_positives: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Read lists of positives from the fields, and keep at most N positives of each row."""
    max_negatives: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Read lists of negatives from the fields, and keep at most N negatives of each row."""
    nli: Annotated[bool, Flag()] = False
    """Build the triplets from NLI rows: premise, hypothesis and label."""
    min_tokens: MinTokens = 1
    """Drop rows in which a text has fewer tokens."""
    max_tokens: MaxTokens = MAX_TOKENS
    """Maximum number of tokens of a text."""
    long: Long = "drop"
    """Drop the row of a longer text, or cut the text after --max-tokens."""
    whitespace: Whitespace = "keep"
    """Keep whitespace as it is, or collapse each run of whitespace to one space."""
    dedup: Dedup = False
    """Drop duplicates: keep only the first of equal examples."""
    group_field: GroupField = None
    """Hold out all or none of the rows with the same value of this field, e.g. versions of a document."""
    prompting: PromptOptions = dataclasses.field(default_factory=PromptOptions)
    files: FileOptions = dataclasses.field(default_factory=FileOptions)
    steps: TextSteps = dataclasses.field(default_factory=TextSteps)
    languages: LanguageOptions = dataclasses.field(default_factory=LanguageOptions)
    plan: RowPlan = dataclasses.field(default_factory=RowPlan)

    rate: ClassVar[float] = 8e6
    shares_texts: ClassVar[bool] = True
    name: ClassVar[str] = "triplets"
    summary: ClassVar[str] = COMMANDS["triplets"].summary
    description: ClassVar[str] = (
        "Make a dataset of triplets, from rows of a sentence, a positive and, optionally, hard negatives (SimCSE), or\n"
        "from NLI rows."
    )
    example: ClassVar[str] = (
        "clearspan triplets --input nli_for_simcse.csv --output data/nli --tokenizer tokenizers/roberta-base"
    )

    def validate(self) -> None:
        super().validate()
        if self.max_tokens < self.min_tokens:
            raise ValueError("`max_tokens` must be at least `min_tokens`")
        if self.columns and self.nli and len(self.columns) != 3:
            raise ValueError("`columns` with `nli` must name three: premise, hypothesis and label")
        if self.columns and len(self.columns) < 2:
            raise ValueError("`columns` must name two or more: sentence, positive and, optionally, negatives")
        if self.nli and (self.max_positives or self.max_negatives):
            raise ValueError("`max_positives` and `max_negatives` have no effect with `nli`: leave them out")
        if self.nli and self.group_field is not None:
            raise ValueError("`group_field` has no effect with `nli`, which joins rows of one premise: leave it out")
        self.prompting.check_number(3)

    def resolved(self, earlier_options: Mapping[str, Any]) -> Self:
        """Return a copy of the builder whose plan has the texts of the prompts.

        They are the user's texts, or come from the model in --tokenizer: the prompts that the user names, or else the
        model's prompt for texts that are neither queries nor documents.

        Raises:
            PipelineError: the model has no prompt of a name that the user gives, or its prompts cannot be read.
        """
        known = self.prompting.known(self.steps.tokenizer)
        if known is None:
            return self.with_plan(prompt=self.prompting.prompt)
        unused = "" if self.prompting.prompt_name else unused_prompts(known)
        return self.with_plan(prompt=self.prompting.texts(known, [known.of_side(OTHER)]), unused=unused)

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        if self.group_field is not None:
            groups.check_field(self.group_field, inputs, reading)
        return self

    @functools.cached_property
    def filters(self) -> tuple[Filter, ...]:
        return self.steps.filters(self.languages.filter)

    @property
    def num_positives(self) -> int:
        if self.max_positives:
            return self.max_positives
        if self.nli or not self.columns:
            return 1
        return 1 + sum(is_positive(name) for name in self.columns[2:])

    @property
    def has_several(self) -> bool:
        return bool(self.max_positives or self.max_negatives)

    @property
    def reasons(self) -> tuple[str, ...]:
        of_labels = (nli.NEUTRAL, nli.UNLABELLED, "negative", "unpaired") if self.nli else ()
        long = ["long_tokens"] if self.long == "drop" else []
        return (*of_labels, EMPTY, "short_tokens", *long, *self.steps.reasons(self.filters))

    def options(self) -> dict[str, Any]:
        several = {"max_positives": self.max_positives, "max_negatives": self.max_negatives}
        own = {"nli": self.nli, "ends": "stripped"}
        return {
            **row_options(self, self.columns, own, several, TEXT_COLUMNS),
            **self.steps.described(self.files, self.plan, self.whitespace, self.languages.filter),
        }

    def reading(self) -> ReadOptions:
        sets = (self.columns,) if self.columns else nli.COLUMNS if self.nli else COLUMNS
        return reading(
            self.files, self.group_field, columns=sets, by_order=self.columns is None, option="columns", whole=self.nli
        )

    @functools.cached_property
    def rules(self) -> ReadOptions:
        """The result of `reading()`, stored because every record needs it."""
        return self.reading()

    def check(self, record: Record) -> None:
        try:
            cells(record, self.rules)
        except MissingFieldError as problem:
            raise RecordError(str(problem)) from None  # a bad row

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        return self.steps.resources(are_sentences=True)

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        return self.steps.fingerprint(super().fingerprint(resources), resources)

    def worker(self, resources: Mapping[str, bytes]) -> "TripletWorker":
        tokenization = self.steps.loaded(resources, self.plan.prompts(self.steps.lowercase))
        return TripletWorker(self, tokenization, excluded_of(resources))

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the lines for the summary of the run.

        They are the number of excluded texts, the number of rows in which a text was cut, the number of texts that were
        left out because a row had too many, the prompts, and a warning if the model has prompts that are not used.
        """
        lines = [*excluded_lines(fingerprint), *cut_lines(sums, self.max_tokens)]
        if sums.get("beyond"):
            lines.append(f"{sums['beyond']:,} texts beyond `max_positives` or `max_negatives` left out")
        return [*lines, *prompt_lines(fingerprint, self.plan)]


class TripletWorker(RowWorker[Triplets]):
    """Worker of the kind `triplets`, which reads rows of several texts."""

    def build(self, record: Record, counts: Counts) -> list[BuiltTexts]:
        """Return the texts of a record's row: its sentence, positives and negatives.

        Raises:
            MissingFieldError: the record can be read, but lacks one of the columns.
            RecordError: the record is bad, or its columns do not hold the texts of a row.
        """
        return [self.row(self._texts(record, counts), record.source, self.group(record))]

    def texts(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[BuiltTexts]:
        if not self.builder.nli:
            yield from super().texts(records, counter)
            return
        for _, rows in itertools.groupby(records, key=lambda record: record.name):
            for texts, source in nli.paired(rows, lambda record: cells(record, self.builder.rules), counter):
                row = self.row(texts, source)
                if self.is_kept(row, counter.counts):
                    yield row

    def _texts(self, record: Record, counts: Counts) -> Sequence[str]:
        """Return the texts of a row; "" stands for a text that the row lacks.

        If a row has more positives than `max_positives`, or more negatives than `max_negatives`, the rest is left out
        and counted in `counts`. If one of these is None, more texts than columns make the record bad.
        """
        builder = self.builder
        values = cells(record, builder.rules)
        if not self._may_lack_texts(values):
            return tuple(map(checked_text, values))
        names = chosen(list(record.value), builder.rules)
        places = [1 <= place < 2 or is_positive(name) for place, name in enumerate(names or ())][1:]
        found = (_listed(values[0]), *(_texts_of_columns(values[1:], places, wanted) for wanted in (True, False)))
        most = (1, builder.num_positives, builder.max_negatives or places.count(False))
        texts: list[str] = []
        for sort, those, room in zip(("text", "positive", "negative"), found, most, strict=True):
            if len(those) > room:
                option = f"max_{sort}s"
                if not getattr(builder, option, None):
                    mend = f": keep some with `{option}` N" if sort != "text" else ""
                    raise RecordError(
                        f"{len(those)} {sort}s in a row, which has {counted(room, 'column')} for them{mend}"
                    )
                counts.count("beyond", len(those) - room)
            texts += those[:room]
            texts += [""] * (room - len(those))
        return texts

    def _may_lack_texts(self, values: Sequence[Any]) -> bool:
        """Return whether the number of positives and negatives may differ from row to row, so that a row may lack some:
        if an option limits it, if there are more than three columns, or if a column holds a list.
        """
        several = self.builder.has_several or len(values) > len(TEXT_COLUMNS)
        return several or any(isinstance(value, list) for value in values)


def unused_prompts(known: Prompts) -> str:
    """Return a warning for a run whose user names no prompt: the model has prompts, but none of them is used.

    Such a run uses only the model's prompt for texts that are neither queries nor documents. The result is "" if the
    model has this prompt, or if it has no prompts.

    Args:
        known: the prompts of the model.
    """
    names = [name for name, text in known.texts.items() if text]
    if known.of_side(OTHER) or not names:
        return ""
    return f"no prompt before the texts, although the model has {', '.join(names)}: choose with `prompt_name`"


def is_positive(name: str) -> bool:
    """Return whether a column's name says that it holds positives: whether it begins with "pos", in any letter case."""
    return normalized_name(name).startswith("pos")


def _listed(value: object) -> list[str]:
    """Return the texts in a cell, which holds one text or a list of texts. Null and blank texts are left out."""
    cells = value if isinstance(value, list) else [value]
    return [text for text in map(checked_text, cells) if text.strip()]


def _texts_of_columns(values: Sequence[object], are_positive: Sequence[bool], positives: bool) -> list[str]:
    """Return the texts in a row's columns of positives if `positives` is true, or else those in its columns of
    negatives.

    Args:
        values: the contents of the row's columns after the first: each is a text, a list of texts, or null.
        are_positive: for each of these columns, true if it holds positives, and false if it holds negatives.
    """
    pairs = zip(values, are_positive, strict=True)
    return [text for value, positive in pairs if positive == positives for text in _listed(value)]
