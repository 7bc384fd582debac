"""Outcome of the verdicts: the verdict that decides, the system to take, and the model and weight that it needs.

The verdict on the user's questions decides if there are at least `FEW` questions; otherwise the verdict on the held-out
texts decides, because with few questions the interval of a difference is wider than most differences.
"""

from dataclasses import dataclass
from typing import Any

from clearspan.adapt.judging import Verdicts
from clearspan.eval.contest import BESIDE
from clearspan.eval.tasks.queries import FEW
from clearspan.eval.verdict import BM25, System, Verdict


@dataclass(frozen=True)
class Outcome:
    """The deciding verdict, and the model and weight to search with.

    Attributes:
        verdict: the verdict that decides.
        other: the verdict that does not decide; None if there are no questions.
        model: name of the winner's model; if BM25 alone wins, the name of the best untrained model.
        weight: the model's weight when combined with BM25: 0 for BM25 alone, None for the model alone.
    """

    verdict: Verdict
    other: Verdict | None
    model: str
    weight: float | None

    @property
    def winner(self) -> System:
        return self.verdict.system(self.verdict.winner)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as adapt.json holds it, which also has fields from elsewhere."""
        figures = {**summary(self.verdict), "weight": self.weight, "verdict": self.verdict.word}
        others = {f"{self.other.task}": summary(self.other)} if self.other else {}
        return {**figures, "others": others}


def decide(verdicts: Verdicts) -> Outcome:
    """Decide which verdict counts, and which model and weight to search with."""
    held_out, questions = verdicts.held_out, verdicts.questions
    is_by_questions = questions is not None and questions.num_queries >= FEW
    verdict, other = (questions, held_out) if questions and is_by_questions else (held_out, questions)
    winner = verdict.system(verdict.winner)
    if winner.name == BM25:
        behind = next(system for system in verdict.systems if not system.is_trained and system.name != BM25)
        return Outcome(verdict, other, behind.name.removesuffix(BESIDE), 0.0)
    return Outcome(verdict, other, winner.name.removesuffix(BESIDE), winner.weight)


def summary(verdict: Verdict) -> dict[str, Any]:
    """Return the figures of a verdict, for adapt.json."""
    names = ("task", "winner", "best_trained", "best_untrained", "difference", "low", "high", "sentence", "notes")
    counts = ("num_queries", "num_texts", "num_collection")
    figures = {name: getattr(verdict, name) for name in (*names, *counts)}
    return {**figures, "mrr": {system.name: system.mrr for system in verdict.systems}}
