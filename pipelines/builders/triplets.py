"""Triplets: rows of a sentence, a positive and optionally a hard negative (supervised SimCSE).

    row -> texts -> drop the row if a text is empty -> prepared texts -> token ids, for many rows at a time
        -> drop the row if a text is too short or too long

An example is {id, tokens, positive[, negative]}, where `tokens` are the token ids of the sentence. The upper 31 bits of
an id are a hash of the sentence, the lower 32 bits a hash of all texts of the row. Rows that share a text, in any
column, are all held out or all trained on (`units.linking`). If the option `group_field` is set, this also holds for
rows with the same value of that field.

The preparation of a text removes whitespace at its ends, because models are evaluated on texts without it, and
" Unions" has different tokens than "Unions". A prompt that the model expects may be put before each text
(`text.prompts`).

If the option `nli` is set, a row is a premise, a hypothesis and a label (`kinds.nli`). `kinds.pairs` makes rows of two
texts, from two fields of a record or from parts of a text.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from clearspan.common.catalog import COMMANDS
from clearspan.common.encoder.prompts import OTHER, Prompts, check_two, quoted_prompt
from clearspan.common.model_folder import EncoderError
from clearspan.common.options import Flag
from clearspan.common.parsing import normalized_name
from clearspan.common.progress import counted
from clearspan.common.ragged import segments
from clearspan.common.token_ids import leading_ids
from clearspan.pipelines.builders import groups, nli
from clearspan.pipelines.builders.text import MAX_TOKENS, ExamplesToWrite, TextBuilder, TextWorker, absent, excluded_of
from clearspan.pipelines.builders.text_inputs import EMPTY, checked_text, fields, grouped_id
from clearspan.pipelines.counter import Counts, MissingFieldError, RecordCounter, RecordError
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.columns import chosen, shown_sets
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.text.joining import TokenizedTexts
from clearspan.pipelines.text.prompts import COLUMNS as TEXT_COLUMNS
from clearspan.pipelines.text.prompts import model_prompts, of_columns
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
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)\s*")
TOKENIZE_ROWS = 2048
CHECK_ROWS = 8
"""Number of first rows that are checked. If a column holds only labels or numbers in them,
it is not a column of texts.
"""
BATCH_EXAMPLES = 1 << 15


class TripletRow(NamedTuple):
    """A row of several texts: a sentence, its positives and its negatives.

    Attributes:
        originals: the texts as read.
        texts: the texts as they are tokenized, for example without whitespace at their ends, but still without a
            prompt.
        source: the file and place that the row was read from.
        group: the name of the row's group, whose rows are all held out or all trained on; "" if the row is in no group.
    """

    originals: tuple[str, ...]
    texts: tuple[str, ...]
    source: str
    group: str


NAMED = (
    "name of the prompt before each text, from the model in --tokenizer; FIRST,OTHERS: two names, for the first column "
    "and for the others; none: no prompt (default: {0})"
)
GIVEN = "text to put before each text, its final space included; give it once for all columns, or once for each"
SEVERAL = "read lists of {0} from the fields, and keep at most N {0} of each row"
LONG = "drop the row of a longer text, or cut the text after --max-tokens"
GROUP = "hold out all or none of the rows with the same value of this field, e.g. versions of a document"
COLUMNS_OF = (
    "columns of the sentence, the positive and the negatives (default: by usual names, or all of 2 or 3 columns)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Triplets(TextBuilder):
    """Options of the kind `triplets`: rows of several texts.

    The fields from `text_field` to `near_dedup` hide options of the base class. Those options are for records that hold
    one text, such as web pages.

    Attributes:
        unused: a warning that the model has prompts which this run does not use; "" if there is nothing to warn of.
            `resolved` sets it.
        rate: the number of input bytes that one process handles per second.
        shares_texts: true, because different rows may share a text; they are then all held out or all trained on.
        are_pairs: true if every row has exactly two texts, as in the command `pairs`.
        usual: sets of usual column names, by which columns are found if the user names none.
        option: the option by which the user names the columns or fields of a row.
    """

    text_field: str | None = None
    text_per: Literal["file", "line"] = "file"
    document_separator: str | None = None
    quality: tuple[str, ...] = ()
    near_dedup: float | None = None
    columns: Annotated[
        tuple[str, ...] | None,
        Flag(COLUMNS_OF, "A,B[,C...]", commas=True),
    ] = None
    max_positives: Annotated[int | None, Flag(SEVERAL.format("positives"), "N"), Ge(1)] = None
    max_negatives: Annotated[int | None, Flag(SEVERAL.format("negatives"), "N"), Ge(1)] = None
    nli: Annotated[bool, Flag("build the triplets from NLI rows: premise, hypothesis and label")] = False
    min_tokens: Annotated[int, Flag("drop rows in which a text has fewer tokens", "N"), Ge(1)] = 1
    max_tokens: Annotated[int, Flag("maximum number of tokens of a text", "N")] = MAX_TOKENS
    long: Annotated[Literal["drop", "cut"], Flag(LONG)] = "drop"
    prompt_name: Annotated[tuple[str, ...], Flag(NAMED.format("the model's default prompt"), "NAME", commas=True)] = ()
    prompt: Annotated[tuple[str, ...], Flag(GIVEN, "TEXT")] = ()
    group_field: Annotated[str | None, Flag(GROUP, "NAME")] = None
    unused: str = ""

    rate: ClassVar[float] = 8e6
    shares_texts: ClassVar[bool] = True
    are_pairs: ClassVar[bool] = False
    usual: ClassVar[tuple[tuple[str, ...], ...]] = COLUMNS
    option: ClassVar[str] = "columns"
    name: ClassVar[str] = "triplets"
    summary: ClassVar[str] = COMMANDS["triplets"].summary
    description: ClassVar[str] = (
        "Make a dataset of triplets, from rows of a sentence, a positive and, optionally, hard negatives (SimCSE), or\n"
        "from NLI rows."
    )
    example: ClassVar[str] = (
        "clearspan triplets --input nli_for_simcse.csv --output data/nli --tokenizer tokenizers/roberta-base"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
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
        check_two(self.prompt_name)
        if self.prompt and self.prompt_name:
            raise ValueError("`prompt` and `prompt_name`: leave one of them out")
        most = 2 if self.are_pairs else 3
        if len(self.prompt) > most:
            raise ValueError(f"`prompt` {self.prompt[-1]!r}: a row has at most {most} texts: give one prompt for each")

    def resolved(self, earlier_options: Mapping[str, Any]) -> Self:
        """Return a copy of these options in which `prompt` holds the texts of the prompts, and `prompt_name` is empty.

        The prompts come from the model in --tokenizer: those that `prompt_name` names, or, if it is empty, the model's
        own prompts for the texts of a row. If the user wrote texts in `prompt`, these options are returned unchanged.

        Args:
            earlier_options: not used here; the options of the unfinished run that is continued; empty in a new run.

        Raises:
            PipelineError: the model has no prompt of a name in `prompt_name`, or its prompts cannot be read.
        """
        if self.prompt:
            return self
        known = model_prompts(self.tokenizer)
        try:
            given = known.sides(self.prompt_name)[:2] if self.prompt_name else self.usual_prompts(known)
        except EncoderError as error:
            raise PipelineError(str(error)) from None
        unused = "" if self.prompt_name else self.unused_prompts(known)
        return dataclasses.replace(self, prompt=given if any(given) else (), prompt_name=(), unused=unused)

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        """Return these options unchanged. If `group_field` is set, first check that it can name the groups of rows.

        For the check, the first records of the inputs are read.

        Args:
            inputs: the input files.
            reading: the rules by which the readers find records in the inputs.

        Raises:
            PipelineError: none of the first records has the field `group_field`, or its values are lists or objects.
        """
        if self.group_field is not None:
            groups.check_field(self.group_field, inputs, reading)
        return self

    def usual_prompts(self, known: Prompts) -> tuple[str, ...]:
        """Return the prompts that are used if the user names none. Here it is one prompt, for the texts of all columns.

        It is the model's prompt for texts that are neither queries nor documents; "" if the model has none.

        Args:
            known: the prompts of the model.
        """
        return (known.of_side(OTHER),)

    def unused_prompts(self, known: Prompts) -> str:
        """Return a warning for a run whose user names no prompt: the model has prompts, but none of them is used.

        Such a run uses only the model's prompt for texts that are neither queries nor documents. The result is "" if
        the model has this prompt, or if it has no prompts.

        Args:
            known: the prompts of the model.
        """
        names = [name for name, text in known.texts.items() if text]
        if known.of_side(OTHER) or not names:
            return ""
        return f"no prompt before the texts, although the model has {', '.join(names)}: choose with `prompt_name`"

    @property
    def prompts(self) -> tuple[str, ...]:
        """Three prompts: to put before a row's sentence, before each positive and before each negative; "" for no
        prompt.

        They are in lower case if the option `lowercase` is set, like the texts.
        """
        texts = of_columns(self.prompt).values()
        return tuple(text.lower() if self.lowercase else text for text in texts)

    @property
    def named(self) -> tuple[str, ...] | None:
        """The names of the columns or fields that hold a row's texts, if the user gives them in an option; otherwise
        None.
        """
        return self.columns

    @property
    def num_positives(self) -> int:
        """The maximum number of positives of a row."""
        if self.max_positives:
            return self.max_positives
        if self.nli or not self.columns:
            return 1
        return 1 + sum(is_positive(name) for name in self.columns[2:])

    @property
    def has_several(self) -> bool:
        """True if `max_positives` or `max_negatives` is set. The number of texts may then differ from row to row."""
        return bool(self.max_positives or self.max_negatives)

    def prompts_of(self, width: int) -> tuple[str, ...]:
        """Return the prompt of each text of a row: of its sentence, its positives and its negatives; "" for no prompt.

        Args:
            width: number of texts of a row.
        """
        if not self.prompts:
            return ()
        first, positive = self.prompts[:2]
        negative = self.prompts[2] if len(self.prompts) > 2 else ""
        positives = [positive] * self.num_positives
        negatives = [negative] * (width - 1 - self.num_positives)
        return (first, *positives, *negatives)

    @property
    def reasons(self) -> tuple[str, ...]:
        of_labels = (nli.NEUTRAL, nli.UNLABELLED, "negative", "unpaired") if self.nli else ()
        long = ["long_tokens"] if self.long == "drop" else []
        return (*of_labels, EMPTY, "short_tokens", *long, *super().reasons)

    @property
    def examples_are_sentences(self) -> bool:
        return True

    @property
    def column_sets(self) -> tuple[tuple[str, ...], ...]:
        """The sets of column names to look for in a table. If a table has all columns of several sets, the largest
        of these sets is read.
        """
        if self.named:
            return (self.named,)
        return nli.COLUMNS if self.nli else self.usual

    def options(self) -> dict[str, Any]:
        inapplicable = ("text_field", "text_per", "document_separator")
        return {
            "min_tokens": self.min_tokens,
            "max_tokens": self.max_tokens,
            "columns": list(self.named) if self.named else None,
            "nli": self.nli,
            "ends": "stripped",
            **({"pairs": True} if self.are_pairs else {}),
            **({"long": self.long} if self.long != "drop" else {}),
            **{name: most for name in ("max_positives", "max_negatives") if (most := getattr(self, name))},
            **({"prompts": dict(zip(self.prompted, self.prompts, strict=False))} if any(self.prompts) else {}),
            **{name: value for name, value in super().options().items() if name not in inapplicable},
        }

    def prepared(self, text: str) -> str:
        return super().prepared(text).strip()

    @property
    def prompted(self) -> tuple[str, ...]:
        """The dataset's columns whose texts may have a prompt: "tokens" (the sentence), "positive" and, unless the rows
        are pairs, "negative".
        """
        return TEXT_COLUMNS[:2] if self.are_pairs else TEXT_COLUMNS

    def reading(self) -> ReadOptions:
        by_order = self.named is None
        rows = dataclasses.replace(self.reading_with_group(), columns=self.column_sets, by_order=by_order)
        return dataclasses.replace(rows, option=self.option, whole=self.nli)

    def reading_with_group(self) -> ReadOptions:
        """Return the base class's rules for reading the inputs; if `group_field` is set, this field is read as well."""
        return dataclasses.replace(super().reading(), keep=() if self.group_field is None else (self.group_field,))

    @functools.cached_property
    def rows(self) -> ReadOptions:
        """The rules for reading the inputs: the result of `reading()`, stored because every record needs it."""
        return self.reading()

    def check(self, record: Record) -> None:
        try:
            self.cells(record)
        except MissingFieldError as problem:
            raise RecordError(str(problem)) from None  # a bad row

    def cells(self, record: Record) -> list[Any]:
        """Return the contents of a record's columns that make up a row, in the order of the columns, such as a
        sentence, a positive and a negative.

        Raises:
            MissingFieldError: the record can be read, but lacks one of the columns.
            RecordError: the record is bad, or is a text without columns.
        """
        if record.problem:
            raise RecordError(record.problem)
        value = record.value
        if not isinstance(value, dict):
            raise RecordError("expected a row of columns, found a text")
        columns = chosen(list(value), self.rows)
        if columns is None:
            named = shown_sets(self.column_sets)
            mend = f"name them in order with `{self.rows.option}`"
            of_labels = dataclasses.replace(self.rows, columns=nli.COLUMNS, by_order=False)
            if chosen(list(value), of_labels) and not self.named:
                mend = "add `nli`"
            raise MissingFieldError(f"no fields {named} among {fields(value)}: {mend}")
        return [value[column] for column in columns]

    def texts(self, record: Record, counts: Counts) -> tuple[str, ...]:
        """Return the texts of a row: its sentence, positives and negatives. "" stands for a text that the row lacks.

        If a row has more positives than `max_positives`, or more negatives than `max_negatives`, the rest is left out
        and counted in `counts`.

        Raises:
            MissingFieldError: the record can be read, but lacks one of the columns.
            RecordError: the record is bad, is a text without columns, or has something other than texts in a column. Or
                `max_positives` is None, and the row has more positives than columns for positives; likewise for
                negatives.
        """
        values = self.cells(record)
        names = chosen(list(record.value), self.rows) if isinstance(record.value, dict) else None
        if not self._may_lack_texts(values):
            return tuple(map(checked_text, values))
        places = [1 <= place < 2 or is_positive(name) for place, name in enumerate(names or ())][1:]
        found = (_listed(values[0]), *(_texts_of_columns(values[1:], places, wanted) for wanted in (True, False)))
        most = (1, self.num_positives, self.max_negatives or places.count(False))
        texts: list[str] = []
        for sort, those, room in zip(("text", "positive", "negative"), found, most, strict=True):
            if len(those) > room:
                option = f"max_{sort}s"
                if not getattr(self, option, None):
                    mend = f": keep some with `{option}` N" if sort != "text" else ""
                    raise RecordError(
                        f"{len(those)} {sort}s in a row, which has {counted(room, 'column')} for them{mend}"
                    )
                counts.count("beyond", len(those) - room)
            texts += those[:room]
            texts += [""] * (room - len(those))
        return tuple(texts)

    def _may_lack_texts(self, values: Sequence[Any]) -> bool:
        """Return whether the number of positives and negatives may differ from row to row. A row may then lack some of
        them.

        The number may differ if an option limits it, if there are more than three columns, or if a column holds a list.
        In a dataset of pairs it never differs.

        Args:
            values: the contents of a row's columns.
        """
        several = self.has_several or len(values) > len(TEXT_COLUMNS)
        return not self.are_pairs and (several or any(isinstance(value, list) for value in values))

    def worker(self, resources: Mapping[str, bytes]) -> "TripletWorker":
        return TripletWorker(self, self.tokenization_of(resources), excluded_of(resources))

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the lines that the kind adds to the summary of a run.

        They are the lines of the base class, the number of rows in which a text was cut, the number of texts that were
        left out because a row had too many, the prompts, and a warning if the model has prompts that are not used.

        Args:
            fingerprint: the fingerprint of the dataset.
            sums: further counts that the kind makes, such as `cut`: name -> count, added up over all work units.
        """
        lines = super().remarks(fingerprint, sums)
        if sums.get("cut"):
            lines.append(f"{sums['cut']:,} rows with a text cut to {self.max_tokens:,} tokens")
        if sums.get("beyond"):
            lines.append(f"{sums['beyond']:,} texts beyond `max_positives` or `max_negatives` left out")
        if prompts := fingerprint["options"].get("prompts"):
            first, second, *_ = prompts.values()
            others = f"before the first text of a row, {quoted_prompt(second)} before the other"
            lines.append(f"{quoted_prompt(first)} {'before each text' if first == second else others}")
        if self.unused:
            lines.append(self.unused)
        return lines


class TripletWorker(TextWorker[Triplets]):
    """Makes the examples of the kind `triplets` in a worker process: it reads rows of several texts, and tokenizes
    them.
    """

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches.

        Every row is counted in `counter`: as read, and also as kept, as filtered or as bad.

        Raises:
            PipelineError: the rows do not all have the same number of texts.
        """
        self.tokenization.start_unit()
        yield from self.batches(self._parts(records, counter), BATCH_EXAMPLES, self._batch, min_room=TOKENIZE_ROWS)

    def _parts(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[ExamplesToWrite]:
        """Tokenize the rows of the records, 2,048 (TOKENIZE_ROWS) at a time; yield the rows to write to the dataset.

        Every row is counted in `counter`: as read, and also as kept, as filtered or as bad.
        """
        rows = self._rows(records, counter)
        is_checked = not self.builder.rows.by_order
        while group := list(itertools.islice(rows, TOKENIZE_ROWS)):
            if not is_checked:
                _check_texts(group)
                is_checked = True
            texts, originals = ([text for row in group for text in row[column]] for column in (1, 0))
            width = len(group[0].texts)
            sources = [row.source for row in group for _ in range(width)]
            prompts = self.builder.prompts_of(width)
            with_prompts = [prompt + text for prompt, text in zip(itertools.cycle(prompts), texts, strict=False)]
            tokens = self.tokenization.tokenize(with_prompts, sources)
            is_there = np.array(list(map(bool, texts)))
            if not is_there.all():
                tokens = segments(tokens.values, tokens.offsets[:-1], tokens.lengths * is_there)
            of_groups = [row.group for row in group for _ in range(width)]
            tokenized = TokenizedTexts(texts, originals, sources, tokens, groups=of_groups)
            before = np.array([len(leading_ids(self.tokenization.tokenizer, prompt)) for prompt in prompts])
            if self.builder.long == "cut":
                tokenized = self._cut(tokenized, counter.counts, width, before)
            yield self.select(tokenized, counter, self.builder.min_tokens, self.builder.max_tokens, width, before)

    def _cut(self, tokenized: TokenizedTexts, counts: Counts, width: int, prompt_lengths: np.ndarray) -> TokenizedTexts:
        """Return the tokenized texts, each cut to its first `max_tokens` tokens. The tokens of its prompt count.

        The rows in which a text is cut are counted in `counts`. Rows in which a text has fewer than `min_tokens` tokens
        after its prompt are not counted, because they will be dropped.

        Args:
            tokenized: the tokenized texts of the rows; each text's tokens begin with those of its prompt.
            width: the number of texts of each row, which are consecutive in `tokenized`.
            prompt_lengths: for each text of a row, the number of tokens of its prompt, (width,).
        """
        tokens = tokenized.tokens
        most = self.builder.max_tokens
        lengths = tokens.lengths.reshape(-1, width)
        counts.measure("tokens", int(lengths.max()))
        shortest = np.where(absent(tokenized, width), most, lengths - prompt_lengths).min(1)
        counts.count("cut", int(((lengths.max(1) > most) & (shortest >= self.builder.min_tokens)).sum()))
        cut = segments(tokens.values, tokens.offsets[:-1], np.minimum(tokens.lengths, most))
        return dataclasses.replace(tokenized, tokens=cut)

    def example_id(self, texts: Sequence[str]) -> int:
        """Return the id of a row: the upper 31 bits are a hash of its first text, the lower 32 bits a hash of all its
        texts.
        """
        parts = [text.encode() for text in texts]
        return grouped_id(parts[0], b"".join(len(part).to_bytes(8, "little") + part for part in parts))

    def _batch(self, kept: ExamplesToWrite) -> pa.RecordBatch:
        num_positives = self.builder.num_positives
        negatives = numbered("negative", len(kept.columns) - 1 - num_positives)
        return self.record_batch(kept, kept.columns, [*numbered("positive", num_positives)[1:], *negatives])

    def _rows(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[TripletRow]:
        """Yield the rows to tokenize. All rows are counted in `counter` as read, and those that are dropped as filtered
        or bad.

        Raises:
            PipelineError: the rows do not all have the same number of texts.
        """
        if self.builder.nli:
            for _, rows in itertools.groupby(records, key=lambda record: record.name):
                for texts, source in nli.paired(rows, self.builder.cells, counter):
                    row = self._prepared(texts, source, "")
                    if self._is_kept(row, counter.counts):
                        yield row
            return
        num_texts = 0
        for row in counter.made(records, lambda record: self._row(record, counter.counts)):
            if num_texts and len(row.texts) != num_texts:
                raise PipelineError(
                    f"{row.source}: a row of {len(row.texts)} texts, after rows of {num_texts}: process them in "
                    f"separate runs, or name the columns that all rows have with `columns`"
                )
            num_texts = len(row.texts)
            if self._is_kept(row, counter.counts):
                yield row

    def _row(self, record: Record, counts: Counts) -> TripletRow | None:
        """Return the row that a record holds. (A subclass may return None, for a record that it leaves out.)

        Args:
            counts: counts the texts that are left out because the row has more than `max_positives` or `max_negatives`.

        Raises:
            MissingFieldError: the record can be read, but lacks one of the columns.
            RecordError: the record is bad, or its columns do not hold the texts of a row.
        """
        texts = self.builder.texts(record, counts)
        return self._prepared(texts, record.source, groups.group_of(record, self.builder.group_field))

    def _prepared(self, texts: tuple[str, ...], source: str, group: str) -> TripletRow:
        return TripletRow(texts, tuple(map(self.builder.prepared, texts)), source, group)

    def _is_kept(self, row: TripletRow, counts: Counts) -> bool:
        """Return whether a row is to be tokenized. If not, it is counted in `counts` as filtered.

        It is not tokenized if a filter drops it, or if a text that it needs is blank. A row needs all its texts; but if
        it has more than three, or if `max_positives` or `max_negatives` is set, only its sentence and first positive.
        """
        # A row that may have several positives or negatives needs only its sentence and its first positive.
        needed = row.texts if len(row.texts) <= len(TEXT_COLUMNS) and not self.builder.has_several else row.texts[:2]
        if not all(text.strip() for text in needed):
            counts.filtered[EMPTY] += 1
            return False
        fewest = min(filter(None, row.originals), key=lambda text: len(text.split()))
        return self.builder.selected("\n".join(row.originals), counts, fewest) is not None


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


def _check_texts(rows: Sequence[TripletRow]) -> None:
    """Raise PipelineError if a column of the first rows holds only NLI labels and numbers instead of texts.

    It is called only if the columns were chosen by their order, not by their names.

    Args:
        rows: the first rows. A column of which fewer than 8 rows (CHECK_ROWS) have a text is not checked.
    """
    for cells in zip(*(row.texts for row in rows), strict=True):
        column = [text for text in cells if text]  # a row may lack a text
        if len(column) >= CHECK_ROWS and all(
            text.strip().lower() in nli.LABELS or NUMBER.fullmatch(text) for text in column
        ):
            raise PipelineError(
                f"{rows[0].source}: {column[0]!r} and all below it are labels or numbers, not texts: add "
                f"`nli` if rows are premise, hypothesis and label, or name the columns of texts in order "
                f"with `columns`"
            )
