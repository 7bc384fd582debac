"""The working folder is where a user's data lies: no module is imported from it, except those that the user named.

python -m, python -c          put the working folder first on the import path, where a json.py or a zstandard.py
                              beside the data would be executed in place of the library that an import means
children_ignore_it            the processes that a command starts, and those that they start, leave it out
own_modules                   finds what `module:name` names there, and what such a module imports from beside it
"""

import importlib
import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

SAFE_PATH, PATH = "PYTHONSAFEPATH", "PYTHONPATH"
NAMED = "CLEARSPAN_NAMED_MODULES"
"""Variable of this process and of those that it starts: the names of the modules that the user named."""
IMPORT_SYSTEM = ("importlib.", "importlib")
"""Names of the modules whose frames lie between an import statement and a finder."""


def children_ignore_it(environment: MutableMapping[str, str]) -> None:
    """Set the variables of an environment with which Python leaves the working folder out of its import path.

    A clone that is not installed is run from its own folder: `PYTHONPATH` then names it.
    """
    environment[SAFE_PATH] = "1"
    home = str(Path(__file__).parents[2])
    entries = list(filter(None, environment.get(PATH, "").split(os.pathsep)))
    if home not in entries and Path(home) == Path.cwd():
        environment[PATH] = os.pathsep.join([*entries, home])


class OwnModules(MetaPathFinder):
    """Finder of modules in the working folder, for names that the user gave and for the modules that it found.

    It is asked after all others: an installed module takes precedence. The names are in an environment variable: the
    processes that this one starts, such as Beam's workers, find the modules of what they are sent.
    """

    def __init__(self) -> None:
        self._found: set[str] = set()

    def load(self, module: str) -> ModuleType:
        """Import a module that the user named, which is installed or in the working folder."""
        top = module.partition(".")[0]
        os.environ[NAMED] = ",".join(dict.fromkeys([*_named(), top]))
        importlib.invalidate_caches()
        return importlib.import_module(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a top-level module in the working folder, or None."""
        if path is not None or not (fullname in _named() or _importer().partition(".")[0] in self._found):
            return None
        spec = PathFinder.find_spec(fullname, [str(Path.cwd())])
        if spec is not None:
            self._found.add(fullname)
        return spec


def _named() -> list[str]:
    return list(filter(None, os.environ.get(NAMED, "").split(",")))


def _importer() -> str:
    """Return the name of the module whose import statement, or call of importlib, is looking for a module."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(IMPORT_SYSTEM):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


own_modules = OwnModules()
sys.meta_path.append(own_modules)
