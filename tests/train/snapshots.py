"""`train/run.py`; also, copies of the run in the folder SNAPSHOTS, as a kill at each point of a save would leave it.

There is one before each thing that is done to a file or folder of the checkpoints, and some amid the writing of states.
A copy is named by its number and the step being saved.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from clearspan.train import run
from clearspan.train.engine import checkpoint

DONE_TO_FILES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
WRITING = os.O_WRONLY | os.O_RDWR
saving: list[tuple[Path, int]] = []


def snapshot() -> None:
    if saving:
        folder, step = saving.pop()  # so that copying is not looked at
        copies = Path(os.environ["SNAPSHOTS"])
        shutil.copytree(folder, copies / f"{len(list(copies.iterdir())):03}-{step}")
        saving.append((folder, step))


def before(event: str, arguments: tuple[Any, ...]) -> None:
    written = event in DONE_TO_FILES or (event == "open" and arguments[2] & WRITING)
    if written and saving and str(arguments[0]).startswith(str(saving[0][0] / checkpoint.CHECKPOINTS)):
        snapshot()


def save(checkpoints: checkpoint.Checkpoints, engine: Any, step: int, *arguments: Any) -> None:
    saving.append((checkpoints.folder.parent, step))
    saved(checkpoints, engine, step, *arguments)
    snapshot()
    saving.clear()


def write(states: Any, path: Path) -> None:
    written(states, path)
    content = path.read_bytes()
    for eighth in range(8):
        path.write_bytes(content[: len(content) * eighth // 8])
        snapshot()
    path.write_bytes(content)


saved, written = checkpoint.Checkpoints.save, checkpoint.write_states
checkpoint.Checkpoints.save = save  # type: ignore[method-assign]
checkpoint.write_states = write
sys.addaudithook(before)
exit_code = run.main()
sys.stdout.flush()
os._exit(exit_code)
