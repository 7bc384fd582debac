"""A wheel in an environment of its own, beside files with the packages' names; what a worker needs to be installed."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import fields
from email.parser import BytesParser
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from clearspan.cli.catalog import COMMANDS
from clearspan.pipelines.registry import BUILDERS
from tests.conftest import ROOT
from tests.end_to_end.stages import some_sts
from tests.processes import run_module
from tests.test_imports import reached

PACKAGES = ("adapt", "cli", "common", "pipelines", "plugins", "retrieval", "serve", "shards", "train", "eval")
USERS_OWN = (
    "adapt.py",
    "train.py",
    "eval.py",
    "shards.py",
    "common.py",
    "pipelines/__init__.py",
    "zstandard.py",
    "json.py",
    "random.py",
)
USERS_OWN += ("torch/__init__.py", "numpy.py", "typing.py", "apache_beam/__init__.py")
HOSTILE = "raise SystemExit(f'{__file__} was run')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from copies, without a network, so that a checkout's own leftovers are not in it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "clearspan", source / "clearspan", symlinks=True)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(source)], check=True)
    (built,) = out.glob("clearspan-*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that holds the wheel; all else is this one's."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return home / "bin"


@pytest.fixture
def run(scripts: Path, tmp_path: Path) -> Callable[..., str]:
    """What a command of that environment prints in a folder of the user's files, each of which ends who imports it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    folder = tmp_path / "users"
    for name in USERS_OWN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(HOSTILE)

    def command(name: str, *words: str | Path) -> str:
        arguments = [str(scripts / name), *map(str, words)]
        done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return command


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.exhaustive
def test_the_wheel_holds_one_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"clearspan", "clearspan-0.1.0.dist-info"}
    files = {
        f"{name}/{path.relative_to(ROOT / name).as_posix()}" for name in PACKAGES for path in files_of(ROOT / name)
    }
    expected = {f"clearspan/{file}" for file in (*files, "__init__.py", "__init__.pyi", "__main__.py", "py.typed")}
    assert {name for name in names if name.startswith("clearspan/")} == expected


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]


@pytest.mark.guarantee("installed-wheel")
def test_each_file_beside_the_code_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick look at what the wheel will hold: recipes, templates and pages, each in its package."""
    declared: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", lambda **given: declared.update(given))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    packages, patterns = declared["packages"], declared["package_data"]
    assert packages and all(name.partition(".")[0] == "clearspan" for name in packages)
    folders = {name: ROOT.joinpath(*name.split(".")) for name in packages}
    taken = {file for name, globs in patterns.items() for pattern in globs for file in folders[name].glob(pattern)}
    taken |= {file for folder in folders.values() for file in folder.glob("*.py")}
    held = set(files_of(ROOT / "clearspan"))
    held |= {
        ROOT / "clearspan" / name / file.relative_to(ROOT / name) for name in PACKAGES for file in files_of(ROOT / name)
    }
    assert {file.relative_to(ROOT) for file in held} == {file.relative_to(ROOT) for file in taken}
    assert declared["entry_points"] == {"console_scripts": ["clearspan = clearspan.cli.main:main"]}


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.exhaustive
def test_every_command_works_beside_the_users_own_files_of_the_same_names(
    run, corpus: Path, roberta_tokenizer: Path, shared_data: Path, tmp_path: Path
) -> None:
    shards, trained, model = (tmp_path / name for name in ("shards", "run", "model"))
    words = ("--input", corpus, "--output", shards, "--tokenizer", roberta_tokenizer, "--unit-bytes", "60000")
    assert json.loads(run("clearspan", "documents", *words, "--workers", "2", "--json", "--quiet"))["kept"] == 5
    run("clearspan", "shards", "verify", shards)

    small = ("hidden_size=32", "intermediate_size=64", "num_attention_heads=2")
    arguments = [f"data.text.path={shards}", f"output={trained}", *(f"model.config.{key}" for key in small)]
    arguments += ["data.text.batch_size=2", "training.max_steps=1", "training.bf16=false", "--quiet"]
    run("clearspan", "train", "--recipe", "demo", "--num_accelerators", "1", *arguments)
    assert json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 1
    run("clearspan", "export", trained, model)

    data = some_sts(shared_data, tmp_path / "data", "STS/STSBenchmark")
    output = ("--data", data, "--allow-missing", "--output", tmp_path / "scores", "--json", "--quiet")
    assert "STSBenchmark" in json.loads(run("clearspan", "eval", "--model", model, "--tasks", "sts", *output))["scores"]

    for name in ("adapt", "pipelines", "shards", "train", "eval", "train.export"):
        assert run("python", "-m", f"clearspan.{name}", "--version") == "clearspan 0.1.0\n"
    assert run("clearspan", "--version") == "clearspan 0.1.0\n"


@pytest.mark.exhaustive
def test_a_rank_that_fails_is_the_commands_exit_code() -> None:
    """What is wrong is one line, of how many ranks ever; nothing else is printed."""
    absent = ("data.text.path=no-such-data", "output=run")
    done = run_module("clearspan.train", "--recipe", "demo", "--num_accelerators", "2", *absent)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and "no-such-data" in done.stderr


def test_launchers_options_and_recipes_keys_may_be_mixed() -> None:
    from clearspan.train.__main__ import Train

    words = ["--recipe", "r.yaml", "--num_accelerators", "2", "a.b=c", "--no_ssh", "--master_port=29501", "--resume"]
    assert Train.parsed([*words, "--include_devices", "localhost:0,1"]).command() == [
        *("--num_accelerators=2", "--include=localhost:0,1", "--master_port=29501", "--no_ssh"),
        *("--module", "clearspan.train.run", "a.b=c", "--recipe=r.yaml", "--resume"),
    ]


def test_the_launcher_has_every_option_that_is_passed_on() -> None:
    from deepspeed.launcher.runner import parse_args

    from clearspan.train.__main__ import LauncherOptions, Train

    switches = [field.name for field in fields(LauncherOptions) if field.default is False]
    valued = [field.name for field in fields(LauncherOptions) if field.default is None and field.name != "log_level"]
    given = [*(f"--{name}=1" for name in valued), "--log_level=error", *(f"--{name}" for name in switches)]
    words = Train.parsed(["--recipe", "r.yaml", "--resume", *given]).command()
    found = vars(parse_args(words))
    assert (found["user_script"], found["user_args"]) == ("clearspan.train.run", ["--recipe=r.yaml", "--resume"])
    assert len(words) == len(given) + 4 and all(found[name] is True for name in switches)


def requirements(wheel: Path, extra: str | None) -> list[Requirement]:
    """What the wheel's own metadata says of an extra; None: of the package."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = BytesParser().parsebytes(archive.read(name)).get_all("Requires-Dist") or []
    found = [Requirement(line) for line in lines]
    return [r for r in found if (r.marker is None) == (extra is None) and (not extra or str(r.marker)[10:-1] == extra)]


@pytest.mark.slow
def test_the_workers_list_names_what_workers_of_every_kind_import(wheel: Path) -> None:
    """By the sources, with what functions import; all kinds but `embed`, whose torch is an extra of its own."""
    kinds = {kind.__module__ for name, kind in BUILDERS.items() if name != "embed"}
    found = reached(["clearspan.pipelines.execution.worker", "clearspan.pipelines.execution.graph", *kinds])
    names = {name.partition(".")[0] for others in found.values() for name in others} - sys.stdlib_module_names
    owners = packages_distributions()
    needed = {canonicalize_name(owner) for name in names - {"clearspan"} for owner in owners.get(name, [name])}
    listed = {canonicalize_name(r.name) for r in requirements(wheel, "worker")}
    # The driver's processes, tables and bars, and the hub, from which the driver fetches (transformers brings it, too).
    assert needed - listed == {"huggingface-hub", "joblib", "rich", "tqdm"}
    assert listed - needed == {"safetensors"}  # of static models, for `embed`


@pytest.mark.slow
def test_the_package_needs_what_its_workers_need(wheel: Path) -> None:
    worker = {(r.name, str(r.specifier)) for r in requirements(wheel, "worker")}
    assert worker and worker < {(r.name, str(r.specifier)) for r in requirements(wheel, None)}


@pytest.mark.slow
def test_a_plain_install_has_what_the_commands_import(wheel: Path) -> None:
    """By the sources, with what functions import."""
    found = reached([listing.module for listing in COMMANDS.values()])
    names = {name.partition(".")[0] for others in found.values() for name in others} - sys.stdlib_module_names
    owners = packages_distributions()
    needed = {canonicalize_name(owner) for name in names - {"clearspan"} for owner in owners.get(name, [name])}
    listed = {canonicalize_name(r.name) for r in requirements(wheel, None)}
    assert {"starlette", "uvicorn"} <= needed, "the page"
    # Two come with starlette and jinja2, three are extras, without which a line says what to install.
    assert needed - listed == {"anyio", "markupsafe", "onnxruntime", "openvino", "peft"}


@pytest.mark.exhaustive
def test_the_dockerfile_installs_the_workers_list(wheel: Path, scripts: Path, tmp_path: Path) -> None:
    """Its own RUN, with a pip that only tells what it is asked for."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    (step,) = (line.removeprefix("RUN ") for line in lines if line.startswith("RUN "))
    (tmp_path / "pip").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    (tmp_path / "pip").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{scripts}:{os.environ['PATH']}", "PYTHONSAFEPATH": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run(["sh", "-ec", step], cwd=tmp_path, env=environment, check=True)
    itself, others = (tmp_path / "asked").read_text().splitlines()
    assert itself.split()[0] == "install" and itself.endswith("--no-deps .")
    file = re.search(r"-r (\S+)", others)
    assert file and "-c constraints.txt" in others
    listed = {str(Requirement(line)) for line in (tmp_path / file[1]).read_text().splitlines()}
    extras = ("worker", "web", "language")
    assert listed == {f"{r.name}{r.specifier}" for extra in extras for r in requirements(wheel, extra)}


def test_the_dockerfile_imports_every_kind() -> None:
    check = (ROOT / "Dockerfile").read_text().rpartition("python -c")[2]
    assert {kind.__module__ for kind in BUILDERS.values()} <= set(
        re.findall(r"clearspan\.pipelines\.builders\.\w+", check)
    )
