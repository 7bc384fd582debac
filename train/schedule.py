"""Learning-rate schedules: pure functions of the step, so a resumed run needs no scheduler state."""


def slanted_triangular(step: int, total: int, cut_fraction: float, ratio: float) -> float:
    """Share of the peak at a step in 0..total - 1 (Howard & Ruder 2018, Eq. 3): a short rise, a long fall.

    Starts at 1 / ratio, peaks at `cut_fraction` of the way, ends near 1 / ratio.
    """
    cut = max(1, int(total * cut_fraction))
    progress = step / cut if step < cut else max(0.0, 1 - (step - cut) / max(1, total - cut))
    return (1 + progress * (ratio - 1)) / ratio


def constant(step: int, total: int, cut_fraction: float, ratio: float) -> float:
    return 1.0


SCHEDULES = {"slanted_triangular": slanted_triangular, "constant": constant}
