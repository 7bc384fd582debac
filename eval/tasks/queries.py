"""Score how well a user's questions find their answers among all texts of a dataset (`--queries FILE --data DATASET`).

A `RetrievalTask` ranks all texts of the dataset for each question.
"""

from collections.abc import Iterable
from pathlib import Path

from clearspan.common.progress import counted
from clearspan.eval.data.questions import read_questions
from clearspan.eval.tasks.heldout import HEADLINE
from clearspan.eval.tasks.retrieval import RetrievalTask
from clearspan.eval.tasks.task import Task

NAME = "queries"
FEW = 50
"""With fewer questions, scores are unreliable: the interval of a difference is wider than most differences are."""


def load(path: Path, data: Path) -> RetrievalTask:
    """Return the retrieval task whose queries are the questions in a file.

    Args:
        path: a csv, tsv or jsonl file with the fields `query`, a question, and `text`, its answer.
        data: the folder of the dataset whose texts are ranked.

    Raises:
        DataError: the file or the dataset is malformed, a question has no answer, or no answer is in the dataset.
        MissingDataError: `data` is not a dataset.
    """
    questions = read_questions(path, data)
    return RetrievalTask(NAME, questions.collection, questions.files, HEADLINE, questions.counts, questions.text)


def remarks(tasks: Iterable[Task]) -> list[str]:
    """Return warnings if the user gave fewer than 50 questions, or if some of them were left out; otherwise [].

    Args:
        tasks: the tasks of the run. Tasks that `load` did not make are ignored.
    """
    ours = [task for task in tasks if isinstance(task, RetrievalTask) and task.name == NAME]
    lines = [remark for task in ours if (remark := few(len(task.collection.queries)))]
    lines += [f"{number:,} {what}; the report names them" for task in ours for what, number in task.counts.items()]
    return [f"{NAME}: {line}" for line in lines]


def few(num_questions: int) -> str:
    """Return a warning that scores are unreliable if there are fewer than 50 questions (FEW); otherwise ""."""
    if num_questions >= FEW:
        return ""
    number = counted(num_questions, "question")
    return f"Only {number}: the interval is wide, read the direction at most; {FEW} or more say more"
