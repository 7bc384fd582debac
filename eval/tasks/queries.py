"""Retrieval by a user's own questions among all texts of a dataset: `--queries FILE --data DATASET`."""

from collections.abc import Iterable
from pathlib import Path

from clearspan.eval.data.questions import read_questions
from clearspan.eval.tasks.heldout import HEADLINE
from clearspan.eval.tasks.retrieval import RetrievalTask
from clearspan.eval.tasks.task import Task

NAME = "queries"
FEW = 50
"""Fewer questions than this say little: the interval of a difference is wider than most differences."""


def load(path: Path, data: Path) -> RetrievalTask:
    """Read a file of questions.

    Raises:
        DataError: the file or the dataset is malformed, a question has no answer, or no answer is in the dataset.
        MissingDataError: there is no dataset.
    """
    read = read_questions(path, data)
    return RetrievalTask(NAME, read.collection, read.files, HEADLINE, read.counts, read.text)


def remarks(tasks: Iterable[Task]) -> list[str]:
    """Return remarks on how far the scores of a user's questions carry."""
    own = [task for task in tasks if isinstance(task, RetrievalTask) and task.name == NAME]
    lines = [remark for task in own if (remark := few(len(task.collection.queries)))]
    lines += [f"{number:,} {what}; the report names them" for task in own for what, number in task.counts.items()]
    return [f"{NAME}: {line}" for line in lines]


def few(num_questions: int) -> str:
    """Return a remark on a small number of questions, "" for enough."""
    if num_questions >= FEW:
        return ""
    return f"Only {num_questions} questions: the interval is wide, read the direction at most; {FEW} or more say more"
