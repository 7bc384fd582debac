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

from clearspan.__main__ import main
from clearspan.common.terminal import Parser
from clearspan.pipelines.__main__ import check_beam
from tests.conftest import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
READ = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_readme_is_a_first_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 800


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


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "architecture" / "index.html").is_file()


def test_the_site_has_every_page() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    names = [name for entry in nav for value in entry.values() for name in _files(value)]
    assert sorted(names) == [page.name for page in PAGES]


def _files(value: str | list[dict[str, str]]) -> list[str]:
    return [value] if isinstance(value, str) else [name for entry in value for name in entry.values()]


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
        if hasattr(parsed, "kind"):
            check_beam(self, rest)
            raise Parsed
        if self.prog != "clearspan" and not any(word.startswith("-") for word in rest):
            raise Parsed
        return parsed, rest

    monkeypatch.setattr(Parser, "parse_known_args", parse)
    with pytest.raises((Parsed, SystemExit)) as ended:
        main(words)
    assert ended.type is Parsed or ended.value.code in (0, None)  # --list prints and ends
