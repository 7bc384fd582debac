"""`train/run.py`, but from step FULL_AT on no file can grow past LIMIT_BYTES, as on a disk that fills up."""

import os
import resource
import sys

from clearspan.train import run
from clearspan.train.engine import loop

train_step = loop.Trainer._train_step


def filled(trainer: loop.Trainer, *arguments: object) -> object:
    if trainer.step + 1 == int(os.environ["FULL_AT"]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT_BYTES"]), resource.RLIM_INFINITY))
    return train_step(trainer, *arguments)


loop.Trainer._train_step = filled
exit_code = run.main()
sys.stdout.flush()
os._exit(exit_code)
