"""The working folder is where a user's data lies: no module is imported from it, except those that the user named.

python -m, python -c          put the working folder first on the import path, where a json.py or a zstandard.py
                              beside the data would be executed in place of the library that an import means
children_ignore_it            the processes that a command starts, and those that they start, leave it out
own_modules                   finds what `module:name` names there, and what such a module imports from beside it
"""

import importlib
import os
import sys
from collections.abc import Iterable, MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

SAFE_PATH, PATH = "PYTHONSAFEPATH", "PYTHONPATH"
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

    It is asked after all others: an installed module takes precedence.
    """

    def __init__(self) -> None:
        self.named: list[str] = []
        """Modules that the user named."""
        self._found: dict[str, str] = {}
        self._folder = ""

    def load(self, module: str) -> ModuleType:
        """Import a module that the user named, which is installed or in the working folder."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        importlib.invalidate_caches()
        self._folder = str(Path.cwd())
        if module not in self.named:
            self.named.append(module)
        return importlib.import_module(module)

    def load_all(self, modules: Iterable[str]) -> None:
        """Import what `named` is in another process of the same command."""
        for module in modules:
            self.load(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a top-level module in the working folder, or None."""
        if path is not None:
            return None
        is_named = any(name.partition(".")[0] == fullname for name in self.named)
        folder = self._folder if is_named else self._found.get(_importer().partition(".")[0])
        spec = None if folder is None else PathFinder.find_spec(fullname, [folder])
        if spec is not None and folder is not None:
            self._found[fullname] = folder
        return spec


def _importer() -> str:
    """Return the name of the module whose import statement, or call of importlib, is looking for a module."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(IMPORT_SYSTEM):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


own_modules = OwnModules()
