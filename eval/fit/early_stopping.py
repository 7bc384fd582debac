"""SentEval's early stopping: it never resets the count of failed checks, and tests the count before it increments it.

`eval.fit.classifiers` applies the same rule to many fits at once.
"""


class EarlyStopping:
    """Early stopping by a dev score.

    Args:
        tenacity: total number of checks that may fail to improve; the next failed check ends training.

    Attributes:
        over: true when training ends.
    """

    def __init__(self, tenacity: int) -> None:
        self.over = False
        self._left, self._best = tenacity, -1.0

    def better(self, score: float) -> bool:
        """Return whether a check's score, at least -1, exceeds all before it."""
        if score > self._best:
            self._best = score
            return True
        self.over = self._left == 0
        self._left -= 1
        return False
