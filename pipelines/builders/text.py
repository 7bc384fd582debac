"""Base of the kinds of tokenized text: tokenizer, preparation, excluded texts, duplicates.

    record -> text -> selected (by number of words, language, quality) -> prepared (spaces, letter case) -> token ids
           -> neither too short nor too long, and without an excluded text -> batches (1 MiB of token ids)

An id is a hash of the prepared text's bytes. A text therefore has the same id however the corpus is divided into files.
To find duplicates and to choose held-out texts, prepared texts are compared without regard to white space, letter case
and Unicode form (`common.same_text`). Excluded texts are searched for in the text as read, whose line breaks show where
sentences end. A space that the tokenizer adds before a text changes neither its id nor the comparisons.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt, Le

from clearspan.common import same_text
from clearspan.common.options import Flag
from clearspan.common.ragged import Ragged
from clearspan.pipelines.attached import GROUPS, HASHES, attach
from clearspan.pipelines.builders import Dedup, groups
from clearspan.pipelines.builders.text_inputs import TextInputs, text_id
from clearspan.pipelines.counter import Counts, RecordCounter
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.records import Inputs
from clearspan.pipelines.text.exclude import Excluded, read_texts
from clearspan.pipelines.text.filters import FilteredText, detector, text_filter
from clearspan.pipelines.text.joining import TokenizedTexts
from clearspan.pipelines.text.minhash import COLUMN, LOWEST, sketches
from clearspan.pipelines.text.segmentation import normalize
from clearspan.pipelines.text.tokenization import (
    BACKENDS,
    Tokenization,
    TokenizerFiles,
    read_tokenizer,
    with_prefix_space,
    with_special_token,
)
from clearspan.shards.manifest import FILES_FOLDER, numbered
from clearspan.shards.schema import KINDS

EXCLUDED = f"{FILES_FOLDER}/excluded.u64"
EXCLUDED_TEXTS = f"{FILES_FOLDER}/excluded.jsonl"
"""Paths of the hashes of the excluded texts (EXCLUDED), and of the beginnings of these texts (EXCLUDED_TEXTS)."""
EXCLUDE_TOGETHER = 64
MAX_TOKENS = 510
"""Default maximum for sentences, which is 512 with the two special tokens of RoBERTa or BERT."""
LANGUAGE_THRESHOLD = 0.5
BATCH_BYTES = 1 << 20
"""Bytes of token ids of a record batch."""


class Selected(NamedTuple):
    """A text that the filters do not drop.

    Attributes:
        text: the text, without the lines that quality filters removed.
        language: language code of the text; None if the language was not identified.
    """

    text: str
    language: str | None


SPACES = "keep whitespace as it is, or collapse each run of whitespace to one space"
QUALITY = "apply these filters in turn: gopher or c4 (English web pages), or your own as module:name (docs/data.md)"
SIMILAR = "drop near-duplicates: examples whose Jaccard similarity to an earlier one is at least S (0.5 to 1, e.g. 0.8)"
PREFIX = "put a space before each text, like the tokenizer option add_prefix_space"
LANGUAGE = "keep only texts in these languages: ISO 639-1 codes, e.g. de,fr (extra `language`; default: any language)"
THRESHOLD = f"minimum probability of the language that --language identifies, 0 to 1 (default {LANGUAGE_THRESHOLD})"
EXCLUDE = "drop examples that contain a text of these files or folders, such as evaluation data"
TOKENIZATION = "tokenizers: use that library alone; auto: use a faster implementation where its ids are the same"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextBuilder(TextInputs):
    """Options of a kind of tokenized text. `whitespace`, `lowercase`, `prefix_space` and `min_words` reproduce
    DeCLUTR's published preparation.
    """

    tokenizer: Annotated[
        str, Flag("tokenizer.json, or the folder that holds it, e.g. a model's", "PATH", required=True, path=True)
    ] = ""
    whitespace: Annotated[Literal["keep", "collapse"], Flag(SPACES)] = "keep"
    lowercase: Annotated[bool, Flag("lower-case the text")] = False
    prefix_space: Annotated[bool, Flag(PREFIX)] = False
    min_words: Annotated[int | None, Flag("drop texts of fewer words, counted by whitespace", "N"), Ge(1)] = None
    language: Annotated[tuple[str, ...], Flag(LANGUAGE, "CODES", commas=True)] = ()
    language_threshold: Annotated[float | None, Flag(THRESHOLD, "P"), Gt(0), Le(1)] = None
    quality: Annotated[tuple[str, ...], Flag(QUALITY, "NAMES", commas=True)] = ()
    dedup: Dedup = False
    near_dedup: Annotated[float | None, Flag(SIMILAR, "S"), Ge(LOWEST), Le(1)] = None
    exclude: Annotated[tuple[str, ...], Flag(EXCLUDE, "FILE", many=True, path=True)] = ()
    tokenization: Annotated[str, Flag(TOKENIZATION, choices=BACKENDS)] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.language_threshold is not None and not self.languages:
            raise ValueError("`language_threshold` has no effect without `language`: add it, e.g. `language` de,fr")
        if self.languages:
            check_languages(self.languages)
        for name in self.quality:
            try:
                text_filter(name)
            except ValueError as error:
                raise ValueError(f"`quality` {error}") from None

    @property
    def languages(self) -> tuple[str, ...]:
        """Language codes (ISO 639-1) of the texts to keep; empty to keep texts of any language."""
        return self.language

    @property
    def least_probability(self) -> float:
        return LANGUAGE_THRESHOLD if self.language_threshold is None else self.language_threshold

    @property
    def reasons(self) -> tuple[str, ...]:
        few_words = [] if self.min_words is None else ["few_words"]
        language = ["language"] if self.languages else []
        quality = [reason for name in self.quality for reason in text_filter(name).reasons]
        excluded = ["excluded"] if self.exclude else []
        return (*few_words, *language, *quality, *excluded)

    @property
    def examples_are_sentences(self) -> bool:
        """True if each text of an example is a sentence. In that case, even short sentences of the excluded texts are
        searched for in the examples.
        """
        return False

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Special tokens that are added to the tokenizer if it lacks them."""
        return ()

    def options(self) -> dict[str, Any]:
        own: dict[str, Any] = {
            name: getattr(self, name) for name in ("whitespace", "lowercase", "prefix_space", "min_words")
        }
        if self.languages:
            version = detector().version
            own["languages"] = {"keep": list(self.languages), "least": self.least_probability, "detector": version}
        if self.quality:
            own["quality"] = [text_filter(name).described() for name in self.quality]
        return super().options() | own

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """Return the tokenizer's files and, if the user excludes texts, a file with the hashes of these texts and a
        file with their beginnings, as {path: content}.

        Raises:
            PipelineError: the tokenizer or a file of excluded texts is missing or unusable.
        """
        tokenizer = read_tokenizer(self.tokenizer)
        for token in self.special_tokens:
            tokenizer = with_special_token(tokenizer, token)
        if self.prefix_space:
            tokenizer = with_prefix_space(tokenizer)
        files = tokenizer.resources
        if self.exclude:
            excluded = Excluded.of(read_texts(self.exclude), self.examples_are_sentences)
            files |= {EXCLUDED: excluded.to_bytes(), EXCLUDED_TEXTS: excluded.heads}
        return files

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        """Return the base class's fingerprint, with entries for the tokenizer and the excluded texts."""
        full = {"tokenizer": dataclasses.asdict(TokenizerFiles.of(resources).info), **super().fingerprint(resources)}
        excluded = excluded_of(resources)
        full["options"]["exclude"] = excluded.options() if excluded else None
        return full

    def tokenization_of(self, resources: Mapping[str, bytes]) -> Tokenization:
        """Build the object that tokenizes texts.

        Args:
            resources: the contents of the dataset's resource files, by path, which include the tokenizer's files.
        """
        return Tokenization(TokenizerFiles.main(resources), backend=self.tokenization, prompts=self.prompts)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts to put before the texts, one for each column; empty for a kind without prompts."""
        return ()

    def selected(self, text: str, counts: Counts, counted: str | None = None) -> Selected | None:
        """Return a text without the lines that quality filters remove, and its language. If a filter drops the whole
        text, count it in `counts` and return None.

        Args:
            counted: the part of the text whose words are counted for `min_words`; None for the whole text.

        Raises:
            RecordError: the code of a quality filter raises an error for this text, or returns something invalid.
        """
        language = None
        if self.min_words is not None:
            number = len((text if counted is None else counted).split())
            counts.measure("words", number)
            if number < self.min_words:
                counts.filtered["few_words"] += 1
                return None
        if self.languages:
            language, probability = detector().likeliest(text, self.languages)
            if probability < self.least_probability:
                counts.filtered["language"] += 1
                return None
        for name in self.quality:
            chosen = text_filter(name)
            document = FilteredText(text, language)
            dropped = chosen.reason(document)
            for reason, number in document.removed.items():
                counts.count(f"{chosen.prefix}{reason}", number)
            if dropped:
                counts.filtered[dropped] = counts.filtered.get(dropped, 0) + 1
                return None
            text = document.text
        return Selected(text, language)

    def prepared(self, text: str) -> str:
        """Return the text as it is tokenized: with single spaces and in lower case, if the options say so."""
        if self.whitespace == "collapse":
            text = normalize(text)
        return text.lower() if self.lowercase else text

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return lines for the summary of the run: the number of excluded texts, if there are any, and the number of
        lines that quality filters removed from texts, if they removed any.
        """
        excluded = fingerprint["options"]["exclude"]
        lines = []
        if excluded:
            without = f"; {excluded['without_words']:,} without words" if excluded["without_words"] else ""
            lines.append(f"{excluded['texts']:,} texts excluded{without}")
        prefixes = tuple(text_filter(name).prefix for name in self.quality)
        if removed := {reason: number for reason, number in sums.items() if reason.startswith(prefixes)}:
            lines.append(f"lines removed: {', '.join(numbered(removed))}")
        return lines


def check_languages(languages: Sequence[str]) -> None:
    """Raise ValueError if the language detector is not installed, or does not know one of the languages.

    Args:
        languages: codes of ISO 639-1.
    """
    try:
        known = detector().known()
    except PipelineError as error:
        raise ValueError(str(error)) from None
    if unknown := [code for code in languages if code not in known]:
        raise ValueError(f"`language` {unknown[0]}: the detector knows the languages {' '.join(known)}")


class ExamplesToWrite(NamedTuple):
    """Examples to write to the dataset.

    Attributes:
        ids: ids of n examples, (n,) int64.
        columns: for each column of token ids in the dataset, the token ids of all examples.
        prepared: the prepared text of each example; if an example has several texts, the first of them.
        raw: the texts in `prepared` as they were before the preparation.
        sources: the file and place that each example was read from.
        hashes: a hash of each of the t texts of an example, as two numbers, (n, 2 * t) uint64; (n, 0) if the run does
            not search for equal texts.
        groups: the hash of each example's group, (n, 1) uint64; (n, 0) if rows have no groups.
    """

    ids: np.ndarray
    columns: list[Ragged]
    prepared: list[str]
    raw: list[str]
    sources: list[str]
    hashes: np.ndarray
    groups: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence["ExamplesToWrite"]) -> "ExamplesToWrite":
        """Return the examples of one or more parts, concatenated."""
        ids, columns, *texts, hashes, of_groups = zip(*parts, strict=True)
        of_columns = [Ragged.concatenate(column) for column in zip(*columns, strict=True)]
        prepared, raw, sources = ([text for part in of_parts for text in part] for of_parts in texts)
        ids, hashes, of_groups = map(np.concatenate, (ids, hashes, of_groups))
        return cls(ids, of_columns, prepared, raw, sources, hashes, of_groups)

    def singly(self) -> Iterator["ExamplesToWrite"]:
        """Yield an `ExamplesToWrite` for each example."""
        for index in range(len(self.ids)):
            row = slice(index, index + 1)
            columns = [column.slice(row) for column in self.columns]
            texts = (self.prepared[row], self.raw[row], self.sources[row])
            yield ExamplesToWrite(self.ids[row], columns, *texts, self.hashes[row], self.groups[row])


AnyTextBuilder = TypeVar("AnyTextBuilder", bound=TextBuilder)


@dataclasses.dataclass(frozen=True)
class TextWorker(Generic[AnyTextBuilder]):
    """Base of the workers of the kinds of text.

    Attributes:
        builder: the builder, with its options.
        tokenization: converts texts to token ids.
        excluded: the texts that no example may contain; None if there are none.
    """

    builder: AnyTextBuilder
    tokenization: Tokenization
    excluded: Excluded | None = None

    def with_sketches(self, batch: pa.RecordBatch, texts: Sequence[str]) -> pa.RecordBatch:
        """Return a batch with the MinHash sketch of each row's text attached; unchanged if near-duplicates are not
        dropped.

        Args:
            texts: the text of each row.
        """
        return batch if self.builder.near_dedup is None else attach(batch, COLUMN, sketches(texts))

    def example_id(self, texts: Sequence[str]) -> int:
        """Return the id of an example: a hash of its text. A kind with several texts per example overrides this method.

        Args:
            texts: the prepared texts of the example.
        """
        return text_id(texts[0].encode())

    def tokenized(self, prepared: Sequence[str], raw: Sequence[str], sources: Sequence[str]) -> TokenizedTexts:
        """Tokenize texts, and return them with their token ids.

        Args:
            prepared: the texts to tokenize: in single spaces or lower case, if the options say so. The ids of examples
                are hashes of these texts.
            raw: the texts in which excluded texts are looked for: the same texts with their own spaces and case.
            sources: the file and place that each text was read from.
        """
        return TokenizedTexts(prepared, raw, sources, self.tokenization.tokenize(prepared, sources))

    def select(
        self,
        tokenized: TokenizedTexts,
        counter: RecordCounter,
        min_tokens: int,
        max_tokens: int | None,
        width: int = 1,
        num_uncounted: np.ndarray | int = 0,
    ) -> ExamplesToWrite:
        """Return the examples to write to the dataset.

        An example is dropped if one of its texts has fewer than `min_tokens` or more than `max_tokens` tokens, or
        contains an excluded text. An empty text of an example with several texts stands for a missing one, which may
        have no tokens. Every example is counted in `counter`, as kept or as filtered.

        Args:
            tokenized: the tokenized texts of one or more examples.
            min_tokens: the minimum number of tokens of each text.
            max_tokens: the maximum number of tokens of each text, for which all of its tokens count; None for no
                maximum.
            width: the number of texts of each example, which are consecutive in `tokenized`.
            num_uncounted: for each text of an example, the number of tokens at its start, such as a prompt's, that do
                not count towards `min_tokens`, (width,); 0 if all tokens count.
        """
        filtered = counter.counts.filtered
        lengths = tokenized.tokens.lengths.reshape(-1, width)
        counter.counts.measure("tokens", int(lengths.max()))
        short = np.where(absent(tokenized, width), min_tokens, lengths - num_uncounted).min(1) < min_tokens
        long = ~short & (lengths.max(1) > (np.inf if max_tokens is None else max_tokens))
        filtered["short_tokens"] += int(short.sum())
        if "long_tokens" in filtered:
            filtered["long_tokens"] += int(long.sum())
        kept = np.flatnonzero(~(short | long))

        def of(index: int, texts: Sequence[str]) -> Sequence[str]:
            return texts[index * width : (index + 1) * width]

        if self.excluded:
            held = [text for index in kept.tolist() for text in of(index, tokenized.raw)]
            places = np.unique(np.array(containing_excluded(held, self.excluded), np.int64) // width)
            for index in kept[places].tolist():
                held_text = next(filter(None, map(self.excluded.found_in, of(index, tokenized.raw))))
                number = self.example_id(of(index, tokenized.prepared))
                counter.exclude(tokenized.sources[index * width], number, held_text)
            kept = np.delete(kept, places)
        counter.counts.kept += len(kept)
        ids = np.array([self.example_id(of(index, tokenized.prepared)) for index in kept.tolist()], np.int64)
        firsts = (kept * width).tolist()
        read = (tokenized.prepared, tokenized.raw, tokenized.sources)
        prepared, raw, sources = ([texts[first] for first in firsts] for texts in read)
        columns = [tokenized.tokens.take(kept * width + column) for column in range(width)]
        hashes = of_groups = np.empty((len(kept), 0), np.uint64)
        if self.builder.compares and len(kept):
            # A missing text is replaced by the example's first text, so that it links the example to no other example.
            rows = (of(index, tokenized.prepared) for index in kept.tolist())
            compared = (text or row[0] for row in rows for text in row)
            hashes = same_text.digests(compared, self.builder.whitespace == "collapse").reshape(len(kept), -1)
            if self.builder.group_field is not None:
                of_groups = groups.digests([tokenized.groups[first] for first in firsts], hashes[:, 0])
        return ExamplesToWrite(ids, columns, prepared, raw, sources, hashes, of_groups)

    def batches(
        self,
        parts: Iterable[ExamplesToWrite],
        max_examples: int,
        batch: Callable[[ExamplesToWrite], pa.RecordBatch],
        min_room: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Yield examples in record batches of about 1 MiB of token ids.

        Args:
            parts: the examples in parts. A part is never divided between batches.
            max_examples: the maximum number of examples in a batch. Only a single part that has more examples makes a
                larger batch.
            batch: function that makes a record batch from examples.
            min_room: a batch ends when this number of further examples would exceed `max_examples`, even if the next
                part has fewer. If it is 0, a batch ends when the next part would exceed `max_examples`.
        """
        waiting: list[ExamplesToWrite] = []
        num = size = 0
        for part in parts:
            if size >= BATCH_BYTES or (waiting and num + (min_room or len(part.ids)) > max_examples):
                yield batch(ExamplesToWrite.joined(waiting))
                waiting = []
                num = 0
                size = 0
            if len(part.ids):
                waiting.append(part)
                num += len(part.ids)
                size += sum(column.values.nbytes for column in part.columns)
        if waiting:
            yield batch(ExamplesToWrite.joined(waiting))

    def record_batch(
        self,
        kept: ExamplesToWrite,
        columns: Sequence[Ragged],
        optional_columns: Sequence[str] = (),
        other_columns: Sequence[pa.Array] = (),
    ) -> pa.RecordBatch:
        """Return examples as a record batch with the columns of the kind.

        Args:
            kept: the examples, from which the ids and the hashes are taken.
            columns: for each column of token ids, the token ids of all examples.
            optional_columns: the names of the last columns in `columns`, if they are columns that some datasets of the
                kind lack, such as `view_0`.
            other_columns: further columns, which follow the columns of token ids.
        """
        fields = KINDS[self.builder.name].schema(pa.from_numpy_dtype(columns[0].values.dtype), optional_columns)
        lists = [column.to_arrow(fields.field("tokens").type) for column in columns]
        batch = pa.record_batch([pa.array(kept.ids), *lists, *other_columns], schema=fields)
        if not self.builder.compares:
            return batch
        batch = attach(batch, HASHES, kept.hashes)
        return batch if self.builder.group_field is None else attach(batch, GROUPS, kept.groups)


def absent(tokenized: TokenizedTexts, width: int) -> np.ndarray:
    """Return a mask of the texts of n examples, (n, width) bool: true for each text that is missing.

    Args:
        tokenized: the texts of the examples, `width` for each; an empty text stands for a missing one.
        width: the number of texts of an example. If it is 1, no text is missing.
    """
    return np.array([width > 1 and not text for text in tokenized.prepared], bool).reshape(-1, width)


def excluded_of(resources: Mapping[str, bytes]) -> Excluded | None:
    """Return the excluded texts, read from the dataset's resource files; None if there are none.

    Args:
        resources: the contents of these files, by path.
    """
    if EXCLUDED not in resources:
        return None
    return Excluded.from_bytes(resources[EXCLUDED], resources[EXCLUDED_TEXTS])


def containing_excluded(texts: Sequence[str], excluded: Excluded) -> list[int]:
    """Return the indices of the texts that contain an excluded text.

    For speed, texts are first tested in groups, as if they were the lines of one text.
    """
    indices = []
    for first in range(0, len(texts), EXCLUDE_TOGETHER):
        together = texts[first : first + EXCLUDE_TOGETHER]
        if excluded.may_contain(together):
            indices += [first + index for index, text in enumerate(together) if excluded.contains_excluded(text)]
    return indices
