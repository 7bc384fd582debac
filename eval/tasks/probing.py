"""SentEval's ten probing tasks, which predict a property of a sentence from its embedding.

    probing       predict it by logistic regression, which is SentEval's default and which DeCLUTR reports
    probing-mlp   predict it by a classifier with a hidden layer of sigmoids, whose size and dropout are tuned on the
                  dev split (Conneau et al. 2018)

Both families of tasks use the same data.
"""

from functools import partial
from pathlib import Path

from clearspan.eval.data.labeled import read_probing
from clearspan.eval.data.senteval import PROBING, find_probing
from clearspan.eval.tasks.classification import ClassificationTask, Head
from clearspan.eval.tasks.task import Family, Loaded, load_each

HEADS = tuple(Head(num_hidden, dropout) for num_hidden in (50, 100, 200) for dropout in (0.0, 0.1, 0.2))
"""The sizes and dropout rates of Conneau et al. 2018, section 4. Each is fitted with each of SentEval's L2 values."""
_WHERE = "DIR/probing/*.txt, SentEval's layout"


def load_linear(data: Path) -> Loaded:
    """Read the ten probing tasks for logistic regression. They have SentEval's names, such as `BigramShift`.

    If the file of a task does not exist, the task is left out, and `Loaded.missing` has the reason.

    Args:
        data: a SentEval data folder.

    Raises:
        DataError: a file is malformed.
    """
    return _load(data, "", (Head(),))


def load_mlp(data: Path) -> Loaded:
    """Read the ten probing tasks for a classifier with a hidden layer. They are named like `BigramShift-mlp`.

    WordContent, which has a thousand classes, is classified by logistic regression here too, as in SentEval's code.
    If the file of a task does not exist, the task is left out, and `Loaded.missing` has the reason.

    Args:
        data: a SentEval data folder.

    Raises:
        DataError: a file is malformed.
    """
    return _load(data, "-mlp", HEADS)


FAMILY = Family(load_linear, f"{_WHERE}; by logistic regression")
MLP_FAMILY = Family(load_mlp, f"{_WHERE}; by an MLP with one hidden layer of sigmoids")


def _load(data: Path, suffix: str, heads: tuple[Head, ...]) -> Loaded:
    def read(task: str) -> ClassificationTask:
        file = find_probing(data) / PROBING[task]
        splits, classes = read_probing(file)
        of_task = (Head(),) if task == "WordContent" else heads
        return ClassificationTask(f"{task}{suffix}", "split", splits, classes, (file,), heads=of_task)

    return load_each({f"{task}{suffix}": partial(read, task) for task in PROBING})
