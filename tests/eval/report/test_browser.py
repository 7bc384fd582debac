"""The report in a real browser: nothing is cut off at 1,200 and 400 px, and nothing is requested or run.

report.html, and a script that measures ──> in a frame of the width asked for ──> chromium --dump-dom ──> findings
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clearspan.eval.report.html import write_report
from clearspan.eval.sections import report_lead, report_sections
from clearspan.eval.summary import Summary
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
  const found = {width: innerWidth, page: document.documentElement.scrollWidth, beyond: [], unseen: [],
                 images: [], open: [...document.querySelectorAll("details")].filter(d => d.open).length}
  document.querySelectorAll("details").forEach(d => d.open = true)
  for (const e of document.body.querySelectorAll("*")) {
    if (e.closest("script") || getComputedStyle(e).display == "none") continue
    const box = e.getBoundingClientRect(), around = e.closest(".scroll")
    const reach = !around || around == e ? innerWidth
      : around.getBoundingClientRect().left - around.scrollLeft + around.scrollWidth
    if (box.right > reach + 1 || box.left < -1) found.beyond.push(e.outerHTML.slice(0, 200))
    if (getComputedStyle(e).overflowX == "hidden" && e.scrollWidth > e.clientWidth) found.beyond.push(e.tagName)
  }
  for (const e of document.querySelectorAll("td, th[scope=row], caption"))
    if (e.textContent && !e.closest(".group") && !e.getBoundingClientRect().width) found.unseen.push(e.textContent)
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
    assert values["asked"] == []


@pytest.mark.exhaustive
def test_a_link_of_the_contents_opens_what_is_folded(report: Path, measured_at: dict[int, dict[str, Any]]) -> None:
    assert measured_at[1200]["open"] == 0
    assert measured(report, 1200, "#sts12")["open"] == 1


@pytest.mark.exhaustive
def test_the_browser_has_nothing_to_complain_of(report: Path) -> None:
    dumped, console = chromium(report.as_uri(), report.parent / "profile")
    assert "look at this first" in dumped
    assert console == []
