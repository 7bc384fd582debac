"""`train/run.py`, but the last rank gets a SIGTERM while it works on the step that TERMINATED_AT names."""

import os
import signal
import sys

from train import loop, run

STEP = int(os.environ["TERMINATED_AT"])
train_step = loop.Trainer._train_step


def terminated(trainer: loop.Trainer, batch: object) -> object:
    if trainer.step + 1 == STEP and trainer.rank == trainer.ranks - 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return train_step(trainer, batch)


loop.Trainer._train_step = terminated
sys.exit(run.main())
