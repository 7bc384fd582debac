"""The contract of objectives: what its base classes promise, for built-in types and for a class of the user's own."""

from pathlib import Path

import pytest
import torch

from clearspan.common.ragged import Ragged
from clearspan.train import objectives
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.model.encoded import Encoded, SequenceVectors
from tests.train.test_gradient_caching import CACHING, MICRO_BATCHES, made, micro_batches

TWICE = '''
"""Contrasts two passes over each document, and writes down how many documents a loss compared."""

from torch import Tensor

from clearspan.train.data.batch import Batch
from clearspan.train.model.losses import nt_xent
from clearspan.train.objectives import ContrastiveObjective, Encoded, Metrics, Request, Workload
from clearspan.train.step.example_lengths import length_moments

compared: list[int] = []


class Twice(ContrastiveObjective):
    def workload(self) -> Workload:
        mean, variance = length_moments(self.setting)
        return Workload(2, 2 * mean, 4 * variance, 0, self.setting.capacity)

    def request(self, batch: Batch) -> Request:
        first, second = self.setting.sequence_keys(batch, 2)
        capacity = self.setting.capacity
        return Request(
            {
                "first": batch.sequences("tokens", first, capacity),
                "second": batch.sequences("tokens", second, capacity),
            }
        )

    def loss(self, encoded: Encoded, context: None) -> tuple[Tensor, Metrics]:
        first, second = self.projected(encoded.pooled("first"), encoded.pooled("second"))
        compared.append(len(first))
        return nt_xent(first, second, self.config.temperature), {}
'''


@pytest.mark.parametrize("name", objectives.types())
def test_every_type_says_what_its_loss_compares_and_names_its_options(name: str) -> None:
    assert issubclass(objectives.objective_class(name), objectives.BASES)
    assert issubclass(objectives.config_class(name), objectives.ObjectiveConfig)
    assert objectives.config_class(name) is not objectives.ObjectiveConfig


def test_a_contrastive_class_of_the_users_own_compares_a_whole_step_with_gradient_caching(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "contrast_twice.py").write_text(TWICE)
    monkeypatch.syspath_prepend(tmp_path)
    twice = ["objectives.twice.type=contrast_twice:Twice", "objectives.twice.head=tanh", "objectives.spans=null"]
    base = [option for option in tiny if not option.startswith("objectives.")]
    options = [*base, *twice, "objectives.mlm=null", "data.text.batch_size=64"]
    learner, feed, _ = made([*options, *CACHING])
    learner.cache(micro_batches(learner, feed, MICRO_BATCHES))
    from contrast_twice import compared

    assert compared == [64]


def test_a_class_that_declares_no_pooled_vectors_cannot_read_them() -> None:
    states = torch.ones(2, 3)
    encoded = Encoded(SequenceVectors(states, states, {"clear/view_0": slice(0, 2)}), "clear", pools=False)
    assert torch.equal(encoded.first("view_0"), states)
    with pytest.raises(TypeError, match=r"objectives\.clear reads pooled vectors, but its class sets pools = False"):
        encoded.pooled("view_0")


def test_a_columns_sequences_are_its_texts_cut_at_the_capacity() -> None:
    column = TokenLists.of(Ragged.of([torch.arange(5).numpy(), torch.arange(2).numpy()], "int32"))
    numbers = torch.arange(2)
    batch = Batch({"spans/tokens": column}, numbers, numbers).of("spans")
    sequences = batch.sequences("tokens", numbers, 3)
    assert sequences.content.starts.tolist() == [0, 5] and sequences.content.lengths.tolist() == [3, 2]
    assert sequences.keys is numbers
