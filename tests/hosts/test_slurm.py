"""The scripts of docs/training.md on a Slurm of two nodes: signaled before the time limit, requeued, bit-equal."""

import csv
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.hosts.network import network, wait
from tests.hosts.slurm import KILL_WAIT_S, PROGRAMS, STEP_S, Slurm, slurm
from tests.hosts.training import steps
from tests.train import runs
from tests.train.ranks import train_on_ranks
from tests.train.runs import same_weights

pytestmark = pytest.mark.hosts(*PROGRAMS)

PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Slurm\n")[2].partition("\n## ")[0]
TRAIN, LOG, SWEEP = re.findall(r"^```\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
"""The page's script of a training, its log in short, and its script of a sweep."""
RECIPES = {
    TRAIN: "--recipe declutr-base data.text.path=SHARDS model.path=MODEL output=runs/mine",
    SWEEP: "data.text.path=SHARDS model.path=MODEL",
}
"""Script -> the words in it that name the user's recipe and data."""
HARDWARE = {
    TRAIN: {" --gpus-per-node=8": "", "slots=8": "slots=1", "--cpus-per-task=64": "--cpus-per-task=1"},
    SWEEP: {" --gpus=1": "", "--cpus-per-task=8": "--cpus-per-task=1"},
}
"""Script -> what it asks for, with what these nodes have."""
GRID = {
    "--array=1-4": "--array=1-2",
    "declutr-small": "demo",
    '"optimizer.learning_rate=5e-5,1e-4,2e-4,4e-4"': "training.seed=1,2",
}
GATE = '''
import signal, socket
class Gate:
    """A logger that waits at step 4 until Slurm has signaled the run: Slurm checks time limits every half minute."""
    def __init__(self, run, recipe, step):
        self.arrived, self.signals = socket.socketpair()
        self.signals.setblocking(False)
        signal.set_wakeup_fd(self.signals.fileno())
    def log(self, step, metrics):
        if step == 4:
            self.arrived.recv(1)  # the number of a signal, also of one that came before step 4 was written
    def close(self):
        pass
'''
STEPS = "training.max_steps=12"
GATED = '"training.loggers=[gate:Gate]"'
MADE = ("loss", "spans/loss", "mlm/loss", "grad_norm", "tokens", "learning_rate")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with network(3) as hosts, slurm(hosts, tmp_path_factory.mktemp("slurm")) as running:
        yield running


def adapted(script: str, folder: Path, *words: str, more: Mapping[str, str] = {}) -> Path:
    """Write a script of the page into a folder, with a small recipe, and without GPUs.

    Args:
        script: the script.
        folder: the folder of the job.
        words: the recipe and its keys.
        more: further text of the script -> the text in its place.
    """
    for old, new in {RECIPES[script]: " ".join(words), **HARDWARE[script], **more}.items():
        assert old in script, f"the page's script has no {old}"
        script = script.replace(old, new)
    (folder / "gate.py").write_text(GATE)
    return written(folder, script)


def written(folder: Path, script: str) -> Path:
    """Write a job script into a folder; sbatch keeps a copy of it."""
    (path := folder / "job.sh").write_text(script)
    return path


def shown(log: str) -> list[str]:
    """Return the lines of a job's log that the page shows, with 0 for each number."""
    lines = (line for line in log.splitlines() if re.match("training on|slurmstepd.* STEP|train:|srun:|runs/", line))
    return [re.sub(r"[\d,:T-]*\d", "0", line) for line in lines]


@pytest.mark.guarantee("bit-equal-resume")
def test_the_pages_script_is_signaled_saves_is_requeued_and_ends_as_if_never_stopped(
    cluster: Slurm, tiny: list[str], tmp_path: Path
) -> None:
    run, whole = tmp_path / "runs" / "mine", tmp_path / "whole"
    job = adapted(TRAIN, tmp_path, "--recipe demo", *tiny, STEPS, GATED, "output=runs/mine")
    number = cluster.submit(job, "--time=30")
    after = cluster.submit(written(tmp_path, "#!/bin/sh\ntrue\n"), f"--dependency=afterok:{number}")
    wait(lambda: steps(run) == 4, "four steps of the job", STEP_S)
    cluster.command("scontrol", "update", f"JobId={number}", "TimeLimit=6")  # five minutes of which are for the signal
    with ThreadPoolExecutor() as pool:  # while the job waits for the signal
        port = 29310 + os.getpid() % 300
        uninterrupted = pool.submit(train_on_ranks, 2, *tiny, STEPS, f"output={whole}", port=port)
        requeued = cluster.wait_for(number, "PENDING")
        assert requeued["Restarts"] == "1" and cluster.job(after)["Reason"] == "Dependency"
        assert steps(run) in (5, 6) and not (run / "model").exists()
        cluster.command("scontrol", "update", f"JobId={number}", "TimeLimit=30")
        assert cluster.wait_for(number, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
        uninterrupted.result()
    assert cluster.wait_for(after, "COMPLETED")["ExitCode"] == "0:0"
    assert shown((tmp_path / f"slurm-{number}.out").read_text()) == shown(LOG)
    assert same_weights(run, whole) and runs.metrics(run, MADE) == runs.metrics(whole, MADE)


def test_a_job_whose_node_is_lost_goes_on_and_one_that_is_canceled_saves_and_ends_in_one_line(
    cluster: Slurm, tiny: list[str], tmp_path: Path
) -> None:
    run, node = tmp_path / "runs" / "mine", cluster.nodes[1]
    many = ["training.max_steps=5000", "training.save_steps=20"]
    number = cluster.submit(adapted(TRAIN, tmp_path, "--recipe demo", *tiny, *many, "output=runs/mine"))
    wait(lambda: steps(run) > 20, "a checkpoint of the job", STEP_S)
    node.kill()
    assert cluster.wait_for(number, "PENDING")["Restarts"] == "1"
    log = (tmp_path / f"slurm-{number}.out").read_text()
    assert f"train: {node.name} ({node.address}, rank 1) ended, or is cut off" in log
    before = steps(run)
    cluster.start(node)
    wait(lambda: steps(run) > before, "further steps of the job", STEP_S)
    cluster.command("scancel", number)
    assert cluster.wait_for(number, "CANCELLED")["ExitCode"] == "0:15"
    wait(lambda: not cluster.processes(), "the end of the job's processes", KILL_WAIT_S)
    again = (tmp_path / f"slurm-{number}.out").read_text().removeprefix(log)
    (line,) = [line for line in again.splitlines() if line.startswith("train:")]
    step = steps(run)
    assert line == f"train: runs/mine: stopped and saved at step {step} of 5000; continue with --resume"
    assert (run / "checkpoints" / f"step-{step:08}").is_dir() and "Traceback" not in log + again


def test_tasks_of_an_array_share_a_sweep_and_a_job_after_them_writes_its_table(
    cluster: Slurm, tiny: list[str], tmp_path: Path
) -> None:
    output, gated = tmp_path / "sweeps" / "mine", [*tiny, STEPS, GATED]
    number = cluster.submit(adapted(SWEEP, tmp_path, *gated, more=GRID))
    whole = re.sub(r" --part \S+| --array=\S+", "", (tmp_path / "job.sh").read_text())
    after = cluster.submit(written(tmp_path, whole), f"--dependency=afterok:{number}")
    seeds = [output / f"seed={seed}" for seed in (1, 2)]
    wait(lambda: [steps(run) for run in seeds] == [4, 4], "four steps of both runs", STEP_S)
    cluster.command("scancel", "--signal=TERM", f"{number}_2")
    cluster.wait_for(f"{number}_2", "PENDING")
    assert cluster.job(f"{number}_1")["JobState"] == "RUNNING", "a task restarts itself alone"
    cluster.command("scancel", "--signal=TERM", f"{number}_1")
    assert cluster.wait_for(after, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    assert [cluster.job(f"{number}_{task}")["Restarts"] for task in (1, 2)] == ["1", "1"]
    table = list(csv.DictReader((output / "table.csv").open()))
    assert [row["run"] for row in table] == [run.name for run in seeds] and (output / "report.html").is_file()
