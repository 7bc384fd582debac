"""`train/run.py`, but a signal comes when a module is first looked for, or when a function is first called.

SIGNALLED_AT is `import NAME` or `MODULE:CLASS.FUNCTION`, SIGNAL the signal's name.
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

place, number = os.environ["SIGNALLED_AT"], signal.Signals[os.environ["SIGNAL"]]


class Signalling:
    """A finder of modules that finds none."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name == place.removeprefix("import "):
            os.kill(os.getpid(), number)


def signalled(*arguments: object, **options: object) -> None:
    os.kill(os.getpid(), number)


if place.startswith("import "):
    sys.meta_path.insert(0, Signalling())  # type: ignore[arg-type]
else:
    module, function = place.split(":")
    owner = importlib.import_module(module)
    for name in function.split(".")[:-1]:
        owner = getattr(owner, name)
    setattr(owner, function.split(".")[-1], signalled)

from clearspan.train import run  # noqa: E402

exit_code = run.main()
sys.stdout.flush()
os._exit(exit_code)
