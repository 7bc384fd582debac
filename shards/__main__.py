"""The command `clearspan shards ls|verify|cat|export DIR`: summarize a dataset, verify it, print it, export it."""

import json
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from clearspan.common import terminal
from clearspan.common.options import Flag, Json, Options, Quiet, add_fields, checked
from clearspan.common.terminal import say
from clearspan.shards import classes, export, lengths, reader, sheet, storage, summary, verification
from clearspan.shards.layouts import array_of, is_array
from clearspan.shards.manifest import TOKENIZER_FOLDER, Manifest, ManifestError
from clearspan.shards.schema import KINDS, LABEL, is_vector, token_columns
from clearspan.shards.values import for_programs, in_words

PROG = "python -m shards"
EXAMPLES = """examples:
  clearspan shards ls data/train
  clearspan shards ls data/train --histogram lengths.png
  clearspan shards verify data/train
  clearspan shards cat data/train --limit 3
  clearspan shards cat data/images --picture sheet.png
  clearspan shards export data/vectors vectors-parquet

For a folder on s3:// or gs://, set the client's environment variables (AWS_ENDPOINT_URL,
GOOGLE_APPLICATION_CREDENTIALS, ...) or Beam's options, e.g. --s3_endpoint_url.
"""
CLASSES_SHOWN = 20
"""Number of classes that `ls` lists without --all-classes."""
EXAMPLES_SHOWN = 5
"""Number of examples that `cat` shows without --limit."""
LIMIT = f"examples to show (default {EXAMPLES_SHOWN}; with --picture {sheet.USUAL}, at most {sheet.MOST})"
PICTURE = "draw images or spectrograms with their classes instead of printing text"


def picture_file(text: str) -> Path:
    """Return a path with the suffix of an image type that can be drawn."""
    if not text.lower().endswith(sheet.SUFFIXES):
        raise ValueError(f"{text}: the name of an image must end in {', '.join(sheet.SUFFIXES)}")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class OfDataset(Options):
    """Options of every command here."""

    folder: Annotated[str, Flag("the dataset's folder, local or gs://... or s3://...", "DIR", positional=True)]
    json: Json = False

    def run(self) -> int:
        """Run the command; return its exit code."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Ls(OfDataset):
    """Print a summary."""

    histogram: Annotated[Path | None, Flag("also draw a histogram of lengths", "FILE.png", parse=picture_file)] = None
    all_classes: Annotated[bool, Flag("list every class")] = False

    def run(self) -> int:
        return ls(self.folder, self.json, self.histogram, self.all_classes)


@dataclass(frozen=True, kw_only=True)
class Verify(OfDataset):
    """Read and check everything."""

    quiet: Quiet = False

    def run(self) -> int:
        return verify(self.folder, self.json, self.quiet)


@dataclass(frozen=True, kw_only=True)
class Cat(OfDataset):
    """Print examples as text."""

    limit: Annotated[int | None, Flag(LIMIT, "N"), Ge(1)] = None
    picture: Annotated[Path | None, Flag(PICTURE, "FILE.png", parse=picture_file)] = None
    tokenizer: Annotated[str | None, Flag("tokenizer to use instead of the copy in the dataset's folder", "PATH")] = (
        None
    )
    width: Annotated[int, Flag("characters of a text to print (0: all)", "N"), Ge(0)] = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.picture and self.num_examples > sheet.MOST:
            shown = f"an image shows at most {sheet.MOST} examples: lower it"
            raise ValueError(f"--limit {self.num_examples:,}: {shown}")
        if self.picture and self.tokenizer:
            raise ValueError("--picture shows no text: leave out --tokenizer")

    @property
    def num_examples(self) -> int:
        return self.limit or (sheet.USUAL if self.picture else EXAMPLES_SHOWN)

    def run(self) -> int:
        if self.picture:
            return draw(self.folder, self.json, self.num_examples, self.picture)
        return cat(self.folder, self.json, self.num_examples, self.tokenizer, self.width)


@dataclass(frozen=True, kw_only=True)
class Export(OfDataset):
    """Write each shard as a Parquet file for pandas, DuckDB, datasets, LanceDB."""

    output: Annotated[Path, Flag("a folder on this machine, new or empty", "OUT", positional=True)]
    quiet: Quiet = False

    def run(self) -> int:
        return run_export(self.folder, self.output, self.json, self.quiet)


COMMANDS: dict[str, type[OfDataset]] = {"ls": Ls, "verify": Verify, "cat": Cat, "export": Export}


def parser(prog: str = PROG) -> terminal.Parser:
    """Return the command's argument parser."""
    root = terminal.Parser(prog=prog, description=__doc__, epilog=EXAMPLES)
    commands = root.add_subparsers(dest="command", required=True)
    for name, cls in COMMANDS.items():
        command = commands.add_parser(name, help=cls.__doc__, description=cls.__doc__)
        add_fields(command, cls)
        command.set_defaults(parser=command)
    return root


def ls(folder: str, as_json: bool, picture: Path | None, all_classes: bool) -> int:
    """Print a summary of a dataset; return the exit code."""
    manifest = Manifest.load(folder)
    if picture:
        lengths.picture(manifest.lengths, picture, folder)
    if as_json:
        say(manifest.to_json().decode().rstrip())
        return 0
    totals, counts, tokenizer = manifest.totals, manifest.counts, manifest.tokenizer
    say(f"{folder}: {manifest.kind}, {len(manifest.shards)} shards, {totals['bytes']:,} bytes")
    say(f"  examples {totals['examples']:,}" + (f"  tokens {summary.tokens(manifest)}" if tokenizer else ""))
    filtered = "".join(f", {n:,} {reason}" for reason, n in counts["filtered"].items())
    say(f"  read {counts['read']:,} = kept {counts['kept']:,}{filtered}, bad {counts['bad']:,}")
    if tokenizer:
        say(f"  tokenizer {tokenizer.sha256[:16]}, {tokenizer.vocab_size:,} ids")
    if statistics := manifest.statistics:
        say(
            f"  values of {KINDS[manifest.kind].statistics}: mean {statistics['mean']:.4f}, std {statistics['std']:.4f}"
        )
    for line in summary.options(manifest.fingerprint.get("options", {})):
        say(f"  {line}")
    for path, sha256 in manifest.resources.items():
        if not path.startswith(f"{TOKENIZER_FOLDER}/"):
            say(f"  {path} {sha256[:16]}")
    for line in class_lines(classes.names(folder, manifest), manifest.classes, all_classes):
        say(line)
    columns = ("bytes", "examples", *(["tokens"] if tokenizer else []))
    rows = [(shard.name, *(f"{getattr(shard, column):,}" for column in columns)) for shard in manifest.shards]
    say(terminal.table(("shard", *columns), rows, right=range(1, 4)))
    if shown := lengths.text(manifest.lengths):
        say(shown)
    return 0


def class_lines(names: Sequence[str], counts: Mapping[int, int], every: bool) -> Iterator[str]:
    """Yield a summary of the classes and a table of them: of all, or of the first CLASSES_SHOWN."""
    yield from (f"  {line}" for line in classes.summary(names, counts))
    shown = names if every else names[:CLASSES_SHOWN]
    if shown:
        yield classes.table(shown, counts)
    if len(shown) < len(names):
        yield f"  ... and {len(names) - len(shown):,} more: --all-classes shows every one"


def verify(folder: str, as_json: bool, quiet: bool) -> int:
    """Print the problems of a dataset; return the exit code, 1 if there are any."""
    problems = verification.verify(folder, quiet)
    if as_json:
        say(json.dumps({"folder": folder, "ok": not problems, "problems": problems}))
    else:
        say("\n".join(problems) if problems else f"{folder}: every shard is as the manifest says")
    return 1 if problems else 0


def examples(dataset: reader.Dataset, limit: int) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the first `limit` examples as (values by column, names of the columns of token ids)."""
    for batch in dataset:
        part = batch.slice(0, limit)
        for values in zip(*map(_values, part), strict=True):
            yield dict(zip(part.schema.names, values, strict=True)), token_columns(part.schema)
        limit -= part.num_rows
        if limit <= 0:
            return


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; arrays and vectors as numpy arrays."""
    if is_array(column.type):
        return [array_of(value) for value in column]
    return [value.values.to_numpy() for value in column] if is_vector(column.type) else column.to_pylist()


def load_tokenizer(dataset: reader.Dataset, tokenizer_path: str | None) -> Any:
    """Return the tokenizer in the dataset's folder, or the one at `tokenizer_path`.

    Raises:
        ShardError: the tokenizer is missing or damaged.
    """
    from tokenizers import Tokenizer

    try:
        path = Path(tokenizer_path) if tokenizer_path else dataset.local_tokenizer()
    except reader.ShardError as error:
        raise reader.ShardError(f"{error}, or pass --tokenizer") from None
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise reader.ShardError(f"{path}: no tokenizer here: pass --tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise reader.ShardError(f"{path}: not a tokenizer.json ({error})") from None


def with_class(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return an example with the name of its class added, if classes have names."""
    return {**row, "class": names[row[LABEL]]} if names and LABEL in row else row


def cat(folder: str, as_json: bool, limit: int, tokenizer_path: str | None, width: int) -> int:
    """Print the first examples as text; return the exit code."""
    dataset = reader.Dataset(folder)
    tokenizer = load_tokenizer(dataset, tokenizer_path) if dataset.kind.has_tokens else None
    if tokenizer_path and not tokenizer:
        raise reader.ShardError(f"{folder}: {dataset.kind.name} hold no token ids: leave out --tokenizer")
    names = classes.names(folder, dataset.manifest)
    for row, columns in examples(dataset, limit):
        texts = {name: tokenizer.decode(row[name], skip_special_tokens=False) for name in columns} if tokenizer else {}
        values = with_class({**row, **texts}, names)
        if as_json:
            say(json.dumps({name: for_programs(value) for name, value in values.items()}))
            continue
        others = {name: value for name, value in values.items() if name not in columns}
        say("  ".join(f"{name} {in_words(value)}" for name, value in others.items()))
        shown = {
            f"{name} ({len(row[name]):,})": text if width <= 0 or len(text) <= width else text[:width] + " ..."
            for name, text in texts.items()
        }
        if len(shown) > 1:
            say(terminal.table(list(shown), [list(shown.values())], shutil.get_terminal_size((120, 24)).columns))
        elif shown:
            say("\n".join(f"  {heading}: {text}" for heading, text in shown.items()))
    return 0


def draw(folder: str, as_json: bool, limit: int, path: Path) -> int:
    """Draw the first examples as a contact sheet; return the exit code.

    Raises:
        ShardError: the examples cannot be drawn.
    """
    dataset = reader.Dataset(folder)
    nothing = f"{folder}: {dataset.kind.name} have nothing to draw: leave out --picture"
    if dataset.kind.has_tokens:
        raise reader.ShardError(nothing)
    names = classes.names(folder, dataset.manifest)
    cells = []
    for row, _ in examples(dataset, limit):
        caption = with_class(row, names).get("class", f"id {row['id']}")
        cells += [sheet.Cell(value, caption) for value in row.values() if _is_drawable(value)][:1]
    if not cells:
        raise reader.ShardError(nothing)
    sheet.draw(cells, path, folder)
    drawn = {"picture": str(path), "examples": len(cells), "classes": len({cell.caption for cell in cells})}
    of_classes = f" of {drawn['classes']:,} classes" if names else ""
    say(json.dumps(drawn) if as_json else f"{path}: {len(cells):,} examples{of_classes}")
    return 0


def _is_drawable(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, np.ndarray) and value.ndim == 2)


def run_export(folder: str, output: Path, as_json: bool, quiet: bool) -> int:
    """Write a dataset as Parquet files; return the exit code."""
    written = export.export(folder, output, quiet)
    files = sorted(output.glob("*.parquet"))
    num_bytes = sum(path.stat().st_size for path in files)
    if as_json:
        say(json.dumps({"output": str(output), "files": len(files), "written": written, "bytes": num_bytes}))
    else:
        say(f"{output}: {len(files):,} files, {written:,} of them written now, {num_bytes:,} bytes")
    return 0


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command line; return the exit code."""
    expected = (ManifestError, reader.ShardError, OSError)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Beam also logs the errors that it raises
    try:
        return terminal.run("shards", lambda: work(argv, prog), expected)
    finally:
        logging.disable(level)


def work(argv: Sequence[str] | None, prog: str) -> int:
    """Run a command; return its exit code."""
    given, rest = parser(prog).parse_known_args(argv)
    options = checked(given.parser, COMMANDS[given.command], given)
    if rest and not storage.is_remote(options.folder):
        given.parser.error(given.parser.unknown(rest))
    if rest:
        mistyped, known = storage.unknown_options(rest)
        if mistyped:
            given.parser.error(given.parser.unknown(mistyped, known))
        storage.use_options(rest)
    return options.run()


if __name__ == "__main__":
    sys.exit(main())
