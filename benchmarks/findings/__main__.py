"""The papers' findings, measured at a small or a large scale: train and score every system whose data is given, judge.

Pretrains a base encoder, trains every system from it on the same number of tokens with several seeds, scores all of
them beside word vectors, and compares them as the papers do. The same command goes on after it was stopped; other
options need another work folder. `--prepare` makes all data where Beam is installed; the folder then goes to a machine
with a GPU, which needs no Beam. Exit codes: 0 done; 1 a part failed, or `--minutes` have passed before the end; 2 bad
usage; 130 it was stopped.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.findings import datasets, page
from benchmarks.findings.collected import ROOT
from benchmarks.findings.scales import SCALES, SMALL
from benchmarks.findings.study import Study
from benchmarks.report import write
from clearspan.cli.parser import Parser
from clearspan.cli.run import Work, run
from clearspan.common import files, terminal
from clearspan.common.records import DataError
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.train.engine.ranks import name_accelerator

EXAMPLE = """examples:
  python -m benchmarks.findings --work findings --data DATA --text 'DATA/text/*.jsonl' --sentences wiki1m.txt \\
      --nli snli_triplets.csv --images IMAGES --audio CLIPS --vectors glove.txt --synonyms neighbors.json
  python -m benchmarks.findings --scale large --work large --prepare --data DATA --text ... --sentences ... --nli ...
  python -m benchmarks.findings --scale large --work large --minutes 14    # on a GPU; again, until all is done
  python -m benchmarks.findings --write-docs         # the page again, from the results that are there
"""

RESULTS = {name: Path("benchmarks/results", f"findings{'' if name == SMALL else f'-{name}'}.json") for name in SCALES}
"""Scale -> the result that the page is written from."""
GLOBS = {
    "text": "documents, as for `clearspan documents`",
    "sentences": "sentences, one a line",
    "nli": "sentence triplets, for supervised SimCSE",
    "images": "labeled images, for VisualCSE",
    "audio": "labeled clips, for AudioCSE",
}


def parser() -> Parser:
    root = Parser(prog="python -m benchmarks.findings", description=__doc__, epilog=EXAMPLE)
    add = root.add_argument
    add("--scale", choices=list(SCALES), default=SMALL, help="sizes of encoder, batches and data (default small)")
    add("--work", type=Path, metavar="DIR", help="folder of all parts; the same folder goes on")
    add("--prepare", action="store_true", help="make the data in --work, which may then travel, and stop; needs Beam")
    add("--minutes", type=float, default=0, metavar="M", help="begin to stop after M minutes; saving takes one more")
    add("--seeds", type=int, default=3, metavar="N", help="seeds of each system (default 3)")
    add("--systems", metavar="LIST", help="systems to train, separated by commas (default: the scale's with data)")
    add("--at-once", type=int, metavar="N", help="systems to train at a time (default: the scale's; 1 on a CPU)")
    for name, text in GLOBS.items():
        add(f"--{name}", nargs="+", default=[], metavar="GLOB", help=text)
    add("--data", type=Path, metavar="DIR", help="evaluation sets in SentEval's layout")
    add("--vectors", type=Path, metavar="FILE", help="word vectors, a baseline")
    add("--synonyms", type=Path, metavar="FILE", help="list of synonyms, for CLEAR's substitution")
    names = " or ".join(map(str, RESULTS.values()))
    add("--output", type=Path, metavar="FILE", help=f"JSON result (default {names})")
    add("--write-docs", action="store_true", help="write docs/findings.md and its plots from all scales' results")
    return root


def read_results(output: Path, scale: str) -> dict[str, Any]:
    """Return the results that are there, by scale."""
    files = {**RESULTS, scale: output}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.is_file()}


def study(options: argparse.Namespace, output: Path) -> int:
    """Run what the options ask for, and write the result; return the exit code."""
    scale = SCALES[options.scale]
    given = {} if options.text or options.prepare else datasets.prepared(options.work)
    for name, path in given.items():
        setattr(options, name, getattr(options, name) or path)
    needed = ("data",) if given else ("text", "sentences", "data")
    if missing := [f"--{name}" for name in needed if not getattr(options, name)]:
        raise UsageError(f"give {', '.join(missing)}")
    with files.locked(options.work):
        if options.prepare:
            datasets.prepare(options, scale)
            return 0
        write((run := Study(options, scale)).run(), output)
    return int(run.is_stopped)


def work(options: argparse.Namespace) -> int:
    """Do what the options ask for; return the exit code."""
    for name, least in {"minutes": 0, "seeds": 1, "at_once": 1}.items():
        if (value := getattr(options, name)) is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} {value:g} must be at least {least}")
    output, code = options.output or RESULTS[options.scale], 0
    if options.work:
        code = study(options, output)
        if options.prepare:
            return code
    elif not options.write_docs or not output.is_file():
        raise UsageError(f"give --work DIR; {output} is written at its end")
    found = read_results(output, options.scale)
    terminal.say(page.score_table(found[options.scale]["systems"]))
    if options.write_docs:
        page.write(found, ROOT / "docs")
    return code


def main(argv: Sequence[str] | None = None) -> int:
    root = parser()
    options = root.parse_args(argv)
    name_accelerator()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what trains saves its work
    try:
        return run(Work("findings", lambda: work(options), (OSError, DataError, CommandError)))
    except UsageError as error:
        root.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
