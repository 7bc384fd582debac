"""The words that `--tasks` accepts.

    "sts"          a family of tasks, one of FAMILIES
    "haiku:Haiku"  a plug-in: the class Haiku in haiku.py, which is in the working folder or an installed package
    "captions"     a short name for a plug-in, which scores COCO's captions

The class of a plug-in implements `task.Task`. Its constructor takes the data folder, and raises MissingDataError if the
task's files do not exist, and DataError if they are malformed. To add a family to Clearspan itself, write a module that
defines a `task.Family`, and add it to FAMILIES.
"""

import functools
from pathlib import Path

from clearspan.common import plugins
from clearspan.common.parsing import did_you_mean
from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.tasks import (
    geometry,
    glue,
    heldout,
    probing,
    relatedness,
    retrieval,
    sts,
    transfer,
)
from clearspan.eval.tasks.task import Family, Loaded, Task

CAPTIONS = "clearspan.plugins.captions:Captions"

FAMILIES: dict[str, Family] = {
    "sts": sts.FAMILY,
    "transfer": transfer.FAMILY,
    "relatedness": relatedness.FAMILY,
    "probing": probing.FAMILY,
    "probing-mlp": probing.MLP_FAMILY,
    "geometry": geometry.FAMILY,
    "stsb-multilingual": sts.LANGUAGES,
    "retrieval": retrieval.FAMILY,
    "heldout": heldout.FAMILY,
    "glue": glue.FAMILY,
    "captions": Family(
        lambda data: _loaded("captions", CAPTIONS, data),
        "DIR/downstream/COCO/{train,valid,test}.pkl, SentEval's files; takes hours on a CPU",
    ),
}


def family(word: str) -> Family:
    """Return the family of tasks that a word of `--tasks` selects. A plug-in is a family of one task.

    Raises:
        PluginError: the word is unknown, or the class of a plug-in cannot be imported. If the class does not implement
            `Task`, or its constructor raises an unexpected exception, the function `load` of the returned family raises
            PluginError later.
    """
    if word in FAMILIES:
        return FAMILIES[word]
    if not plugins.is_spec(word):
        choices = f"choose from {', '.join(FAMILIES)}{did_you_mean(word, FAMILIES)}"
        raise plugins.PluginError(f"unknown task {word!r}; {choices}; or name a class of your own as module:name")
    plugins.load_function(word, CLASS)
    return Family(lambda data: _loaded(word, word, data), f"the class {word}")


CLASS = "a class that implements clearspan.eval.tasks.task.Task"


def _loaded(word: str, spec: str, data: Path) -> Loaded:
    """Create the task of a plug-in. If the task's data does not exist, return the reason in `Loaded.missing`.

    Args:
        word: the word of `--tasks` that selects the plug-in.
        spec: the class of the plug-in, as `module:name`.
        data: the data folder.

    Raises:
        DataError, OSError: the constructor of the class raises it.
        PluginError: the constructor raises any other exception, or the class does not implement `Task`.
    """
    create = plugins.load_function(spec, CLASS)
    try:
        expected = (MissingDataError, DataError, OSError)
        task = plugins.call(spec, functools.partial(create, data), "with the data folder", expected)
    except MissingDataError as error:
        return Loaded([], {word: str(error)})
    return Loaded([plugins.check_object(task, spec, Task, "an evaluation task")], {})
