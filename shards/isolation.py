"""Where the processes that a command starts look for code: where this one's packages are, never in the working folder.

`python -m` looks there first, and a user's own train.py or shards.py would be taken for a package of ours.
"""

import os
import site
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder of these packages: that of installed ones, or a checkout."""


def environment() -> dict[str, str]:
    """The variables for a process to start with: it takes no code from where it starts, and finds a checkout's."""
    variables = {"PYTHONSAFEPATH": "1"}
    if str(ROOT) not in (*site.getsitepackages(), site.getusersitepackages()):
        found = os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([found] if found else [])])
    return variables
