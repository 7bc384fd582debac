"""`make hosts` itself: what it leaves alone, and what turns CI red."""

from pathlib import Path

import pytest

from tests import conftest
from tests.hosts import __main__ as make


@pytest.mark.parametrize("in_ci", [False, True])
def test_a_program_that_is_missing_skips_a_test_and_fails_it_in_ci(
    in_ci: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.node.add_marker(pytest.mark.hosts("no-such-program"))
    monkeypatch.setattr(request.config.option, "markexpr", "hosts")
    monkeypatch.setattr(conftest, "IN_CI", in_ci)
    with pytest.raises(
        pytest.fail.Exception if in_ci else pytest.skip.Exception, match="tests across hosts: no program"
    ):
        conftest.pytest_runtest_setup(request.node)


def test_a_user_who_is_not_root_runs_no_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(make.signal, "signal", lambda *_: None)
    assert make.main([]) == 0
    assert capsys.readouterr().out == "tests across hosts were not run: only root may make network namespaces\n"


@pytest.mark.hosts
@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n"])
def test_packages_may_not_start_services_and_the_machines_policy_stays(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "POLICY", policy := tmp_path / "policy-rc.d")
    if before is not None:
        policy.write_text(before)
    make.without_services(["sh", "-c", f"{policy} ssh.service start; echo $? > {tmp_path}/code"])
    assert (tmp_path / "code").read_text() == "101\n"
    assert (policy.read_text() if policy.exists() else None) == before
