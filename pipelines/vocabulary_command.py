"""`clearspan vocabulary`: learn a tokenizer from a corpus.

    inputs -> texts (read as for a dataset of texts) -> tokenizer (text.byte_level_bpe) -> a new folder

The folder stays empty until the tokenizer is learned. Then it gets plan.json, the files of the tokenizer and, last,
summary.json with the hashes of these files. If the command is run again with the same inputs and options, it says that
the tokenizer was already learned; with different ones, or if an input was edited, it raises an error. If a file of the
tokenizer has changed, the tokenizer is learned again.
"""

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.command import Result
from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.errors import PipelineError
from clearspan.common.files import sha256
from clearspan.common.options import Flag
from clearspan.common.progress import ProgressBar
from clearspan.pipelines.builders import CorpusOptions
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, TextOptions, text_of, texts_of
from clearspan.pipelines.counter import RecordCounter, encoding_lines
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.readers.encodings import described
from clearspan.pipelines.records import MAX_BYTES, ReadOptions
from clearspan.pipelines.text.byte_level_bpe import SMALLEST, learn_tokenizer
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.changes import check_inputs, save_read
from clearspan.pipelines.units.plan import Plan, Unit
from clearspan.pipelines.units.preflight import check_first
from clearspan.shards import storage
from clearspan.shards.command import StoreCommand
from clearspan.shards.finding import left_out_lines
from clearspan.shards.ownership import check_ownership

SUMMARY = "summary.json"
SPLIT_BYTES = 16_000_000
"""Input between two updates of the progress bar, if the file can be cut."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary(CorpusOptions, StoreCommand):
    """The command `vocabulary`: learns a tokenizer from texts."""

    size: Annotated[int, Flag("N")] = 32000
    """Number of token ids."""
    max_document_bytes: Annotated[int, Flag("N"), Ge(1)] = MAX_BYTES
    """Count longer records as bad (default 64 MB)."""
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    files: FileOptions = dataclasses.field(default_factory=FileOptions)

    summary: ClassVar[str] = COMMANDS["vocabulary"].summary
    description: ClassVar[str] = "Learn a byte-level BPE tokenizer from texts, for a domain or a language without one."
    example: ClassVar[str] = "clearspan vocabulary --input 'corpus/*.jsonl' --size 32000 --output my-tokenizer"

    def validate(self) -> None:
        super().validate()
        if self.size < SMALLEST:
            raise ValueError(f"`size` must be at least {SMALLEST}: 256 bytes and five special tokens have an id")
        if storage.is_remote(self.output):
            raise ValueError("`output` must be a folder on this machine, because `tokenizer` is read locally")

    @property
    def shaping(self) -> dict[str, Any]:
        """The options on which the tokenizer depends, for its fingerprint."""
        files = self.files
        encoding = {"encoding": described(files.encoding)} if files.encoding else {}
        own = {"size": self.size, "max_document_bytes": self.max_document_bytes}
        return {**self.texts.described(), "header": files.header, "formats": files.formats, **own, **encoding}

    def paths(self) -> Sequence[str]:
        return self.inputs

    def reading(self) -> ReadOptions:
        return self.texts.reading(self.files, max_bytes=self.max_document_bytes, skip_unknown=self.skip_unknown)

    def run(self) -> "TokenizerSummary":
        """Learn the tokenizer and write its folder, unless an earlier run did.

        Raises:
            PipelineError, OSError: the tokenizer cannot be made; the message says why and what to do.
        """
        self.use_store()
        output = Path(self.output)
        inputs = planning.find_inputs(self.inputs, self.reading())
        plan = planning.make_plan(inputs, {"options": self.shaping}, SPLIT_BYTES, self.reading().uncut)
        if not planning.began(self.output):
            check_first(
                plan.root,
                plan.inputs,
                self.reading(),
                lambda record: text_of(record, self.texts.text_field),
                self.max_bad_fraction,
            )
        all_splits = Unit(0, tuple(split for unit in plan.units for split in unit.splits))
        plan = dataclasses.replace(plan, units=(all_splits,))
        check_ownership(self.output, planning.NAME, plan.to_json())
        known = _earlier_summary(output, plan)
        if known and check_inputs(self.output, plan, {all_splits.number}, self.quiet):
            summary = TokenizerSummary(**{**known, "output": self.output, "is_new": False})
        else:
            summary = _learn(self, output, plan)
        return dataclasses.replace(summary, left_out=inputs.left_out)


@dataclasses.dataclass
class TokenizerSummary(Result):
    """Summary of a tokenizer, and of the texts from which it was learned.

    Attributes:
        output: the folder of the tokenizer.
        ids: the number of token ids that the tokenizer has.
        read: the number of records that were read: the sum of `texts`, `empty` and `bad`.
        texts: the number of records with a text, from which the tokenizer was learned.
        empty: the number of records whose text is empty.
        bad: the number of records that cannot be read.
        text_bytes: the size of the texts in UTF-8, in bytes.
        bad_examples: [place in the inputs, reason] of the first three bad records.
        encodings: encoding -> number of input files in this encoding, for files that are not UTF-8.
        recoded: [file, encoding] of the first 20 files that are not UTF-8.
        is_new: True if this run learned the tokenizer, False if an earlier run did.
        left_out: the paths of files that were not read, since their names begin with an underscore.
    """

    output: str
    ids: int
    read: int
    texts: int
    empty: int
    bad: int
    text_bytes: int
    bad_examples: list[list[str]]
    encodings: dict[str, int] = dataclasses.field(default_factory=dict)
    recoded: list[list[str]] = dataclasses.field(default_factory=list)
    is_new: bool = True
    left_out: Sequence[str] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    def __str__(self) -> str:
        bad = "".join(f"; {source}: {reason}" for source, reason in self.bad_examples[:1])
        return (
            f"{self.output}: a tokenizer of {self.ids:,} ids, of {self.text_bytes:,} bytes of text\n"
            f"  read {self.read:,} = texts {self.texts:,}, empty {self.empty:,}, bad {self.bad:,}{bad}"
            + "".join(f"\n  {line}" for line in left_out_lines(self.left_out))
            + "".join(f"\n  {line}" for line in encoding_lines(self.encodings, self.recoded))
            + ("" if self.is_new else "\n  was already learned from these inputs: nothing to do")
        )


def _earlier_summary(output: Path, plan: Plan) -> dict[str, Any] | None:
    """Return the summary that an earlier run with the same plan wrote, as a dict; None if there is none.

    None is also returned if a file of the tokenizer is missing or has changed.
    """
    try:
        record = load_checksummed((output / SUMMARY).read_bytes())
        of_plan, hashes = record.pop("plan"), record.pop("files")
        is_whole = all(sha256(output / name) == known for name, known in hashes.items())
    except (OSError, ValueError, LookupError, AttributeError):
        return None
    return record if of_plan == plan.sha256 and is_whole else None


def _texts(options: Vocabulary, plan: Plan, counter: RecordCounter, contents: list[str]) -> Iterator[str]:
    """Yield the texts of the inputs; count each record, and the bytes of the texts, in `counter`.

    Args:
        plan: the plan, in which a single work unit holds all inputs.
        contents: list to which a hash of each split's content is added, so that a later run notices a change.
    """
    (unit,) = plan.units
    work = f"reading {unit.bytes / 1e6:,.0f} MB, before {options.size:,} ids are learned from it"
    with ProgressBar(unit.bytes, work, options.quiet, unit="B", unit_scale=True) as bar:
        for split in unit.splits:
            records = read_splits(plan.root, [split], options.reading(), contents)
            for _, text, data in texts_of(counter.readable(records), options.texts.text_field, counter):
                counter.counts.kept += 1
                counter.counts.count("text_bytes", len(data))
                yield text
            bar.update(split.bytes)


def _learn(options: Vocabulary, output: Path, plan: Plan) -> TokenizerSummary:
    """Learn the tokenizer; write its files and the summary to the folder `output`, and return the summary.

    Raises:
        PipelineError: the inputs hold no text, or too many records are bad.
    """
    counter, contents = RecordCounter((EMPTY,), options.max_bad_fraction), list[str]()
    counts = counter.counts
    with tempfile.TemporaryDirectory() as temporary:
        ids = learn_tokenizer(_texts(options, plan, counter, contents), options.size, Path(temporary))
        counts.check_bad(options.max_bad_fraction)
        if not counts.kept:
            raise PipelineError(f"the inputs hold no text ({counts.read:,} records): check `input` and `text_field`")
        empty, text_bytes, examples = counts.filtered[EMPTY], counts.sums["text_bytes"], counts.bad_examples
        numbers = (ids, counts.read, counts.kept, empty, counts.bad, text_bytes)
        summary = TokenizerSummary(options.output, *numbers, examples, counts.encodings, counts.recoded)
        storage.publish_bytes(plan.to_json(), str(output / planning.NAME))
        hashes = {path.name: sha256(path) for path in sorted(Path(temporary).iterdir())}
        for name in hashes:
            storage.publish_bytes((Path(temporary) / name).read_bytes(), str(output / name))
    save_read(options.output, plan.sha256, plan.units[0].number, contents)
    check_inputs(options.output, plan, ())  # nothing is compared: it records the status of the inputs
    record = dump_checksummed({**dataclasses.asdict(summary), "plan": plan.sha256, "files": hashes})
    storage.publish_bytes(record, str(output / SUMMARY))
    return summary
