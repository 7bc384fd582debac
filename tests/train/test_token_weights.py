"""`model.pooling: weighted`: token weights counted in the shards, in training, in the export, and from its folder."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from clearspan.common.encoder.packing import pack_ids
from clearspan.common.model_folder import EncoderError
from clearspan.shards import Dataset
from clearspan.train.model.packing import Patches, Sequences, SpecialTokens, TokenSlices, pack
from clearspan.train.model.source import read_source
from clearspan.train.start.token_weights import LOWEST, inverse_frequencies, resized
from tests.train.conftest import TINY_MODEL
from tests.train.ranks import train_alone
from tests.train.test_gradient_caching import made


@pytest.fixture(scope="module")
def run(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "run"
    train_alone(*tiny, "model.pooling=weighted", f"output={output}")
    return output


def test_a_weight_is_the_inverse_document_frequency_in_passages(dataset_folder: Path) -> None:
    passages = [
        row[start : start + 64]
        for batch in Dataset(str(dataset_folder))
        for row in batch.column("tokens").to_pylist()
        for start in range(0, len(row), 64)
    ]
    holding = Counter(token for passage in passages for token in set(passage))
    found = inverse_frequencies([Dataset(str(dataset_folder))], 1500, special=[0, 2])
    for token in range(1500):
        weight = math.log((1 + len(passages)) / (1 + holding[token])) if token not in (0, 2) else 0
        assert found[token].item() == pytest.approx(max(weight, LOWEST), rel=1e-6)
    assert found.unique().numel() > 50


def test_a_vector_is_the_weighted_mean_of_states(tiny: list[str]) -> None:
    encoder = made([*tiny, "model.pooling=weighted", "objectives.mlm=null"])[0].encoder
    rows = [[5, 9, 700, 1200], [8], [300, 300, 40]]
    packed = pack_ids(rows)
    states, weights = torch.randn(8, 32, generator=torch.Generator().manual_seed(0)), encoder.token_weights
    assert weights.unique().numel() > 50
    for row, part, found in zip(rows, states.split([4, 1, 3]), encoder.pool(states, packed), strict=True):
        expected = sum(weights[token] * state for token, state in zip(row, part, strict=True)) / weights[row].sum()
        torch.testing.assert_close(found, expected)


def test_patches_weigh_one(tiny: list[str]) -> None:
    encoder = made([*tiny, "model.pooling=weighted", "objectives.mlm=null"])[0].encoder
    tokens = TokenSlices(torch.tensor([7, 900]), torch.tensor([0]), torch.tensor([2]))
    blocks = [Sequences(Patches("images", torch.zeros(1, 3), 3), torch.zeros(1)), Sequences(tokens, torch.zeros(1))]
    packed = pack(blocks, SpecialTokens([], [], 1, None))
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    pictures, text = encoder.pool(states, packed)
    torch.testing.assert_close(pictures, states[:3].mean(0))
    own = encoder.token_weights[[7, 900]]
    torch.testing.assert_close(text, (own[:, None] * states[3:]).sum(0) / own.sum())


@pytest.mark.guarantee("same-vectors")
@pytest.mark.slow
def test_training_goes_on_from_the_export_with_its_weights(run: Path, tiny: list[str]) -> None:
    given = [*(o for o in tiny if o not in TINY_MODEL), "model.config=null", f"model.path={run / 'model'}"]
    encoder = made([*given, "model.pooling=null"])[0].encoder
    source = read_source(run / "model")
    assert encoder.pooling == source.pooling == "weighted"
    assert torch.equal(encoder.token_weights, source.token_weights)


def test_new_tokens_get_the_smallest_weight_and_surplus_weights_are_refused() -> None:
    assert resized(torch.tensor([3.0, 2.0]), 3).tolist() == pytest.approx([3, 2, LOWEST])
    with pytest.raises(EncoderError, match="WordWeights for 3 tokens, and 2 embeddings"):
        resized(torch.ones(3), 2)
