"""`python -m pipelines vocabulary`: learn a tokenizer from a corpus.

    inputs, read like those of a kind of text -> texts (bad records counted) -> text.byte_level_bpe -> a new folder

The folder stays empty until all texts are read and the tokenizer is learned; tokenizer.json is written last.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds import add_common_arguments, check_positive
from clearspan.pipelines.kinds.text import TextKind
from clearspan.pipelines.kinds.text_inputs import reading_options, text_of
from clearspan.pipelines.readers import read_pieces
from clearspan.pipelines.records import MAX_BYTES, Reading
from clearspan.pipelines.tally import RecordError, Tally
from clearspan.pipelines.text.byte_level_bpe import SMALLEST, learn_tokenizer
from clearspan.pipelines.text.tokenization import MAIN
from clearspan.pipelines.units import plan as planning
from clearspan.shards import storage

NAME = "vocabulary"
SUMMARY = "learn a byte-level BPE tokenizer from texts: for a domain or language without one"
EXAMPLE = "python -m pipelines vocabulary --input 'corpus/*.jsonl' --size 32000 --output my-tokenizer"
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
    max_document_bytes: int = MAX_BYTES
    limit_bytes: int | None = None
    max_bad_fraction: float = 0.001
    quiet: bool = False
    skip_unknown: bool = False

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--input", nargs="+", action="extend", required=True, metavar="GLOB", help="files, folders, quoted globs")
        add("--output", required=True, metavar="DIR", help="a folder on this machine, new or empty")
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
    """Summary of a tokenizer and of the texts that it was learned from; `text_bytes` in UTF-8."""

    output: str
    ids: int
    read: int
    texts: int
    empty: int
    bad: int
    text_bytes: int
    bad_examples: list[list[str]]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    def __str__(self) -> str:
        bad = "".join(f"; {source}: {reason}" for source, reason in self.bad_examples[:1])
        return (
            f"{self.output}: a tokenizer of {self.ids:,} ids, of {self.text_bytes:,} bytes of text\n"
            f"  read {self.read:,} = texts {self.texts:,}, empty {self.empty:,}, bad {self.bad:,}{bad}"
        )


class _Texts:
    """The texts of the inputs; counts each record, and the bytes of the texts."""

    def __init__(self, options: Vocabulary) -> None:
        self.options = options
        self.tally = Tally(("empty",), options.max_bad_fraction)
        self.num_bytes = 0

    def __iter__(self) -> Iterator[str]:
        options, counts = self.options, self.tally.counts
        reading = Reading(
            max_bytes=options.max_document_bytes,
            field=options.text_field,
            text_per=options.text_per,
            separator=options.document_separator,
            header=options.header,
            formats=options.formats,
            skip_unknown=options.skip_unknown,
        )
        inputs = planning.find_inputs(options.inputs, reading)
        units = planning.make_plan(inputs, {"options": {}}, PIECE_BYTES).units
        size = sum(unit.bytes for unit in units)
        with tqdm(total=size, unit="B", unit_scale=True, disable=True if options.quiet else None) as bar:
            for unit in units:
                for record in self.tally.readable(read_pieces(inputs.root, unit.pieces, reading)):
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
                bar.update(unit.bytes)

    def check(self) -> None:
        """Raise PipelineError if there was no text, or too many records were bad."""
        counts = self.tally.counts
        if counts.bad > self.options.max_bad_fraction * counts.read:
            allowed = f"--max-bad-fraction {self.options.max_bad_fraction:g}"
            raise PipelineError(f"{counts.complaint()} (allowed: {allowed})")
        if not counts.kept:
            raise PipelineError(f"the inputs hold no text ({counts.read:,} records): check --input and --text-field")


def run(options: Vocabulary) -> Summary:
    """Learn the tokenizer and write its folder.

    Raises:
        PipelineError, OSError: it cannot be made; the message says why and what to do.
    """
    output = Path(options.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        fault = f"holds other files ({min(output.iterdir()).name})" if output.is_dir() else "is a file"
        raise PipelineError(f"{output}: {fault}: choose an --output that is new or empty")
    texts = _Texts(options)
    with tempfile.TemporaryDirectory() as temporary:
        num_ids = learn_tokenizer(texts, options.size, Path(temporary))
        texts.check()
        for path in sorted(Path(temporary).iterdir(), key=lambda path: path.name == MAIN):  # tokenizer.json last
            storage.publish_bytes(path.read_bytes(), str(output / path.name))
    counts = texts.tally.counts
    return Summary(
        options.output,
        num_ids,
        counts.read,
        counts.kept,
        counts.filtered["empty"],
        counts.bad,
        texts.num_bytes,
        counts.bad_examples,
    )
