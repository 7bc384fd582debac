"""Warnings about objectives that teach nothing: the loss stays at chance level, or the accuracy is 1 from the first
steps on and the gradient vanishes.

Only logged figures are used. A warning is printed once, after several logged steps in a row, since a single batch may
be at chance level, or easy. Steps below half of the highest learning rate do not count as at chance level.
"""

import dataclasses
from collections.abc import Mapping

from clearspan.train.learner import Learner
from clearspan.train.objectives import ContrastiveObjective
from clearspan.train.options import ALL, Recipe

LOGS, STEPS = 5, 20
"""A warning needs at least LOGS logged steps in a row, the last of them at least STEPS steps after the first."""
NEAR = 0.02
"""A loss is at chance level if it differs from chance level by at most this fraction."""
HALF = 0.5
"""The fraction of the highest learning rate at and above which a step counts."""
VANISHED = 1e-2
"""The norm of a gradient, before clipping, below which AdamW follows noise."""


@dataclasses.dataclass(frozen=True)
class Watched:
    """The facts about an objective that `Watch` needs.

    Args:
        chance: the loss of guessing; None: unknown.
        remedies: what to do about a loss at chance level, and about an accuracy of 1.
        turn: the name of its turn in the figures; "": there is only one turn.
        peak: the highest learning rate of its turn.
    """

    chance: float | None
    remedies: tuple[str, str]
    turn: str
    peak: float

    def of_turn(self, figure: str, metrics: Mapping[str, float]) -> float:
        return metrics[f"{figure}/{self.turn}" if self.turn else figure]


def watched(recipe: Recipe, learner: Learner) -> dict[str, Watched]:
    """Return the facts about each of a run's objectives, by name."""
    objectives = {}
    for turn, optimizer in recipe.optimizers().items():
        rate = f"{f'turns.{turn}' if turn in recipe.turns else 'optimizer'}.learning_rate"
        for objective in learner.of_turn(turn):
            name, data = objective.name, objective.data
            remedies = f"try another {rate}", f"give data.{data} harder examples"
            if isinstance(objective, ContrastiveObjective):
                harder = f"a higher objectives.{name}.temperature or a larger data.{data}.batch_size"
                remedies = f"try a lower {rate}, {harder}", f"try {harder}"
            chance = objective.chance(recipe.contrasted(data))
            objectives[name] = Watched(chance, remedies, "" if turn == ALL else turn, optimizer.learning_rate)
    return objectives


class Watch:
    """Watches the figures of a run's objectives.

    Args:
        watched: the objectives, by name.
        fresh: whether the run begins here; a resumed run has missed the first steps.
    """

    def __init__(self, watched: Mapping[str, Watched], fresh: bool) -> None:
        self.watched = dict(watched)
        self.at_chance: dict[str, list[int] | None] = {name: [] for name in watched}
        """The last logged steps in a row whose loss was at chance level; None: warned already."""
        self.solved: dict[str, list[int] | None] = {name: [] if fresh else None for name in watched}
        """The logged steps, all from the first one on, with an accuracy of 1; None: interrupted, or warned already."""

    def lines(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Return the warnings that the figures of a logged step give rise to."""
        warnings = []
        for name, objective in self.watched.items():
            loss, steps = metrics.get(f"{name}/loss"), self.at_chance[name]
            fast = objective.of_turn("learning_rate", metrics) >= HALF * objective.peak
            if loss is not None and objective.chance and steps is not None and fast:
                near = abs(loss - objective.chance) <= NEAR * objective.chance
                self.at_chance[name] = steps = [*steps, step] if near else []
                if _enough(steps):
                    self.at_chance[name] = None
                    warnings.append(
                        f"objectives.{name}: its loss is {loss:.4g} at step {step:,}, and has been at chance level, "
                        f"{objective.chance:.4g}, since step {steps[0]:,}: nothing is learned; {objective.remedies[0]}"
                    )
            if (steps := self.solved[name]) is None:
                continue
            norm = objective.of_turn("grad_norm", metrics)
            solved = metrics.get(f"{name}/accuracy") == 1 and norm < VANISHED
            self.solved[name] = steps = [*steps, step] if solved else None
            if steps and _enough(steps):
                self.solved[name] = None
                warnings.append(
                    f"objectives.{name}: its accuracy has been 1 from the first steps to step {step:,}, and the "
                    f"gradient vanishes (norm {norm:.2g}): nothing is left to learn; {objective.remedies[1]}"
                )
        return warnings


def _enough(steps: list[int]) -> bool:
    return len(steps) >= LOGS and steps[-1] - steps[0] >= STEPS
