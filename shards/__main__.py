"""Summarize, verify, print or export a dataset of shards: `clearspan shards ls|verify|cat|export DIR`."""

import functools
import hashlib
import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.cli.group import Group
from clearspan.common import terminal
from clearspan.common.options import Flag, Json, Quiet
from clearspan.common.terminal import say
from clearspan.shards import classes, export, lengths, reader, verification
from clearspan.shards.layouts import array_of, is_array
from clearspan.shards.manifest import TOKENIZER_FOLDER, Manifest, ManifestError, Reconciliation
from clearspan.shards.quiet import quiet_beam
from clearspan.shards.schema import KINDS, LABEL, is_vector, token_columns

EXAMPLES = (
    "clearspan shards ls data/train",
    "clearspan shards verify data/train",
    "clearspan shards cat data/train --limit 3",
    "clearspan shards export data/vectors vectors-parquet",
)
NOTES = """
For a folder on s3:// or gs://, set the environment variables of the object store's client (AWS_ENDPOINT_URL,
GOOGLE_APPLICATION_CREDENTIALS, ...).
"""


@dataclass(frozen=True, kw_only=True)
class OfDataset(Command):
    """Base class of the commands of `clearspan shards`, with the options that all of these take."""

    error_prefix: ClassVar[str] = "shards"
    expected: ClassVar[Errors] = (ManifestError, reader.ShardError, OSError)

    folder: Annotated[str, Flag("DIR", positional=True, path=True)]
    """Folder of the dataset, local or on gs:// or s3://."""
    json: Json = False
    """Print JSON instead of text."""

    def run(self) -> Result:
        """Return the command's `result`; what Beam would log about an error is in the error, too."""
        with quiet_beam():
            return self.result()

    @abstractmethod
    def result(self) -> Result:
        """Read the dataset, and return the result of the command."""


@dataclass(frozen=True, kw_only=True)
class Ls(OfDataset):
    """The command `shards ls`: summarizes a dataset."""

    summary: ClassVar[str] = "Print a summary of the dataset."

    def result(self) -> Result:
        manifest = Manifest.load(self.folder)
        return Printed("\n".join(summary(self.folder, manifest)), manifest.to_json().decode())


@dataclass(frozen=True, kw_only=True)
class Verify(OfDataset):
    """The command `shards verify`: reads and checks all files of a dataset."""

    summary: ClassVar[str] = "Read and check the whole dataset; exit with code 1 if there are problems."

    quiet: Quiet = False
    """Show no progress bar."""

    def result(self) -> Result:
        problems = verification.verify(self.folder, self.quiet)
        text = "\n".join(problems) or f"{self.folder}: every shard is as the manifest says"
        report = {"folder": self.folder, "ok": not problems, "problems": problems}
        return Printed(text, json.dumps(report), 1 if problems else 0)


@dataclass(frozen=True, kw_only=True)
class Cat(OfDataset):
    """The command `shards cat`: prints examples of a dataset."""

    summary: ClassVar[str] = "Print the first examples as text."

    limit: Annotated[int, Flag("N"), Ge(1)] = 5
    """Number of examples to print."""
    width: Annotated[int, Flag("N"), Ge(0)] = 300
    """Maximum number of characters to print of a text; 0: no maximum."""

    def result(self) -> Result:
        """Print the first examples, each as soon as it is read, since all of them together may not fit into memory."""
        dataset = reader.Dataset(self.folder)
        decode: Callable[[list[int]], str] | None = None
        if dataset.kind.has_tokens:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(dataset.local_tokenizer() / "tokenizer.json"))
            decode = functools.partial(tokenizer.decode, skip_special_tokens=False)
        names = classes.names(self.folder, dataset.manifest)
        for row, columns in examples(dataset, self.limit):
            texts = {name: decode(row[name]) for name in columns} if decode else {}
            values = row | texts | ({"class": names[row[LABEL]]} if names and LABEL in row else {})
            if self.json:
                say(json.dumps({name: plain(value) for name, value in values.items()}))
                continue
            say("  ".join(f"{name} {as_text(value)}" for name, value in values.items() if name not in columns))
            for name, text in texts.items():
                end = " ..." if 0 < self.width < len(text) else ""
                say(f"  {name} ({len(row[name]):,}): {text[: self.width or None]}{end}")
        return Printed()


@dataclass(frozen=True, kw_only=True)
class ParquetExport(OfDataset):
    """The command `shards export`: writes a dataset as Parquet files."""

    summary: ClassVar[str] = "Write each shard as a Parquet file, e.g. for pandas, DuckDB, datasets or LanceDB."

    output: Annotated[Path, Flag("OUT", positional=True, output=True)]
    """Local folder to write, new or empty."""
    quiet: Quiet = False
    """Show no progress bar."""

    def result(self) -> Result:
        export.export(self.folder, self.output, self.quiet)
        sizes = [path.stat().st_size for path in self.output.glob("*.parquet")]
        report = {"output": str(self.output), "files": len(sizes), "bytes": sum(sizes)}
        return Printed(f"{self.output}: {len(sizes):,} files, {sum(sizes):,} bytes", json.dumps(report))


def summary(folder: str, manifest: Manifest) -> Iterator[str]:
    """Yield the lines of a summary of a dataset."""
    totals, tokenizer = manifest.totals, manifest.tokenizer
    yield f"{folder}: {manifest.kind}, {len(manifest.shards)} shards, {totals['bytes']:,} bytes"
    columns = [f"{column} {number:,}" for column, number in manifest.column_tokens.items()]
    by_column = f": {', '.join(columns)}" if len(columns) > 1 else ""
    yield f"  examples {totals['examples']:,}" + (f"  tokens {totals['tokens']:,}{by_column}" if tokenizer else "")
    yield f"  {Reconciliation(**manifest.counts)}"
    if tokenizer:
        yield f"  tokenizer {tokenizer.sha256[:16]}, {tokenizer.vocab_size:,} ids"
    if statistics := manifest.statistics:
        column = KINDS[manifest.kind].statistics
        yield f"  values of {column}: mean {statistics['mean']:.4f}, std {statistics['std']:.4f}"
    if settings := list(options_given(manifest.fingerprint.get("options", {}))):
        yield f"  {', '.join(settings)}"
    for path, sha256 in manifest.resources.items():
        if not path.startswith(f"{TOKENIZER_FOLDER}/"):
            yield f"  {path} {sha256[:16]}"
    for line in classes.summary(classes.names(folder, manifest), manifest.classes):
        yield f"  {line}"
    figures = ["bytes", "examples"]
    if tokenizer:
        figures.append("tokens")
    rows = [(shard.name, *(f"{getattr(shard, figure):,}" for figure in figures)) for shard in manifest.shards]
    yield terminal.table(("shard", *figures), rows, right=range(1, 4))
    if histograms := lengths.text(manifest.lengths):
        yield histograms


def options_given(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the name and the value of each option that is set, e.g. "min_tokens 2048", or "taken.files 9" if nested.

    An option whose value is None, False, "" or [] counts as not set. A mapping with the name `files` is left out.

    Args:
        prefix: the names of the mappings that contain `options`, each followed by a dot, e.g. "taken."; "" if none do.
    """
    for name, value in options.items():
        if isinstance(value, dict):
            if name != "files":  # the hashes of the resources, which have lines of their own
                yield from options_given(value, f"{prefix}{name}.")
        elif value not in (None, False, "", []):
            yield f"{prefix}{name} {value if isinstance(value, (str, int, float)) else json.dumps(value)}"


def examples(dataset: reader.Dataset, limit: int) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the first `limit` examples, each as (column -> value, names of the columns that hold token ids)."""
    for batch in dataset:
        part = batch.slice(0, limit)
        for values in zip(*map(_values, part), strict=True):
            yield dict(zip(part.schema.names, values, strict=True)), token_columns(part.schema)
        limit -= part.num_rows
        if limit <= 0:
            return


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python values, but arrays and vectors as numpy arrays."""
    if is_array(column.type):
        return [array_of(value) for value in column]
    return [value.values.to_numpy() for value in column] if is_vector(column.type) else column.to_pylist()


def plain(value: Any) -> Any:
    """Return a value that JSON can hold.

    A vector becomes a list, an array of more dimensions its shape and hash, and bytes become their number and hash.
    """
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 1:
        return value.tolist()
    return {"shape": list(value.shape), "sha256": hashlib.sha256(bytes(value)).hexdigest()}


def as_text(value: Any) -> str:
    """Return a value as text: for bytes only their number, for an array only its shape, such as "3 x 224 x 224"."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return " x ".join(f"{number:,}" for number in value.shape) if isinstance(value, np.ndarray) else str(value)


COMMANDS = Group(
    {"ls": Ls, "verify": Verify, "cat": Cat, "export": ParquetExport},
    prog="python -m clearspan.shards",
    description=str(__doc__),
    examples=EXAMPLES,
    notes=NOTES,
)


main = COMMANDS.main


if __name__ == "__main__":
    sys.exit(main())
