"""The command `clearspan shards ls|verify|cat|export DIR`: summarize a dataset, verify it, print it, export it."""

import hashlib
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
from clearspan.shards import classes, export, lengths, reader, storage, verification
from clearspan.shards.layouts import array_of, is_array
from clearspan.shards.manifest import TOKENIZER_FOLDER, Manifest, ManifestError
from clearspan.shards.schema import KINDS, LABEL, is_vector, token_columns

PROG = "python -m shards"
EXAMPLES = """examples:
  clearspan shards ls data/train
  clearspan shards verify data/train
  clearspan shards cat data/train --limit 3
  clearspan shards export data/vectors vectors-parquet

For a folder on s3:// or gs://, set the client's environment variables (AWS_ENDPOINT_URL,
GOOGLE_APPLICATION_CREDENTIALS, ...) or Beam's options, e.g. --s3_endpoint_url.
"""
CLASSES_SHOWN = 20
"""Number of classes that `ls` lists without --all-classes."""


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

    all_classes: Annotated[bool, Flag("list every class")] = False

    def run(self) -> int:
        return ls(self.folder, self.json, self.all_classes)


@dataclass(frozen=True, kw_only=True)
class Verify(OfDataset):
    """Read and check everything."""

    quiet: Quiet = False

    def run(self) -> int:
        return verify(self.folder, self.json, self.quiet)


@dataclass(frozen=True, kw_only=True)
class Cat(OfDataset):
    """Print examples as text."""

    limit: Annotated[int, Flag("examples to show", "N"), Ge(1)] = 5
    tokenizer: Annotated[str | None, Flag("tokenizer to use instead of the copy in the dataset's folder", "PATH")] = (
        None
    )
    width: Annotated[int, Flag("characters of a text to print (0: all)", "N"), Ge(0)] = 300

    def run(self) -> int:
        return cat(self.folder, self.json, self.limit, self.tokenizer, self.width)


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


def ls(folder: str, as_json: bool, all_classes: bool) -> int:
    """Print a summary of a dataset; return the exit code."""
    manifest = Manifest.load(folder)
    if as_json:
        say(manifest.to_json().decode().rstrip())
        return 0
    totals, counts, tokenizer = manifest.totals, manifest.counts, manifest.tokenizer
    say(f"{folder}: {manifest.kind}, {len(manifest.shards)} shards, {totals['bytes']:,} bytes")
    say(f"  examples {totals['examples']:,}" + (f"  tokens {tokens(manifest)}" if tokenizer else ""))
    filtered = "".join(f", {n:,} {reason}" for reason, n in counts["filtered"].items())
    say(f"  read {counts['read']:,} = kept {counts['kept']:,}{filtered}, bad {counts['bad']:,}")
    if tokenizer:
        say(f"  tokenizer {tokenizer.sha256[:16]}, {tokenizer.vocab_size:,} ids")
    if statistics := manifest.statistics:
        say(
            f"  values of {KINDS[manifest.kind].statistics}: mean {statistics['mean']:.4f}, std {statistics['std']:.4f}"
        )
    if settings := list(options_given(manifest.fingerprint.get("options", {}))):
        say(f"  {', '.join(settings)}")
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


def tokens(manifest: Manifest) -> str:
    """Return the number of tokens, in total and for examples and views, or for each column."""
    total, columns = f"{manifest.totals['tokens']:,}", manifest.column_tokens
    views = sum(number for column, number in columns.items() if column.startswith("view_"))
    if views:
        return f"{total}: {columns['tokens']:,} of the examples, {views:,} of their views"
    if len(columns) > 1:
        return f"{total}: " + ", ".join(f"{column} {number:,}" for column, number in columns.items())
    return total


def options_given(options: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the options of the pipeline that are set, as in the fingerprint: "min_tokens 2048", "taken.files 9"."""
    for name, value in options.items():
        if isinstance(value, dict):
            if name != "files":  # the hashes of the resources, which have lines of their own
                yield from options_given(value, f"{above}{name}.")
        elif value not in (None, False, "", []):
            yield f"{above}{name} {value if isinstance(value, (str, int, float)) else json.dumps(value)}"


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


def shown(value: Any, for_programs: bool) -> Any:
    """Return a value as text or, for JSON, as plain values; of bytes and arrays only their size and, for JSON, hash."""
    if not isinstance(value, (bytes, np.ndarray)):
        return value if for_programs else str(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and for_programs:
        return value.tolist()
    if isinstance(value, bytes):
        size: dict[str, Any] = {"bytes": len(value)}
        text = f"{len(value):,} bytes"
    else:
        size = {"shape": list(value.shape)}
        text = " x ".join(f"{number:,}" for number in value.shape)
    return {**size, "sha256": hashlib.sha256(bytes(value)).hexdigest()} if for_programs else text


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
            say(json.dumps({name: shown(value, True) for name, value in values.items()}))
            continue
        others = {name: value for name, value in values.items() if name not in columns}
        say("  ".join(f"{name} {shown(value, False)}" for name, value in others.items()))
        columns_shown = {
            f"{name} ({len(row[name]):,})": text if width <= 0 or len(text) <= width else text[:width] + " ..."
            for name, text in texts.items()
        }
        if len(columns_shown) > 1:
            width_of_table = shutil.get_terminal_size((120, 24)).columns
            say(terminal.table(list(columns_shown), [list(columns_shown.values())], width_of_table))
        elif columns_shown:
            say("\n".join(f"  {heading}: {text}" for heading, text in columns_shown.items()))
    return 0


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
