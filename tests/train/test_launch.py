"""Rendezvous of ranks, and the end of the command that starts them, without the slow start of torch or deepspeed."""

import contextlib
import datetime
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearspan.common.answers import ANSWER, answer, failures
from clearspan.common.terminal import UsageError
from clearspan.train import run
from clearspan.train.engine import machines, ranks, signals
from tests.conftest import ROOT
from tests.processes import environment, run_commands

JOIN = """
import os
from tests.listening import addresses
from clearspan.train.engine.ranks import join_ranks
join_ranks()
os.write(1, b"%s\\n" % " ".join(addresses(os.getpid())).encode())  # one write: ranks share the pipe
os._exit(0)
"""


def joined(number: int, **variables: str) -> str:
    """Return the output of ranks that join a group: each prints the addresses that it listens on."""
    group = environment(WORLD_SIZE=str(number), **variables)
    done = run_commands(["-c", JOIN], [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(number)])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def taken() -> Iterator[str]:
    """A port of this machine that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


@pytest.fixture
def free() -> str:
    """A free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


@pytest.fixture
def usual() -> Iterator[str]:
    """The port that deepspeed's launcher passes if the user names none; it is in use."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # by another process already
            stack.enter_context(socket.create_server(("127.0.0.1", 29500)))
        yield "29500"


@pytest.mark.parametrize(("number", "launcher"), [(1, "LOCAL_SIZE"), (2, "LOCAL_SIZE"), (2, "LOCAL_WORLD_SIZE")])
def test_ranks_of_a_launcher_find_a_free_port(number: int, launcher: str, usual: str, taken: str) -> None:
    """torchrun, which sets LOCAL_WORLD_SIZE, listens on its port itself."""
    port = usual if launcher == "LOCAL_SIZE" else taken
    found = joined(number, **{launcher: str(number)}, MASTER_ADDR="127.0.0.1", MASTER_PORT=port).split()
    assert len(found) > number and all(address.startswith("127.0.0.1:") for address in found)


def test_ranks_meet_at_the_port_that_the_user_gives_the_launcher(free: str) -> None:
    found = joined(2, LOCAL_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=free).split()
    assert f"127.0.0.1:{free}" in found


def test_a_given_port_that_is_in_use_is_an_error(taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_SIZE": "2", "MASTER_PORT": taken}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(torch.distributed.DistNetworkError, match="in use"):
        next(ranks._meet("loopback://", timeout=datetime.timedelta(seconds=1)))


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_ranks_do_not_meet_where_other_users_can_write(mode: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = ranks._private_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="other users can write to it"):
        ranks._private_folder()


def test_ranks_that_are_started_by_hand_meet_where_they_are_told_to(free: str) -> None:
    found = joined(2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free).split()
    assert f"127.0.0.1:{free}" in found and all(address.startswith("127.0.0.1:") for address in found)


@pytest.mark.parametrize("master", ["127.0.0.2", "127.0.1.1"])
def test_ranks_of_several_machines_do_not_meet_at_an_address_of_one(
    master: str, launcher_variables: pytest.MonkeyPatch
) -> None:
    """Debian's /etc/hosts gives a machine's own name the address 127.0.1.1."""
    for name, value in {**PLACE, "LOCAL_SIZE": "1", "MASTER_ADDR": master}.items():
        launcher_variables.setenv(name, value)
    assert not ranks.one_machine()
    with pytest.raises(machines.MachineError, match=f"{master} is {master} on .*, where no other machine can reach it"):
        next(machines.meet("machines://", timeout=datetime.timedelta(seconds=1)))


PLACE = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def launcher_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a launcher's variables."""
    for name in (*PLACE, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.setenv(name, "")  # restored after the test, also if the code removes it
        monkeypatch.delenv(name)
    return monkeypatch


def test_variables_of_mpirun_that_are_left_over_do_not_count(launcher_variables: pytest.MonkeyPatch) -> None:
    """deepspeed compares OMPI_COMM_WORLD_LOCAL_RANK with LOCAL_RANK, and stops if they differ."""
    left = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    for name, value in {**PLACE, **left}.items():
        launcher_variables.setenv(name, value)
    ranks.check_environment()
    assert not left.keys() & os.environ.keys() and PLACE.items() <= os.environ.items()


def test_a_run_without_a_launcher_is_not_a_part_of_another(launcher_variables: pytest.MonkeyPatch) -> None:
    """WORLD_SIZE alone would leave out the other ranks' part of every batch."""
    launcher_variables.setenv("WORLD_SIZE", "2")
    ranks.check_environment()
    assert "WORLD_SIZE" not in os.environ


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE is 4, but mpirun does not tell ranks where to meet"),
        ({"RANK": "0"}, "RANK is set without WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: unset it"),
        ({**PLACE, "WORLD_SIZE": "two"}, "the environment variable WORLD_SIZE is 'two', not an integer"),
    ],
)
def test_an_environment_that_names_no_place_among_ranks_is_refused(
    launcher_variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        launcher_variables.setenv(name, value)
    assert run.main(["--recipe", "demo"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"train: {message}") and error.count("\n") == 1


RANK = """
import os, signal, sys, time
def save(number, frame):
    time.sleep({seconds})
    print("saved", flush=True)
    os._exit({code})
signal.signal(signal.SIGTERM, save)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
print("trains", flush=True)
time.sleep(60)
"""
LAUNCHER = """
import os, subprocess, sys
os.environ["LOCAL_RANK"] = "0"
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode % 256)
"""
BEFORE = """
import subprocess
subprocess.run(["sh", "-c", "echo trains; sleep 60"])
"""
AFTER = """
import os, subprocess, sys, time
os.environ["LOCAL_RANK"] = "0"
subprocess.run(["sleep", "1"])
print("trains", flush=True)
time.sleep(3)
sys.exit(3)
"""
COMMAND = """
import sys, threading, time
from clearspan.train.engine import machines, ranks, signals
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()  # as numerical libraries have them
signals.SAVING_S = 1
try:
    code = signals.Launcher([sys.executable, "-u", "-m", "deepspeed.launcher.launch", sys.argv[1]]).wait()
except RuntimeError as error:
    code = str(error)
sys.stdout.flush()
import os
os.write(2, f"ends with {code}\\n".encode())
os._exit(0)
"""


@pytest.fixture
def launching(tmp_path: Path) -> Path:
    """A folder with a module deepspeed.launcher.launch that starts one rank and has no signal handlers."""
    package = tmp_path / "deepspeed" / "launcher"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "launch.py").write_text(LAUNCHER)
    return tmp_path


def signalled(folder: Path, number: signal.Signals, group: bool = False, **rank: float) -> list[str]:
    """Return the output of command and rank when a signal arrives in training, at the command or at all processes."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, RANK.format(**rank)],
        cwd=ROOT,
        env=environment(PYTHONPATH=f"{folder}{os.pathsep}{ROOT}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None and command.stdout.readline() == "trains\n"
        (os.killpg if group else os.kill)(command.pid, number)
        return [line for line in command.communicate(timeout=30)[0].splitlines() if line]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("group", "code"), [(False, 0), (True, 0), (False, 3)])
def test_a_signal_ends_the_ranks_first_and_hands_their_exit_code_on(launching: Path, group: bool, code: int) -> None:
    said = signalled(launching, signal.SIGTERM, group, seconds=0.3, code=code)
    assert said == ["saved", f"ends with {code}"]


@pytest.mark.exhaustive
def test_ranks_that_do_not_end_are_killed(launching: Path) -> None:
    said = signalled(launching, signal.SIGTERM, seconds=50, code=0)
    assert said == ["train: the ranks took more than 1 s to save, and were killed", "ends with 247"]


@pytest.mark.exhaustive
def test_a_signal_after_the_last_rank_has_ended_changes_nothing(launching: Path) -> None:
    """deepspeed's launcher ends a second or more after its ranks; the run has finished by then."""
    (launching / "deepspeed" / "launcher" / "launch.py").write_text(AFTER)
    assert signalled(launching, signal.SIGTERM, seconds=0, code=0) == ["ends with 3"]


@pytest.mark.exhaustive
def test_a_signal_before_the_first_rank_ends_the_command_in_one_line(launching: Path) -> None:
    (launching / "deepspeed" / "launcher" / "launch.py").write_text(BEFORE)
    said = signalled(launching, signal.SIGTERM, seconds=0, code=0)
    assert said == ["train: stopped by SIGTERM: run it again"]


@pytest.mark.exhaustive
def test_that_ranks_were_killed_is_handed_over(launching: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller raises it: alone, the exit code would say nothing."""
    with answer() as path:
        monkeypatch.setenv(ANSWER, str(path))
        assert signalled(launching, signal.SIGTERM, seconds=50, code=0) == ["ends with 247"]
        assert [each.message for each in failures(path)] == ["the ranks took more than 1 s to save, and were killed"]


def test_a_rank_waits_for_rank_0_to_say_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the launcher would end rank 0 before it reports the error."""
    slept: list[float] = []
    monkeypatch.setattr(signals.time, "sleep", slept.append)
    for name, value in {**PLACE, "LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert run.main(["--recipe", "demo", "training.nonsense=1"]) == 2
    assert slept == [signals.REPORTING_S] and not capsys.readouterr().err


@pytest.mark.exhaustive
def test_a_recipe_is_checked_without_transformers() -> None:
    code = "from clearspan.train.recipe import load_recipe; load_recipe('demo', ['data.text.path=d', 'output=o'])"
    check = "import sys; assert 'torch' in sys.modules and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], cwd=ROOT, check=True)


def test_the_launchers_own_option_is_not_in_the_help() -> None:
    from clearspan.train.__main__ import Train

    words = ["--recipe", "demo", "--local_rank=1"]
    assert run.RankCommand.parsed(words).local_rank == 1  # as the launcher starts a rank
    with pytest.raises(UsageError, match="no such option: --local_rank"):
        Train.parsed(words, raises=True)
    for command in (Train, run.RankCommand):
        shown = command.parser().format_help()
        assert "SUPPRESS" not in shown and "local_rank" not in shown
