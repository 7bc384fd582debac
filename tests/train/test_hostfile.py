"""Hostfiles, and the options that start ranks on several machines, are checked before anything starts."""

import os
from pathlib import Path

import pytest

from clearspan.common.terminal import UsageError
from clearspan.train import hostfile
from clearspan.train.request import LauncherOptions


def written(folder: Path, text: str) -> Path:
    (path := folder / "hostfile").write_text(text)
    return path


def test_machines_are_read_in_order_without_comments(tmp_path: Path) -> None:
    path = written(tmp_path, "# two machines\n\nnode2 slots=8\n  node1   slots=4\n")
    assert list(hostfile.read(path).items()) == [("node2", 8), ("node1", 4)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "names no machine: write a line NODE slots=N for each"),
        ("node1 slots=8\nnode2\n", "line 2: 'node2' is not of the form NODE slots=N, with N of 1 or more"),
        ("node1 slots=0\n", "line 1: 'node1 slots=0' is not of the form NODE slots=N, with N of 1 or more"),
        ("node1 slots=2\nnode1 slots=2\n", "line 2: node1 is named twice: add its slots up in one line"),
    ],
)
def test_a_wrong_hostfile_is_refused_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        hostfile.read(path)
    assert str(refused.value) == f"{path}: {problem}"


def test_a_hostfile_that_is_not_there_does_not_train_on_this_machine_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing: not a hostfile \(No such file or directory\)"):
        hostfile.prepare(LauncherOptions(hostfile=str(tmp_path / "nothing")))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "`no_ssh` needs `node_rank`, this machine's place in the hostfile: 0 to 1"),
        ({"node_rank": 2}, "`no_ssh` needs `node_rank`, this machine's place in the hostfile: 0 to 1"),
        ({"node_rank": 0}, "`no_ssh` needs `master_addr`, the address of the first machine of the hostfile"),
    ],
)
def test_without_ssh_each_machine_must_know_its_place(options: dict, problem: str, tmp_path: Path) -> None:
    path = written(tmp_path, "node1 slots=1\nnode2 slots=1\n")
    with pytest.raises(UsageError) as refused:
        hostfile.prepare(LauncherOptions(hostfile=str(path), no_ssh=True, **options))
    assert str(refused.value) == problem


def test_every_machine_is_tried_by_ssh_and_the_first_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ssh that reaches node1 alone, as it would be found on PATH."""
    for name, script in {
        "pdsh": "exit 0",
        "ssh": 'case "$*" in *node1*) exit 0;; esac; echo "ssh: connect to host: No route to host" >&2; exit 255',
    }.items():
        (program := tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PDSH_SSH_ARGS_APPEND", "-4")
    path = written(tmp_path, "node1 slots=1\nnode2 slots=1\nnode3 slots=1\n")
    with pytest.raises(UsageError) as refused:
        hostfile.prepare(LauncherOptions(hostfile=str(path)))
    reason = "connect to host: No route to host"
    advice = "`ssh node2 true` must work without a password"
    assert str(refused.value) == f"{path}: node2 cannot be reached by ssh ({reason}): {advice}"
    hostfile.prepare(LauncherOptions(hostfile=str(path), num_nodes=1))
    hostfile.prepare(LauncherOptions(hostfile=str(path), no_ssh_check=True))
    assert os.environ["PDSH_SSH_ARGS_APPEND"].startswith(f"-4 {hostfile.KEEP_ALIVE}")


def test_without_pdsh_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "node1 slots=1\nnode2 slots=1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="pdsh is not installed here: install it, or start each machine with `no_ssh`"):
        hostfile.prepare(LauncherOptions(hostfile=str(path)))
