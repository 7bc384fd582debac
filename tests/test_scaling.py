"""The model of a step's time: its terms against hand-computed numbers, and where they are equal."""

import pytest
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from benchmarks import scaling
from benchmarks.scaling import NODE, WEIGHTS, Constants, even, fitted, overtaken, step, terms

ROUND = Constants(peak=1e15, efficiency=0.5, fp32=1e14, link=4e11, network=5e10, attained=0.5, loader=1000.0)


def test_the_weights_are_robertas() -> None:
    config = RobertaConfig(vocab_size=scaling.VOCABULARY, max_position_embeddings=514, type_vocab_size=1)
    with torch.device("meta"):
        model = RobertaForMaskedLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == WEIGHTS
    layers = sum(parameter.numel() for parameter in model.roberta.encoder.parameters())
    assert layers == scaling.LAYER_WEIGHTS


def test_one_gpu_sends_nothing() -> None:
    found = terms(1, 64, ROUND)
    assert (found["gather"], found["reduce"], found["loader"]) == (0.0, 0.0, 0.064)
    assert step(found) == pytest.approx(found["compute"] + found["contrast"])


def test_the_terms_of_eight_gpus_by_hand() -> None:
    found = terms(8, 64, ROUND)
    vectors = 2 * 128 * 768 * 4
    assert found["reduce"] == pytest.approx(2 * 7 / 8 * 4 * WEIGHTS / 2e11 + 6 * 5e-6)
    assert found["gather"] == pytest.approx(2 * (7 * vectors / 2e11 + 7 * 5e-6))
    assert found["contrast"] == pytest.approx(3 * 2 * 256 * 2048 * 768 / 1e14)


def test_a_slower_network_counts_between_machines_only() -> None:
    slow = Constants(network=1e9)
    assert terms(NODE, 64, slow) == terms(NODE, 64, Constants())
    assert terms(2 * NODE, 64, slow)["reduce"] > 10 * terms(2 * NODE, 64, Constants())["reduce"]


def test_the_documents_at_which_a_term_meets_the_compute() -> None:
    at = even("reduce", 16, ROUND)
    found = terms(16, at, ROUND)
    assert found["reduce"] == pytest.approx(found["compute"], rel=1e-2)
    assert even("loader", 1, Constants(loader=1.0)) == float("inf")


def test_the_gpus_from_which_a_term_is_more_than_another() -> None:
    at = overtaken("gather", "reduce", 128, ROUND)
    assert at is not None
    before, after = terms(at // 2, 128, ROUND), terms(at, 128, ROUND)
    assert before["gather"] <= before["reduce"] and after["gather"] > after["reduce"]
    assert overtaken("loader", "compute", 128, ROUND) is None


def test_a_loader_that_is_too_slow_is_what_a_step_takes() -> None:
    found = terms(8, 64, Constants(loader=10.0))
    assert step(found) == 6.4 and scaling.largest(found) == "loader"


def test_latency_and_rate_are_found_in_times() -> None:
    sizes = [1e3, 1e5, 1e7]
    latency, rate = fitted(sizes, [1e-4 + size / 1e9 for size in sizes])
    assert (latency, rate) == (pytest.approx(1e-4), pytest.approx(1e9))
