"""A run of the tests says what it skipped, and why."""

import pytest

from tests.skipped import MAX_REASONS, line

pytest_plugins = "pytester"
TESTS = """
    import pytest

    @pytest.mark.parametrize("number", range(3))
    def test_data(number):
        pytest.skip("no test data")

    @pytest.mark.skipif(True, reason="no GPU")
    def test_device():
        pass

    def test_long():
        pass

    def test_runs():
        pass
"""


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "2", "-p", "xdist"], marks=pytest.mark.exhaustive)])
def test_a_run_ends_with_what_was_skipped_by_reason(pytester: pytest.Pytester, workers: list[str]) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "tests.skipped", "-k", "not long", *workers)
    result.assert_outcomes(passed=1, skipped=4, deselected=0 if workers else 1)
    assert "4 skipped: 3 (no test data), 1 (no GPU); 1 left out by -k 'not long'" in result.outlines


def test_where_everything_ran_there_is_no_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_runs(): pass")
    result = pytester.runpytest_inprocess("-p", "tests.skipped")
    assert not [text for text in result.outlines if " skipped: " in text or " left out by " in text]


def test_large_counts_have_commas_and_rare_reasons_are_summed() -> None:
    reasons = ["no test data"] * 1010 + [f"no package {number}" for number in range(MAX_REASONS + 1)]
    text = line(reasons)
    assert text.startswith("1,019 skipped: 1,010 (no test data), 1 (no package 0)")
    assert text.endswith("2 (other reasons: pytest -rs)")
