"""Dropout on a CPU: its rate and its scale, and attention's gradients against torch's own with the same mask."""

import math

import pytest
import torch
from torch import nn

from clearspan.common.encoder.attention import unfused_attention
from clearspan.common.encoder.dropout import Dropout, keep_mask
from tests.train.test_encoder import CONFIGS, models


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_value_drops_with_probability_p_whatever_its_neighbours_do(p: float) -> None:
    """Four are drawn of one number: counts of each place and of pairs of places lie within five deviations."""
    torch.manual_seed(0)
    drops = ~keep_mask(torch.Size((50_000, 4)), p)[0]
    bound = 5 * math.sqrt(p * (1 - p) / 50_000)
    assert (drops.double().mean(0) - p).abs().max() < bound
    for first in range(4):
        for second in range(first):
            both = (drops[:, first] & drops[:, second]).double().mean().item()
            assert abs(both - p * p) < 5 * math.sqrt(p * p * (1 - p * p) / 50_000)


def test_what_stays_is_scaled_to_the_same_mean_and_gets_the_gradient() -> None:
    torch.manual_seed(0)
    values = torch.ones(400, 1001, requires_grad=True)
    found = Dropout(0.1)(values)
    assert set(found.unique().tolist()) == {0.0, torch.tensor(keep_mask(values.shape, 0.1)[1]).item()}
    assert found.mean().item() == pytest.approx(1, abs=3e-3)
    found.sum().backward()
    assert torch.equal(values.grad, found)


def test_none_drops_in_evaluation() -> None:
    assert torch.equal(Dropout(0.5).eval()(torch.ones(8)), torch.ones(8))


@pytest.mark.parametrize("window", [None, 3])
def test_attention_and_its_gradients_are_those_of_the_same_mask(window: int | None) -> None:
    at = torch.arange(7)
    near = None if window is None else (at[:, None] - at).abs() < window
    states = torch.randn(3, 2, 5, 7, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    again = states.detach().clone().requires_grad_()
    torch.manual_seed(4)
    ours = unfused_attention(*states, near, 0.3, 0.25)
    torch.manual_seed(4)
    keep, scale = keep_mask(torch.Size((2, 5, 7, 7)), 0.3)
    scores = again[0] @ again[1].transpose(-1, -2) * 0.25
    weights = (scores if near is None else scores.masked_fill(~near, -math.inf)).softmax(-1)
    expected = (weights * keep * scale) @ again[2]
    torch.testing.assert_close(ours, expected)
    for found in (ours, expected):
        (found * torch.linspace(-1, 1, 8)).sum().backward()
    torch.testing.assert_close(states.grad, again.grad)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_encoder_has_no_other_dropout_and_its_configurations_rates(name: str) -> None:
    encoder, model = models(CONFIGS[name])
    found = [module for module in encoder.modules() if isinstance(module, nn.Dropout)]
    assert {type(module) for module in found} <= {Dropout}
    assert [module.p for module in found] == [one.p for one in model.modules() if isinstance(one, nn.Dropout)]
    assert encoder.state_dict().keys() == {f"model.{key}" for key in model.state_dict()}
