"""The papers' findings, measured at a small scale: train and score every system whose data is given, and judge.

Pretrains a base encoder, trains every system from it on the same number of tokens with several seeds, scores all of
them beside word vectors, and compares them as the papers do. The same command goes on after it was stopped; other
options need another work folder. Exit codes: 0 done; 1 a part failed, or it was stopped; 2 bad usage.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.findings import page
from benchmarks.findings.study import ROOT, Study
from benchmarks.report import write
from clearspan.common import files, terminal
from clearspan.common.commands import CommandError, UsageError
from clearspan.common.records import DataError
from clearspan.train.engine.ranks import name_accelerator

EXAMPLE = """example:
  python -m benchmarks.findings --work findings --data DATA --text 'DATA/text/*.jsonl' --sentences wiki1m.txt \\
      --nli snli_triplets.csv --images IMAGES --audio CLIPS --vectors glove.txt --synonyms neighbors.json
  python -m benchmarks.findings --write-docs         # the page again, from the result that is there
"""


GLOBS = {
    "text": "documents, as for `clearspan documents`",
    "sentences": "sentences, one a line",
    "nli": "sentence triplets, for supervised SimCSE",
    "images": "labeled images, for VisualCSE",
    "audio": "labeled clips, for AudioCSE",
}


def parser() -> terminal.Parser:
    root = terminal.Parser(prog="python -m benchmarks.findings", description=__doc__, epilog=EXAMPLE)
    add = root.add_argument
    add("--work", type=Path, metavar="DIR", help="folder of all parts; the same folder goes on")
    add("--seeds", type=int, default=3, metavar="N", help="seeds of each system (default 3)")
    add("--systems", metavar="LIST", help="systems to train, separated by commas (default: all with data)")
    for name, text in GLOBS.items():
        add(f"--{name}", nargs="+", default=[], metavar="GLOB", help=text)
    add("--data", type=Path, metavar="DIR", help="evaluation sets in SentEval's layout")
    add("--vectors", type=Path, metavar="FILE", help="word vectors, a baseline")
    add("--synonyms", type=Path, metavar="FILE", help="list of synonyms, for CLEAR's substitution")
    output = Path("benchmarks/results/findings.json")
    add("--output", type=Path, default=output, metavar="FILE", help=f"JSON result (default {output})")
    add("--write-docs", action="store_true", help="write docs/findings.md and its plot from the result")
    return root


def work(options: argparse.Namespace) -> int:
    """Do what the options ask for; return the exit code."""
    if options.work:
        if missing := [f"--{name}" for name in ("text", "sentences", "data") if not getattr(options, name)]:
            raise UsageError(f"give {', '.join(missing)}")
        with files.locked(options.work):
            write(Study(options).run(), options.output)
    elif not options.write_docs or not options.output.is_file():
        raise UsageError(f"give --work DIR; {options.output} is written at its end")
    result = json.loads(options.output.read_text(encoding="utf-8"))
    terminal.say("\n".join(page.score_table(result["systems"])))
    if options.write_docs:
        page.write(result, ROOT / "docs")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    root = parser()
    options = root.parse_args(argv)
    name_accelerator()
    try:
        return terminal.run("findings", lambda: work(options), (OSError, DataError, CommandError))
    except UsageError as error:
        root.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
