"""SentEval's early stopping, on which published figures depend."""

from clearspan.eval.fit.early_stopping import EarlyStopping


def test_failed_checks_are_counted_over_the_whole_training_and_one_more_than_the_tenacity_ends_it() -> None:
    checks = EarlyStopping(tenacity=2)
    figures = [50.0, 40.0, 60.0, 60.0, 61.0, 10.0, 70.0]
    better = [checks.better(figure) for figure in figures if not checks.over]
    assert better == [True, False, True, False, True, False]
    assert checks.over
