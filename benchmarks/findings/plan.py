"""The plan of a run: its inputs, its systems and seeds, and the folders of their results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.findings.scales import SCALES, Scale
from benchmarks.findings.systems import System, systems
from clearspan.common.commands import UsageError
from clearspan.common.cores import num_cores
from clearspan.common.files import write_text
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.files import MissingDataError

ROOT = Path(__file__).parents[2]
PRETRAINED, UNTRAINED = "pretrained", "untrained"
OPTIONAL = {"triplets": "nli", "images": "images", "audio": "audio"}
"""Dataset -> the option that gives its files."""


@dataclass(frozen=True)
class Inputs:
    """The user's files.

    Attributes:
        text: documents; sentences: one a line; nli: rows as in SimCSE's file; images, audio: labeled files.
        data: folder of evaluation sets; vectors: word vectors; synonyms: a list of synonyms.
    """

    text: tuple[str, ...]
    sentences: tuple[str, ...]
    data: Path
    nli: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    audio: tuple[str, ...] = ()
    vectors: Path | None = None
    synonyms: Path | None = None


@dataclass(frozen=True)
class Plan:
    """A run of the benchmark.

    Attributes:
        work: folder of all results.
        names: the systems to train; skipped: system -> the reason why it is left out.
        seeds: number of seeds of each system.
    """

    scale_name: str
    inputs: Inputs
    work: Path
    seeds: int
    names: tuple[str, ...]
    skipped: dict[str, str]

    @property
    def scale(self) -> Scale:
        return SCALES[self.scale_name]

    @property
    def systems(self) -> dict[str, System]:
        known = systems(self.scale, self.inputs.synonyms)
        return {name: known[name] for name in self.names}

    @property
    def jobs(self) -> int:
        """The number of stages at a time."""
        return max(1, num_cores() // self.scale.threads) if self.scale.threads else 1

    @property
    def words(self) -> dict[str, str]:
        """The systems that are not trained here: name -> what `clearspan eval --model` takes."""
        vectors = {"glove": str(self.inputs.vectors)} if self.inputs.vectors else {}
        return {**vectors, "tfidf": "tfidf", "bm25": "bm25"}

    def run(self, name: str, seed: int) -> Path:
        """Return the folder of a system's training."""
        return self.work / "runs" / name / f"seed-{seed}"

    def model(self, name: str, seed: int) -> Path:
        return self.run(name, seed) / "model"

    def exported(self, name: str, seed: int) -> Path:
        """Return the last file of an export."""
        return self.model(name, seed) / "model.safetensors"

    def scores(self, name: str, seed: int, tasks: str = "frozen") -> Path:
        """Return the folder of an evaluation: `frozen` embeddings, or `glue`."""
        return self.work / "scores" / tasks / name / f"seed-{seed}"

    def runs(self) -> dict[str, range]:
        """Return every system that is scored and its seeds, in the table's order."""
        once = range(1, 2)
        return {
            **dict.fromkeys((*self.words, UNTRAINED, PRETRAINED), once),
            **dict.fromkeys(self.names, range(1, self.seeds + 1)),
        }


def make(scale: str, inputs: Inputs, work: Path, seeds: int, chosen: Sequence[str] = ()) -> Plan:
    """Return the plan of a run; systems without their input are skipped with the reason.

    Args:
        chosen: names of systems; (): all of them.

    Raises:
        UsageError: a system is unknown, nothing is left to train, or the evaluation sets are not there.
    """
    try:
        find_downstream(inputs.data)
    except MissingDataError as error:
        raise UsageError(f"--data: {error}") from None
    known = systems(SCALES[scale], inputs.synonyms)
    if unknown := [name for name in chosen if name not in known]:
        raise UsageError(f"--systems {unknown[0]}: no such system; choose from {', '.join(known)}")
    skipped: dict[str, str] = {}
    for name in chosen or known:
        missing = [f"--{option}" for kind, option in OPTIONAL.items() if kind in known[name].datasets
                   and not getattr(inputs, option)]  # fmt: skip
        missing += ["--synonyms"] if known[name].synonyms and not inputs.synonyms else []
        if missing:
            skipped[name] = f"needs {' and '.join(missing)}"
    names = tuple(name for name in chosen or known if name not in skipped)
    if not names:
        raise UsageError(f"--systems: none can be trained: {'; '.join(skipped.values())}")
    return Plan(scale, inputs, work, seeds, names, skipped)


def fix(plan: Plan) -> None:
    """Record in the work folder what shapes its results, or check that it is the same.

    Raises:
        UsageError: the folder is of a run with other options, or of something else.
    """
    path = plan.work / "plan.json"
    given = {**{key: str(value) for key, value in vars(plan.inputs).items()}, "scale": plan.scale_name}
    if path.is_file():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            before = None
        if not isinstance(before, dict):
            raise UsageError(f"{path}: is not a file of this benchmark: name another --work")
        if changed := sorted(key for key in given if given[key] != before.get(key)):
            raise UsageError(f"--work {plan.work}: its run has another --{changed[0]}: name another folder")
    elif plan.work.is_dir() and any(plan.work.iterdir()):
        raise UsageError(f"--work {plan.work}: holds something else: name a new or an empty folder")
    else:
        write_text(path, json.dumps(given, indent=1) + "\n")
