"""Sentences: texts cut into sentences, each with augmented views of it made beforehand (CLEAR).

    record -> text -> sentences -> ids -> (too few or too many: out) -> batches of about 1 MiB -> views of whole batches

An example is {id, tokens, view_0, view_1, ...}: id from the sentence's own bytes, tokens without special ones. View k
is a function of the sentence, the augmentation, the seed and k alone: keyed by (seed, id, k). What is counted are
sentences; a text without any or of too few words, and a record that is bad, count as one.

With `pack` an example is a piece of a text: consecutive sentences, joined as the text has them to at most so many
tokens, or a slice of a sentence that has more. Its ids are those of the joined text; all that is said of a sentence
(its id, its views, which are excluded, too short, counted or duplicates) then holds for the piece.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from clearspan.pipelines.augment.steps import DEL, UNITS, Augmentation, AugmentationError, Augmenter
from clearspan.pipelines.augment.synonyms import EXPECTED, PUBLISHED, SOURCES, read_synonyms
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds import flag
from clearspan.pipelines.kinds.text import MAX_TOKENS, TextKind, TextWorker, excluded_of, meeting, text_id, text_of
from clearspan.pipelines.records import Inputs, Record
from clearspan.pipelines.stopwatch import Stopwatch
from clearspan.pipelines.tally import Counts, RecordError, Tally
from clearspan.pipelines.text.joining import Pieces, join
from clearspan.pipelines.text.segmentation import LANGUAGES, normalise, segment, segment_spaced
from clearspan.shards import keyed
from clearspan.shards.manifest import FILES_FOLDER
from clearspan.shards.ragged import Ragged
from clearspan.shards.schema import schema

TOKENIZE_CHARACTERS = 1 << 20
TOKENIZE_SENTENCES = 4096
"""So many are tokenized together, or those of so much text."""
BATCH_BYTES = 1 << 20
BATCH_SENTENCES = 1 << 16
SYNONYMS = f"{FILES_FOLDER}/{PUBLISHED}"
MAX_VIEWS = 100
AUGMENTING = ("views", "unit", "augment_seed")
"""Options that need --augment."""
STEP_OF = {
    "synonyms": "subs",
    "subs": "subs",
    "del_word": "del-word",
    "del_spans": "del-span",
    "del_span": "del-span",
    "reorder_pairs": "reorder",
    "reorder_span": "reorder",
}
"""Options that need a step of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentences(TextKind):
    """The kind "sentences"; `language` None: a record is a sentence already; `pack`: an example is a piece, of at most
    so many tokens.
    """

    whitespace: str = "collapse"
    dedup: bool = True
    min_tokens: int = 4
    max_tokens: int = MAX_TOKENS
    pack: int | None = None
    language: str | None = "en"
    augmentation: Augmentation | None = None
    views: int = 0
    augment_seed: int = 42
    del_token: bool = False
    synonyms: str | None = None

    name: ClassVar[str] = "sentences"
    summary: ClassVar[str] = "sentences of texts, each with augmented views of it (CLEAR)"
    example: ClassVar[str] = (
        "python -m pipelines sentences --input 'corpus/*.jsonl' --output data/sentences \\\n"
        "      --tokenizer tokenizers/roberta-base --augment subs+del-span --synonyms synonyms.json"
    )
    whitespaces: ClassVar[tuple[str, ...]] = ("collapse",)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add = parser.add_argument
        add("--augment", metavar="STEPS", help="del-word, del-span, reorder, subs, joined by + (default: no views)")
        add("--synonyms", metavar="FILE", help="for subs, local: JSON of words to lists of words, or lines with tabs")
        add("--views", type=int, metavar="K", help="augmented views of each sentence (default 2)")
        add("--unit", choices=UNITS, help="what deletions and reordering take (default token)")
        add("--augment-seed", type=int, metavar="N", help="of the views (default 42)")
        add("--del-word", type=float, metavar="P", help="fraction of units deleted (default 0.7)")
        add("--del-spans", type=int, metavar="N", help="spans deleted (default 5)")
        add("--del-span", type=float, metavar="P", help="fraction of units in each (default 0.05)")
        add("--reorder-pairs", type=int, metavar="N", help="pairs of spans that change places (default 5)")
        add("--reorder-span", type=float, metavar="P", help="fraction of units in each span (default 0.05)")
        add("--subs", type=float, metavar="P", help="fraction of words replaced (default 0.3)")
        add("--del-token", action="store_true", help=f"add {DEL} to the tokenizer though nothing here deletes")
        cut_by = "by whose rules texts are cut into sentences, by ISO 639-1 (default en); no effect with --no-split"
        add("--language", default="en", metavar="CODE", help=cut_by)
        add("--no-split", action="store_true", help="a record is a sentence already (lines: with --text-per line)")
        add("--min-tokens", type=int, default=4, metavar="N", help="shorter ones go (default 4)")
        add("--max-tokens", type=int, metavar="N", help=f"longer ones go (default {MAX_TOKENS})")
        add("--pack", type=int, metavar="N", help="join a text's sentences to N tokens (510: 512 with <s> and </s>)")

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "Sentences":
        if arguments.min_tokens < 1:
            raise ValueError("--min-tokens must be at least 1")
        if arguments.pack is not None and arguments.max_tokens is not None:
            raise ValueError("--max-tokens has no effect with --pack, which cuts what is longer: leave one of them out")
        max_tokens = next((n for n in (arguments.pack, arguments.max_tokens) if n is not None), MAX_TOKENS)
        if max_tokens < arguments.min_tokens:
            raise ValueError(f"{'--max-tokens' if arguments.pack is None else '--pack'} must be at least --min-tokens")
        if arguments.language not in LANGUAGES:
            raise ValueError(
                f"--language {arguments.language}: give a code of ISO 639-1 in lower case, such as en, de or zh"
            )
        augmentation = _augmentation(arguments)
        views = 2 if arguments.views is None else arguments.views
        if not 1 <= views <= MAX_VIEWS:
            raise ValueError(f"--views must be from 1 to {MAX_VIEWS} (for none, leave --augment out)")
        seed = cls.augment_seed if arguments.augment_seed is None else arguments.augment_seed
        if not -(1 << 63) <= seed < 1 << 63:
            raise ValueError("--augment-seed must be a 64-bit integer")
        changed = {
            "max_tokens": max_tokens,
            "language": None if arguments.no_split else arguments.language,
            "augmentation": augmentation,
            "views": views if augmentation else 0,
            "augment_seed": seed,
            "del_token": arguments.del_token or (augmentation is not None and augmentation.deletes),
        }
        return super().from_arguments(argparse.Namespace(**{**vars(arguments), **changed}))

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("empty", "short_tokens", *(["long_tokens"] if self.pack is None else []), *super().reasons)

    @property
    def examples_are_sentences(self) -> bool:
        return self.pack is None

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return (DEL,) if self.del_token else ()

    @property
    def bytes_per_s(self) -> float:
        """Measured on 57 MB of books, articles and speeches; two views of subs+del-span."""
        return 5e6 if self.views else 12e6

    def options(self) -> dict[str, Any]:
        augmentation = self.augmentation
        return {
            "min_tokens": self.min_tokens,
            "max_tokens": self.max_tokens,
            "pack": self.pack,
            **super().options(),
            "language": self.language,
            "segmenter": f"sentencex {metadata.version('sentencex')}" if self.language else None,
            "del_token": self.del_token,
            "augmentation": augmentation.options() if augmentation else None,
            "views": self.views,
            "augment_seed": self.augment_seed if augmentation else None,
        }

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """Adds the synonyms to what every kind of text has, in their file's order, which says which comes first."""
        found = super().resources(inputs)
        if not self.synonyms:
            return found
        try:
            table = read_synonyms(self.synonyms)
        except ValueError as error:
            raise PipelineError(f"--synonyms {error}; {SOURCES}") from None
        except OSError as error:
            reason = f"--synonyms {self.synonyms}: {error.strerror or error}"
            raise PipelineError(f"{reason}: {EXPECTED}; {SOURCES}") from None
        return {**found, SYNONYMS: json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()}

    def worker(self, resources: Mapping[str, bytes]) -> "SentenceWorker":
        """The kind at work, with the augmentation ready for the tokenizer.

        Raises:
            PipelineError: the tokenizer can write none of the synonyms.
        """
        tokenization = self.tokenization_of(resources)
        synonyms = json.loads(resources[SYNONYMS]) if SYNONYMS in resources else None
        try:
            augmenter = Augmenter(self.augmentation, tokenization.tokenizer, synonyms) if self.augmentation else None
        except ValueError as error:
            raise PipelineError(f"--synonyms {self.synonyms}: {error}") from None
        return SentenceWorker(self, tokenization, excluded_of(resources), augmenter)

    def reasons_in_words(self, counts: Counts) -> dict[str, tuple[str, str]]:
        few = f"have fewer than {self.min_tokens:,} tokens", "lower --min-tokens"
        many = f"have more than {self.max_tokens:,} tokens", "raise --max-tokens"
        said = {"empty": ("hold no sentence", ""), "short_tokens": few, "long_tokens": many}
        return {**said, **super().reasons_in_words(counts)}

    def nothing_kept(self, counts: Counts) -> str:
        read, longest = counts.read, counts.longest
        if counts.filtered["empty"] == read:
            return f"none of {read:,} records holds any sentence: all are empty"
        if "tokens" not in longest or counts.filtered.get("excluded") or counts.filtered.get("few_words"):
            return super().nothing_kept(counts)
        whole_files = "" if self.language else "; of a text file with a sentence on each line say --text-per line"
        mend = "change --min-tokens or --max-tokens" if self.pack is None else "lower --min-tokens"
        return (
            f"none of {read:,} sentences has {self.min_tokens:,} to {self.max_tokens:,} tokens, the longest has "
            f"{longest['tokens']:,}: {mend}{whole_files}"
        )

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Says how many texts are excluded, what became of packed sentences, and how far the synonyms reach."""
        found = super().remarks(fingerprint, sums)
        if "packed" in sums:
            found.append(
                f"{sums['packed']:,} sentences packed to pieces of up to {self.pack:,} tokens; "
                f"{sums['cut']:,} longer ones cut"
            )
        if not sums.get("words"):
            return found
        if not sums["words_with_synonym"]:
            none = "synonyms: NO word has one, and nothing was substituted: is the table of the texts' language?"
            return [*found, none]
        return [*found, f"synonyms: {100 * sums['words_with_synonym'] / sums['words']:.1f} % of words have one"]


def _augmentation(arguments: argparse.Namespace) -> Augmentation | None:
    """The augmentation asked for. Raises ValueError where an option of it is out of range or has no effect."""
    given = {name for name in (*AUGMENTING, *STEP_OF) if getattr(arguments, name) is not None}
    if arguments.augment is None:
        for name in (*AUGMENTING, *STEP_OF):
            if name in given:
                raise ValueError(f"{flag(name)} has no effect without --augment: add it, e.g. --augment subs+del-span")
        return None
    fields = {field.name for field in dataclasses.fields(Augmentation)}
    try:
        augmentation = Augmentation.parse(
            arguments.augment, **{name: getattr(arguments, name) for name in sorted(given & fields)}
        )
    except AugmentationError as error:
        raise ValueError(f"{'--augment' if error.field == 'steps' else flag(error.field)} {error.reason}") from None
    for name, step in STEP_OF.items():
        if name in given and step not in augmentation.steps:
            raise ValueError(f"{flag(name)} has no effect without the step {step}: add it to --augment")
    if augmentation.substitutes and not arguments.synonyms:
        raise ValueError(f"--augment with subs needs --synonyms FILE: {EXPECTED}; {SOURCES}")
    return augmentation


@dataclasses.dataclass(frozen=True)
class SentenceWorker(TextWorker[Sentences]):
    """The kind at work, with the augmentation ready for its tokenizer."""

    augmenter: Augmenter | None = None

    def examples(self, records: Iterable[Record], tally: Tally, watch: Stopwatch) -> Iterator[pa.RecordBatch]:
        """The examples among a unit's records, in order, as record batches; every sentence is counted in `tally`."""
        self.tokenization.start_unit(watch)
        waiting: list[tuple[np.ndarray, Ragged]] = []
        size = num = 0
        texts = self._texts(records, watch, tally)
        for pieces in self._packed(texts, tally) if self.kind.pack else self._single(texts, tally):
            ids, tokens = self._kept(pieces, tally)
            if waiting and num + len(ids) > BATCH_SENTENCES:
                yield self._batch(waiting, watch, tally)
                waiting, size, num = [], 0, 0
            if len(ids):
                waiting.append((ids, tokens))
                size, num = size + tokens.values.nbytes, num + len(ids)
            if size >= BATCH_BYTES:
                yield self._batch(waiting, watch, tally)
                waiting, size, num = [], 0, 0
        if waiting:
            yield self._batch(waiting, watch, tally)

    def _texts(self, records: Iterable[Record], watch: Stopwatch, tally: Tally) -> Iterator[tuple[list[str], str]]:
        """The sentences of each text that has any, and its source; counts those that have none, or are bad."""
        counts = tally.counts
        for record in records:
            try:
                text, _ = text_of(record, self.kind.text_field)
                if self.kind.has_few_words(text, counts):
                    counts.read += 1
                    continue
                with watch.timing("segment"):
                    found = self._sentences(text)
            except RecordError as problem:
                counts.read += 1
                tally.reject(record, problem)
                continue
            if found:
                yield found, record.source
            else:
                counts.read += 1
                counts.filtered["empty"] += 1

    def _sentences(self, text: str) -> list[str]:
        """A text's sentences; to be packed, with a space before those that whitespace parts from the one before."""
        if not self.kind.language:
            text = normalise(text)
            found = [text] if text else []
        else:
            found = (segment_spaced if self.kind.pack else segment)(text, self.kind.language)
        # After segmentation, which goes by capital letters.
        return [sentence.lower() for sentence in found] if self.kind.lowercase else found

    def _single(self, texts: Iterable[tuple[list[str], str]], tally: Tally) -> Iterator[Pieces]:
        """Each sentence by itself."""
        together: list[str] = []
        sources: list[str] = []
        size = 0
        for found, source in texts:
            tally.counts.read += len(found)
            for first in range(0, len(found), TOKENIZE_SENTENCES):
                part = found[first : first + TOKENIZE_SENTENCES]
                together += part
                sources += [source] * len(part)
                size += sum(map(len, part))
                if len(together) >= TOKENIZE_SENTENCES or size >= TOKENIZE_CHARACTERS:
                    yield Pieces(together, together, sources, self.tokenization.tokenize(together, sources))
                    together, sources, size = [], [], 0
        if together:
            yield Pieces(together, together, sources, self.tokenization.tokenize(together, sources))

    def _packed(self, texts: Iterable[tuple[list[str], str]], tally: Tally) -> Iterator[Pieces]:
        """The sentences of each text joined."""
        tally.counts.count("packed", 0)
        tally.counts.count("cut", 0)
        together: list[tuple[list[str], str]] = []
        size = 0

        def joined() -> Iterator[Pieces]:
            found, sources = zip(*together, strict=True)
            tally.counts.read -= len(together)
            tally.counts.count("packed", sum(map(len, found)))
            for pieces in join(found, sources, self.kind.max_tokens, self.tokenization.tokenize):
                tally.counts.read += len(pieces.names)
                tally.counts.count("cut", pieces.num_cut)
                yield pieces

        for one in texts:
            together.append(one)
            tally.counts.read += 1  # until its pieces are counted
            size += sum(map(len, one[0]))
            if size >= TOKENIZE_CHARACTERS:
                yield from joined()
                together, size = [], 0
        if together:
            yield from joined()

    def _kept(self, pieces: Pieces, tally: Tally) -> tuple[np.ndarray, Ragged]:
        """The ids (n,) and tokens of those that stay."""
        counts, lengths = tally.counts, pieces.tokens.lengths
        short, long = lengths < self.kind.min_tokens, lengths > self.kind.max_tokens
        counts.measure("tokens", int(lengths.max()))
        counts.filtered["short_tokens"] += int(short.sum())
        if self.kind.pack is None:
            counts.filtered["long_tokens"] += int(long.sum())
        kept = np.flatnonzero(~(short | long))
        if self.excluded:
            met = kept[meeting([pieces.lines[index] for index in kept.tolist()], self.excluded)]
            for index in met.tolist():
                self.excludes(pieces.lines[index], pieces.names[index].encode(), pieces.sources[index], tally)
            kept = np.setdiff1d(kept, met)
        counts.kept += len(kept)
        ids = [text_id(pieces.names[index].encode()) for index in kept.tolist()]
        return np.array(ids, np.int64), pieces.tokens.take(kept)

    def _batch(self, parts: Sequence[tuple[np.ndarray, Ragged]], watch: Stopwatch, tally: Tally) -> pa.RecordBatch:
        ids = np.concatenate([part for part, _ in parts])
        tokens = Ragged.concatenate([part for _, part in parts])
        views = []
        if self.augmenter:
            seed, numbers = self.kind.augment_seed, range(self.kind.views)
            with watch.timing("augment"):
                views = [self.augmenter(tokens, keyed.mix(seed, ids, number)) for number in numbers]
                if self.kind.synonyms:
                    found, words = self.augmenter.coverage(tokens)
                    tally.counts.count("words", words)
                    tally.counts.count("words_with_synonym", found)
        fields = schema(self.kind.name, pa.from_numpy_dtype(tokens.values.dtype), len(views))
        lists = [column.to_arrow(fields.field("tokens").type) for column in (tokens, *views)]
        return pa.record_batch([pa.array(ids), *lists], schema=fields)
