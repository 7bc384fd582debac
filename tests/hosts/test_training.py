"""Two ranks on two hosts train as two ranks on one, to the bit."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import Host, network
from tests.hosts.training import train_on_hosts
from tests.train import runs
from tests.train.ranks import train_on_ranks
from tests.train.test_gradient_caching import ALTERNATE

TERMINATED = "tests/train/terminated_at.py"

pytestmark = pytest.mark.hosts

LOCAL_PORT = 24300 + os.getpid() % 300
FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "learning_rate", "tokens")
WAYS = {
    "plain": [],
    "zero-1": ["training.zero_stage=1"],
    "zero-2": ["training.zero_stage=2"],
    "alternate": ALTERNATE,
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


def test_hosts_train_by_addresses_of_ipv6(hosts: list[Host], tiny: list[str], tmp_path: Path) -> None:
    for number, host in enumerate(hosts, 1):
        assert not host.run(["ip", "address", "add", f"fd00:77::{number}/64", "dev", "eth0", "nodad"]).returncode
    train_on_hosts(hosts, *tiny, "training.max_steps=2", f"output={tmp_path / 'run'}", MASTER_ADDR="fd00:77::1")
    assert len(runs.metrics(tmp_path / "run", ["loss"])) == 2


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("stage", [0, 2])
def test_two_ranks_on_each_of_two_hosts_give_those_of_four_on_one(
    hosts: list[Host], stage: int, tiny: list[str], tmp_path: Path
) -> None:
    words = [*tiny, "training.max_steps=3", f"training.zero_stage={stage}"]
    train_on_ranks(4, *words, f"output={tmp_path / 'one'}", port=LOCAL_PORT + 30 + stage)
    train_on_hosts([hosts[0], hosts[0], hosts[1], hosts[1]], *words, f"output={tmp_path / 'two'}")
    one, two = (runs.metrics(tmp_path / name, FIGURES) for name in ("one", "two"))
    assert one == two and len(one) == 3
    assert runs.same_weights(tmp_path / "one", tmp_path / "two")


@pytest.mark.guarantee("bit-equal-resume")
def test_a_run_goes_from_two_hosts_to_one_and_back_bit_for_bit(
    hosts: list[Host], tiny: list[str], tmp_path: Path
) -> None:
    """SIGTERM reaches one rank only, at steps 1 and 3; both ranks stop one step later."""
    train_on_ranks(2, *tiny, f"output={tmp_path / 'whole'}", port=LOCAL_PORT + 20)
    words = [*tiny, f"output={tmp_path / 'run'}"]
    train_on_hosts(hosts, *words, SCRIPT=TERMINATED, TERMINATED_AT="1", code=130)
    assert len(runs.metrics(tmp_path / "run", [])) == 2
    train_on_ranks(2, *words, "--resume", script=TERMINATED, at=3, port=LOCAL_PORT + 21, code=130)
    assert len(runs.metrics(tmp_path / "run", [])) == 4
    train_on_hosts(hosts, *words, "--resume")
    whole, run = (runs.metrics(tmp_path / name, FIGURES) for name in ("whole", "run"))
    assert whole == run and len(whole) == 6
    assert runs.same_weights(tmp_path / "whole", tmp_path / "run")


def test_a_host_may_have_its_inputs_at_other_paths(
    hosts: list[Host], tiny: list[str], dataset_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(dataset_folder, tmp_path / "copy")
    paths = [[f"data.text.path={path}"] for path in (dataset_folder, tmp_path / "copy")]
    train_on_hosts(hosts, *tiny, "training.max_steps=1", paths, f"output={tmp_path / 'run'}")
    assert (tmp_path / "run" / "model").is_dir()
