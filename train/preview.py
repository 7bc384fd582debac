"""Examples of the training data as text: some sequences of a run's first batch, before the first step.

For DeCLUTR's spans: an anchor with a positive, a hard negative (from the same document) and an easy negative (from
another one), as in the paper's table of examples. For other objectives: an example's sequence in each block.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearspan.train.data.batch import Batch
from clearspan.train.learner import Learner
from clearspan.train.model.packing import TokenSlices
from clearspan.train.objectives import Request

SHOWN = 4
"""Number of examples of each objective."""
WIDTH = 72
"""Characters of a text at most on the terminal."""


def tokens_of(request: Request, block: str, row: int) -> Tensor | None:
    """Return the ids of a block's sequence without special tokens, (n,), or None if the block has fewer sequences or
    holds patches.
    """
    content = request.sequences[block].content
    if not isinstance(content, TokenSlices) or row >= len(content.starts):
        return None
    start, length = int(content.starts[row]), int(content.lengths[row])
    return content.tokens[start : start + length]


@torch.no_grad()
def examples(learner: Learner, tokenizer: Any, batches: Mapping[str, Batch]) -> dict[str, list[list[tuple[str, str]]]]:
    """Return some examples of each objective by its name; an example is a list of (label, text)."""
    by_objective: dict[str, list[list[tuple[str, str]]]] = {}
    for objective in (each for turn in learner.turns for each in learner.of_turn(turn)):
        request = objective.request(batches[objective.data].of(objective.name))
        count = min(SHOWN, len(batches[objective.data].ids))
        shown = []
        for number in range(count):
            rows = objective.shown(request, number).items()
            texts = [(label, tokens_of(request, *place)) for label, place in rows]
            shown.append([(label, _text(tokenizer, ids)) for label, ids in texts if ids is not None])
        if any(shown):
            by_objective[objective.name] = list(filter(None, shown))
    return by_objective


def _text(tokenizer: Any, ids: Tensor) -> str:
    return " ".join(tokenizer.decode(ids.tolist()).split())


def as_file(by_objective: Mapping[str, list[list[tuple[str, str]]]]) -> str:
    """Return all examples in full."""
    lines = []
    for name, shown in by_objective.items():
        for number, texts in enumerate(shown, 1):
            lines.append(f"{name}, example {number}")
            lines += [f"  {label}: {text}" for label, text in texts]
            lines.append("")
    return "\n".join(lines)


def in_short(by_objective: Mapping[str, list[list[tuple[str, str]]]]) -> list[str]:
    """Return a line for each text of each objective's first example, cut after `WIDTH` characters."""
    return [
        f"{name}: {label}: {text if len(text) <= WIDTH else f'{text[:WIDTH]} ...'}"
        for name, shown in by_objective.items()
        for label, text in shown[0]
    ]
