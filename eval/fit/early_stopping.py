"""SentEval's early stopping, whose count of failed checks is never reset and is looked at before it grows.

`eval.fit.classifiers` follows the same rule for many fits at once.
"""


class EarlyStopping:
    """Says of each check whether it is the best so far, and when there were enough.

    Args:
        tenacity: how many checks in all may fail to be better; the next one that fails is the last.

    Attributes:
        over: whether training ends.
    """

    def __init__(self, tenacity: int) -> None:
        self.over = False
        self._left, self._best = tenacity, -1.0

    def better(self, figure: float) -> bool:
        """Whether a check's figure, not below -1, is above all before it."""
        if figure > self._best:
            self._best = figure
            return True
        self.over = self._left == 0
        self._left -= 1
        return False
