"""Change the mechanism of guarantees, and see their tests fail: `make mutants [NAME ...]`.

Each function that docs/guarantees.md names as a guarantee's mechanism is changed in one place at a time, and the tests
of that guarantee run alone, on a copy of this checkout. Prints how many mutants were caught, and each survivor as a
diff. A mutant that nothing needs to notice is listed with the reason in tests/mutation/survivors/. Exit code 1 if a
mutant survives without a reason, or a listed one does not survive any more.
"""

import argparse
import hashlib
import itertools
import json
import os
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import guarantees
from tests.guarantees import ROOT, Guarantee
from tests.mutation import mutants as mutation
from tests.mutation.copies import TIMED_OUT, Copies, Run, copies
from tests.mutation.mutants import Mutant

KEPT = ROOT / ".mutants"
"""A file for each mutant that was run: whether it was caught, by what its file and its tests held."""
DURATIONS = KEPT / "durations.json"
"""Seconds of each test, the least that was measured here."""
SLOWEST_S = 8
"""A test that takes longer is left out, unless all do: a mutant has to be noticed by the quick ones."""
CAUGHT = (int(pytest.ExitCode.TESTS_FAILED), int(pytest.ExitCode.INTERRUPTED), TIMED_OUT)
"""Exit codes of a run that noticed the change; INTERRUPTED: a test file could not be imported."""


@dataclass
class Outcome:
    """What became of the mutants of one guarantee."""

    guarantee: Guarantee
    caught: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    seconds: float = 0
    problem: str = ""

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
    with tempfile.TemporaryDirectory() as folder, copies(Path(folder), options.at_once) as places:
        for guarantee in chosen:
            outcomes.append(_outcome(guarantee, places, again=options.again))
            print(outcomes[-1].line(reasons), flush=True)
    return _report(outcomes, reasons, time.monotonic() - began)


def _mutants(guarantee: Guarantee) -> list[Mutant]:
    return [mutant for function in guarantee.mechanism for mutant in mutation.of_function(function)]


def _outcome(guarantee: Guarantee, places: Copies, again: bool) -> Outcome:
    """Run the tests of a guarantee on each of its mutants, except those whose outcome is kept."""
    outcome = Outcome(guarantee)
    begun = time.monotonic()
    waiting = []
    for mutant in _mutants(guarantee):
        path = KEPT / _key(guarantee, mutant)
        if path.is_file() and not again:
            _count(outcome, mutant, path.read_text() == "caught")
        else:
            waiting.append((mutant, path))
    if waiting:
        tests, seconds = _unchanged(guarantee, places, outcome)
        for mutant, path in waiting if tests else []:
            run = Run(["-x", "-q", *tests], {mutant.function.path: mutant.source}, 30 + 4 * seconds)

            def done(code: int, _: float, mutant: Mutant = mutant, path: Path = path) -> None:
                caught = code in CAUGHT or code < 0  # below 0: a signal, as that of a full memory
                _count(outcome, mutant, caught)
                KEPT.mkdir(exist_ok=True)
                path.write_text("caught" if caught else "survived")

            places.run(run, done)
        places.finish()
    outcome.seconds = time.monotonic() - begun
    return outcome


def _count(outcome: Outcome, mutant: Mutant, caught: bool) -> None:
    if caught:
        outcome.caught += 1
    else:
        outcome.survivors.append(mutant)


def _unchanged(guarantee: Guarantee, places: Copies, outcome: Outcome) -> tuple[list[str], float]:
    """Run the tests without a change; return those that are quick enough, the quickest first, and their seconds."""
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.is_file() else {}
    limit_s = max(SLOWEST_S, min(seconds.get(test, 0) for test in guarantee.tests))
    tests = [test for test in guarantee.tests if seconds.get(test, 0) <= limit_s]
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder) / "report.xml", Path(folder) / "log"
        codes = []
        arguments = [f"--junit-xml={report}", "-o", "junit_family=xunit1", *tests]
        places.run(Run(arguments, {}, 1800, log), lambda code, _: codes.append(code))
        places.finish()
        if codes != [0]:
            outcome.problem = f"its tests fail without a change (exit code {codes[0]}): {log.read_text()[-300:]}"
            return [], 0
        measured: dict[str, float] = defaultdict(float)
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            if case.find("skipped") is None:
                measured[f"{case.get('file')}::{str(case.get('name')).partition('[')[0]}"] += float(case.get("time", 0))
    KEPT.mkdir(exist_ok=True)
    least = {test: min(taken, seconds.get(test, taken)) for test, taken in measured.items()}  # whatever ran beside it
    DURATIONS.write_text(json.dumps({**seconds, **least}, indent=1))
    limit_s = max(SLOWEST_S, min(measured.values(), default=0))
    tests = sorted((test for test in tests if measured.get(test, limit_s + 1) <= limit_s), key=measured.__getitem__)
    if not tests:
        outcome.problem = "its tests are all skipped here"
    return tests, sum(measured[test] for test in tests)


def _key(guarantee: Guarantee, mutant: Mutant) -> str:
    """Return the hash of what decides an outcome: the changed file, the tests and their files."""
    files = sorted({test.partition("::")[0] for test in guarantee.tests} | {"tests/conftest.py"})
    parts = [mutant.source, *guarantee.tests, *((ROOT / file).read_text(encoding="utf-8") for file in files)]
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
