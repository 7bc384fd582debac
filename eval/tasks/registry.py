"""The words that `--tasks` accepts. A new task is a module with a `FAMILY`, and a line here.

    "sts"          a family of tasks in FAMILIES
    "haiku:Haiku"  a plug-in: a class in haiku.py, in the working folder or an installed package
    "captions"     the short name of such a class, the plug-in for COCO's captions

Such a class implements `task.Task` and is called with the data folder; it raises MissingDataError if its files are not
there and DataError if they are malformed.
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
        "DIR/downstream/COCO/{train,valid,test}.pkl, SentEval's; hours on a CPU",
    ),
}


def family(word: str) -> Family:
    """Return the family of tasks that a word of `--tasks` names; a plug-in is a family of one task.

    Raises:
        PluginError: the word is unknown, or the class that it names cannot be imported. Loading the family raises it if
            the class does not implement `Task`.
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
    """Return the task of the class that a spec names; `word` is the user's word for it."""
    create = plugins.load_function(spec, CLASS)
    try:
        expected = (MissingDataError, DataError, OSError)
        task = plugins.call(spec, functools.partial(create, data), "with the data folder", expected)
    except MissingDataError as error:
        return Loaded([], {word: str(error)})
    return Loaded([plugins.check_object(task, spec, Task, "an evaluation task")], {})
