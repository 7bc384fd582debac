"""SentEval's ten probing tasks: predict properties of a sentence from its embedding.

probing       logistic regression: SentEval's default, and the figures that DeCLUTR reports
probing-mlp   a hidden layer of sigmoids, whose size and dropout are tuned on the dev split (Conneau et al. 2018)
"""

from functools import partial
from pathlib import Path

from clearspan.eval.data.labeled import read_probing
from clearspan.eval.data.senteval import PROBING, find_probing
from clearspan.eval.files import MissingDataError
from clearspan.eval.tasks.classification import ClassificationTask, Head
from clearspan.eval.tasks.task import Family, Loaded, load_each

HEADS = tuple(Head(num_hidden, dropout) for num_hidden in (50, 100, 200) for dropout in (0.0, 0.1, 0.2))
"""The grid of Conneau et al. 2018, section 4; each head is fitted with each of SentEval's L2 values."""
_WHERE = "DIR/probing/*.txt, SentEval's layout"


def load_linear(data: Path) -> Loaded:
    """Read the ten tasks for logistic regression, under SentEval's names.

    Raises:
        DataError: a file is malformed.
    """
    return _load(data, "", (Head(),))


def load_mlp(data: Path) -> Loaded:
    """Read the ten tasks for a hidden layer, named `<task>-mlp`.

    WordContent, which has a thousand classes, gets logistic regression, as in SentEval's code under any settings.

    Raises:
        DataError: a file is malformed.
    """
    return _load(data, "-mlp", HEADS)


FAMILY = Family(load_linear, f"{_WHERE}; by logistic regression")
MLP_FAMILY = Family(load_mlp, f"{_WHERE}; by a hidden layer of sigmoids")


def _load(data: Path, suffix: str, heads: tuple[Head, ...]) -> Loaded:
    try:
        folder = find_probing(data)
    except MissingDataError as error:
        return Loaded([], {f"{name}{suffix}": str(error) for name in PROBING})
    return load_each(
        {
            f"{name}{suffix}": partial(
                _task, f"{name}{suffix}", folder / file, (Head(),) if name == "WordContent" else heads
            )
            for name, file in PROBING.items()
        }
    )


def _task(name: str, file: Path, heads: tuple[Head, ...]) -> ClassificationTask:
    splits, classes = read_probing(file)
    return ClassificationTask(name, "split", splits, classes, (file,), heads=heads)
