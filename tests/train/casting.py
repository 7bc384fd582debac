"""`train/run.py`, but each step prints how often a weight is cast to bfloat16: at least and at most, of those that are.

With KEPT=no casts are not kept between forwards. The decoder, which the loss over the vocabulary casts itself, is left
out.
"""

import contextlib
import os
import sys
from collections import Counter
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clearspan.train import run
from clearspan.train.engine import loop

train_step = loop.Trainer._train_step


class Casts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[int] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") == torch.bfloat16:
            self.counts[args[0].data_ptr()] += 1
        return function(*args, **(kwargs or {}))


def counted(trainer: loop.Trainer, *arguments: object) -> object:
    with Casts() as casts:
        result = train_step(trainer, *arguments)
    decoder = trainer.learner.encoder.mlm_decoder
    weights = {parameter.data_ptr() for parameter in trainer.learner.parameters()}
    weights -= {parameter.data_ptr() for parameter in decoder.parameters()}
    numbers = [number for place, number in casts.counts.items() if place in weights]
    print("casts", len(numbers), min(numbers), max(numbers), flush=True)
    return result


loop.Trainer._train_step = counted
if os.environ["KEPT"] == "no":
    patch.object(loop, "autocast_cache", contextlib.nullcontext).start()
exit_code = run.main()
sys.stdout.flush()
os._exit(exit_code)
