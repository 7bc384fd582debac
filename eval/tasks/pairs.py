"""The user's own pairs: `--pairs FILE.csv`, two texts and a score per row, is a task named after the file.

Scored as STS-B is: the correlation of the pairs' cosines with the scores, in any language.
"""

from collections.abc import Sequence
from pathlib import Path

from clearspan.eval.data.pairs import read_pairs
from clearspan.eval.files import DataError
from clearspan.eval.tasks.sts import SplitTask
from clearspan.eval.tasks.task import Task


def load(paths: Sequence[Path]) -> list[Task]:
    """Read files of pairs (`eval.data.pairs.read_pairs`) as one task each, `pairs/<file name without its suffix>`.

    Files of the same name are told apart by their suffixes or folders: `pairs/de/dev.csv`, `pairs/fr/dev.csv`.

    Raises:
        MissingDataError: a file is not there.
        DataError: a row is malformed, or a file is given twice.
    """
    return [SplitTask(f"pairs/{name}", {"test": read_pairs(path)}, (path,)) for name, path in _named(paths).items()]


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    resolved = [path.resolve() for path in paths]
    if twice := next((path for path, real in zip(paths, resolved, strict=True) if resolved.count(real) > 1), None):
        raise DataError(f"{twice} is given twice: leave one out")
    names = [path.stem for path in paths]
    depth = 1
    while clashing := [i for i, name in enumerate(names) if names.count(name) > 1]:
        for i in clashing:
            names[i] = "/".join(paths[i].absolute().parts[-depth:])
        depth += 1
    return dict(zip(names, paths, strict=True))
