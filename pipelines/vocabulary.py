"""`clearspan vocabulary`: learn a tokenizer from a corpus.

    inputs, read like those of a kind of text -> texts (bad records counted) -> text.byte_level_bpe -> a new folder

The folder stays empty until all texts are read and the tokenizer is learned. It then holds plan.json and _done, as a
dataset does: the same command on it reads nothing and says so, and one with other inputs or options is refused.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clearspan.common.files import sha256
from clearspan.common.progress import Bar
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds import add_common_arguments, check_positive
from clearspan.pipelines.kinds.text import TextKind
from clearspan.pipelines.kinds.text_inputs import reading_options, text_of
from clearspan.pipelines.readers import is_hashed, read_pieces
from clearspan.pipelines.records import MAX_BYTES, Reading
from clearspan.pipelines.tally import Counts, RecordError, Tally
from clearspan.pipelines.text.byte_level_bpe import SMALLEST, learn_tokenizer
from clearspan.pipelines.text.tokenization import MAIN
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.changes import check_inputs
from clearspan.pipelines.units.job import DONE, UnitResult, load_result
from clearspan.pipelines.units.ownership import claim
from clearspan.pipelines.units.plan import Plan
from clearspan.shards import storage

NAME = "vocabulary"
SUMMARY = "learn a byte-level BPE tokenizer from texts: for a domain or language without one"
EXAMPLE = "clearspan vocabulary --input 'corpus/*.jsonl' --size 32000 --output my-tokenizer"
RESULT = f"{DONE}/00000.json"
PIECE_BYTES = 16_000_000
"""Input between two updates of the progress bar, if the file can be cut."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Options of the command. `limit_bytes`: stop reading after this much text."""

    inputs: Sequence[str]
    output: str
    size: int
    text_field: str | None = None
    text_per: str = "file"
    document_separator: str | None = None
    header: bool = True
    formats: tuple[str, ...] = ()
    encoding: str | None = None
    max_document_bytes: int = MAX_BYTES
    limit_bytes: int | None = None
    max_bad_fraction: float = 0.001
    quiet: bool = False
    skip_unknown: bool = False

    @property
    def shaping(self) -> dict[str, Any]:
        """The options that shape the tokenizer, for its fingerprint."""
        apart: tuple[str, ...] = ("inputs", "output", "max_bad_fraction", "quiet", "skip_unknown")
        apart += () if self.encoding else ("encoding",)
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in apart}

    @property
    def reading(self) -> Reading:
        """Return how texts are read from the inputs."""
        return Reading(
            max_bytes=self.max_document_bytes,
            field=self.text_field,
            text_per=self.text_per,
            separator=self.document_separator,
            header=self.header,
            formats=self.formats,
            encoding=self.encoding,
            skip_unknown=self.skip_unknown,
        )

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--input", nargs="+", action="extend", required=True, metavar="GLOB", help="files, folders, quoted globs")
        add(
            "--output",
            required=True,
            metavar="DIR",
            help="a folder on this machine: new, empty, or of the same command",
        )
        add("--size", type=int, default=32000, metavar="N", help="number of ids (default 32000)")
        TextKind.add_reading_arguments(parser)
        longest = f"a longer record is bad (default {MAX_BYTES // 1_000_000} MB)"
        add("--max-document-bytes", type=int, default=MAX_BYTES, metavar="N", help=longest)
        add("--limit-bytes", type=int, metavar="N", help="read at most N bytes of text")
        add_common_arguments(parser)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "Vocabulary":
        """Return the options of a command line. Raise ValueError if an option has an impossible value."""
        if arguments.size < SMALLEST:
            raise ValueError(f"--size must be at least {SMALLEST}: 256 bytes and five special tokens have an id")
        check_positive(arguments, "limit_bytes", "max_document_bytes")
        if not 0 <= arguments.max_bad_fraction <= 1:
            raise ValueError("--max-bad-fraction must be between 0 and 1")
        if storage.is_remote(arguments.output):
            raise ValueError("--output must be a folder on this machine, because --tokenizer is read locally")
        options = {field.name: getattr(arguments, field.name, None) for field in dataclasses.fields(cls)}
        return cls(**{**options, "inputs": arguments.input, **reading_options(arguments)})


@dataclasses.dataclass
class Summary:
    """Summary of a tokenizer and of the texts that it was learned from; `text_bytes` in UTF-8.

    `is_new` is False if an earlier run had learned it.
    """

    output: str
    ids: int
    read: int
    texts: int
    empty: int
    bad: int
    text_bytes: int
    bad_examples: list[list[str]]
    is_new: bool

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    def __str__(self) -> str:
        bad = "".join(f"; {source}: {reason}" for source, reason in self.bad_examples[:1])
        return (
            f"{self.output}: a tokenizer of {self.ids:,} ids, of {self.text_bytes:,} bytes of text\n"
            f"  read {self.read:,} = texts {self.texts:,}, empty {self.empty:,}, bad {self.bad:,}{bad}"
            + ("" if self.is_new else "\n  was already learned from these inputs: nothing to do")
        )


class _Texts:
    """The texts of a plan; counts each record, and the bytes of the texts. `hashes` are those of what was read."""

    def __init__(self, options: Vocabulary, plan: Plan) -> None:
        self.options, self.plan = options, plan
        self.tally = Tally(("empty",), options.max_bad_fraction)
        self.num_bytes = 0
        self.hashes: list[str] = []

    def __iter__(self) -> Iterator[str]:
        options, counts, plan = self.options, self.tally.counts, self.plan
        size = sum(unit.bytes for unit in plan.units)
        limit = min(size, options.limit_bytes or size)
        work = f"reading {limit / 1e6:,.0f} MB, before {options.size:,} ids are learned from it"
        with Bar(limit, work, options.quiet, unit="B", unit_scale=True) as bar:
            for unit in plan.units:
                before = self.num_bytes
                records = read_pieces(plan.root, unit.pieces, options.reading, self.hashes)
                for record in self.tally.readable(records):
                    counts.read += 1
                    try:
                        text, data = text_of(record, options.text_field)
                    except RecordError as problem:
                        self.tally.reject(record, problem)
                        continue
                    if not text.strip():
                        counts.filtered["empty"] += 1
                        continue
                    counts.kept += 1
                    self.num_bytes += len(data)
                    yield text
                    if options.limit_bytes and self.num_bytes >= options.limit_bytes:
                        return
                bar.update(self.num_bytes - before if options.limit_bytes else unit.bytes)


def check(options: Vocabulary, counts: Counts) -> None:
    """Raise PipelineError if there was no text, or too many records were bad."""
    if counts.bad > options.max_bad_fraction * counts.read:
        raise PipelineError(f"{counts.complaint()} (allowed: --max-bad-fraction {options.max_bad_fraction:g})")
    if not counts.kept:
        raise PipelineError(f"the inputs hold no text ({counts.read:,} records): check --input and --text-field")


def run(options: Vocabulary) -> Summary:
    """Learn the tokenizer and write its folder, unless an earlier run did.

    Raises:
        PipelineError, OSError: it cannot be made; the message says why and what to do.
    """
    output = Path(options.output)
    if output.exists() and not output.is_dir():
        raise PipelineError(f"{output}: is a file: choose an --output that is a new or empty folder")
    inputs = planning.find_inputs(options.inputs, options.reading)
    plan = planning.make_plan(inputs, {"options": options.shaping}, PIECE_BYTES, options.reading.uncut)
    claim(options.output, plan)
    done = _learned(output, plan)
    is_new = done is None
    if done is None:
        done = _learn(options, output, plan)
    pieces = (piece for unit in plan.units for piece in unit.pieces if is_hashed(piece.input))
    read = () if is_new else zip(pieces, done.inputs, strict=False)  # fewer, with --limit-bytes
    check_inputs(options.output, plan, read)
    counts = done.counts
    check(options, counts)
    return Summary(
        options.output,
        counts.sums["ids"],
        counts.read,
        counts.kept,
        counts.filtered["empty"],
        counts.bad,
        counts.sums["text_bytes"],
        counts.bad_examples,
        is_new,
    )


def _learned(output: Path, plan: Plan) -> UnitResult | None:
    """Return the result of an earlier run of this plan; None if it did not finish, or a file differs from it."""
    try:
        done = load_result(str(output / RESULT), plan.sha256, 0)
        if done and all(sha256(output / name) == expected for name, expected in done.files.items()):
            return done
    except FileNotFoundError:
        pass
    return None


def _learn(options: Vocabulary, output: Path, plan: Plan) -> UnitResult:
    """Learn the tokenizer, and publish its files and the result."""
    texts = _Texts(options, plan)
    counts = texts.tally.counts
    with tempfile.TemporaryDirectory() as temporary:
        counts.count("ids", learn_tokenizer(texts, options.size, Path(temporary)))
        counts.count("text_bytes", texts.num_bytes)
        check(options, counts)
        storage.publish_bytes(plan.to_json(), str(output / planning.NAME))
        files = sorted(Path(temporary).iterdir(), key=lambda path: path.name == MAIN)  # tokenizer.json last
        for path in files:
            storage.publish_bytes(path.read_bytes(), str(output / path.name))
        done = UnitResult([], counts, files={path.name: sha256(path) for path in files}, inputs=texts.hashes)
    storage.publish_bytes(done.to_json(plan.sha256, 0), str(output / RESULT))
    return done
