"""`train/run.py`, but at step TERMINATED_AT SIGTERM goes to the last rank, or to the deepspeed command."""

import os
import signal
import sys

import psutil

from clearspan.train import run
from clearspan.train.engine import loop

train_step = loop.Trainer._train_step


def terminated(trainer: loop.Trainer, *arguments: object) -> object:
    if trainer.step + 1 == int(os.environ["TERMINATED_AT"]) and trainer.rank == trainer.ranks - 1:
        ancestors = psutil.Process().parents()
        os.kill(ancestors[1].pid if "TERMINATED_LAUNCHER" in os.environ else os.getpid(), signal.SIGTERM)
    return train_step(trainer, *arguments)


loop.Trainer._train_step = terminated
exit_code = run.main()
sys.stdout.flush()
os._exit(exit_code)
