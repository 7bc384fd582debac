"""Retrieval by a user's own questions among all texts of a dataset: `--queries FILE --data DATASET`."""

from collections.abc import Iterable
from pathlib import Path

from clearspan.common.progress import counted
from clearspan.eval.data.questions import read_questions
from clearspan.eval.tasks.heldout import HEADLINE
from clearspan.eval.tasks.retrieval import RetrievalTask
from clearspan.eval.tasks.task import Task

NAME = "queries"
FEW = 50
"""Below this number of questions, scores are unreliable: a difference's interval is wider than most differences."""


def load(path: Path, data: Path) -> RetrievalTask:
    """Read a file of questions.

    Raises:
        DataError: the file or the dataset is malformed, a question has no answer, or no answer is in the dataset.
        MissingDataError: there is no dataset.
    """
    questions = read_questions(path, data)
    return RetrievalTask(NAME, questions.collection, questions.files, HEADLINE, questions.counts, questions.text)


def remarks(tasks: Iterable[Task]) -> list[str]:
    """Return remarks on the reliability of scores by a user's questions."""
    ours = [task for task in tasks if isinstance(task, RetrievalTask) and task.name == NAME]
    lines = [remark for task in ours if (remark := few(len(task.collection.queries)))]
    lines += [f"{number:,} {what}; the report names them" for task in ours for what, number in task.counts.items()]
    return [f"{NAME}: {line}" for line in lines]


def few(num_questions: int) -> str:
    """Return a warning if there are fewer than `FEW` questions, else ""."""
    if num_questions >= FEW:
        return ""
    number = counted(num_questions, "question")
    return f"Only {number}: the interval is wide, read the direction at most; {FEW} or more say more"
