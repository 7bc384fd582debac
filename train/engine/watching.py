"""Warning about an objective that teaches nothing: its loss stays at chance level.

Only logged figures are used. The warning is printed once, after several logged steps in a row, since a single batch may
be at chance level. Steps below half of the highest learning rate do not count.
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


@dataclasses.dataclass
class Watch:
    """Watches the loss of an objective.

    Args:
        chance: the loss of guessing.
        rate, peak: name in the metrics, and highest value, of the learning rate of its turn.
        remedy: what to do about a loss at chance level.
    """

    name: str
    chance: float
    rate: str
    peak: float
    remedy: str
    steps: list[int] = dataclasses.field(default_factory=list)
    """The last logged steps in a row whose loss was at chance level."""
    warned: bool = False

    def warnings(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Return the warning that the figures of a logged step give rise to, if any."""
        loss = metrics.get(f"{self.name}/loss")
        if self.warned or loss is None or metrics[self.rate] < self.peak / 2:
            return []
        self.steps = [*self.steps, step] if abs(loss - self.chance) <= NEAR * self.chance else []
        if len(self.steps) < LOGS or step - self.steps[0] < STEPS:
            return []
        self.warned = True
        return [
            f"objectives.{self.name}: its loss is {loss:.4g} at step {step:,}, and has been at chance level, "
            f"{self.chance:.4g}, since step {self.steps[0]:,}: nothing is learned; {self.remedy}"
        ]


def watched(recipe: Recipe, learner: Learner) -> list[Watch]:
    """Return a watch for each of a run's objectives of which the loss of guessing is known."""
    watches = []
    for turn, optimizer in recipe.optimizers().items():
        key = f"{f'turns.{turn}' if turn in recipe.turns else 'optimizer'}.learning_rate"
        for objective in learner.of_turn(turn):
            name, data = objective.name, objective.data
            remedy = f"try another {key}"
            if isinstance(objective, ContrastiveObjective):
                remedy = f"try a lower {key}, a higher objectives.{name}.temperature or a larger data.{data}.batch_size"
            if chance := objective.chance(recipe.contrasted(data)):
                rate = "learning_rate" if turn == ALL else f"learning_rate/{turn}"
                watches.append(Watch(name, chance, rate, optimizer.learning_rate, remedy))
    return watches
