"""What a run says of objectives that teach nothing: a loss that stays at chance, or examples all told apart from the
beginning, with a gradient that has vanished.

Only figures that are logged anyway are looked at. A line is said once, and after several logged steps in a row, since
one batch may be at chance, or easy; steps at less than half the highest learning rate do not count as tried.
"""

import dataclasses
from collections.abc import Mapping

from train.learner import Learner
from train.options import ALL, Recipe

LOGS, STEPS = 5, 20
"""So many logged steps in a row, the last of them so many steps after the first, are no accident."""
NEAR = 0.02
"""A loss is at chance within this part of it."""
HALF = 0.5
VANISHED = 1e-2
"""A gradient's norm before clipping, below which AdamW moves weights by noise."""


@dataclasses.dataclass(frozen=True)
class Watched:
    """What is known of an objective.

    Args:
        chance: the loss of guessing; None: it is not known.
        mends: what to do of a loss at chance, and of examples all told apart.
        turn: as figures name its turn; "": the only one.
        peak: its turn's highest learning rate.
    """

    chance: float | None
    mends: tuple[str, str]
    turn: str
    peak: float

    def of_turn(self, figure: str, metrics: Mapping[str, float]) -> float:
        return metrics[f"{figure}/{self.turn}" if self.turn else figure]


def watched(recipe: Recipe, learner: Learner) -> dict[str, Watched]:
    """What `Watch` is to know of a run's objectives."""
    found = {}
    for turn, optimizer in recipe.optimizers().items():
        rate = f"{f'turns.{turn}' if turn in recipe.turns else 'optimizer'}.learning_rate"
        for one in learner.of_turn(turn):
            mends, contrast = (f"try another {rate}", ""), f"objectives.{one.name}.temperature"
            if one.contrasts:
                more = f"a larger data.{one.data}.batch_size"
                mends = f"try a lower {rate}, a higher {contrast} or {more}", f"try a higher {contrast} or {more}"
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
        """What to say at a logged step, of its figures. None of them is waited for."""
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
