"""Files beside the user's data are no modules of a command: only what the user named is imported from there."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from clearspan.common import plugins
from clearspan.common.working_folder import NAMED, exclude_working_folder, own_modules
from tests.conftest import ROOT

OPTIONAL = {"zstandard", "orjson", "brotli", "snappy", "lz4", "accelerate", "nltk", "wandb", "sitecustomize"}
"""Modules that libraries import if they are there."""
CHILD = "from clearspan.common.spawned import call; call('clearspan.pipelines.__main__:main', ['--version'])"


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A folder with a file for each module that might be imported, which ends the process that imports it."""
    names = {name for name in sys.stdlib_module_names if name[0] != "_"} | OPTIONAL
    names |= {name for name in packages_distributions() if name.isidentifier()}
    for name in names:
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(99)\n")
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.guarantee("no-code-beside-data")
@pytest.mark.parametrize(
    "words",
    [
        ["-P", "-c", CHILD],
        ["-m", "clearspan.pipelines", "--version"],
        ["-P", "-m", "clearspan", "adapt", "--input", "texts.csv", "--output", "adapted", "--quiet"],
    ],
    ids=["a child", "started by Python itself", "adapt"],
)
def test_a_command_imports_nothing_from_the_working_folder(words: list[str], trapped: Path) -> None:
    """`adapt` ends in its first command, a pipeline in a process of its own that refuses the csv."""
    (trapped / "texts.csv").write_text("text\nthe owls of this wood hunt at dusk, and at dawn\n")
    if "-P" not in words:
        (trapped / "clearspan.py").unlink()  # which Python itself looks for in the working folder
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=trapped, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1) and "Error" not in done.stderr, done.stdout + done.stderr


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.guarantee("no-code-beside-data")
def test_a_clone_that_is_not_installed_is_found_by_the_processes_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    environment = {"PYTHONPATH": "elsewhere"}
    exclude_working_folder(environment)
    assert environment == {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"elsewhere{os.pathsep}{ROOT}"}
    exclude_working_folder(environment)
    assert environment["PYTHONPATH"] == f"elsewhere{os.pathsep}{ROOT}"  # it is there already
    exclude_working_folder(environment := {})
    assert environment == {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
    monkeypatch.chdir(tmp_path)
    exclude_working_folder(environment := {})
    assert environment == {"PYTHONSAFEPATH": "1"}
    exclude_working_folder(environment := {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""})
    assert environment == {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
    exclude_working_folder(environment := {"PYTHONPATH": os.pathsep.join(["", "/a", "", "/b", ""])})
    assert environment["PYTHONPATH"] == f"/a{os.pathsep}/b", "an empty entry is the working folder"
    exclude_working_folder(environment := {"PYTHONPATH": os.pathsep})
    assert environment["PYTHONPATH"] == ""
    for name in ("clearspan/__init__.py", "common/json.py", "setup.py", "pyproject.toml", "zstandard.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for outer in ("", "1", "0"):
        exclude_working_folder(environment := {"PYTHONPATH": f"/a{os.pathsep}", "PYTHONSAFEPATH": outer})
        assert environment == {"PYTHONSAFEPATH": "1", "PYTHONPATH": "/a"}, "whatever lies there, and however it began"


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.guarantee("no-code-beside-data")
def test_a_deleted_working_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owls").mkdir()
    monkeypatch.chdir(tmp_path / "owls")
    (tmp_path / "owls").rmdir()
    with pytest.raises(FileNotFoundError, match=r"working folder .*deleted"):
        exclude_working_folder({})


@pytest.mark.guarantee("no-code-beside-data")
@pytest.mark.guarantee("own-parts")
def test_a_module_of_the_users_own_imports_what_lies_beside_it_and_no_other_does(
    own_module: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, later = own_module("OWLS = 3\n"), own_module("OWLS = 4\n")
    source = f"import {beside}\ndef count():\n    import {later}\n    return {beside}.OWLS + {later}.OWLS\n"
    named = own_module(source)
    assert plugins.resolve(f"{named}:count")() == 7
    unnamed = own_module("raise SystemExit('was run')\n")
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "library_of_others.py").write_text(f"import {unnamed}\n")
    monkeypatch.syspath_prepend(installed)
    (tmp_path / f"{named.upper()}.py").write_text("raise SystemExit('was run')\n")
    for name in (unnamed, beside, named.upper()):
        sys.modules.pop(name, None)
        with pytest.raises(ModuleNotFoundError, match=name):
            __import__(name)
    using = own_module("import library_of_others\n")
    with pytest.raises(plugins.PluginError, match=f"ModuleNotFoundError: No module named '{unnamed}'"):
        plugins.resolve(f"{using}:any")


@pytest.mark.guarantee("own-parts")
def test_each_spec_gives_its_own_part_also_of_modules_that_come_later(
    own_module: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that differ by case, packages, other scripts, what lies beside what lies beside, another folder."""
    for _ in range(2):  # the first one makes the folder of bytecode
        assert plugins.resolve(f"{own_module('OWLS = 3')}:OWLS") == 3
    sources = {
        "own_birds/__init__.py": "OWL, Owl = 'in the package', 'another name'\n",
        "own_birds/owls.py": "import own_nests\nclass Barn:\n    OWL = own_nests.OWL\n",
        "own_nests.py": "from own_twigs import OWL\n",
        "own_twigs.py": "import own_birds\nOWL = 'beside'\n",
        "Own_Birds.py": "OWL = 'another module'\n",
        "own_vögel.py": "class Eule: OWL = 'Eule'\nclass eule: OWL = 'eule'\n",
    }
    time = tmp_path.stat()
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    later = tmp_path / "later"
    later.mkdir()
    (later / "own_later.py").write_text("OWL = 'later'\n")
    os.utime(tmp_path, ns=(time.st_atime_ns, time.st_mtime_ns))  # as within one tick of a coarse clock
    specs = {
        "own_birds:OWL": "in the package",
        "own_birds:Owl": "another name",
        "Own_Birds:OWL": "another module",
        "own_birds.owls:Barn.OWL": "beside",
        "own_vögel:Eule.OWL": "Eule",
        "own_vögel:eule.OWL": "eule",
    }
    try:
        for spec, owl in [*specs.items(), *reversed(specs.items())]:
            assert plugins.resolve(spec) == owl, spec
        monkeypatch.chdir(later)
        assert plugins.resolve("own_later:OWL") == "later"
        named = os.environ[NAMED].split(",")
        assert {*named} == {"own_module_0", "own_module_1", "own_birds", "Own_Birds", "own_vögel", "own_later"}
        assert len(named) == 6, "what a process that is started may import"
    finally:
        for module in [name for name in sys.modules if name.casefold().startswith("own_")]:
            del sys.modules[module]


@pytest.mark.guarantee("own-parts")
def test_a_process_that_is_started_finds_the_module_that_the_user_named(
    own_module: Callable[[str], str], tmp_path: Path
) -> None:
    name, other = own_module("OWLS = 3\n"), own_module("OWLS = 4\n")
    plugins.resolve(f"{name}:OWLS")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for module, code in ((name, 0), (other, 1)):
        words = ["-P", "-c", f"import clearspan.common.plugins, {module}"]
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr


@pytest.mark.guarantee("own-parts")
def test_threads_load_modules_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of a Beam worker load the formats; Python's own `invalidate_caches` fails in two threads at once."""
    names = {f"/nowhere/{number}": None for number in range(20_000)}
    monkeypatch.setattr(sys, "path_importer_cache", {**sys.path_importer_cache, **names})
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(own_modules.load, ["json"] * 4))) == 1
    finally:
        sys.setswitchinterval(before)
