"""Two ranks on two hosts train as two ranks on one, to the bit."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import Host, network
from tests.hosts.training import train_on_hosts
from tests.train import runs
from tests.train.ranks import train_on_ranks

pytestmark = pytest.mark.hosts

LOCAL_PORT = 24300 + os.getpid() % 300
FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "learning_rate", "tokens")
WAYS = {
    "plain": [],
    "zero-1": ["training.zero_stage=1"],
    "zero-2": ["training.zero_stage=2"],
    "alternate": ["optimization=alternate"],
    "caching": ["training.gradient_accumulation_steps=2", "training.gradient_caching=true"],
    "memory": ["objectives.spans.memory=24"],
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    with network(2) as made:
        yield made


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("way", WAYS)
def test_two_hosts_give_the_losses_and_weights_of_one(
    hosts: list[Host], way: str, tiny: list[str], tmp_path: Path
) -> None:
    words = [*tiny, "training.max_steps=3", *WAYS[way]]
    train_on_ranks(2, *words, f"output={tmp_path / 'one'}", port=LOCAL_PORT + [*WAYS].index(way))
    train_on_hosts(hosts, *words, f"output={tmp_path / 'two'}")
    names = [name for name in FIGURES if way != "alternate" or name not in ("grad_norm", "learning_rate")]
    one, two = (runs.metrics(tmp_path / name, names) for name in ("one", "two"))
    assert one == two and len(one) == 3
    assert runs.same_weights(tmp_path / "one", tmp_path / "two")
