"""Change the mechanism of guarantees, and see their tests fail: `make mutants [NAME ...]`.

Each function that docs/guarantees.md names as a guarantee's mechanism is changed in one place at a time, and the tests
of that guarantee run alone, on a copy of this checkout. Prints how many mutants were caught, and each survivor as a
diff. A mutant that nothing needs to notice is listed with the reason in tests/mutation/survivors/. Exit code 1 if a
mutant survives without a reason, or a listed one does not survive any more.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests import guarantees
from tests.guarantees import ROOT, Function, Guarantee
from tests.mutation import mutants as mutation
from tests.mutation.copies import LEVELS, Copies, Result, Run, copies
from tests.mutation.mutants import Mutant

KEPT = ROOT / ".mutants"
"""A file for each mutant that was run: whether it was caught, by what its file and its tests held."""
SLOW = 1 + LEVELS.index("slow")


@dataclass
class Outcome:
    """What became of the mutants of one guarantee."""

    guarantee: Guarantee
    caught: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    seconds: float = 0
    problem: str = ""

    def count(self, mutant: Mutant, caught: bool) -> None:
        """Add a mutant to the caught or to the survivors."""
        if caught:
            self.caught += 1
        else:
            self.survivors.append(mutant)

    def line(self, reasons: dict[tuple[str, str], str]) -> str:
        """Return a row of the table."""
        if self.problem:
            return f"{self.guarantee.name:24} {self.problem}"
        explained = sum((self.guarantee.name, str(mutant)) in reasons for mutant in self.survivors)
        numbers = (self.caught + len(self.survivors), self.caught, explained, len(self.survivors) - explained)
        return f"{self.guarantee.name:24}" + "".join(f"{number:>9}" for number in numbers) + f"{self.seconds:>9.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a guarantee; default: all")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="runs at a time; default: one a core")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--again", action="store_true", help="also run mutants whose outcome is kept in .mutants/")
    options = parser.parse_args()
    kept = guarantees.read()[0]
    unknown = set(options.names) - {guarantee.name for guarantee in kept}
    if unknown:
        parser.error(f"no guarantee in {guarantees.PAGE}: {', '.join(sorted(unknown))}")
    chosen = [guarantee for guarantee in kept if not options.names or guarantee.name in options.names]
    if options.list:
        for guarantee in chosen:
            print(f"# {guarantee.name}", *_mutants(guarantee), sep="\n", flush=True)
        return 0
    reasons = mutation.reasons()
    began = time.monotonic()
    header = "".join(f"{word:>9}" for word in ("mutants", "caught", "reason", "survived", "seconds"))
    print(f"{'guarantee':24}{header}", flush=True)
    outcomes = []
    tests = sorted({test for guarantee in chosen for test in guarantee.tests})
    with tempfile.TemporaryDirectory() as folder, copies(Path(folder), options.at_once, tests) as places:
        for guarantee in chosen:
            listed = {mutant for name, mutant in reasons if name == guarantee.name}
            outcomes.append(_outcome(guarantee, places, listed, again=options.again))
            print(outcomes[-1].line(reasons), flush=True)
    return _report(outcomes, reasons, time.monotonic() - began)


def _mutants(guarantee: Guarantee) -> list[Mutant]:
    return [mutant for function in guarantee.mechanism for mutant in mutation.of_function(function)]


def _outcome(guarantee: Guarantee, places: Copies, listed: set[str], again: bool) -> Outcome:
    """Run the tests of a guarantee on each of its mutants, except those whose outcome is kept.

    The quick tests come first. What they do not notice, and is not listed with a reason, is run with the slow ones, if
    there are any, and then in a pytest of its own, since a change may have its effect when its module is imported.
    """
    outcome = Outcome(guarantee)
    begun = time.monotonic()
    waiting = {}
    for mutant in _mutants(guarantee):
        path = KEPT / _key(guarantee, mutant, str(mutant) in listed)
        if path.is_file() and not again:
            outcome.count(mutant, path.read_text() == "caught")
        else:
            waiting[mutant] = path
    if waiting:
        levels = sorted({level for test in guarantee.tests for level in places.levels.get(test, {}).values()})
        quick, *slower = levels or [0]
        survivors = _survivors(outcome, list(waiting), places, Run(guarantee.tests, level=quick))
        left = [mutant for mutant in survivors if str(mutant) not in listed]
        if SLOW in slower:
            left = _survivors(outcome, left, places, Run(guarantee.tests, level=SLOW))
        left = _survivors(outcome, left, places, Run(guarantee.tests, level=quick, alone=True))
        survivors = [mutant for mutant in survivors if str(mutant) in listed or mutant in left]
        KEPT.mkdir(exist_ok=True)
        for mutant, path in waiting.items() if not outcome.problem else ():
            caught_it = mutant not in survivors
            outcome.count(mutant, caught_it)
            path.write_text("caught" if caught_it else "survived")
    outcome.seconds = time.monotonic() - begun
    return outcome


def _survivors(outcome: Outcome, mutants: list[Mutant], places: Copies, run: Run) -> list[Mutant]:
    """Return those that the tests do not notice, after a run of the tests without any change."""
    if not mutants or outcome.problem:
        return []
    unchanged: list[Result] = []
    places.run(run, unchanged.append)
    places.finish()
    if unchanged[0].failed:
        outcome.problem = f"fails without a change: {unchanged[0].failed}: {unchanged[0].report}"
        return []
    if not unchanged[0].seconds:
        outcome.problem = "its tests are all skipped here"
        return []
    seconds = unchanged[0].seconds
    limit_s = (40 if run.alone else 10) + 4 * sum(seconds.values())
    by_function: dict[Function, dict[str, float]] = defaultdict(seconds.copy)
    survivors = []
    for mutant in mutants:

        def done(result: Result, mutant: Mutant = mutant) -> None:
            if result.failed:
                by_function[mutant.function][result.failed] = 0  # it goes first: it may notice the next one too
            else:
                survivors.append(mutant)

        changed = {"path": mutant.function.path, "content": mutant.source}
        places.run(dataclasses.replace(run, **changed, seconds=by_function[mutant.function], limit_s=limit_s), done)
    places.finish()
    return survivors


def _key(guarantee: Guarantee, mutant: Mutant, listed: bool) -> str:
    """Return the hash of what decides an outcome: the changed file, the tests and their files."""
    files = sorted({test.partition("::")[0] for test in guarantee.tests} | {"tests/conftest.py"})
    parts = [
        mutant.source,
        str(listed),
        *guarantee.tests,
        *((ROOT / file).read_text(encoding="utf-8") for file in files),
    ]
    return hashlib.sha256(json.dumps([str(mutant.function), *parts]).encode()).hexdigest()


def _report(outcomes: list[Outcome], reasons: dict[tuple[str, str], str], seconds: float) -> int:
    """Print the totals, the survivors without a reason and the reasons without a survivor; return the exit code."""
    survived = {(outcome.guarantee.name, str(mutant)) for outcome in outcomes for mutant in outcome.survivors}
    caught = sum(outcome.caught for outcome in outcomes)
    unexplained = sorted(survived - reasons.keys())
    checked = {outcome.guarantee.name for outcome in outcomes if not outcome.problem}
    stale = sorted(key for key in reasons.keys() - survived if key[0] in checked)
    print(
        f"{caught + len(survived):,} mutants of {len(outcomes)} guarantees: {caught:,} caught, "
        f"{len(survived) - len(unexplained):,} survived with a reason, {len(unexplained):,} without; "
        f"{seconds / 60:.0f} min"
    )
    for name, mutants in itertools.groupby(unexplained, key=lambda key: key[0]):
        print(f'\n# survivors/{name}.toml\n[[because]]\nreason = ""\nmutants = [')
        print("\n".join(f"'''\n{mutant}\n'''," for _, mutant in mutants), "]", sep="\n")
    for name, mutant in stale:
        print(f"\nlisted in survivors/{name}.toml, but no mutant that survives: {mutant}")
    return int(bool(unexplained or stale or any(outcome.problem for outcome in outcomes)))


if __name__ == "__main__":
    sys.exit(main())
