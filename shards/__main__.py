"""`python -m shards ls|verify|cat DIR`: what a dataset holds, whether it is whole, and what its examples say."""

import argparse
import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shards import described, lengths, reader, storage, terminal
from shards.manifest import TOKENIZER_FOLDER, Manifest, ManifestError
from shards.schema import token_columns
from shards.terminal import say

EXAMPLES = """examples:
  python -m shards ls data/train
  python -m shards ls data/train --histogram lengths.png
  python -m shards verify data/train
  python -m shards cat data/train --limit 3

A folder on s3:// or gs:// is reached as the environment says (AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...),
or as Beam's options do, e.g. --s3_endpoint_url.
"""


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="python -m shards",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=terminal.version())
    commands = root.add_subparsers(dest="command", required=True)
    for name, text in (("ls", "summary"), ("verify", "read everything again"), ("cat", "examples as readable text")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("folder", metavar="DIR", help="the dataset: a folder, or gs://... or s3://...")
        command.add_argument("--json", action="store_true", help="for programs to read")
        if name == "ls":
            command.add_argument("--histogram", type=Path, metavar="FILE.png", help="picture of the examples' lengths")
        if name == "cat":
            command.add_argument("--limit", type=int, default=5, metavar="N", help="how many examples (default 5)")
            command.add_argument("--tokenizer", metavar="PATH", help="in place of the copy beside the shards")
            command.add_argument("--width", type=int, default=300, help="characters of each text (default 300; 0: all)")
    return root


def ls(folder: str, as_json: bool, picture: Path | None) -> int:
    manifest = Manifest.load(folder)
    if picture:
        lengths.picture(manifest.lengths, picture, folder)
    if as_json:
        say(manifest.to_json().decode().rstrip())
        return 0
    totals, counts, tokenizer = manifest.totals, manifest.counts, manifest.tokenizer
    say(f"{folder}: {manifest.kind}, {len(manifest.shards)} shards, {totals['bytes']:,} bytes")
    say(f"  examples {totals['examples']:,}" + (f"  tokens {described.tokens(manifest)}" if tokenizer else ""))
    filtered = "".join(f", {n:,} {reason}" for reason, n in counts["filtered"].items())
    say(f"  read {counts['read']:,} = kept {counts['kept']:,}{filtered}, bad {counts['bad']:,}")
    if tokenizer:
        say(f"  tokenizer {tokenizer.sha256[:16]}, {tokenizer.vocab_size:,} ids")
    for line in described.options(manifest.fingerprint.get("options", {})):
        say(f"  {line}")
    for path, sha256 in manifest.resources.items():
        if not path.startswith(f"{TOKENIZER_FOLDER}/"):
            say(f"  {path} {sha256[:16]}")
    columns = ("bytes", "examples", *(["tokens"] if tokenizer else []))
    rows = [(shard.name, *(f"{getattr(shard, column):,}" for column in columns)) for shard in manifest.shards]
    say(terminal.table(("shard", *columns), rows, right=range(1, 4)))
    if shown := lengths.text(manifest.lengths):
        say(shown)
    return 0


def verify(folder: str, as_json: bool) -> int:
    problems = reader.verify(folder)
    if as_json:
        say(json.dumps({"folder": folder, "ok": not problems, "problems": problems}))
    else:
        say("\n".join(problems) if problems else f"{folder}: every shard is as the manifest says")
    return 1 if problems else 0


def examples(dataset: reader.Dataset, limit: int) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The first examples as dictionaries, and the columns of each that hold token ids, as lists."""
    for batch in dataset:
        rows = batch.slice(0, limit).to_pylist()
        yield from ((row, token_columns(batch.schema)) for row in rows)
        limit -= len(rows)
        if limit <= 0:
            return


def load_tokenizer(dataset: reader.Dataset, tokenizer_path: str | None) -> Any:
    """The tokenizer beside the shards, or the one that is named in its place.

    Raises:
        ShardError: it is not there, or damaged.
    """
    from tokenizers import Tokenizer

    try:
        path = Path(tokenizer_path) if tokenizer_path else dataset.local_tokenizer()
    except reader.ShardError as error:
        raise reader.ShardError(f"{error}, or name one with --tokenizer") from None
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise reader.ShardError(f"{path}: no tokenizer here: name one with --tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise reader.ShardError(f"{path}: not a tokenizer.json ({error})") from None


def plain(value: Any) -> Any:
    """A value of an example as JSON can say it: of bytes, how many and which."""
    return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()} if isinstance(value, bytes) else value


def cat(folder: str, as_json: bool, limit: int, tokenizer_path: str | None, width: int) -> int:
    dataset = reader.Dataset(folder)
    tokenizer = load_tokenizer(dataset, tokenizer_path) if dataset.kind.has_tokens else None
    if tokenizer_path and not tokenizer:
        raise reader.ShardError(f"{folder}: {dataset.kind.name} hold no token ids: leave --tokenizer out")
    for row, columns in examples(dataset, limit):
        texts = {name: tokenizer.decode(row[name], skip_special_tokens=False) for name in columns} if tokenizer else {}
        if as_json:
            say(json.dumps({name: plain(value) for name, value in {**row, **texts}.items()}))
            continue
        others = {name: value for name, value in row.items() if name not in columns}
        said = {name: f"{len(value):,} bytes" if isinstance(value, bytes) else value for name, value in others.items()}
        say("  ".join(f"{name} {value}" for name, value in said.items()))
        shown = {
            f"{name} ({len(row[name]):,})": text if width <= 0 or len(text) <= width else text[:width] + " ..."
            for name, text in texts.items()
        }
        if len(shown) > 1:
            say(terminal.table(list(shown), [list(shown.values())], shutil.get_terminal_size((120, 24)).columns))
        elif shown:
            say("\n".join(f"  {heading}: {text}" for heading, text in shown.items()))
    return 0


def main(argv: list[str] | None = None) -> int:
    root = parser()
    options, rest = root.parse_known_args(argv)
    if rest and not storage.is_remote(options.folder):
        root.error(f"no such option: {' '.join(rest)}")
    if options.command == "cat" and (options.limit < 1 or options.width < 0):
        root.error("--limit must be at least 1, and --width 0 or more")
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Beam logs what is raised here anyway
    try:
        return terminal.run("shards", lambda: work(options, rest), (ManifestError, reader.ShardError, OSError))
    finally:
        logging.disable(level)


def work(options: argparse.Namespace, beam_options: list[str]) -> int:
    """One command's work; returns its exit code."""
    if beam_options:
        storage.use_options(beam_options)
    if options.command == "ls":
        return ls(options.folder, options.json, options.histogram)
    if options.command == "verify":
        return verify(options.folder, options.json)
    return cat(options.folder, options.json, options.limit, options.tokenizer, options.width)


if __name__ == "__main__":
    sys.exit(main())
