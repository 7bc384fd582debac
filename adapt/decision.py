"""The decision: the verdict that counts, its winner, and the model and weight to search with.

The verdict on the user's questions decides if there are at least 50 (`FEW`) of them. Otherwise the verdict on the
held-out texts decides, because with few questions the interval of a difference is wider than most differences.
"""

from dataclasses import dataclass
from typing import Any

from clearspan.adapt.judging import Verdicts
from clearspan.eval.tasks.queries import FEW
from clearspan.eval.verdict import BM25, System, Verdict
from clearspan.retrieval.comparison import WITH_BM25


@dataclass(frozen=True)
class Decision:
    """The verdict that decides which system is recommended, and the model and weight to search with.

    Attributes:
        verdict: the verdict that decides.
        other: the verdict that does not decide; None if there are no questions.
        model: name of the winner's model; if BM25 alone wins, the name of the best untrained model.
        weight: the model's weight when combined with BM25: 0 for BM25 alone, None for the model alone.
        share: the share of the trained weights that the questions chose for the trained model; None if they had no
            choice, or if another model is taken.
    """

    verdict: Verdict
    other: Verdict | None
    model: str
    weight: float | None
    share: float | None = None

    @property
    def winner(self) -> System:
        return self.verdict.system(self.verdict.winner)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of adapt.json that describe the decision; it has others, such as the finished stages.

        They are the results of the verdict that decides, the weight, and the results of the other verdict.
        """
        figures = {**figures_of(self.verdict), "weight": self.weight, "verdict": self.verdict.word}
        others = {f"{self.other.task}": figures_of(self.other)} if self.other else {}
        return {**figures, "others": others}


def decide(verdicts: Verdicts) -> Decision:
    """Decide which of the verdicts counts, and with which model and weight to search; return the decision."""
    held_out, questions = verdicts.held_out, verdicts.questions
    is_by_questions = questions is not None and questions.num_queries >= FEW
    verdict, other = (questions, held_out) if questions and is_by_questions else (held_out, questions)
    winner = verdict.system(verdict.winner)
    if winner.name == BM25:
        behind = next(system for system in verdict.systems if not system.is_trained and system.name != BM25)
        return Decision(verdict, other, behind.name.removesuffix(WITH_BM25), 0.0)
    return Decision(verdict, other, winner.name.removesuffix(WITH_BM25), winner.weight, winner.share)


def figures_of(verdict: Verdict) -> dict[str, Any]:
    """Return the results of a verdict for adapt.json: name of a field, such as `winner` or `difference` -> value."""
    names = ("task", "winner", "best_trained", "best_untrained", "difference", "low", "high", "sentence", "notes")
    counts = ("num_queries", "num_texts", "num_collection", "k1", "b", "num_dev")
    figures = {name: getattr(verdict, name) for name in (*names, *counts)}
    return {**figures, "mrr": {system.name: system.mrr for system in verdict.systems}}
