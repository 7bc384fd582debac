"""What commands say of a name that they do not know."""

import pytest

from shards.terminal import closest, nearest


@pytest.mark.parametrize(
    ("name", "meant"),
    [("transfr", "transfer"), ("STS", "sts"), ("retreival", "retrieval"), ("--poling", "--pooling"), ("x", None)],
)
def test_a_mistyped_name_has_a_nearest_one(name: str, meant: str | None) -> None:
    known = ["sts", "transfer", "retrieval", "--pooling"]
    assert closest(name, known) == meant
    assert nearest(name, known) == (f"; did you mean {meant!r}?" if meant else "")


def test_of_equal_names_the_first_is_nearest() -> None:
    assert closest("sts", ["STS", "sts"]) == "STS"
