"""Show that two checkouts make the same of the same inputs: `python -m benchmarks.equality BEFORE [AFTER]`.

    benchmarks.equality_inputs -> every case of benchmarks.equality_cases, in each checkout -> result by result

For a change that should change nothing: datasets of each builder, format and option, weights of each objective, scores,
hits, adapted folders, the keys of recipes, and exit codes of wrong commands. Files are compared by their bytes, those
of JSON without the fields in LEFT_OUT, which tell time, place or version. The checkouts run side by side, each on one
thread. Prints how many results of each part are equal, and each one that is not.

Exit codes: 0: all are equal; 1: a result differs; 2: wrong usage, or a case is wrong: in both checkouts it fails
although it should succeed, or succeeds although it should fail.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import forked
from benchmarks.equality_cases import CASES, PARTS, Case, selected
from benchmarks.equality_inputs import write_inputs
from clearspan.common import terminal

NO_RESULT = {".clearspan", "tensorboard", "checkpoints", "report.html", "run.log"}
"""Folders and files that tell how a run went or show the day, and checkpoints, whose weights `model` holds."""
LEFT_OUT = {
    "environment",
    "seconds",
    "run",
    "code",
    "versions",
    "clearspan",
    "command",
    "sha256",
    "data_wait",
    "metrics.jsonl",
}
"""Fields of JSON that are not compared, at any depth, such as the hash of a file with times. Rates are left out too."""
PRINTED = "printed"
"""Name of what the commands of a case print, among its results: JSON is compared, the wording of text is not."""
RECORD, COMMIT = "record.jsonl", "commit.txt"


@dataclasses.dataclass(frozen=True)
class Found:
    """What a case did in one checkout.

    Attributes:
        codes: the exit codes of its commands.
        results: name of a file, or PRINTED -> hash.
        seconds: the time that it took, which is not compared.
    """

    codes: list[int]
    results: dict[str, str]
    seconds: float = 0.0


class Checkout:
    """One checkout, and the folder in which its commands run.

    Args:
        root: the checkout.
        folder: holds `work`, with the outputs of all cases, and `record.jsonl`, with what each did; continued if it
            exists.
        inputs: the folder that `write_inputs` wrote.
    """

    def __init__(self, root: Path, folder: Path, inputs: Path) -> None:
        self.root, self.folder, self.work = root.resolve(), folder, folder / "work"
        if not self.work.exists():
            shutil.copytree(inputs, self.work)
        self._record = folder / RECORD
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        self.found = {name: Found(**found) for name, found in map(json.loads, lines)}

    def run(self, cases: Sequence[Case]) -> dict[str, Found]:
        """Run all cases that are not recorded yet, and record them; return name of a case -> what it did."""
        missing = [case for case in cases if case.name not in self.found]
        if missing:
            with self._server() as server, self._record.open("a", buffering=1) as record:
                for number, case in enumerate(missing, 1):
                    print(f"{self.root}: {number} of {len(missing)}: {case.name}", file=sys.stderr, flush=True)
                    found = self.found[case.name] = self._run(case, server)
                    record.write(json.dumps([case.name, dataclasses.asdict(found)]) + "\n")
                server.stdin.close()  # type: ignore[union-attr]
        return self.found

    def _server(self) -> "subprocess.Popen[str]":
        variables = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CLEARSPAN_CACHE": str((self.folder / "cache").resolve()),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "COLUMNS": "100",
        }
        command = [sys.executable, forked.__file__]
        return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _run(self, case: Case, server: "subprocess.Popen[str]") -> Found:
        printed = self.folder / f"{case.name}.stdout"
        codes: list[int] = []
        began = time.monotonic()
        for words in case.commands:
            places = {"{out}": case.name, "{port}": str(_free_port()), "{checkout}": str(self.root)}
            argv = [_replaced(word, places) for word in words]
            request = {"argv": argv, "folder": str(self.work.resolve()), "stdout": str(printed.resolve())}
            request["stderr"] = str((self.folder / f"{case.name}.stderr").resolve())
            server.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]
            server.stdin.flush()  # type: ignore[union-attr]
            codes.append(int(server.stdout.readline()))  # type: ignore[union-attr]
            if codes[-1] and case.part != "refusals":
                break
        if case.part == "refusals":
            return Found(codes, {})
        seconds = round(time.monotonic() - began, 1)
        return Found(codes, {**results(self.work / case.name), PRINTED: self._printed(printed)}, seconds)

    def _printed(self, path: Path) -> str:
        """Return a hash of the JSON that the commands printed; of other text, whose wording may change, return ""."""
        content = _json(path.read_bytes())
        return "" if content is None else hashlib.sha256(content).hexdigest()


def results(folder: Path) -> dict[str, str]:
    """Return a hash of what is compared of each file below a folder, by the file's path below it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(_content(path.read_bytes())).hexdigest()
        for path in paths
        if NO_RESULT.isdisjoint(path.relative_to(folder).parts)
    }


def _content(data: bytes) -> bytes:
    content = _json(data)
    return data if content is None else content


def _json(data: bytes) -> bytes | None:
    """Return JSON, or lines of JSON, without the fields in LEFT_OUT, in the order of names; None for other data."""
    for parts in ([data], data.splitlines()):
        try:
            return "\n".join(json.dumps(_without(json.loads(part)), sort_keys=True) for part in parts).encode()
        except ValueError:
            continue
    return None


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: held for key, held in value.items() if key not in LEFT_OUT and "_per_s" not in key}
        return {key: _without(held) for key, held in kept.items()}
    return [_without(held) for held in value] if isinstance(value, list) else value


def _replaced(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(name, value)
    return word


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def differences(
    before: Mapping[str, Found], after: Mapping[str, Found], cases: Sequence[Case]
) -> Iterator[tuple[Case, int, list[str]]]:
    """Yield (case, number of its equal results, names of those that differ or are only in one checkout)."""
    for case in cases:
        first, second = before[case.name], after[case.name]
        names = first.results.keys() | second.results.keys()
        unequal = sorted(name for name in names if first.results.get(name) != second.results.get(name))
        if first.codes != second.codes:
            unequal.insert(0, f"exit codes {first.codes}, {second.codes}")
        yield case, len(names) + 1 - len(unequal), unequal


def unexpected(before: Mapping[str, Found], after: Mapping[str, Found], cases: Sequence[Case]) -> list[str]:
    """Return the names of the cases that in both checkouts fail although they should not, or the other way around."""
    return [
        case.name
        for case in cases
        if all(any(found[case.name].codes) != (case.part == "refusals") for found in (before, after))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.equality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a checkout")
    parser.add_argument("after", type=Path, nargs="?", default=Path(), metavar="AFTER", help="default: this folder")
    parser.add_argument("--only", metavar="NAME,...", help=f"parts, or cases, with what they need: {', '.join(PARTS)}")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep all outputs in DIR; what BEFORE made there is not made again"
    )
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*PARTS]
    if wrong := sorted({*names} - {*PARTS} - {*CASES}):
        parser.error(f"--only: no part or case {wrong[0]!r}")
    cases = selected(names)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        try:
            before, after = prepared(folder, options.before, options.after)
        except ValueError as error:
            parser.error(str(error))
        commits = [_commit(options.before), _commit(options.after)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = [*pool.map(lambda checkout: checkout.run(cases), (before, after))]
        if commits != [_commit(options.before), _commit(options.after)]:
            print("a checkout changed while its commands ran: compare checkouts that nobody changes", file=sys.stderr)
            return 2
        return report([*differences(*found, cases)], unexpected(*found, cases), after.folder)


def prepared(folder: Path, before: Path, after: Path) -> list[Checkout]:
    """Return both checkouts, with their folders `1` and `2` of one length below a folder; write the inputs if needed.

    Raises:
        ValueError: the folder holds what another commit than BEFORE's made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    commit = _commit(before)
    if (folder / COMMIT).exists() and (folder / COMMIT).read_text() != commit:
        raise ValueError(f"--keep: {folder} holds the outputs of another commit than {before}: name another folder")
    (folder / COMMIT).write_text(commit)
    if not (folder / "inputs").exists():
        (folder / "inputs").mkdir()
        write_inputs(folder / "inputs")
    if (folder / "2").exists():
        shutil.rmtree(folder / "2")
    for name in ("1", "2"):
        (folder / name).mkdir(exist_ok=True)
    return [Checkout(root, folder / name, folder / "inputs") for root, name in ((before, "1"), (after, "2"))]


def _commit(checkout: Path) -> str:
    """Return the commit of a checkout and a hash of its changes; for a folder without git, its path."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout if not ended.returncode else str(checkout.resolve())


def report(found: Sequence[tuple[Case, int, list[str]]], wrong: Sequence[str], folder: Path) -> int:
    """Print the number of equal results of each part, and all that differ; return the exit code."""
    cases = Counter(case.part for case, _, _ in found)
    equal = Counter({part: sum(number for case, number, _ in found if case.part == part) for part in cases})
    differ = [(case, unequal) for case, _, unequal in found if unequal]
    rows = [
        [part, f"{cases[part]:,}", f"{equal[part]:,}", f"{sum(case.part == part for case, _ in differ):,}"]
        for part in cases
    ]
    print(terminal.table(["part", "cases", "equal results", "cases that differ"], rows))
    for case, unequal in differ:
        more = f", and {len(unequal) - 6:,} more" if len(unequal) > 6 else ""
        print(f"{case.name}: {', '.join(unequal[:6])}{more}")
    for name in wrong:
        errors = folder / f"{name}.stderr"
        said = errors.read_text().strip().splitlines()[-1:] if errors.exists() else []
        print(f"{name}: not the exit code that benchmarks/equality_cases.py expects: {' '.join(said)}", file=sys.stderr)
    return 2 if wrong else int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
