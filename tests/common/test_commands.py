"""A command that another one started: its advice is that of whoever continues the work."""

import sys
from pathlib import Path

import pytest

from clearspan.common.commands import CONTINUED, continue_with, run_module


@pytest.mark.guarantee("advice-that-works")
def test_a_started_command_does_not_recommend_an_option_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stopping.py").write_text(
        "from clearspan.common.commands import continue_with\nprint('stopped at step 3;', continue_with('--resume'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.delenv("CLEARSPAN_STARTED_BY", raising=False)
    run_module("stopping", [], "stopping")
    assert capfd.readouterr().out == f"stopped at step 3; {CONTINUED}\n"
    assert continue_with("--resume") == "continue with --resume"
