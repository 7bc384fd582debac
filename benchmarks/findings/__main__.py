"""The papers' findings, measured at a small scale: train and score every system that is missing, and judge.

Pretrains a base encoder, trains every system from it on the same number of tokens with several seeds, scores all of
them beside word vectors, and compares them as the papers do. The work folder keeps every stage: the same command goes
on after it was stopped or killed, and ends with the same table. Exit codes: 0 done; 1 a stage failed, or it was
stopped; 2 bad usage.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.findings import execution, page, plan, results, stages
from benchmarks.findings.scales import SCALES
from clearspan.common import files, terminal
from clearspan.common.commands import UsageError
from clearspan.eval.files import DataError

EXAMPLE = """example:
  python -m benchmarks.findings --work findings --data DATA --text 'DATA/text/*.jsonl' --sentences wiki1m.txt \\
      --nli snli_triplets.csv --images IMAGES --audio CLIPS --vectors glove.txt --synonyms neighbors.json --dry-run
  python -m benchmarks.findings --write-docs         # the page again, from the result that is there
"""


def parser() -> terminal.Parser:
    root = terminal.Parser(prog="python -m benchmarks.findings", description=__doc__, epilog=EXAMPLE)
    add = root.add_argument
    add("--work", type=Path, metavar="DIR", help="folder of all stages; the same folder goes on")
    add("--scale", choices=SCALES, default="cpu", help="tiny: a test; cpu: two cores; gpu: one GPU (default cpu)")
    add("--seeds", type=int, default=3, metavar="N", help="seeds of each system (default 3)")
    add("--systems", metavar="LIST", help="systems to train, separated by commas (default: all with data)")
    add("--text", nargs="+", default=[], metavar="GLOB", help="documents, as for `clearspan documents`")
    add("--sentences", nargs="+", default=[], metavar="GLOB", help="sentences, one a line")
    add("--data", type=Path, metavar="DIR", help="evaluation sets: SentEval's downstream/, glue/{RTE,MRPC}/")
    add("--nli", nargs="+", default=[], metavar="GLOB", help="sentence triplets, for supervised SimCSE")
    add("--images", nargs="+", default=[], metavar="GLOB", help="labeled images, for VisualCSE")
    add("--audio", nargs="+", default=[], metavar="GLOB", help="labeled clips, for AudioCSE")
    add("--vectors", type=Path, metavar="FILE", help="word vectors, a baseline")
    add("--synonyms", type=Path, metavar="FILE", help="list of synonyms, for CLEAR's substitution")
    output = Path("benchmarks/results/findings.json")
    add("--output", type=Path, default=output, metavar="FILE", help=f"JSON result (default {output})")
    add("--write-docs", action="store_true", help="write docs/findings.md and its plot from the result")
    add("--dry-run", action="store_true", help="print the stages and their estimated time")
    return root


def make_plan(options: argparse.Namespace) -> plan.Plan:
    """Return the plan that the options describe.

    Raises:
        UsageError: an option is missing, or a file does not exist.
    """
    if missing := [name for name in ("work", "text", "sentences", "data") if not getattr(options, name)]:
        raise UsageError(f"give {', '.join(f'--{name}' for name in missing)}")
    if options.seeds < 1:
        raise UsageError("--seeds must be at least 1")
    for name in ("data", "vectors", "synonyms"):
        if (path := getattr(options, name)) and not path.exists():
            raise UsageError(f"--{name} {path}: no such file or folder")
    kinds = {name: tuple(getattr(options, name)) for name in ("text", "sentences", "nli", "images", "audio")}
    vectors, synonyms = (path and path.resolve() for path in (options.vectors, options.synonyms))
    inputs = plan.Inputs(data=options.data.resolve(), vectors=vectors, synonyms=synonyms, **kinds)
    chosen = tuple(dict.fromkeys(options.systems.split(","))) if options.systems else ()
    return plan.make(options.scale, inputs, options.work.resolve(), options.seeds, chosen)


def work(options: argparse.Namespace) -> int:
    """Do what the options ask for; return the exit code."""
    if options.write_docs and not options.work:
        if not options.output.is_file():
            raise UsageError(f"--write-docs: no {options.output}; run the benchmark first, with --work DIR")
        try:
            page.write(json.loads(options.output.read_text(encoding="utf-8")), plan.ROOT / "docs")
        except (ValueError, LookupError, TypeError, AttributeError):
            raise UsageError(f"--output {options.output}: is not a result of this benchmark, or an older one") from None
        return 0
    made = make_plan(options)
    if options.dry_run:
        terminal.say(stages.describe(made))
        return 0
    with files.locked(made.work):
        plan.fix(made)
        processes = execution.Processes()
        try:
            with execution.stopping(processes):
                failed = execution.run(made, stages.stages(made), processes)
        except execution.StoppedError as signal:
            print(f"findings: stopped by {signal}; the same command goes on", file=sys.stderr)
            return 1
        if failed:
            print(f"findings: {len(failed)} stages failed: {', '.join(failed)}; the same command tries them again",
                  file=sys.stderr)  # fmt: skip
            return 1
        result = results.write(made, options.output)
    terminal.say("\n".join([*page.score_table(result["systems"]), "", *page.claim_table(result["claims"])]))
    if options.write_docs:
        page.write(result, plan.ROOT / "docs")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    root = parser()
    options = root.parse_args(argv)
    try:
        return terminal.run("findings", lambda: work(options), (OSError, DataError))
    except UsageError as error:
        root.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
