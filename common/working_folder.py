"""Restrict imports from the working folder, which holds the user's data, to modules that the user named.

`python -m` and `python -c` put the working folder first on the import path, so that a json.py or zstandard.py beside
the data would be imported instead of the library of this name.

    exclude_working_folder    makes the child processes of a command, and their children, leave the working folder out
    own_modules               finds modules in it that the user named as `module:name`, and modules that these import
"""

import importlib
import os
import sys
import threading
from collections.abc import MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

SAFE_PATH, PATH = "PYTHONSAFEPATH", "PYTHONPATH"
NAMED = "CLEARSPAN_NAMED_MODULES"
"""Environment variable, inherited by child processes, with the modules that the user named, comma-separated."""
IMPORT_SYSTEM = ("importlib.", "importlib")
"""Names of the modules whose frames lie between an import statement and a finder."""


def exclude_working_folder(environment: MutableMapping[str, str]) -> None:
    """Set environment variables so that Python processes leave the working folder out of the import path.

    If the working folder is a clone of this project, it is added to `PYTHONPATH`, since the project may not be
    installed.

    Args:
        environment: the environment variables of the processes to start; changed in place.

    Raises:
        FileNotFoundError: the working folder has been deleted, so that nothing can be found or written in it.
    """
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise FileNotFoundError("the working folder has been deleted: change to another folder") from None
    environment[SAFE_PATH] = "1"
    home = str(Path(__file__).parents[2])
    entries = list(filter(None, environment.get(PATH, "").split(os.pathsep)))  # an empty one is the working folder
    if home not in entries and Path(home) == folder:
        entries.append(home)
    if entries or PATH in environment:
        environment[PATH] = os.pathsep.join(entries)


class OwnModules(MetaPathFinder):
    """Import finder for the working folder: finds modules that the user named, and modules that these import.

    It comes after all other finders, so an installed module takes precedence. The names of the modules that the user
    named are in an environment variable, so that child processes, such as Beam's workers, find the same modules.
    """

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._lock = threading.Lock()

    def load(self, module: str) -> ModuleType:
        """Import a module that the user named; it may be installed or in the working folder.

        Several threads may call this at the same time, as those of a Beam worker do. A lock is used, since
        `importlib.invalidate_caches` fails if two threads call it at the same time.
        """
        with self._lock:
            os.environ[NAMED] = ",".join(dict.fromkeys([*_named(), module.partition(".")[0]]))
            importlib.invalidate_caches()
        return importlib.import_module(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a top-level module in the working folder that may be imported; None for any other module.

        A module may be imported if the user named it, or if the module that imports it was found by this finder.
        """
        if path is not None or not (fullname in _named() or _importer().partition(".")[0] in self._found):
            return None
        spec = PathFinder.find_spec(fullname, [str(Path.cwd())])
        if spec is not None:
            self._found.add(fullname)
        return spec


def _named() -> list[str]:
    return list(filter(None, os.environ.get(NAMED, "").split(",")))


def _importer() -> str:
    """Return the name of the module that asked for the import, by an import statement or a call of importlib.

    Only `OwnModules.find_spec` can call this, since the module is looked up among the callers of its caller.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(IMPORT_SYSTEM):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


own_modules = OwnModules()
sys.meta_path.append(own_modules)
