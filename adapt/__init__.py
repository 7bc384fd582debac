"""Find the best search for a user's texts: a model, BM25 or both, with a verdict and vectors to search.

Modules in the order of the work:

    options.py      options of the command line
    fields.py       find the fields of titles, ids and links in the inputs
    preflight.py    refuse too few texts, bad fields and bad records before any work
    run.py          the stages in order; `clearspan.adapt` for Python
    stages.py       the command of each stage, with its options
    recipe.py       choose the recipe for the texts and the model
    runner.py       adapt.json, which lists the finished stages, and the run of one that is not finished
    questions.py    a command that finds the texts for the user's own questions
    judging.py      a command that compares the systems and writes the verdict
    decision.py     the system that the verdict recommends
    export.py       write a folder that is ready to search
    originals.py    the texts as in the inputs, for the report
    report.py       write report.html
    updating.py     changed inputs of a finished folder

The package runs the commands of all other packages, and may import any of them. The package itself can be called:
`clearspan.adapt(...)` is the same as `clearspan.adapt.run.adapt(...)`.
"""

import sys
import types
from collections.abc import Callable
from typing import Any


class _Callable(types.ModuleType):
    @property
    def __wrapped__(self) -> Callable[..., Any]:
        from clearspan.adapt.run import adapt

        return adapt

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__wrapped__(*args, **options)


sys.modules[__name__].__class__ = _Callable
