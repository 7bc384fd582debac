"""Warnings about objectives that teach nothing: the loss stays at chance, or all examples are told apart from the first
steps and the gradient vanishes.

Only figures that are logged anyway are looked at. A warning is printed once, after several logged steps in a row, since
a single batch may be at chance, or easy. Steps below half of the highest learning rate do not count as at chance.
"""

import dataclasses
from collections.abc import Mapping

from clearspan.train.learner import Learner
from clearspan.train.objectives import ContrastiveObjective
from clearspan.train.options import ALL, Recipe

LOGS, STEPS = 5, 20
"""A warning needs at least LOGS logged steps in a row, the last of them at least STEPS steps after the first."""
NEAR = 0.02
"""A loss is at chance where it differs from chance by at most this fraction."""
HALF = 0.5
VANISHED = 1e-2
"""A gradient's norm before clipping, below which AdamW moves weights by noise."""


@dataclasses.dataclass(frozen=True)
class Watched:
    """The facts about an objective that `Watch` needs.

    Args:
        chance: the loss of guessing; None: it is not known.
        mends: what to do about a loss at chance, and about examples that are all told apart.
        turn: the name of its turn in the figures; "": there is only one turn.
        peak: its turn's highest learning rate.
    """

    chance: float | None
    mends: tuple[str, str]
    turn: str
    peak: float

    def of_turn(self, figure: str, metrics: Mapping[str, float]) -> float:
        return metrics[f"{figure}/{self.turn}" if self.turn else figure]


def watched(recipe: Recipe, learner: Learner) -> dict[str, Watched]:
    """Return the facts about each of a run's objectives, by name."""
    found = {}
    for turn, optimizer in recipe.optimizers().items():
        rate = f"{f'turns.{turn}' if turn in recipe.turns else 'optimizer'}.learning_rate"
        for one in learner.of_turn(turn):
            mends = f"try another {rate}", f"give data.{one.data} harder examples"
            if isinstance(one, ContrastiveObjective):
                more = f"a higher objectives.{one.name}.temperature or a larger data.{one.data}.batch_size"
                mends = f"try a lower {rate}, {more}", f"try {more}"
            chance = one.chance(recipe.contrasted(one.data))
            found[one.name] = Watched(chance, mends, "" if turn == ALL else turn, optimizer.learning_rate)
    return found


class Watch:
    """Watches a run's objectives, by name.

    Args:
        fresh: whether the run begins here: only then its first steps are seen.
    """

    def __init__(self, watched: Mapping[str, Watched], fresh: bool) -> None:
        self.watched = dict(watched)
        self.at_chance: dict[str, list[int] | None] = {name: [] for name in watched}
        self.all_told: dict[str, list[int] | None] = {name: [] if fresh else None for name in watched}

    def lines(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Return the warnings that a logged step's figures give; the figures are plain numbers already."""
        said = []
        for name, known in self.watched.items():
            loss, seen = metrics.get(f"{name}/loss"), self.at_chance[name]
            tried = known.of_turn("learning_rate", metrics) >= HALF * known.peak
            if loss is not None and known.chance and seen is not None and tried:
                near = abs(loss - known.chance) <= NEAR * known.chance
                self.at_chance[name] = seen = [*seen, step] if near else []
                if _enough(seen):
                    self.at_chance[name] = None
                    said.append(
                        f"objectives.{name}: its loss is {loss:.4g} at step {step:,}, and has been that of chance, "
                        f"{known.chance:.4g}, since step {seen[0]:,}: nothing is learnt; {known.mends[0]}"
                    )
            if (seen := self.all_told[name]) is None:
                continue
            norm = known.of_turn("grad_norm", metrics)
            told = metrics.get(f"{name}/accuracy") == 1 and norm < VANISHED
            self.all_told[name] = seen = [*seen, step] if told else None
            if seen and _enough(seen):
                self.all_told[name] = None
                said.append(
                    f"objectives.{name}: its accuracy has been 1 from the first steps to step {step:,}, and the "
                    f"gradient vanishes (norm {norm:.2g}): nothing is left to learn; {known.mends[1]}"
                )
        return said


def _enough(steps: list[int]) -> bool:
    return len(steps) >= LOGS and steps[-1] - steps[0] >= STEPS
