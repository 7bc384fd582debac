"""The report: one self-contained file that shows all of its input."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from clearspan.eval.details import Cell, Table
from clearspan.eval.report.figures import Bars, Curve, Curves, ScoreBar
from clearspan.eval.report.html import Section, write_report

LOADING_ATTRIBUTES = {"src", "srcset", "href", "data", "poster", "action", "background"}


class Page(HTMLParser):
    """The parts of a page that a browser would load, show and run."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in LOADING_ATTRIBUTES]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.tags and self.tags[-1] in ("td", "th") and self.cells:
            self.cells[-1] += data.strip()


def test_nothing_is_loaded_from_outside_the_file(tmp_path: Path) -> None:
    sections = [Section("Scores", "A line.", [Table(("task", "x"), [("STS12", 1.0)])])]
    write_report(tmp_path / "report.html", "Evaluation", sections)
    page = Page(tmp_path / "report.html")
    assert page.loads == []
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert "@import" not in page.source
    assert "url(" not in page.source


def test_cells_and_paragraphs_are_shown_as_they_are(tmp_path: Path) -> None:
    table = Table(("<task>", "a & b"), [("</td><script>", 12.345), ("x", None), ("y", float("nan"))])
    write_report(tmp_path / "r.html", "A <b>title</b>", [Section('"heads"', "first <i>\n\nsecond", [table])])
    page = Page(tmp_path / "r.html")
    assert page.cells == ["<task>", "a & b", "</td><script>", "12.35", "x", "", "y", "undefined"]
    assert "script" not in page.tags
    assert "A <b>title</b>" in page.text
    assert page.tags.count("p") == 2


def page_that_names(name: str, folder: Path) -> Page:
    """A report that holds the name everywhere that a report holds text."""
    table = Table((name, name), [(name, Cell(name, name, strong=True))], name, {0: name})
    figures = [
        Bars([ScoreBar(name, 1.0, 0.5, 1.5, name)], name, name),
        Curves([Curve(name, [(0, 1.0)])], name, name, name),
    ]
    section = Section(name, name, [table], [Section(name, folded=True, note=name)], figures=figures)
    write_report(folder / "r.html", name, [section] * 3, name, [name])
    return Page(folder / "r.html")


@pytest.mark.slow
def test_a_hostile_name_stays_text_wherever_it_stands(tmp_path: Path) -> None:
    hostile = """'"></p><script>alert(1)</script>{{ 7 * 7 }}<b onclick=x>&amp;"""
    tame = "MiniLM".ljust(len(hostile), "-")
    plain, page = page_that_names(tame, tmp_path), page_that_names(hostile, tmp_path)
    assert page.tags == plain.tags
    assert page.text.count(hostile) == plain.text.count(tame) > 50


def test_a_long_report_has_links_to_its_sections_and_folds_those_that_ask_for_it(tmp_path: Path) -> None:
    inner = [Section("STS12", "one", folded=True, note="72.37"), Section("é/§"), Section("STS12")]
    write_report(tmp_path / "r.html", "t", [Section("Summary"), Section("STS", sections=inner)])
    page = Page(tmp_path / "r.html")
    assert page.loads == ["#summary", "#sts", "#sts12", "#section", "#sts12-2"]
    for link in page.loads:
        assert page.source.count(f'id="{link[1:]}"') == 1
    assert '<details>\n<summary><h3>STS12</h3><span>72.37</span></summary>\n<div id="sts12">' in page.source


def test_the_page_forbids_what_is_not_inlined_and_warns_before_all_else(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", "t", [Section("s")], "a lead", ["the model is <broken>"])
    source = (tmp_path / "r.html").read_text("utf-8")
    assert "Content-Security-Policy\" content=\"default-src 'none';" in source
    assert source.index("<h1>t</h1>") < source.index("the model is &lt;broken&gt;") < source.index("<main>")
