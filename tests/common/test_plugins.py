"""Parts of the user's own: a spec `module:name` gives what it names, or one line that says what is missing."""

import abc
import collections
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from clearspan.common import plugins


class Bird(abc.ABC):
    """A contract by inheritance."""

    name: ClassVar[str]
    legs: int = 2

    @abc.abstractmethod
    def sing(self) -> str: ...


class Nest(Protocol):
    """A contract by shape."""

    eggs: int

    @property
    def size(self) -> int: ...

    def hatch(self) -> None: ...


BIRD = "from tests.common.test_plugins import Bird\n"


@pytest.mark.guarantee("own-parts")
def test_a_subclass_is_loaded_from_the_working_folder(own_module: Callable[[str], str]) -> None:
    name = own_module(BIRD + "class Owl(Bird):\n    name = 'owl'\n    def sing(self):\n        return 'hoo'\n")
    owl = plugins.load_class(f"{name}:Owl", Bird, "a bird")
    assert issubclass(owl, Bird) and owl().sing() == "hoo"


@pytest.mark.guarantee("own-parts")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Owl(Bird):\n    name = 'owl'\n", "lacks sing (see tests.common.test_plugins.Bird)"),
        ("class Owl(Bird):\n    def sing(self): ...\n", "lacks name (see"),
        ("class Owl(Bird): ...\n", "lacks sing, name (see"),
        ("class Owl: ...\n", "a subclass of tests.common.test_plugins.Bird"),
        ("Owl = 3\n", "an object of type int"),
        ("class Owls: ...\n", "has no 'Owl'; did you mean 'Owls'?"),
    ],
)
def test_a_class_that_breaks_the_contract_is_told_what_it_lacks(
    source: str, message: str, own_module: Callable[[str], str]
) -> None:
    name = own_module(BIRD + source)
    with pytest.raises(plugins.PluginError) as error:
        plugins.load_class(f"{name}:Owl", Bird, "a bird")
    assert str(error.value).startswith(f"{name}:Owl: ") and message in str(error.value)


@pytest.mark.guarantee("own-parts")
def test_what_a_class_lacks_is_told_in_the_order_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    songs = [f"sing_{letter}" for letter in "abcdefghijkl"]
    Choir = abc.ABCMeta("Choir", (), {name: abc.abstractmethod(lambda self: "") for name in songs[::-1]})  # noqa: N806
    monkeypatch.setattr(plugins, "resolve", lambda spec: Choir)
    with pytest.raises(plugins.PluginError, match=f"it lacks {', '.join(songs)} "):
        plugins.load_class("birds:Choir", Choir, "a choir")


class Wader(Bird):
    """A contract that adds to another one."""

    depth_cm: int
    bill: ClassVar[str]
    waits: ClassVar[bool]

    @abc.abstractmethod
    def dive(self) -> None: ...


@pytest.mark.guarantee("own-parts")
def test_what_a_contract_and_its_bases_ask_for_is_told_at_once(own_module: Callable[[str], str]) -> None:
    name = own_module(
        "from tests.common.test_plugins import Wader\nclass Heron(Wader): ...\nclass nest:\n    Owl = 3\n"
    )
    with pytest.raises(plugins.PluginError, match=r"it lacks dive, sing, bill, waits, name \(see"):
        plugins.load_class(f"{name}:Heron", Wader, "a wader")
    assert plugins.resolve(f"{name}:nest.Owl") == 3
    with pytest.raises(plugins.PluginError, match="nest has no 'Owls'; did you mean 'Owl'"):
        plugins.resolve(f"{name}:nest.Owls")
    assert plugins.load_class("collections:OrderedDict", dict, "a mapping") is collections.OrderedDict


@pytest.mark.guarantee("own-parts")
@pytest.mark.parametrize("spec", ["birds", "birds:", ":Owl", "birds.py:Owl x", "birds/owl:Owl"])
def test_what_has_not_the_form_is_told(spec: str) -> None:
    with pytest.raises(plugins.PluginError, match=f"^{re.escape(spec)}: not of the form module:name$"):
        plugins.resolve(spec)


@pytest.mark.guarantee("own-parts")
def test_an_object_needs_the_members_of_a_protocol(own_module: Callable[[str], str]) -> None:
    name = own_module("class full:\n    eggs = 3\n    size = 2\n    def hatch(self): ...\nclass bare:\n    size = 2\n")
    assert plugins.load_object(f"{name}:full", Nest, "a nest").eggs == 3
    with pytest.raises(plugins.PluginError, match="not a nest: it lacks eggs, hatch "):
        plugins.load_object(f"{name}:bare", Nest, "a nest")


def test_a_property_is_not_run_to_see_that_it_is_there(own_module: Callable[[str], str]) -> None:
    name = own_module(
        "class Full:\n    size = 2\n    def hatch(self): ...\n"
        "    @property\n    def eggs(self): raise LookupError('not installed')\nfull = Full()\n"
    )
    assert plugins.load_object(f"{name}:full", Nest, "a nest").size == 2


@pytest.mark.guarantee("own-parts")
def test_a_module_that_is_not_there_is_told_from_one_that_fails(own_module: Callable[[str], str]) -> None:
    with pytest.raises(plugins.PluginError, match="no_such:Owl: there is no module no_such"):
        plugins.resolve("no_such:Owl")
    for source, message in [
        ("import no_such\n", "ModuleNotFoundError: No module named 'no_such'"),
        ("raise ValueError('a\\nb')\n", "ValueError: a b"),
        ("import sys; sys.exit('bye')\n", "SystemExit: bye"),
        ("def broken(:\n", "SyntaxError"),
    ]:
        name = own_module(source)
        with pytest.raises(plugins.PluginError) as error:
            plugins.resolve(f"{name}:Owl")
        assert f"{name}:Owl: the module {name} cannot be imported ({message}" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.guarantee("own-parts")
def test_extensions_are_what_the_user_and_installed_packages_name(
    own_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = "import os\nos.environ['NESTS'] = os.environ.get('NESTS', '') + __name__\n"
    named, installed, unnamed = own_module(mark), own_module(mark), own_module(mark)
    described = tmp_path / "birds-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: birds\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[{plugins.ENTRY_POINTS}]\nbirds = {installed}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(plugins.VARIABLE, f"{named}, ")
    monkeypatch.setenv("NESTS", "")
    plugins.load_extensions()
    plugins.load_extensions()
    assert os.environ["NESTS"] == named + installed
    assert unnamed not in sys.modules
    monkeypatch.setenv(plugins.VARIABLE, "no_such")
    with pytest.raises(plugins.PluginError, match=f"^{plugins.VARIABLE}: no_such: there is no module no_such"):
        plugins.load_extensions()
