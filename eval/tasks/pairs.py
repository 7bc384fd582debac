"""One's own pairs: `--pairs FILE.csv`, two texts and a score in any language, as a task named after the file.

Scored as STS-B is: one correlation of the pairs' cosines with the scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearspan.eval.data.pairs import read_pairs
from clearspan.eval.data.sts import Pairs
from clearspan.eval.files import DataError
from clearspan.eval.scores import TaskScores
from clearspan.eval.tasks.sts import SplitTask
from clearspan.eval.tasks.task import Run, Task


@dataclass(frozen=True)
class PairsTask:
    """The pairs of one file."""

    name: str
    pairs: Pairs
    files: tuple[Path, ...] = ()

    def score(self, run: Run) -> TaskScores:
        """Spearman and Pearson over all pairs."""
        return SplitTask(self.name, {"test": self.pairs}).score(run)


def load(paths: Sequence[Path]) -> list[Task]:
    """Reads files of pairs (`eval.data.pairs.read_pairs`) as a task each, `pairs/<file's name without its ending>`.

    Files of one name are told apart by their endings or folders: `pairs/de/dev.csv`, `pairs/fr/dev.csv`.

    Raises:
        MissingDataError: a file is not there.
        DataError: a row is malformed, or a file is given twice.
    """
    return [PairsTask(f"pairs/{name}", read_pairs(path), (path,)) for name, path in _named(paths).items()]


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    whole = [path.resolve() for path in paths]
    if twice := next((path for path, real in zip(paths, whole, strict=True) if whole.count(real) > 1), None):
        raise DataError(f"{twice} is given twice: leave one out")
    names = [path.stem for path in paths]
    depth = 1
    while clashing := [i for i, name in enumerate(names) if names.count(name) > 1]:
        for i in clashing:
            names[i] = "/".join(paths[i].absolute().parts[-depth:])
        depth += 1
    return dict(zip(names, paths, strict=True))
