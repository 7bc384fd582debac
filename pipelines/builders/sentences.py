"""Sentences: texts split into sentences, each with precomputed augmented views (CLEAR).

    record -> text -> sentences -> token ids -> drop if too few or too many -> batches (1 MiB) -> views of each batch

An example is {id, tokens, view_0, view_1, ...}. The id is a hash of the sentence's bytes, and the tokens are without
special tokens. View k depends only on the sentence, the augmentation, the seed and k, because its random draws are
keyed by (seed, id, k). The counts are numbers of sentences, not of records. A bad record counts as one sentence, and so
does a text that is empty or has too few words.

With `pack` an example is not a sentence but a piece of a text. A piece is a run of consecutive sentences with at most
`pack` tokens, joined as in the text, or a part of a sentence that has more tokens. The token ids of a piece are the ids
of the joined text. Ids, views, exclusion, filters, counts and duplicates then apply to pieces instead of sentences.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from annotated_types import Ge, Le

from clearspan.common.catalog import COMMANDS
from clearspan.common.options import Flag
from clearspan.pipelines.augment import words as word_starts
from clearspan.pipelines.augment.steps import DEL, STEPS, Augmentation, Augmenter, Proportions
from clearspan.pipelines.augment.synonyms import EXPECTED, PUBLISHED, SOURCES, read_synonyms
from clearspan.pipelines.builders import Dedup
from clearspan.pipelines.builders.text import (
    MAX_TOKENS,
    SPACES,
    ExamplesToWrite,
    Selected,
    TextBuilder,
    TextWorker,
    excluded_of,
)
from clearspan.pipelines.builders.text_inputs import EMPTY, grouped, text_in
from clearspan.pipelines.counter import Counts, RecordCounter
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.records import Inputs, Record
from clearspan.pipelines.text.joining import TokenizedTexts, join
from clearspan.pipelines.text.segmentation import LANGUAGES, normalize, segment, segment_spaced
from clearspan.shards import keyed
from clearspan.shards.manifest import FILES_FOLDER

TOKENIZE_CHARACTERS = 1 << 20
TOKENIZE_SENTENCES = 4096
"""Limits of a group of sentences that is tokenized at a time: about TOKENIZE_CHARACTERS, or TOKENIZE_SENTENCES."""
BATCH_SENTENCES = 1 << 16
SYNONYMS = f"{FILES_FOLDER}/{PUBLISHED}"
NEAR_UNIT_BYTES = 16_000_000
"""Size of a work unit with --near-dedup, in bytes of input. It is small because a worker holds 650 to 1,300 bytes for
each sentence of a unit.
"""
AUGMENT = f"steps that make a view, joined by +: {', '.join(STEPS)}, e.g. subs+del-span (default: no views)"
SYNONYMS_OF = "synonyms for subs: a JSON object of words to lists of words, or lines of a word and its synonyms (tabs)"
PACK = "join a text's sentences to pieces of at most N tokens; 510 leaves room for <s> and </s> in 512"
RULES = (
    "ISO 639-1 code of the language whose rules split sentences (default en). Several codes, e.g. de,fr, or one with "
    "--language-threshold, also drop texts in other languages (extra `language`)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmenting(Proportions):
    """Options that say which augmented views of each sentence are stored in the dataset."""

    augment: Annotated[str | None, Flag(AUGMENT, "STEPS")] = None
    synonyms: Annotated[str | None, Flag(SYNONYMS_OF, "FILE", path=True)] = None
    views: Annotated[int, Flag("number of augmented views of each sentence", "K"), Ge(1), Le(100)] = 2
    augment_seed: Annotated[int, Flag("random seed of the views", "N")] = 42
    del_token: Annotated[
        bool, Flag(f"add the token {DEL} to the tokenizer even if no step deletes, for views made in training")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.augmentation.steps if self.augmentation else ()
        for field in dataclasses.fields(Augmenting):
            if field.name in ("augment", "del_token") or getattr(self, field.name) == field.default:
                continue
            option = f"`{field.name}`"
            named = "subs" if field.name == "synonyms" else field.name
            if not self.augmentation:
                raise ValueError(f"{option} has no effect without `augment`: add it, e.g. `augment` subs+del-span")
            if missing := [step for step in STEPS if named.startswith(step.replace("-", "_")) and step not in steps]:
                raise ValueError(f"{option} has no effect without the step {missing[0]}: add it to `augment`")
        if self.augmentation and self.augmentation.substitutes and not self.synonyms:
            raise ValueError(f"`augment` with subs needs `synonyms` FILE: {EXPECTED}; {SOURCES}")

    @functools.cached_property
    def augmentation(self) -> Augmentation | None:
        """The augmentation that the options describe; None if `augment` is None, so that no views are made.

        Raises:
            ValueError: a step is unknown or repeated.
        """
        if self.augment is None:
            return None
        names = (field.name for field in dataclasses.fields(Proportions))
        return Augmentation.parse(self.augment, **{name: getattr(self, name) for name in names})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentences(Augmenting, TextBuilder):
    """Options of the kind `sentences`: sentences with augmented views."""

    whitespace: Annotated[Literal["collapse"], Flag(SPACES)] = "collapse"
    dedup: Dedup = True
    language: Annotated[tuple[str, ...], Flag(RULES, "CODES", commas=True)] = ("en",)
    no_split: Annotated[
        bool, Flag("take each record as one sentence (if each line is a sentence, add --text-per line)")
    ] = False
    min_tokens: Annotated[int, Flag("drop sentences of fewer tokens, which are often fragments", "N"), Ge(1)] = 4
    max_tokens: Annotated[int | None, Flag(f"drop sentences of more tokens (default {MAX_TOKENS})", "N")] = None
    pack: Annotated[int | None, Flag(PACK, "N")] = None

    name: ClassVar[str] = "sentences"
    summary: ClassVar[str] = COMMANDS["sentences"].summary
    description: ClassVar[str] = (
        "Make a dataset of the sentences of texts, with augmented views of each sentence if wanted (CLEAR)."
    )
    example: ClassVar[str] = (
        "clearspan sentences --input 'corpus/*.jsonl' --output data/sentences \\\n"
        "    --tokenizer tokenizers/roberta-base --augment subs+del-span --synonyms synonyms.json"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pack is not None and self.max_tokens is not None:
            raise ValueError("`max_tokens` has no effect with `pack`, which cuts longer sentences: leave one out")
        if self.most_tokens < self.min_tokens:
            raise ValueError(f"`{'max_tokens' if self.pack is None else 'pack'}` must be at least `min_tokens`")
        if not LANGUAGES.issuperset(self.language):
            named = ",".join(self.language)
            raise ValueError(f"`language` {named}: give a code of ISO 639-1 in lower case, such as en, de or zh")

    @property
    def most_tokens(self) -> int:
        """The maximum number of tokens of an example, which is a sentence, or, if `pack` is set, a piece (joined
        sentences).
        """
        return next((number for number in (self.pack, self.max_tokens) if number is not None), MAX_TOKENS)

    @property
    def rules(self) -> str | None:
        """The codes of the languages whose rules split texts into sentences, joined by commas; None if texts are not
        split.

        If the language of a text is identified, the text is split by the rules of that language instead.
        """
        return None if self.no_split else ",".join(self.language)

    @property
    def languages(self) -> tuple[str, ...]:
        return self.language if len(self.language) > 1 or self.language_threshold is not None else ()

    def unit_bytes(self, inputs: Inputs) -> int | None:
        return NEAR_UNIT_BYTES if self.near_dedup is not None else super().unit_bytes(inputs)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EMPTY, "short_tokens", *(["long_tokens"] if self.pack is None else []), *super().reasons)

    @property
    def examples_are_sentences(self) -> bool:
        return self.pack is None

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return (DEL,) if self.del_token or (self.augmentation and self.augmentation.deletes) else ()

    @property
    def bytes_per_s(self) -> float:
        """Number of input bytes that one process handles per second, measured on 57 MB of books, articles and speeches.

        If views are made, it is the number for two views, with words substituted and spans deleted.
        """
        return 5e6 if self.augmentation else 12e6

    def options(self) -> dict[str, Any]:
        augmentation = self.augmentation
        return {
            "min_tokens": self.min_tokens,
            "max_tokens": self.most_tokens,
            "pack": self.pack,
            **super().options(),
            "language": self.rules,
            "segmenter": f"sentencex {metadata.version('sentencex')}" if self.rules else None,
            "del_token": bool(self.special_tokens),
            "augmentation": {**augmentation.options(), "words": word_starts.VERSION} if augmentation else None,
            "views": self.views if augmentation else 0,
            "augment_seed": self.augment_seed if augmentation else None,
        }

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """Return the base class's files and, if the user names a file of synonyms, a file with the table of synonyms,
        as {path: content}. The table keeps the order of the user's file, because the views depend on it.

        Raises:
            PipelineError: a file that an option names is missing or unusable.
        """
        files = super().resources(inputs)
        if not self.synonyms:
            return files
        try:
            table = read_synonyms(self.synonyms)
        except ValueError as error:
            raise PipelineError(f"`synonyms` {error}; {SOURCES}") from None
        except OSError as error:
            reason = f"`synonyms` {self.synonyms}: {error.strerror or error}"
            raise PipelineError(f"{reason}: {EXPECTED}; {SOURCES}") from None
        return {**files, SYNONYMS: json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()}

    def worker(self, resources: Mapping[str, bytes]) -> "SentenceWorker":
        """Build the worker, with the augmentation prepared for the tokenizer.

        Args:
            resources: the contents of the dataset's resource files, such as the tokenizer's, by path.

        Raises:
            PipelineError: a resource is unusable, or the tokenizer cannot encode any word of the synonyms.
        """
        tokenization = self.tokenization_of(resources)
        synonyms = json.loads(resources[SYNONYMS]) if SYNONYMS in resources else None
        try:
            augmenter = Augmenter(self.augmentation, tokenization.tokenizer, synonyms) if self.augmentation else None
        except ValueError as error:
            raise PipelineError(f"`synonyms` {self.synonyms}: {error}") from None
        return SentenceWorker(self, tokenization, excluded_of(resources), augmenter)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the base class's lines for the summary of the run, followed by up to two lines.

        If sentences are joined to pieces, a line has the number of sentences that were joined, and the number of those
        that were cut because they have more than `pack` tokens. If there are synonyms, a line has the percentage of
        words that have a synonym.
        """
        lines = super().remarks(fingerprint, sums)
        if "packed" in sums:
            lines.append(
                f"{sums['packed']:,} sentences packed to pieces of up to {self.pack:,} tokens; "
                f"{sums['cut']:,} longer ones cut"
            )
        if not sums.get("words"):
            return lines
        if not sums["words_with_synonym"]:
            none = "synonyms: NO word has one, so nothing was substituted: is the table in the language of the texts?"
            return [*lines, none]
        return [*lines, f"synonyms: {100 * sums['words_with_synonym'] / sums['words']:.1f} % of words have one"]


@dataclasses.dataclass(frozen=True)
class SentenceWorker(TextWorker[Sentences]):
    """Worker of the kind `sentences`, with the augmentation prepared for its tokenizer.

    Attributes:
        augmenter: makes the views; None if there are no views.
    """

    augmenter: Augmenter | None = None

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches. Count every example in `counter`.

        An example is a sentence, or, if the kind's option `pack` is set, a piece (joined sentences). Sentences or
        pieces that are dropped are counted, too.
        """
        self.tokenization.start_unit()
        texts = counter.made(records, lambda record: self._text(record, counter.counts))
        groups = self._packed(texts, counter) if self.builder.pack else self._single(texts, counter)
        parts = (self.select(group, counter, self.builder.min_tokens, self.builder.most_tokens) for group in groups)
        yield from self.batches(parts, BATCH_SENTENCES, functools.partial(self._batch, counter=counter))

    def _text(self, record: Record, counts: Counts) -> tuple[list[str], str] | None:
        """Return (sentences, source) of a record's text; the source is the file and place of the record.

        If the text is dropped by a filter or has no sentences, count it in `counts` as filtered and return None.

        Raises:
            RecordError: the record is bad, or the code of a filter fails on its text.
        """
        if (found := text_in(record, self.builder.text_field, counts)) is None:
            return None
        if (selected := self.builder.selected(found[0], counts)) is None:
            return None
        if sentences := self._sentences(selected):
            return sentences, record.source
        counts.filtered[EMPTY] += 1
        return None

    def _sentences(self, selected: Selected) -> list[str]:
        """Return the sentences of a text. If they are to be joined to pieces, a sentence that follows whitespace begins
        with a space.
        """
        if not self.builder.rules:
            text = normalize(selected.text)
            sentences = [text] if text else []
        else:
            language = selected.language or self.builder.rules
            sentences = (segment_spaced if self.builder.pack else segment)(selected.text, language)
        # After segmentation, which relies on capital letters.
        return [sentence.lower() for sentence in sentences] if self.builder.lowercase else sentences

    def _single(self, texts: Iterable[tuple[list[str], str]], counter: RecordCounter) -> Iterator[TokenizedTexts]:
        """Yield the sentences of all texts with their token ids, in groups that are tokenized together.

        In `counter`, each sentence counts as one record that was read.

        Args:
            texts: (sentences, source) of each text. The source is the file and place of its record.
        """
        together: list[str] = []
        sources: list[str] = []
        size = 0
        for sentences, source in texts:
            counter.counts.read += len(sentences) - 1  # the text was counted
            for first in range(0, len(sentences), TOKENIZE_SENTENCES):
                part = sentences[first : first + TOKENIZE_SENTENCES]
                together += part
                sources += [source] * len(part)
                size += sum(map(len, part))
                if len(together) >= TOKENIZE_SENTENCES or size >= TOKENIZE_CHARACTERS:
                    yield self.tokenized(together, together, sources)
                    together, sources, size = [], [], 0
        if together:
            yield self.tokenized(together, together, sources)

    def _packed(self, texts: Iterable[tuple[list[str], str]], counter: RecordCounter) -> Iterator[TokenizedTexts]:
        """Yield the pieces (joined sentences) of all texts with their token ids, in groups that are tokenized together.

        In `counter`, each piece counts as one record that was read.

        Args:
            texts: (sentences, source) of each text. The source is the file and place of its record.
        """
        counter.counts.count("packed", 0)
        counter.counts.count("cut", 0)
        sized = ((text, sum(map(len, text[0]))) for text in texts)
        for group in grouped(sized, TOKENIZE_CHARACTERS, TOKENIZE_CHARACTERS):
            sentences, sources = zip(*group, strict=True)
            counter.counts.read -= len(group)  # the texts were counted
            counter.counts.count("packed", sum(map(len, sentences)))
            for tokenized in join(sentences, sources, self.builder.most_tokens, self.tokenization.tokenize):
                counter.counts.read += len(tokenized.prepared)
                counter.counts.count("cut", tokenized.num_cut)
                yield tokenized

    def _batch(self, kept: ExamplesToWrite, counter: RecordCounter) -> pa.RecordBatch:
        (tokens,), views = kept.columns, []
        if self.augmenter:
            seed, numbers = self.builder.augment_seed, range(self.builder.views)
            views = [self.augmenter(tokens, keyed.mix(seed, kept.ids, number)) for number in numbers]
            if self.builder.synonyms:
                num_covered, num_words = self.augmenter.coverage(tokens)
                counter.counts.count("words", num_words)
                counter.counts.count("words_with_synonym", num_covered)
        batch = self.record_batch(kept, [tokens, *views], [f"view_{number}" for number in range(len(views))])
        return self.with_sketches(batch, kept.raw)
