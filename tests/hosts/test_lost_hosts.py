"""A host that is cut off or killed ends the others, and wrong set-ups end all of them, with one line each."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearspan.train.model.tokenizer import load_tokenizer
from tests.conftest import ROOT
from tests.hosts.network import Host, network, wait
from tests.hosts.training import PORT, Training, launcher_variables, steps
from tests.train.conftest import write_dataset
from tests.train.families import CONFIGS, random_model

pytestmark = pytest.mark.hosts

QUICK = {"JOIN_S": "5", "SILENCE_S": "4", "BEAT_S": "0.3", "SHARED_S": "1"}
AGAIN = "run it again, with --resume if a checkpoint is there"


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    with network(2) as made:
        yield made


def errors(done) -> list[str]:
    """Return the error lines of a rank that failed, without what rank 0 says of its port."""
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line and "listening on port" not in line]
    return [line for line in lines if line.startswith("train: ")]


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how", ["cut", "kill"])
def test_a_host_that_is_lost_ends_the_other_with_a_line_that_names_it(
    hosts: list[Host], how: str, lost: int, tiny: list[str], tmp_path: Path
) -> None:
    training = Training(hosts, *tiny, "training.max_steps=100000", f"output={tmp_path / 'run'}", **QUICK)
    wait(lambda: steps(tmp_path / "run") > 2, "three steps")
    getattr(hosts[lost], how)()
    done = training.wait()
    name = f"node{lost + 1} (10.77.0.{lost + 1}, rank {lost})"
    said = {
        "cut": f"no answer from {name} for 4 s: see whether it runs and can be reached; {AGAIN}",
        "kill": f"{name} ended, or is cut off: its output gives the reason; {AGAIN}",
    }
    other = done[1 - lost]
    assert errors(other) == [f"train: {said[how]}"] and other.returncode == 1
    if how == "cut":  # it cannot know which of the two is cut off
        assert f"no answer from node{2 - lost} (10.77.0.{2 - lost}, rank {1 - lost})" in errors(done[lost])[0]
    else:
        assert done[lost].returncode == -9


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("how", ["cut", "kill"])
def test_of_three_hosts_the_others_name_the_one_that_is_lost(how: str, tiny: list[str], tmp_path: Path) -> None:
    """Also the host that first sees rank 0 end, since rank 0 says why."""
    words = [*tiny, "data.text.batch_size=9", "training.max_steps=100000", f"output={tmp_path / 'run'}"]
    with network(3) as hosts:
        training = Training(hosts, *words, **QUICK)
        wait(lambda: steps(tmp_path / "run") > 2, "three steps")
        getattr(hosts[2], how)()
        done = training.wait()
    for other in done[:2]:
        (line,) = errors(other)
        assert "node3 (10.77.0.3, rank 2)" in line and other.returncode == 1


@pytest.mark.guarantee("one-line-errors")
def test_of_several_ranks_of_a_host_one_names_the_host_that_is_lost(
    hosts: list[Host], tiny: list[str], tmp_path: Path
) -> None:
    words = [*tiny, "training.max_steps=100000", f"output={tmp_path / 'run'}"]
    training = Training([hosts[0], hosts[0], hosts[1], hosts[1]], *words, **QUICK)
    wait(lambda: steps(tmp_path / "run") > 2, "three steps")
    hosts[1].cut()
    done = training.wait()
    assert [len(errors(rank)) for rank in done] == [1, 0, 1, 0]
    assert re.search(r"node2 \(10\.77\.0\.2, rank [23]\)", errors(done[0])[0]), (
        "the one that rank 0 misses first, or both"
    )


def lines(hosts: list[Host], *words: str | list[list[str]], **variables: str) -> list[list[str]]:
    """Return the error lines of each host after a training that must fail before its first step."""
    done = Training(hosts, *words, **{**QUICK, **variables}).wait()
    assert all(each.returncode in (1, 2) for each in done), done
    return [[line.removeprefix("train: ") for line in errors(each)] for each in done]


@pytest.fixture
def words(tiny: list[str], tmp_path: Path) -> Iterator[list[str]]:
    """A training whose output must not be begun."""
    yield [*tiny, f"output={tmp_path / 'run'}"]
    assert not steps(tmp_path / "run") and not (tmp_path / "run").exists()


FIRST, SECOND = "node1 (10.77.0.1, rank 0)", "node2 (10.77.0.2, rank 1)"
OPEN = "start all machines, and open"
UNREACHED = f"{SECOND} could not reach rank 0 on port {PORT} of 10.77.0.1 within 5 s: {OPEN} their ports for each other"


@pytest.mark.guarantee("one-line-errors")
def test_the_port_of_rank_0_is_closed(hosts: list[Host], words: list[str]) -> None:
    hosts[1].close_ports(PORT)
    missing = (
        f"of 2 ranks, those of number 1 have not come to {FIRST} within 5 s: {OPEN} port {PORT} of rank 0 for them"
    )
    unreached = (
        f"{SECOND} could not reach rank 0 on port {PORT} of 10.77.0.1 within 5 s: {OPEN} their ports for each other"
    )
    assert lines(hosts, *words) == [[missing], [unreached]]


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("behind", [0, 1])
def test_a_firewall_of_one_way_ends_all_with_the_line_of_the_rank_behind_it(
    hosts: list[Host], behind: int, words: list[str]
) -> None:
    done = lines(hosts, *words, UNREACHED=str(behind))
    places = [FIRST, SECOND]
    reason = (
        rf"{re.escape(places[behind])} cannot reach port \d+ of {re.escape(places[1 - behind])} \(timed out\): ranks.*"
    )
    assert [len(each) for each in done] == [1, 1] and re.fullmatch(reason, done[behind][0])
    if behind:  # otherwise the store has gone with rank 0
        assert re.fullmatch(rf"{re.escape(SECOND)} ended: {reason}", done[0][0])
    else:
        assert done[1][0].startswith(("the machine of rank 0 ended before training began", f"{FIRST} ended: "))


@pytest.mark.guarantee("one-line-errors")
def test_the_other_ports_are_closed(hosts: list[Host], words: list[str]) -> None:
    hosts[1].close_ports("1-29499")
    hosts[1].close_ports("29501-65534")
    advice = "ranks listen on any free port: open all ports of the machines for each other"
    first, second = lines(hosts, *words)
    reason = rf"{re.escape(SECOND)} cannot reach port \d+ of {re.escape(FIRST)} \(Network is unreachable\)"
    assert len(first) == len(second) == 1 and re.fullmatch(f"{reason}: {advice}", second[0])
    assert first[0].endswith(advice), "which may be the same line, or that no answer comes back"


@pytest.mark.guarantee("one-line-errors")
def test_the_port_is_taken(hosts: list[Host], words: list[str]) -> None:
    server = f"import socket, time; s = socket.create_server(('10.77.0.1', {PORT})); time.sleep(100)"
    hosts[0].popen([sys.executable, "-c", server])
    wait(lambda: f"10.77.0.1:{PORT}" in hosts[0].listening(), "a server")
    taken = f"{FIRST} cannot listen on port {PORT} (Address already in use): choose another with --master_port, on all "
    first, second = lines(hosts, *words)
    assert (first, second) == ([f"{taken}machines"], [UNREACHED])


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    ("master", "problem"),
    [
        ("node9", "{host} knows no way to node9, where rank 0 is (Temporary failure in name resolution)"),
        ("127.0.1.1", "127.0.1.1 is 127.0.1.1 on {host}, where no other machine can reach it"),
        ("10.99.0.1", "{host} knows no way to 10.99.0.1, where rank 0 is (Network is unreachable)"),
    ],
)
def test_the_address_of_the_first_host_is_wrong(hosts: list[Host], words: list[str], master: str, problem: str) -> None:
    use = "give --master_addr the address of the first machine in the network of the ranks"
    expected = [[f"{problem.format(host=host.name)}: {use}"] for host in hosts]
    assert lines(hosts, *words, MASTER_ADDR=master) == expected


@pytest.mark.guarantee("one-line-errors")
def test_the_hosts_are_in_another_order_than_their_ranks(hosts: list[Host], words: list[str]) -> None:
    first, second = lines(hosts, *words, MASTER_ADDR=hosts[1].address)
    assert first[0].startswith("rank 0 is on node1, and 10.77.0.2 (10.77.0.2) is another machine: give --master_addr")
    assert len(first) == len(second) == 1


SAME = "give all machines the same recipe, model and shards"


@pytest.mark.guarantee("one-line-errors")
def test_hosts_with_other_shards(
    hosts: list[Host],
    words: list[str],
    dataset_folder: Path,
    documents: list[list[int]],
    tokenizer_folder: Path,
    tmp_path: Path,
) -> None:
    other = write_dataset(tmp_path / "other", documents[::-1], tokenizer_folder)
    paths = [[f"data.text.path={path}"] for path in (dataset_folder, other)]
    expected = f"what data.text.path holds differs between {SECOND} and {FIRST}: {SAME}"
    assert lines(hosts, *words, paths) == [[expected], [expected]]


@pytest.mark.guarantee("one-line-errors")
def test_hosts_with_other_recipes(hosts: list[Host], words: list[str]) -> None:
    sizes = [[f"data.text.batch_size={size}"] for size in (8, 16)]
    expected = f"data.text.batch_size differs between {SECOND} and {FIRST}: 16, and 8: {SAME}"
    assert lines(hosts, *words, sizes) == [[expected], [expected]]


@pytest.mark.guarantee("one-line-errors")
def test_hosts_with_other_models(hosts: list[Host], words: list[str], tokenizer_folder: Path, tmp_path: Path) -> None:
    models = []
    for number in (1, 2):
        model, folder = random_model(CONFIGS["mpnet"]), tmp_path / f"model-{number}"
        with torch.no_grad():
            next(model.parameters()).mul_(number)
        model.save_pretrained(folder)
        load_tokenizer(tokenizer_folder).save_pretrained(folder)
        models.append([f"model.path={folder}"])
    words = [word for word in words if not word.startswith("model.config.")]
    expected = f"what model.path holds differs between {SECOND} and {FIRST}: {SAME}"
    assert lines(hosts, *words, models) == [[expected], [expected]]


@pytest.mark.guarantee("one-line-errors")
def test_a_host_without_the_shards(hosts: list[Host], words: list[str], dataset_folder: Path, tmp_path: Path) -> None:
    paths = [[f"data.text.path={path}"] for path in (dataset_folder, tmp_path / "nothing")]
    first, second = lines(hosts, *words, paths)
    assert len(second) == 1 and f"{tmp_path / 'nothing'}" in second[0]
    assert first == [f"{SECOND} ended: {second[0]}"]


@pytest.mark.guarantee("one-line-errors")
def test_hosts_without_a_shared_folder_for_the_output(hosts: list[Host], tiny: list[str]) -> None:
    expected = f"what output run holds differs between {SECOND} and {FIRST}"
    for said in lines(hosts, *tiny, "output=run", OWN_FOLDER="1"):
        assert len(said) == 1 and said[0].startswith(expected)
        assert said[0].endswith(": give all machines one shared folder")


@pytest.mark.guarantee("one-line-errors")
def test_hosts_with_another_version_of_the_package(hosts: list[Host], words: list[str], tmp_path: Path) -> None:
    """A copy of this checkout, in which a file of the second host's package differs by a comment."""
    for name in ("clearspan", *(path.name for path in (ROOT / "clearspan").iterdir() if path.is_symlink())):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, symlinks=True, ignore=skipped)
    with (tmp_path / "copy" / "train" / "draws.py").open("a") as source:
        source.write("# another version\n")
    command = [sys.executable, "-m", "clearspan.train.run", "--recipe", "demo", *words, "--quiet"]
    started = [
        host.popen(command, {**launcher_variables(hosts, rank), "PYTHONPATH": str(root)}, cwd=root)
        for rank, (host, root) in enumerate(zip(hosts, (ROOT, tmp_path / "copy"), strict=True))
    ]
    advice = "install the same version on all machines"
    expected = f"train: the code of clearspan differs between {SECOND} and {FIRST}: {advice}"
    for process in started:
        printed = process.communicate(timeout=200)[0].splitlines()
        assert [line for line in printed if line.startswith("train: ")][-1] == expected and process.returncode == 2
