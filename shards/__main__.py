"""`python -m shards ls|verify|cat DIR`: what a dataset holds, whether it is whole, and what its examples say."""

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shards import lengths, reader, storage, terminal
from shards.beside import columns_of
from shards.manifest import Manifest, ManifestError
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
    totals, counts = manifest.totals, manifest.counts
    say(f"{folder}: {manifest.kind}, {len(manifest.shards)} shards, {totals['bytes']:,} bytes")
    say(f"  examples {totals['examples']:,}  tokens {totals['tokens']:,}")
    filtered = "".join(f", {n:,} {reason}" for reason, n in counts["filtered"].items())
    say(f"  read {counts['read']:,} = kept {counts['kept']:,}{filtered}, bad {counts['bad']:,}")
    say(f"  tokenizer {manifest.tokenizer.sha256[:16]}, {manifest.tokenizer.vocab_size:,} ids")
    for shard in manifest.shards:
        say(f"  {shard.name}  {shard.bytes:,} bytes  {shard.examples:,} examples  {shard.tokens:,} tokens")
    if bars := lengths.text(manifest.lengths):
        say("  tokens per example")
        say("\n".join(bars))
    return 0


def verify(folder: str, as_json: bool) -> int:
    problems = reader.verify(folder)
    if as_json:
        say(json.dumps({"folder": folder, "ok": not problems, "problems": problems}))
    else:
        say("\n".join(problems) if problems else f"{folder}: every shard is as the manifest says")
    return 1 if problems else 0


def examples(dataset: reader.Dataset, limit: int) -> Iterator[dict[str, Any]]:
    """The first examples as dictionaries, token columns as lists of ids."""
    for batch in dataset:
        rows = batch.slice(0, limit).to_pylist()
        yield from rows
        limit -= len(rows)
        if limit <= 0:
            return


def cat(folder: str, as_json: bool, limit: int, tokenizer_path: str | None, width: int) -> int:
    from tokenizers import Tokenizer

    dataset = reader.Dataset(folder)
    try:
        path = Path(tokenizer_path) if tokenizer_path else dataset.local_tokenizer()
    except reader.ShardError as error:
        raise reader.ShardError(f"{error}, or name one with --tokenizer") from None
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise reader.ShardError(f"{path}: no tokenizer here: name one with --tokenizer")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise reader.ShardError(f"{path}: not a tokenizer.json ({error})") from None
    for row in examples(dataset, limit):
        columns = [name for name, value in row.items() if isinstance(value, list)]
        texts = {name: tokenizer.decode(row[name], skip_special_tokens=False) for name in columns}
        if as_json:
            say(json.dumps({**row, **texts}))
            continue
        labels = "  ".join(f"{name} {value}" for name, value in row.items() if name not in columns)
        say(labels)
        shown = {
            f"{name} ({len(row[name]):,})": text if width <= 0 or len(text) <= width else text[:width] + " ..."
            for name, text in texts.items()
        }
        if len(shown) > 1:
            say("\n".join(f"  {line}" for line in columns_of(shown, shutil.get_terminal_size((120, 24)).columns - 2)))
        else:
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
