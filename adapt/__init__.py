"""Find the best search for a user's texts: a model, BM25 or both, with a verdict and vectors to search.

In the order of the work:

    options.py   the command line           fields.py      titles, ids and links, by usual names
    steps.py     the commands, in order     recipe.py      the recipe for these texts and this model
    running.py   runs unfinished commands   state.py       adapt.json: what is finished
    judging.py   a command: the verdict     questions.py   a command: the user's questions, with their texts
    outcome.py   the system to take         delivery.py    the folder, ready to search
    report.py    report.html                api.py         the same from Python

The package runs every stage by its command, and may import every stage. It can be called: `clearspan.adapt(...)` is the
function `clearspan.adapt.api.adapt`, whatever was imported before.
"""

import sys
import types
from collections.abc import Callable
from typing import Any


class _Callable(types.ModuleType):
    @property
    def __wrapped__(self) -> Callable[..., Any]:
        from clearspan.adapt.api import adapt

        return adapt

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__wrapped__(*args, **options)


sys.modules[__name__].__class__ = _Callable
