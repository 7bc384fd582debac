"""The pages: short where they must be, with links that lead somewhere."""

import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import clearspan
from clearspan.adapt import runner
from clearspan.cli.main import main
from clearspan.cli.parser import Parser
from clearspan.common import checksummed_folder
from clearspan.pipelines.__main__ import COMMANDS
from clearspan.pipelines.registry import BUILDERS
from clearspan.pipelines.units import plan
from clearspan.shards import manifest
from clearspan.shards.command import check_beam
from tests.conftest import ROOT
from tests.test_imports import ALLOWED

PAGES = sorted((ROOT / "docs").glob("*.md"))
READ = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *PAGES]
ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file() and path.name != "tests")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_readme_is_a_first_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 800


def test_the_readme_begins_with_a_model_of_the_hub() -> None:
    _, block = next(iter(BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))))
    install, adapt, *rest = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert install == ["pip", "install", "-c", "constraints.txt", "-e", "."]
    assert adapt[adapt.index("--model") + 1].startswith("hf:") and "--queries" in adapt
    assert [words[:3] for words in rest] == [["clearspan", name, "adapted"] for name in ("search", "serve")]


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor[1:] in anchors(file), f"{target}{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_opens_with_whom_it_is_for(page: Path) -> None:
    title, blank, first = page.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith("# ") and not blank and first.startswith("For ")


@pytest.mark.exhaustive
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "architecture" / "index.html").is_file()
    reference = (tmp_path / "site" / "reference" / "index.html").read_text(encoding="utf-8")
    assert "no_dedup=True" in reference and "UsageError" in reference  # from a docstring


def test_the_reference_has_every_public_name() -> None:
    entries = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(entry.rpartition(".")[2] for entry in entries) == clearspan.__all__


def test_the_versions_that_the_page_on_compatibility_names_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    for what, number in {
        "dataset: `manifest.json` and its tars": manifest.VERSION,
        "the bytes of a dataset": plan.FORMAT,
        "checkpoints": checksummed_folder.VERSION,
        "`adapt.json`": runner.FORMAT,
    }.items():
        assert f"today {number} |" in rows[what], what


def test_a_release_has_one_version_and_one_day() -> None:
    (setup,) = re.findall(r'^    version="(.+)",$', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    releases = re.findall(r"^## (\d.*), (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert releases[0] == (setup, str(citation["date-released"])) and citation["version"] == setup


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_a_page_installs_clearspan_from_a_clone(page: Path) -> None:
    """No index has it, where anybody could take its name."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if re.search(r"pip install .*clearspan", line) and " needs " not in line]


def navigation() -> dict[str, list[str]]:
    """The pages of each section of the site, in order."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    return {title: _files(value) for entry in nav for title, value in entry.items()}


def _files(value: str | list[dict[str, str]]) -> list[str]:
    return [value] if isinstance(value, str) else [name for entry in value for name in entry.values()]


def pages_linked(text: str) -> list[str]:
    """The names of the pages in `docs/` to which a text links, in order."""
    return [Path(target).name for target, _ in LINK.findall(text) if target.endswith(".md")]


def test_the_site_has_every_page() -> None:
    assert sorted(itertools.chain(*navigation().values())) == [page.name for page in PAGES]


def test_the_navigation_begins_with_what_most_readers_want() -> None:
    assert list(navigation()) == [
        "Home",
        "Adapt and search",
        "Data",
        "Training",
        "Evaluation",
        "Reference",
        "Development",
    ]


def test_the_index_lists_the_pages_in_the_order_of_the_navigation() -> None:
    pages = [name for title, names in navigation().items() if title != "Home" for name in names]
    assert pages_linked((ROOT / "docs" / "index.md").read_text(encoding="utf-8")) == pages


def test_the_readmes_lists_of_links_are_in_the_order_of_the_navigation() -> None:
    order = [*itertools.chain(*navigation().values())]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for heading in ("I want ...", "More"):
        section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        places = [order.index(name) for name in pages_linked(section) if name in order and name != "index.md"]
        assert len(places) > 1 and places == sorted(places), heading


@pytest.mark.parametrize("page", ["tour.md", "architecture.md"])
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    rooms = "|".join(ROOMS)
    named = re.findall(rf"`((?:{rooms}|tests|examples)/[\w./-]*)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_picture_shows_the_rooms_in_the_order_of_imports() -> None:
    picture = (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")
    rooms = re.findall(r'<text class="name" x="[\d.]+" y="(\d+)">(\w+)/</text>', picture)
    height = {room: int(y) for y, room in rooms}
    own = {place.split(".")[1]: others for place, others in ALLOWED.items() if place.count(".") == 1}
    assert set(height) == set(own) - {"plugins"}
    for room in height:
        below = [other.split(".")[1] for other in own[room] if other.count(".") == 1 and other.split(".")[1] != room]
        assert all(height[other] >= height[room] for other in below), room
    assert "prefers-color-scheme: dark" in picture


def commands(page: Path) -> Iterator[list[str]]:
    """The command lines `clearspan ...` of a page's code blocks."""
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines() if language != "python" else ():
            if line.startswith("clearspan ") and "..." not in line:
                yield shlex.split(line, comments=True)[1:]


class Parsed(BaseException):
    """The command's own parser has accepted the words."""


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=f"{page.stem}: {' '.join(words[:3])}") for page in READ for words in commands(page)],
)
def test_a_documented_command_has_these_options(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the parser sees: files, recipes and values are the reader's own."""
    monkeypatch.chdir(tmp_path)
    for option, value in itertools.pairwise(words):
        if option in ("--data", "--model") and ":" not in value:
            Path(value).mkdir(parents=True, exist_ok=True)
    usual = Parser.parse_known_args

    def parse(self: Parser, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, rest = usual(self, args, namespace)
        if rest and words[0] in BUILDERS:
            check_beam(COMMANDS[words[0]], rest)
            raise Parsed
        if self.prog != "clearspan" and not any(word.startswith("-") for word in rest):
            raise Parsed
        return parsed, rest

    monkeypatch.setattr(Parser, "parse_known_args", parse)
    with pytest.raises((Parsed, SystemExit)) as ended:
        main(words)
    assert ended.type is Parsed or ended.value.code in (0, None)  # --list prints and ends
