"""The report in a real browser: nothing is cut off at 1,200 and 400 px, and nothing is requested or run.

report.html, and a script that measures ──> in a frame of the width asked for ──> chromium --dump-dom ──> findings
"""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearspan.eval.details import Table
from clearspan.eval.report import plots
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.sections import report_lead, report_sections
from clearspan.eval.summary import Summary
from clearspan.eval.tables import published
from tests.eval import made_up

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=5000",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1300,1000", "--enable-logging=stderr", "--hide-scrollbars",
)  # fmt: skip
FRAME = """<!doctype html><body style="margin:0"><pre id="found"></pre>
<script>addEventListener("message", e => { document.getElementById("found").textContent = e.data })</script>
<iframe src="measured.html%s" style="border:0;width:%dpx;height:900px"></iframe>"""
MEASURE = """<script>addEventListener("load", () => setTimeout(() => {
  const found = {width: innerWidth, page: document.documentElement.scrollWidth, beyond: [], unseen: [], scrolling: 0,
                 images: [], open: [...document.querySelectorAll("details")].filter(d => d.open).length}
  document.querySelectorAll("details").forEach(d => d.open = true)
  for (const e of document.body.querySelectorAll("*")) {
    if (e.closest(".cards thead, script") || getComputedStyle(e).display == "none") continue
    const box = e.getBoundingClientRect(), around = e.closest(".scroll")
    const reach = !around || around == e ? innerWidth
      : around.getBoundingClientRect().left - around.scrollLeft + around.scrollWidth
    if (box.right > reach + 1 || box.left < -1) found.beyond.push(e.outerHTML.slice(0, 200))
    if (getComputedStyle(e).overflowX == "hidden" && e.scrollWidth > e.clientWidth) found.beyond.push(e.tagName)
  }
  for (const e of document.querySelectorAll("td, th[scope=row], caption"))
    if (e.textContent && !e.closest(".group") && !e.getBoundingClientRect().width) found.unseen.push(e.textContent)
  found.tables = [...document.querySelectorAll("table")].map(e => e.getBoundingClientRect().width)
  for (const e of document.querySelectorAll(".scroll")) found.scrolling += e.scrollWidth > e.clientWidth
  for (const e of document.images) found.images.push([e.naturalWidth, e.getBoundingClientRect().width, e.alt])
  found.asked = performance.getEntriesByType("resource").map(r => r.name).filter(n => !/^(data|file):/.test(n))
  parent.postMessage(JSON.stringify(found), "*")
}, 100))</script>"""


def chromium(url: str, profile: Path) -> tuple[str, list[str]]:
    """Return the page's elements as the browser has them, and the lines of its console."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install chromium to read the report in a browser")
    command = [program, *OPTIONS, f"--user-data-dir={profile}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def measured(report: Path, width: int, fragment: str = "") -> dict[str, Any]:
    """Return the script's measurements of the report in a frame of `width` pixels, with all folded parts open."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy".*', "", report.read_text("utf-8"))
    (report.parent / "measured.html").write_text(page.replace("</body>", MEASURE + "</body>"), "utf-8")
    frame = report.parent / "frame.html"
    frame.write_text(FRAME % (fragment, width))
    dumped, _ = chromium(frame.as_uri(), report.parent / "profile")
    text = re.search(r'<pre id="found">(.+?)</pre>', dumped, re.DOTALL)
    assert text, "the page did not measure itself"
    return dict(json.loads(html.unescape(text[1])))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report of three models, one with a long name, on two dozen tasks, beside two published models."""
    names = ("all-MiniLM-L6-v2", "clearspan-simcse-roberta-base_2026-11-20_seed_1111", "tiny")
    summary = Summary([made_up.scored(name, seed) for seed, name in enumerate(names, 1)], made_up.BASELINES)
    path = tmp_path_factory.mktemp("report") / "report.html"
    sections = report_sections(summary)
    write_report(path, f"Evaluation of {', '.join(names)}", sections, report_lead(summary), ["look at this first"])
    return path


@pytest.fixture(scope="module")
def measured_at(report: Path) -> dict[int, dict[str, Any]]:
    """Return width -> measurements."""
    return {width: measured(report, width) for width in (1200, 400)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [1200, 400])
def test_nothing_is_cut_off(measured_at: dict[int, dict[str, Any]], width: int) -> None:
    values = measured_at[width]
    assert values["width"] == width
    assert values["page"] <= width
    assert values["beyond"] == []
    assert values["unseen"] == []
    assert values["scrolling"] == 0
    assert values["asked"] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "names",
    [
        ("all-MiniLM-L6-v2", "all-mpnet-base-v2", "simcse-bert"),
        ("a_long_underscored_model_name", "another_long_underscored_one"),
    ],
)
def test_a_summary_beside_all_published_models_shows_its_last_column(names: tuple[str, ...], tmp_path: Path) -> None:
    summary = Summary([made_up.scored(name, seed, ("sts", "transfer")) for seed, name in enumerate(names, 1)])
    summary = replace(summary, baselines=published.baselines(summary.figures))
    assert len(summary.columns) >= 8
    write_report(tmp_path / "report.html", "Evaluation", report_sections(summary)[:1])
    values = measured(tmp_path / "report.html", 1200)
    assert (values["scrolling"], values["page"], values["beyond"]) == (0, 1200, [])


@pytest.mark.slow
def test_charts_are_shown_and_large_enough_on_a_phone(measured_at: dict[int, dict[str, Any]]) -> None:
    images = measured_at[400]["images"]
    assert len(images) > 15
    for natural, shown, alt in images:
        assert shown >= 0.75 * natural > 0
        assert len(alt) > 20


@pytest.mark.slow
def test_more_columns_than_a_page_holds_scroll_in_a_box_of_their_own(tmp_path: Path) -> None:
    header = ["task", *(f"model-number-{i}" for i in range(25))]
    table = Table(header, [["STS12", *(70.0 + i for i in range(25))]])
    write_report(tmp_path / "report.html", "Many", [Section("Scores", tables=[table])])
    values = measured(tmp_path / "report.html", 1200)
    assert values["scrolling"] == 1
    assert (values["page"], values["beyond"]) == (1200, [])


@pytest.mark.exhaustive
def test_tables_and_charts_use_the_width_of_the_page(tmp_path: Path) -> None:
    """A page of 1,200 px has 16 px of margin on either side and 32 px between two charts."""
    charts = [plots.lines({"static": ([0, 25], [24.0, 42.5])}, "step", "MRR, %")] * 2
    table = Table(("model", "mrr"), [("static", 42.5)])
    sections = [Section("Scores", tables=[table]), Section("Both", figures=charts)]
    write_report(tmp_path / "report.html", "Wide", [*sections, Section("One", figures=charts[:1])])
    values = measured(tmp_path / "report.html", 1200)
    assert values["tables"] == [1168]
    assert [shown for _, shown, _ in values["images"]] == [568, 568, 640]


@pytest.mark.exhaustive
def test_a_link_of_the_contents_opens_what_is_folded(report: Path, measured_at: dict[int, dict[str, Any]]) -> None:
    assert measured_at[1200]["open"] == 0
    assert measured(report, 1200, "#sts12")["open"] == 1


@pytest.mark.exhaustive
def test_the_browser_has_nothing_to_complain_of(report: Path) -> None:
    dumped, console = chromium(report.as_uri(), report.parent / "profile")
    assert "look at this first" in dumped
    assert console == []


@pytest.mark.exhaustive
def test_what_would_be_cut_or_asked_for_is_seen(tmp_path: Path) -> None:
    """The measurements can fail."""
    path = tmp_path / "report.html"
    write_report(path, "Bad", [Section("s", "text")])
    bad = '<img src="http://example.invalid/x.png" alt=""><p style="width:90rem;max-width:none">wide</p></body>'
    path.write_text(path.read_text("utf-8").replace("</body>", bad), "utf-8")
    values = measured(path, 400)
    assert values["page"] > 400
    assert any("wide" in element for element in values["beyond"])
    assert values["asked"] == ["http://example.invalid/x.png"]
    _, console = chromium(path.as_uri(), tmp_path / "profile")
    assert any("Content Security Policy" in line for line in console)
