"""Pairs of two fields of each record, such as a title and its text (E5, Wang et al. 2022, section 3), or of parts of
each text (`text.structure`): a heading and its section, or a sentence and its passage.

If --tokenizer names a model's folder, the model's query prompt is put before the first text, and its document prompt
before the second (`text.prompts`).

The dataset is of the kind `triplets`, without negatives. The end of a text that is too long is cut off. A record that
lacks one of the fields, or whose two texts are equal, counts as filtered, not as bad. With `structure`, the counts are
numbers of pairs, not of records, and a text from which no pair can be made counts once.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from clearspan.cli.catalog import COMMANDS
from clearspan.common import same_text
from clearspan.common.encoder.prompts import DOCUMENT, QUERY
from clearspan.common.field_names import TITLES
from clearspan.common.options import Flag
from clearspan.pipelines.builders import Builder, Dedup, groups
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
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, TextOptions, checked_text, text_in, text_of
from clearspan.pipelines.builders.text_steps import MAX_TOKENS, TextSteps, Whitespace, excluded_lines, excluded_of
from clearspan.pipelines.counter import Counts, MissingFieldError
from clearspan.pipelines.readers.columns import chosen
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.text import structure
from clearspan.pipelines.text.filters import Filter, LanguageOptions
from clearspan.pipelines.text.prompts import COLUMNS as TEXT_COLUMNS

TEXT_FIELDS = ("text", "body", "abstract", "content", "article", "answer", "description")
"""Usual names of the field with the second text, in the order in which they are tried."""
USUAL = tuple(itertools.product(TITLES, TEXT_FIELDS))
STRUCTURES = ("headings", "sentences")
MISSING, EQUAL, WITHOUT_PAIR = "missing_field", "equal_texts", "no_pair"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(Builder):
    """Builder of pairs of two fields of each record, or, with `structure`, of two parts of each text.

    Attributes:
        texts: where the texts are, with `structure`.
    """

    fields: Annotated[tuple[str, ...] | None, Flag("A,B", commas=True)] = None
    """The two fields of a pair (default: a title and a text under usual names, e.g. title,text or question,answer)."""
    structure: Annotated[str | None, Flag(choices=STRUCTURES)] = None
    """Pair parts of each text instead of two fields: a heading with its section, or a sentence with its passage."""
    min_tokens: MinTokens = 1
    """Drop rows in which a text has fewer tokens."""
    max_tokens: MaxTokens = MAX_TOKENS
    """Maximum number of tokens of a text."""
    long: Long = "cut"
    """Drop the row of a longer text, or cut the text after --max-tokens."""
    whitespace: Whitespace = "keep"
    """Keep whitespace as it is, or collapse each run of whitespace to one space."""
    dedup: Dedup = False
    """Drop duplicates: keep only the first of equal examples."""
    group_field: GroupField = None
    """Hold out all or none of the rows with the same value of this field, e.g. versions of a document."""
    prompting: PromptOptions = dataclasses.field(default_factory=PromptOptions)
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    files: FileOptions = dataclasses.field(default_factory=FileOptions)
    steps: TextSteps = dataclasses.field(default_factory=TextSteps)
    languages: LanguageOptions = dataclasses.field(default_factory=LanguageOptions)
    plan: RowPlan = dataclasses.field(default_factory=RowPlan)

    rate: ClassVar[float] = 8e6
    shares_texts: ClassVar[bool] = True
    name: ClassVar[str] = "triplets"
    command: ClassVar[str] = "pairs"
    summary: ClassVar[str] = COMMANDS["pairs"].summary
    description: ClassVar[str] = (
        "Make a dataset of positive pairs: two fields of each record, such as title and text, or parts of each text."
    )
    example: ClassVar[str] = (
        "clearspan pairs --input articles.csv --fields title,text --output data/pairs --tokenizer MODEL"
    )

    def validate(self) -> None:
        super().validate()
        if self.max_tokens < self.min_tokens:
            raise ValueError("`max_tokens` must be at least `min_tokens`")
        self.prompting.check_number(2)
        if self.fields is not None and len(self.fields) != 2:
            raise ValueError("`fields` must name two different fields, e.g. title,body")
        of_texts = {
            "`text_field`": self.texts.text_field,
            "`document_separator`": self.texts.document_separator,
            "`text_per` line": self.texts.text_per == "line",
        }
        given = [option for option, value in of_texts.items() if value]
        if given and not self.structure:
            raise ValueError(f"{given[0]} has no effect without `structure`: leave it out, or add `structure`")
        if self.structure and self.fields is not None:
            raise ValueError("`fields` and `structure`: leave one of them out")

    def resolved(self, earlier_options: Mapping[str, Any]) -> Self:
        """Return a copy of the builder whose plan has the texts of the prompts.

        They are the user's texts, or come from the model in --tokenizer: the prompts that the user names, or else the
        model's query prompt for the first text of a pair, and its document prompt for the second.

        Raises:
            PipelineError: the model has no prompt of a name that the user gives, or its prompts cannot be read.
        """
        known = self.prompting.known(self.steps.tokenizer)
        if known is None:
            return self.with_plan(prompt=self.prompting.prompt)
        usual = [known.of_side(QUERY), known.of_side(DOCUMENT)]
        unused = "" if self.prompting.prompt_name else known.unused(QUERY, DOCUMENT)
        return self.with_plan(prompt=self.prompting.texts(known, usual), unused=unused)

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        if self.group_field is not None:
            groups.check_field(self.group_field, inputs, reading)
        return self

    @functools.cached_property
    def filters(self) -> tuple[Filter, ...]:
        return self.steps.filters(self.languages.filter)

    @property
    def num_positives(self) -> int:
        return 1

    @property
    def has_several(self) -> bool:
        return False

    @property
    def reasons(self) -> tuple[str, ...]:
        long = ["long_tokens"] if self.long == "drop" else []
        without = [WITHOUT_PAIR] if self.structure else []
        return (MISSING, EQUAL, EMPTY, "short_tokens", *long, *self.steps.reasons(self.filters), *without)

    def options(self) -> dict[str, Any]:
        own = {"nli": False, "ends": "stripped", "pairs": True}
        return {
            **row_options(self, self.fields, own, {}, TEXT_COLUMNS[:2]),
            **self.steps.described(self.files, self.plan, self.whitespace, self.languages.filter),
            **({**self.texts.described(), "structure": self.structure} if self.structure else {}),
        }

    def reading(self) -> ReadOptions:
        if self.structure:
            return self.texts.reading(self.files, keep=() if self.group_field is None else (self.group_field,))
        return reading(self.files, self.group_field, columns=(self.fields,) if self.fields else USUAL, option="fields")

    @functools.cached_property
    def rules(self) -> ReadOptions:
        """The result of `reading()`, stored because every record needs it."""
        return self.reading()

    def check(self, record: Record) -> None:
        if self.structure:
            text_of(record, self.texts.text_field)
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
            if chosen(list(filled), self.rules):
                record = dataclasses.replace(record, value=filled)
        return cells(record, self.rules)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        return self.steps.resources(are_sentences=True)

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        return self.steps.fingerprint(super().fingerprint(resources), resources)

    def worker(self, resources: Mapping[str, bytes]) -> "PairWorker":
        tokenization = self.steps.loaded(resources, self.plan.prompts(self.steps.lowercase))
        return PairWorker(self, tokenization, excluded_of(resources))

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        lines = [*excluded_lines(fingerprint), *cut_lines(sums, self.max_tokens)]
        return [*lines, *prompt_lines(fingerprint, self.plan)]


class PairWorker(RowWorker[Pairs]):
    """Worker of the command `pairs`, which makes rows of two texts."""

    def build(self, record: Record, counts: Counts) -> list[BuiltTexts]:
        """Return the pairs of a record: its two fields, or parts of its text. If there are none, count it as filtered.

        Raises:
            RecordError: the record is bad, or its fields do not hold the texts of a pair.
        """
        if not self.builder.structure:
            try:
                texts = [checked_text(value) for value in self.builder.cells(record)]
            except MissingFieldError as problem:
                counts.filtered[MISSING] += 1
                counts.lack(record.name, str(problem))
                return []
            return [self.row(texts, record.source, self.group(record))]
        if (found := text_in(record, self.builder.texts.text_field, counts)) is None:
            return []
        group = self.group(record)
        pairs = self._parts(found[0])
        counts.read += max(1, len(pairs)) - 1  # the text was counted
        counts.filtered[WITHOUT_PAIR] += not pairs
        return [self.row(pair, record.source, group) for pair in pairs]

    def _parts(self, text: str) -> list[tuple[str, str]]:
        """Return pairs of two parts of a text, such as a heading and its section; [] if the text has no such parts."""
        if self.builder.structure == "headings":
            return structure.headings(text)
        languages = self.builder.languages.language
        return structure.cloze_pairs(text, languages[0] if languages else "en")

    def is_kept(self, row: BuiltTexts, counts: Counts) -> bool:
        texts = set(map(same_text.key, row.prepared))
        if len(texts) == 1 and "" not in texts:
            counts.filtered[EQUAL] += 1
            return False
        return super().is_kept(row, counts)
