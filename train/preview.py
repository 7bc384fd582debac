"""What a run learns from, as text: some sequences of its first batch, before the first step.

Of DeCLUTR's spans, an anchor with a positive, a hard negative (of the same document) and an easy one (of another), as
the paper's table of examples has them; of other objectives, what their blocks hold of an example.
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
"""Examples of each objective."""
WIDTH = 72
"""Characters of a text where little room is."""


def tokens_of(request: Request, block: str, row: int) -> Tensor | None:
    """The ids of a sequence, without special tokens, (n,); None: the block has none such, or holds patches."""
    content = request.sequences[block].content
    if not isinstance(content, TokenSlices) or row >= len(content.starts):
        return None
    start, length = int(content.starts[row]), int(content.lengths[row])
    return content.tokens[start : start + length]


@torch.no_grad()
def examples(learner: Learner, tokenizer: Any, batches: Mapping[str, Batch]) -> dict[str, list[list[tuple[str, str]]]]:
    """By objective, some of its examples in the batches: each as pairs of what a text is, and the text."""
    found: dict[str, list[list[tuple[str, str]]]] = {}
    for objective in (one for turn in learner.turns for one in learner.of_turn(turn)):
        request = objective.request(batches[objective.data].of(objective.name))
        count = min(SHOWN, len(batches[objective.data].ids))
        said = []
        for number in range(count):
            rows = objective.shown(request, number).items()
            texts = [(label, tokens_of(request, *place)) for label, place in rows]
            said.append([(label, _text(tokenizer, ids)) for label, ids in texts if ids is not None])
        if any(said):
            found[objective.name] = [one for one in said if one]
    return found


def _text(tokenizer: Any, ids: Tensor) -> str:
    return " ".join(tokenizer.decode(ids.tolist()).split())


def as_file(found: Mapping[str, list[list[tuple[str, str]]]]) -> str:
    """All of the examples, whole."""
    lines = []
    for name, said in found.items():
        for number, texts in enumerate(said, 1):
            lines.append(f"{name}, example {number}")
            lines += [f"  {label}: {text}" for label, text in texts]
            lines.append("")
    return "\n".join(lines)


def in_short(found: Mapping[str, list[list[tuple[str, str]]]]) -> list[str]:
    """A line for each text of each objective's first example, cut."""
    return [
        f"{name}: {label}: {text if len(text) <= WIDTH else f'{text[:WIDTH]} ...'}"
        for name, said in found.items()
        for label, text in said[0]
    ]
