"""One's own pairs: `--pairs FILE.csv`, two texts and a score in any language, as a task named after the file.

Scored as STS-B is: one correlation of the pairs' cosines with the scores.
"""

from dataclasses import dataclass
from pathlib import Path

from eval.data.sts import Pairs, read_stsb_multi_mt
from eval.scores import TaskScores
from eval.tasks.sts import SplitTask
from eval.tasks.task import Run


@dataclass(frozen=True)
class PairsTask:
    """The pairs of one file."""

    name: str
    pairs: Pairs
    files: tuple[Path, ...] = ()

    def score(self, run: Run) -> TaskScores:
        """Spearman and Pearson over all pairs."""
        return SplitTask(self.name, {"test": self.pairs}).score(run)


def load(path: Path) -> PairsTask:
    """Reads a csv of rows of two texts and a score.

    Raises:
        MissingDataError: the file is not there.
        DataError: a row is malformed.
    """
    return PairsTask(f"pairs/{path.stem}", read_stsb_multi_mt(path), (path,))
