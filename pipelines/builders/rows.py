"""Steps that the builders of rows share (`triplets`, `pairs`): a row is an example of several texts.

    row -> drop it if a text is empty -> prepared texts, with prompts -> token ids, for many rows at a time
        -> cut, or drop the row, if a text is too long; drop the row if a text is too short

An example is {id, tokens, positive[, negative]}, where `tokens` are the token ids of the first text. The upper 31 bits
of an id are a hash of the first text, the lower 32 bits a hash of all texts of the row. Rows that share a text, in any
column, are all held out or all trained on (`units.linking`). If the option `group_field` is set, this also holds for
rows with the same value of that field.

The preparation of a text removes whitespace at its ends, because models are evaluated on texts without it, and
" Unions" has different tokens than "Unions".
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from clearspan.common.errors import PipelineError
from clearspan.common.options import Flag
from clearspan.common.ragged import segments
from clearspan.common.token_ids import leading_ids
from clearspan.pipelines.builders import groups, nli
from clearspan.pipelines.builders.row_prompts import RowPlan
from clearspan.pipelines.builders.text import BuiltTexts, ExamplesToWrite, TextBuilder, TextWorker, absent
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, fields, grouped_id
from clearspan.pipelines.counter import Counts, MissingFieldError, RecordCounter, RecordError
from clearspan.pipelines.readers.columns import chosen, shown_sets
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.text.filters import Filter, FilteredText, kept
from clearspan.pipelines.text.joining import TokenizedTexts
from clearspan.pipelines.text.prompts import COLUMNS as TEXT_COLUMNS
from clearspan.shards.schema import numbered

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)\s*")
TOKENIZE_ROWS = 2048
CHECK_ROWS = 8
"""Number of first rows that are checked. If a column holds only labels or numbers in them, it is not a column of texts.
"""
MinTokens = Annotated[int, Flag("N"), Ge(1)]
MaxTokens = Annotated[int, Flag("N")]
Long = Annotated[Literal["drop", "cut"], Flag()]
GroupField = Annotated[str | None, Flag("NAME")]


class RowBuilder(TextBuilder, Protocol):
    """Builder of rows, as its worker sees it."""

    @property
    def plan(self) -> RowPlan: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def long(self) -> str: ...
    @property
    def filters(self) -> tuple[Filter, ...]: ...
    @property
    def rules(self) -> ReadOptions:
        """The rules for reading the inputs."""

    @property
    def num_positives(self) -> int:
        """The maximum number of positives of a row."""

    @property
    def has_several(self) -> bool:
        """True if the number of texts may differ from row to row."""


AnyRowBuilder = TypeVar("AnyRowBuilder", bound=RowBuilder)


def reading(files: FileOptions, group_field: str | None, **rules: Any) -> ReadOptions:
    """Return the rules for reading the inputs; if `group_field` is set, this field is read as well.

    Args:
        files: how the files are read.
        group_field: the field that names the group of a row.
        rules: further attributes of `ReadOptions`.
    """
    return files.reading(keep=() if group_field is None else (group_field,), **rules)


def cells(record: Record, rules: ReadOptions) -> list[Any]:
    """Return the contents of a record's columns that make up a row, in the order of the columns, such as a sentence, a
    positive and a negative.

    Args:
        rules: the rules for reading the inputs, with the names of the columns.

    Raises:
        MissingFieldError: the record can be read, but lacks one of the columns.
        RecordError: the record is bad, or is a text without columns.
    """
    if record.problem:
        raise RecordError(record.problem)
    value = record.value
    if not isinstance(value, dict):
        raise RecordError("expected a row of columns, found a text")
    columns = chosen(list(value), rules)
    if columns is None:
        mend = f"name them in order with `{rules.option}`"
        of_labels = dataclasses.replace(rules, columns=nli.COLUMNS, by_order=False)
        if chosen(list(value), of_labels) and len(rules.columns) > 1:
            mend = "add `nli`"
        raise MissingFieldError(f"no fields {shown_sets(rules.columns)} among {fields(value)}: {mend}")
    return [value[column] for column in columns]


def row_options(
    builder: RowBuilder,
    named: Sequence[str] | None,
    own: Mapping[str, Any],
    several: Mapping[str, int | None],
    prompted: Sequence[str],
) -> dict[str, Any]:
    """Return the first options that determine a dataset of rows, by name, for its fingerprint.

    Args:
        builder: the builder.
        named: the names of columns or fields that the user gives.
        own: further options of the builder.
        several: maximum numbers of texts; those that are None are left out.
        prompted: the columns whose texts may have a prompt.
    """
    prompts = builder.plan.prompts(builder.steps.lowercase)
    return {
        "min_tokens": builder.min_tokens,
        "max_tokens": builder.max_tokens,
        "columns": list(named) if named else None,
        **own,
        **({"long": builder.long} if builder.long != "drop" else {}),
        **{name: most for name, most in several.items() if most},
        **({"prompts": dict(zip(prompted, prompts, strict=False))} if any(prompts) else {}),
    }


def cut_lines(sums: Mapping[str, int], max_tokens: int) -> list[str]:
    """Return a line for the summary of a run, with the number of rows in which a text was cut; [] if there are none."""
    return [f"{sums['cut']:,} rows with a text cut to {max_tokens:,} tokens"] if sums.get("cut") else []


class RowWorker(TextWorker[AnyRowBuilder]):
    """Worker of the builders of rows, which tokenizes rows of several texts."""

    batch_examples = 1 << 15
    batch_room = TOKENIZE_ROWS

    @property
    def together(self) -> tuple[int, int]:
        return 1 << 62, TOKENIZE_ROWS

    @property
    def max_tokens(self) -> int:
        return self.builder.max_tokens

    def row(self, texts: Sequence[str], source: str, group: str = "") -> BuiltTexts:
        """Return the texts of a row, of size 1; they are prepared, but still without a prompt.

        Args:
            texts: the texts as read: a first text, positives and negatives; "" for a text that the row lacks.
            source: the file and place that the row was read from.
            group: the name of the row's group; "" if it is in no group.
        """
        steps, whitespace = self.builder.steps, self.builder.whitespace
        prepared = tuple(steps.prepared(text, whitespace).strip() for text in texts)
        return BuiltTexts(prepared, tuple(texts), source, group, size=1)

    def group(self, record: Record) -> str:
        """Return the name of the group of a record's rows; "" if they are in no group."""
        return groups.group_of(record, self.builder.group_field)

    def texts(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[BuiltTexts]:
        """Yield the rows to tokenize. Count every record in `counter` as read, and those that are dropped.

        Raises:
            PipelineError: the rows do not all have the same number of texts.
        """
        num_texts = 0
        for row in super().texts(records, counter):
            if num_texts and len(row.prepared) != num_texts:
                raise PipelineError(
                    f"{row.source}: a row of {len(row.prepared)} texts, after rows of {num_texts}: process them in "
                    "separate runs, or name the columns that all rows have with `columns`"
                )
            num_texts = len(row.prepared)
            if self.is_kept(row, counter.counts):
                yield row

    def is_kept(self, row: BuiltTexts, counts: Counts) -> bool:
        """Return whether a row is to be tokenized. If not, it is counted in `counts` as filtered.

        It is not tokenized if a filter drops it, or if a text that it needs is blank. A row needs all its texts; but if
        it has more than three, or if the number of texts may differ from row to row, only its first two.
        """
        texts = row.prepared
        needed = texts if len(texts) <= len(TEXT_COLUMNS) and not self.builder.has_several else texts[:2]
        if not all(text.strip() for text in needed):
            counts.filtered[EMPTY] += 1
            return False
        if not self.builder.filters:
            return True
        shortest = min(filter(None, row.raw), key=lambda text: len(text.split()))
        return kept(FilteredText("\n".join(row.raw), shortest=shortest), self.builder.filters, counts) is not None

    def tokenize(self, texts: Sequence[BuiltTexts], counts: Counts, is_first: bool) -> Iterator[TokenizedTexts]:
        """Yield rows with the token ids of their texts, each of which begins with the ids of its prompt."""
        if is_first and self.builder.rules.by_order:
            _check_texts(texts)
        width = len(texts[0].prepared)
        prepared = [text for row in texts for text in row.prepared]
        raw = [text for row in texts for text in row.raw]
        sources = [row.source for row in texts for _ in range(width)]
        prompts = self._prompts(width)
        with_prompts = [prompt + text for prompt, text in zip(itertools.cycle(prompts), prepared, strict=False)]
        tokens = self.tokenization.tokenize(with_prompts, sources)
        is_there = np.array(list(map(bool, prepared)))
        if not is_there.all():
            tokens = segments(tokens.values, tokens.offsets[:-1], tokens.lengths * is_there)
        of_groups = [row.group for row in texts for _ in range(width)]
        before = np.array([len(leading_ids(self.tokenization.tokenizer, prompt)) for prompt in prompts])
        rows = TokenizedTexts(prepared, raw, sources, tokens, groups=of_groups, width=width, num_uncounted=before)
        yield self._cut(rows, counts) if self.builder.long == "cut" else rows

    def _prompts(self, width: int) -> tuple[str, ...]:
        return prompts_of(self.builder.plan.prompts(self.builder.steps.lowercase), width, self.builder.num_positives)

    def _cut(self, tokenized: TokenizedTexts, counts: Counts) -> TokenizedTexts:
        """Return the tokenized texts, each cut to its first `max_tokens` tokens. The tokens of its prompt count.

        The rows in which a text is cut are counted in `counts`. Rows in which a text has fewer than `min_tokens` tokens
        after its prompt are not counted, because they will be dropped.
        """
        tokens, most = tokenized.tokens, self.max_tokens
        lengths = tokens.lengths.reshape(-1, tokenized.width)
        counts.measure("tokens", int(lengths.max()))
        shortest = np.where(absent(tokenized), most, lengths - tokenized.num_uncounted).min(1)
        counts.count("cut", int(((lengths.max(1) > most) & (shortest >= self.builder.min_tokens)).sum()))
        cut = segments(tokens.values, tokens.offsets[:-1], np.minimum(tokens.lengths, most))
        return dataclasses.replace(tokenized, tokens=cut)

    def example_id(self, texts: Sequence[str]) -> int:
        """Return the id of a row: the upper 31 bits are a hash of its first text, the lower 32 bits a hash of all its
        texts.
        """
        parts = [text.encode() for text in texts]
        return grouped_id(parts[0], b"".join(len(part).to_bytes(8, "little") + part for part in parts))

    def batch(self, examples: ExamplesToWrite, counts: Counts) -> pa.RecordBatch:
        num_positives = self.builder.num_positives
        negatives = numbered("negative", len(examples.columns) - 1 - num_positives)
        return self.record_batch(examples, examples.columns, [*numbered("positive", num_positives)[1:], *negatives])


def prompts_of(prompts: Sequence[str], width: int, num_positives: int) -> tuple[str, ...]:
    """Return the prompt of each text of a row: of its first text, its positives and its negatives; "" for no prompt.

    Args:
        prompts: the prompts of the first text, of each positive and of each negative.
        width: number of texts of a row.
        num_positives: number of positives of a row.
    """
    first, positive, negative = prompts
    return (first, *[positive] * num_positives, *[negative] * (width - 1 - num_positives))


def _check_texts(rows: Sequence[BuiltTexts]) -> None:
    """Raise PipelineError if a column of the first rows holds only NLI labels and numbers instead of texts.

    It is called only if the columns were chosen by their order, not by their names.

    Args:
        rows: the first rows. A column of which fewer than 8 rows (CHECK_ROWS) have a text is not checked.
    """
    for cells in zip(*(row.prepared for row in rows), strict=True):
        column = [text for text in cells if text]  # a row may lack a text
        if len(column) >= CHECK_ROWS and all(
            text.strip().lower() in nli.LABELS or NUMBER.fullmatch(text) for text in column
        ):
            raise PipelineError(
                f"{rows[0].source}: {column[0]!r} and all below it are labels or numbers, not texts: add `nli` if rows "
                "are premise, hypothesis and label, or name the columns of texts in order with `columns`"
            )
