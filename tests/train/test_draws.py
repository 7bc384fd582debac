"""Keyed randomness: uniform, independent between keys, and a function of the key alone."""

import torch
from scipy import stats

from clearspan.train import draws
from clearspan.train.draws import Purpose


def test_uniform_draws_are_uniform_over_keys_and_over_draws() -> None:
    keys = draws.mix(7, torch.arange(20_000))
    drawn = draws.uniform(keys, 5)
    assert drawn.dtype == torch.float64 and drawn.min() >= 0 and drawn.max() < 1
    for values in (drawn[:, 0], drawn[:, 4], draws.uniform(draws.mix(3), 20_000)):
        assert stats.kstest(values.numpy(), "uniform").pvalue > 1e-3


def test_neighbouring_keys_and_draws_are_uncorrelated() -> None:
    drawn = draws.uniform(draws.mix(7, torch.arange(50_000)), 2)
    for a, b in ((drawn[1:, 0], drawn[:-1, 0]), (drawn[:, 0], drawn[:, 1])):
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.015


def test_a_key_depends_on_every_part_and_their_order() -> None:
    assert len({int(draws.mix(*parts)) for parts in ((1, 2, 3), (3, 2, 1), (1, 2, 4), (0, 2, 3), (1, 3), (1, 2))}) == 6


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    keys = draws.mix(1, torch.arange(100))
    assert torch.equal(draws.uniform(keys, 8)[17, :3], draws.uniform(keys[17:18], 3)[0])


def test_below_stays_below_its_bound_and_reaches_every_value() -> None:
    uniforms = draws.uniform(draws.mix(torch.arange(10_000)), 1)[:, 0]
    values = draws.below(uniforms, torch.full((10_000,), 7))
    assert stats.chisquare(torch.bincount(values, minlength=7).numpy()).pvalue > 1e-3
    assert int(draws.below(torch.tensor(1 - 2**-53, dtype=torch.float64), torch.tensor(1 << 40))) < 1 << 40


def test_keys_and_draws_equal_the_definition_in_plain_integers() -> None:
    """Runs must be repeatable on every device: wrapping int64 arithmetic against unbounded integers."""
    word, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def finalise(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & word
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & word
        return z ^ (z >> 31)

    def mix(*parts: int) -> int:
        key = 0
        for part in parts:
            key = finalise((key * golden + finalise((part + golden) & word)) & word)
        return key

    for parts in ((42, 0, 1), (0,), ((1 << 63) - 1, 5)):
        assert int(draws.mix(*parts)) % (1 << 64) == mix(*parts)
        expected = [(finalise((mix(*parts) + j * golden) & word) >> 11) / 2**53 for j in (1, 2, 3)]
        assert draws.uniform(draws.mix(*parts), 3).tolist() == expected


def test_no_two_purposes_datasets_or_objectives_share_a_key() -> None:
    """Purposes are told apart by their numbers, datasets and objectives by their names."""
    assert len(set(Purpose)) == len(Purpose.__members__)
    keys = {
        int(draws.mix(7, draws.name_key(data), 0, 5, draws.name_key(objective), purpose))
        for data in ("text", "more")
        for objective in ("spans", "again")
        for purpose in Purpose
    }
    assert len(keys) == 4 * len(Purpose)
