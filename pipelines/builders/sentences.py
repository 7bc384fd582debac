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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from annotated_types import Ge, Le

from clearspan.cli.catalog import COMMANDS
from clearspan.common.errors import PipelineError
from clearspan.common.options import Flag
from clearspan.pipelines.augment import words as word_starts
from clearspan.pipelines.augment.steps import DEL, STEPS, Augmentation, Augmenter, Proportions
from clearspan.pipelines.augment.synonyms import EXPECTED, PUBLISHED, SOURCES, read_synonyms
from clearspan.pipelines.builders import Builder, Dedup
from clearspan.pipelines.builders.text import BuiltTexts, ExamplesToWrite, TextWorker
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, TextOptions, text_in, text_of
from clearspan.pipelines.builders.text_steps import (
    MAX_TOKENS,
    NearDedup,
    TextSteps,
    excluded_lines,
    excluded_of,
)
from clearspan.pipelines.counter import Counts, RecordCounter
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.text.filters import (
    Filter,
    FilteredText,
    Languages,
    QualityOptions,
    Threshold,
    kept,
)
from clearspan.pipelines.text.joining import TokenizedTexts, join
from clearspan.pipelines.text.segmentation import LANGUAGES, normalize, segment, segment_spaced
from clearspan.shards import keyed
from clearspan.shards.manifest import FILES_FOLDER

TOKENIZE_CHARACTERS = 1 << 20
TOKENIZE_SENTENCES = 4096
"""Limits of a group of sentences that is tokenized at a time: about TOKENIZE_CHARACTERS, or TOKENIZE_SENTENCES."""
SYNONYMS = f"{FILES_FOLDER}/{PUBLISHED}"
NEAR_UNIT_BYTES = 16_000_000
"""Size of a work unit with --near-dedup, in bytes of input. It is small because a worker holds 650 to 1,300 bytes for
each sentence of a unit.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewOptions(Proportions):
    """Options that say which augmented views of each sentence are stored in the dataset."""

    augment: Annotated[str | None, Flag("STEPS")] = None
    """Steps that make a view, joined by +: del-word, del-span, reorder, subs, e.g. subs+del-span (default: no views).
    """
    synonyms: Annotated[str | None, Flag("FILE", path=True)] = None
    """Synonyms for subs: a JSON object of words to lists of words, or lines of a word and its synonyms (tabs)."""
    views: Annotated[int, Flag("K"), Ge(1), Le(100)] = 2
    """Number of augmented views of each sentence."""
    augment_seed: Annotated[int, Flag("N")] = 42
    """Random seed of the views."""
    del_token: Annotated[bool, Flag()] = False
    """Add the token [DEL] to the tokenizer even if no step deletes, for views made in training."""

    def validate(self) -> None:
        super().validate()
        steps = self.augmentation.steps if self.augmentation else ()
        for field in dataclasses.fields(ViewOptions):
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
class Sentences(Builder):
    """Builder of the kind `sentences`: sentences with augmented views."""

    whitespace: Annotated[Literal["collapse"], Flag()] = "collapse"
    """Keep whitespace as it is, or collapse each run of whitespace to one space."""
    dedup: Dedup = True
    """Drop duplicates: keep only the first of equal examples."""
    near_dedup: NearDedup = None
    """Drop near-duplicates: examples whose Jaccard similarity to an earlier one is at least S (0.5 to 1, e.g. 0.8)."""
    language: Annotated[tuple[str, ...], Flag("CODES", commas=True)] = ("en",)
    """ISO 639-1 code of the language whose rules split sentences (default en). Several codes, e.g. de,fr, or one with
    --language-threshold, also drop texts in other languages (extra `language`).
    """
    language_threshold: Threshold = None
    """Minimum probability of the language that --language identifies, 0 to 1 (default 0.5)."""
    no_split: Annotated[bool, Flag()] = False
    """Take each record as one sentence (if each line is a sentence, add --text-per line)."""
    min_tokens: Annotated[int, Flag("N"), Ge(1)] = 4
    """Drop sentences of fewer tokens, which are often fragments."""
    max_tokens: Annotated[int | None, Flag("N")] = None
    """Drop sentences of more tokens (default 510)."""
    pack: Annotated[int | None, Flag("N")] = None
    """Join a text's sentences to pieces of at most N tokens; 510 leaves room for <s> and </s> in 512."""
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    files: FileOptions = dataclasses.field(default_factory=FileOptions)
    steps: TextSteps = dataclasses.field(default_factory=TextSteps)
    filtering: QualityOptions = dataclasses.field(default_factory=QualityOptions)
    augmenting: ViewOptions = dataclasses.field(default_factory=ViewOptions)

    name: ClassVar[str] = "sentences"
    summary: ClassVar[str] = COMMANDS["sentences"].summary
    description: ClassVar[str] = (
        "Make a dataset of the sentences of texts, with augmented views of each sentence if wanted (CLEAR)."
    )
    example: ClassVar[str] = (
        "clearspan sentences --input 'corpus/*.jsonl' --output data/sentences \\\n"
        "    --tokenizer tokenizers/roberta-base --augment subs+del-span --synonyms synonyms.json"
    )

    def validate(self) -> None:
        super().validate()
        Languages.of(self.kept_languages, self.language_threshold)
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
    def kept_languages(self) -> tuple[str, ...]:
        """The codes of the languages of the texts to keep; empty to keep texts of any language."""
        return self.language if len(self.language) > 1 or self.language_threshold is not None else ()

    @functools.cached_property
    def languages(self) -> Languages | None:
        """The filter of languages; None if texts of any language are kept."""
        return Languages.of(self.kept_languages, self.language_threshold)

    @functools.cached_property
    def filters(self) -> tuple[Filter, ...]:
        return self.steps.filters(self.languages, *self.filtering.filters)

    def unit_bytes(self, inputs: Inputs) -> int | None:
        return NEAR_UNIT_BYTES if self.near_dedup is not None else super().unit_bytes(inputs)

    @property
    def reasons(self) -> tuple[str, ...]:
        long = ["long_tokens"] if self.pack is None else []
        return (EMPTY, "short_tokens", *long, *self.steps.reasons(self.filters))

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Special tokens that are added to the tokenizer if it lacks them."""
        augmentation = self.augmenting.augmentation
        return (DEL,) if self.augmenting.del_token or (augmentation and augmentation.deletes) else ()

    @property
    def bytes_per_s(self) -> float:
        """Number of input bytes that one process handles per second, measured on 57 MB of books, articles and speeches.

        If views are made, it is the number for two views, with words substituted and spans deleted.
        """
        return 5e6 if self.augmenting.augmentation else 12e6

    def options(self) -> dict[str, Any]:
        augmentation = self.augmenting.augmentation
        return {
            "min_tokens": self.min_tokens,
            "max_tokens": self.most_tokens,
            "pack": self.pack,
            **self.texts.described(),
            **self.steps.described(self.files, self.plan, self.whitespace, self.languages),
            **self.filtering.described(),
            "language": self.rules,
            "segmenter": f"sentencex {metadata.version('sentencex')}" if self.rules else None,
            "del_token": bool(self.special_tokens),
            "augmentation": {**augmentation.options(), "words": word_starts.VERSION} if augmentation else None,
            "views": self.augmenting.views if augmentation else 0,
            "augment_seed": self.augmenting.augment_seed if augmentation else None,
        }

    def reading(self) -> ReadOptions:
        return self.texts.reading(self.files)

    def check(self, record: Record) -> None:
        text_of(record, self.texts.text_field)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """Return the files of the tokenizer and of excluded texts and, if the user names a file of synonyms, a file
        with the table of synonyms, as {path: content}. The table keeps the order of the user's file, because the views
        depend on it.

        Raises:
            PipelineError: a file that an option names is missing or unusable.
        """
        files = self.steps.resources(self.special_tokens, are_sentences=self.pack is None)
        if not self.augmenting.synonyms:
            return files
        try:
            table = read_synonyms(self.augmenting.synonyms)
        except ValueError as error:
            raise PipelineError(f"`synonyms` {error}; {SOURCES}") from None
        except OSError as error:
            reason = f"`synonyms` {self.augmenting.synonyms}: {error.strerror or error}"
            raise PipelineError(f"{reason}: {EXPECTED}; {SOURCES}") from None
        return {**files, SYNONYMS: json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()}

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        return self.steps.fingerprint(super().fingerprint(resources), resources)

    def worker(self, resources: Mapping[str, bytes]) -> "SentenceWorker":
        """Build the worker, with the augmentation prepared for the tokenizer.

        Args:
            resources: the contents of the dataset's resource files, such as the tokenizer's, by path.

        Raises:
            PipelineError: a resource is unusable, or the tokenizer cannot encode any word of the synonyms.
        """
        tokenization, augmentation = self.steps.loaded(resources), self.augmenting.augmentation
        synonyms = json.loads(resources[SYNONYMS]) if SYNONYMS in resources else None
        try:
            augmenter = Augmenter(augmentation, tokenization.tokenizer, synonyms) if augmentation else None
        except ValueError as error:
            raise PipelineError(f"`synonyms` {self.augmenting.synonyms}: {error}") from None
        return SentenceWorker(self, tokenization, excluded_of(resources), augmenter)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the lines for the summary of the run.

        They are about excluded texts, and about lines that filters removed. If sentences are joined to pieces, a line
        has the number of sentences that were joined, and of those that were cut because they have more than `pack`
        tokens. If there are synonyms, a line has the percentage of words that have a synonym.
        """
        lines = [*excluded_lines(fingerprint), *self.filtering.removed(sums)]
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

    batch_examples = 1 << 16

    @property
    def together(self) -> tuple[int, int]:
        return TOKENIZE_CHARACTERS if self.builder.pack else TOKENIZE_SENTENCES, TOKENIZE_CHARACTERS

    @property
    def max_tokens(self) -> int | None:
        return self.builder.most_tokens

    def build(self, record: Record, counts: Counts) -> list[BuiltTexts]:
        """Return the sentences of a record's text. In `counts`, each sentence counts as one record that was read.

        If the text is dropped by a filter or has no sentences, count it as filtered.
        """
        if (found := text_in(record, self.builder.texts.text_field, counts)) is None:
            return []
        if (document := kept(FilteredText(found[0]), self.builder.filters, counts)) is None:
            return []
        sentences = self._sentences(document)
        if not sentences:
            counts.filtered[EMPTY] += 1
            return []
        if self.builder.pack:  # what is packed is counted when it is known
            return [BuiltTexts(sentences, sentences, record.source, size=sum(map(len, sentences)))]
        counts.read += len(sentences) - 1  # the text was counted
        parts = (sentences[at : at + TOKENIZE_SENTENCES] for at in range(0, len(sentences), TOKENIZE_SENTENCES))
        return [BuiltTexts(part, part, record.source, size=sum(map(len, part))) for part in parts]

    def _sentences(self, document: FilteredText) -> list[str]:
        """Return the sentences of a text. If they are to be joined to pieces, a sentence that follows whitespace begins
        with a space.
        """
        if not self.builder.rules:
            text = normalize(document.text)
            sentences = [text] if text else []
        else:
            language = document.language or self.builder.rules
            sentences = (segment_spaced if self.builder.pack else segment)(document.text, language)
        # After segmentation, which relies on capital letters.
        return [sentence.lower() for sentence in sentences] if self.builder.steps.lowercase else sentences

    def tokenized(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[TokenizedTexts]:
        if self.builder.pack:
            counter.counts.count("packed", 0)
            counter.counts.count("cut", 0)
        return super().tokenized(records, counter)

    def tokenize(self, texts: Sequence[BuiltTexts], counts: Counts, is_first: bool) -> Iterator[TokenizedTexts]:
        """Yield the sentences of texts with their token ids; with `pack`, pieces (joined sentences), each of which
        counts in `counts` as one record that was read.
        """
        if not self.builder.pack:
            yield from super().tokenize(texts, counts, is_first)
            return
        counts.read -= len(texts)  # they were counted
        counts.count("packed", sum(len(text.prepared) for text in texts))
        sentences, sources = [text.prepared for text in texts], [text.source for text in texts]
        for tokenized in join(sentences, sources, self.builder.most_tokens, self.tokenization.tokenize):
            counts.read += len(tokenized.prepared)
            counts.count("cut", tokenized.num_cut)
            yield tokenized

    def batch(self, examples: ExamplesToWrite, counts: Counts) -> pa.RecordBatch:
        (tokens,), views = examples.columns, []
        if self.augmenter:
            seed, numbers = self.builder.augmenting.augment_seed, range(self.builder.augmenting.views)
            views = [self.augmenter(tokens, keyed.mix(seed, examples.ids, number)) for number in numbers]
            if self.builder.augmenting.synonyms:
                num_covered, num_words = self.augmenter.coverage(tokens)
                counts.count("words", num_words)
                counts.count("words_with_synonym", num_covered)
        batch = self.record_batch(examples, [tokens, *views], [f"view_{number}" for number in range(len(views))])
        return self.with_sketches(batch, examples.raw)
