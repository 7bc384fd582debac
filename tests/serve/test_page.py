"""The page in a browser: what a user types, sees and shares; a hostile text does nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clearspan.common.errors import PipelineError
from clearspan.retrieval.collection import SearchSettings, write_collection
from clearspan.retrieval.hits import Hit
from tests.chromium import Tab, browser
from tests.serve.served import Fixed, served

pytestmark = pytest.mark.exhaustive
READY = "typeof collection === 'object' && collection && columns.getAttribute('aria-busy') === 'false'"
SHOWN = f"{READY} && columns.querySelectorAll('li').length"
LONG = "Owls nest in hollow trees. " * 20 + "At night they hunt mice. " + "Their wings make no sound. " * 20
BIRDS = [
    Hit(0.91, 7, "birds/owls.csv", LONG, 3, {"title": "Owls", "year": 2021, "url": "https://birds.example/owls"}),
    Hit(0.42, 8, "birds/bats.csv", "Bats hunt at night, too.", 1200, {"title": "Bats", "year": None, "url": "bats"}),
]
HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script> owls </p></li>'


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as found:
        found.view(1280, 900)
        yield found


def texts(tab: Tab, selector: str) -> list[str]:
    found: list[str] = tab.value(f"[...document.querySelectorAll('{selector}')].map((each) => each.innerText.trim())")
    return found


def test_a_search_by_keyboard_is_three_columns_and_an_address_to_share(tab: Tab) -> None:
    with served(Fixed(BIRDS, folder="data/birds")) as site:
        tab.open(site.address)
        tab.wait(f"{READY} && document.activeElement.id === 'q' && columns.innerText.includes('Ask a question')")
        tab.type("When do owls hunt?")
        tab.press("Enter")
        assert tab.wait(SHOWN) == 6
        assert tab.value("location.search") == "?q=When+do+owls+hunt%3F"
        assert texts(tab, "h2") == ["small", "small + BM25", "BM25"]
        assert texts(tab, "[data-key=model] h3") == ["Owls", "Bats"]
        assert texts(tab, "[data-key=model] .score") == ["0.910", "0.420"]
        assert texts(tab, "[data-key=bm25] dl") == ["year\n2021", "url\nbats"]
        assert texts(tab, "[data-key=both] .source") == ["owls.csv, record 3", "bats.csv, record 1,200"]
        assert texts(tab, "[data-key=both] li:first-child .also") == ["model 1", "BM25 1"]
        assert texts(tab, "[data-key=both] li:first-child mark")[-1] == "hunt"
        assert texts(tab, "#status")[0].startswith("Compared with 2 texts in ")
        (text,) = texts(tab, "[data-key=model] li:first-child .text span")
        assert text.startswith("… ") and "At night they hunt mice." in text and len(text) < 300
        for key in ("ArrowDown", "Enter"):
            tab.press(key)
        assert texts(tab, "[data-key=model] li:first-child .text span") == [LONG.strip()]
        tab.press("ArrowRight")
        tab.press("ArrowDown")
        assert tab.value("document.activeElement.closest('section').dataset.key") == "both"
        assert tab.value("document.activeElement.dataset.rank") == "2"
        assert tab.value("document.querySelectorAll('li.same').length") == 3
        tab.press("/")
        assert tab.value("document.activeElement.id") == "q"
        assert tab.errors == []


def test_an_address_is_the_whole_search_and_back_is_the_one_before(tab: Tab) -> None:
    with served(Fixed(BIRDS)) as site:
        tab.open(f"{site.address}/?q=owls&top=1&weight=0.25&where=year+%3E+2020")
        assert tab.wait(SHOWN) == 3
        assert tab.value("['q', 'top', 'weight', 'where'].map((id) => $(id).value)") == [
            "owls",
            "1",
            "0.25",
            "year > 2020",
        ]
        assert texts(tab, "[data-key=both] header p") == ["0.25 × model + 0.75 × BM25"]
        assert texts(tab, "#status")[0].endswith(" ms; hits where year > 2020")
        tab.value("$('top').value = 2; $('top').dispatchEvent(new Event('change'))")
        tab.wait(f"{SHOWN} === 6")
        assert tab.value("new URLSearchParams(location.search).get('top')") == "2"
        tab.value("history.back()")
        tab.wait(f"{SHOWN} === 3 && $('top').value === '1'")
        tab.open(f"{site.address}/?q=")
        tab.wait(f"{READY} && columns.innerText.includes('Ask a question')")


def test_a_long_number_is_shown_with_all_of_its_digits(tab: Tab) -> None:
    hits = [Hit(0.9, 7, "owls.csv", "Owls hunt.", 1, {"key": 9007199254740993, "score": -0.25, "year": 2021})]
    with served(Fixed(hits, folder="data/birds")) as site:
        tab.open(f"{site.address}?q=owls")
        assert tab.wait(SHOWN) == 3
        assert texts(tab, "[data-key=model] dl") == ["key\n9007199254740993\nscore\n-0.25\nyear\n2021"]


def test_no_hits_and_errors_are_a_line(tab: Tab) -> None:
    with served(Fixed([])) as site:
        tab.open(f"{site.address}/?q=owls")
        tab.wait(f"{READY} && columns.children.length === 3")
        assert texts(tab, ".none") == ["No hits."] * 3
    with served(Fixed(BIRDS, error=PipelineError("where: no such field: yeer"))) as site:
        tab.open(f"{site.address}/?q=owls&where=yeer")
        tab.wait(f"{READY} && status_.classList.contains('error')")
        assert texts(tab, "#status") == ["where: no such field: yeer"] and tab.value("columns.children.length") == 0
    tab.value("search()")
    tab.wait("status_.innerText === 'The server does not answer: is clearspan serve still running?'")


@pytest.mark.guarantee("serve-local")
def test_a_hostile_text_is_text_and_only_web_addresses_are_links(tab: Tab) -> None:
    addresses = [
        "javascript:window.broken=1",
        "data:text/html,<script>1</script>",
        " https://x",
        "http://ok.example/<b>",
    ]
    fields = [{"title": HOSTILE, HOSTILE: HOSTILE, "url": address} for address in addresses]
    hits = [Hit(0.5, number, HOSTILE, HOSTILE, number, each) for number, each in enumerate(fields)]
    tab.errors.clear()
    with served(Fixed(hits, folder=HOSTILE.replace("/", ""), model=HOSTILE.replace("/", ""))) as site:
        tab.open(f"{site.address}/?q=owls+%3Cscript%3Ewindow.broken%3D1%3C%2Fscript%3E")
        assert tab.wait(SHOWN) == 12
        assert tab.value("window.broken") is None
        assert tab.value("columns.querySelectorAll('script, img').length") == 0
        assert texts(tab, "[data-key=model] .text span") == [HOSTILE] * 4
        assert texts(tab, "[data-key=model] h3") == [HOSTILE] * 4
        links = tab.value("[...document.querySelectorAll('[data-key=model] a')].map((each) => each.href)")
        assert links == ["http://ok.example/%3Cb%3E"]
        assert tab.errors == []
        # The policy of the page would stop a script even if one came in.
        tab.value(
            "document.body.append(document.createRange().createContextualFragment('<script>window.broken=2</script>'))"
        )
        assert tab.value("window.broken") is None and "Content Security Policy" in tab.errors[-1]


WRAPPED = """Owls
Owls are birds of prey that hunt at night, and whose feathers are so
soft that a mouse does not hear them: their wings make no sound, as
farmers know, who welcome them in their barns, as long as they are
quiet.
They nest in towers.

- barn owl
- tawny owl

Owls of the north, whose wings are wide,
Fly over snow
And do not hide."""


def test_lines_that_a_file_breaks_at_a_width_flow_and_others_stay(tab: Tab) -> None:
    chinese = "猫头鹰在夜里捕鼠，" * 6
    hits = [Hit(0.9, 1, "a.txt", WRAPPED), Hit(0.8, 2, "b.txt", f"{chinese}\n{chinese}\n猫头鹰。")]
    with served(Fixed(hits)) as site:
        tab.open(f"{site.address}/?q=mouse+farmers+barns")
        assert tab.wait(SHOWN) == 6
        tab.value("document.querySelectorAll('.more:not([hidden])').forEach((each) => each.click())")
        first, second = texts(tab, "[data-key=model] .text span")
        heading, paragraph, last, *others = first.split("\n")
        assert (heading, paragraph, last) == ("Owls", " ".join(WRAPPED.splitlines()[1:5]), "They nest in towers.")
        assert others == ["", "- barn owl", "- tawny owl", "", *WRAPPED.splitlines()[-3:]]
        assert texts(tab, "[data-key=model] li:first-child mark") == ["mouse", "farmers", "barns"]
        assert second.replace("\u200b", "") == f"{chinese}{chinese}猫头鹰。"


@pytest.mark.parametrize(
    ("weight", "first"), [(None, "small + BM25"), (0.0, "BM25"), (1.0, "small"), (0.6, "small + BM25")]
)
def test_a_phone_shows_the_chosen_system_first(tab: Tab, tmp_path: Path, weight: float | None, first: str) -> None:
    wide, folder = ["small", "small + BM25", "BM25"], tmp_path / "adapted"
    folder.mkdir()
    if weight is not None:
        write_collection(folder, SearchSettings(str(tmp_path), weight=weight))
    with served(Fixed(BIRDS, folder=str(folder), weight=0.5 if weight is None else weight)) as site:
        tab.view(400, 900)
        tab.open(f"{site.address}/?q=owls")
        assert tab.wait(SHOWN) == 6
        narrow = texts(tab, "h2")
        assert narrow[0] == first and sorted(narrow) == sorted(wide)
        assert texts(tab, "#jump button")[0] == {"small": "model", "small + BM25": "both", "BM25": "BM25"}[first]
        tab.view(1280, 900)
        tab.wait(f"columns.querySelector('h2').innerText === '{wide[0]}'")
        assert texts(tab, "h2") == wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(tab: Tab, width: int, scheme: str, tmp_path: Path) -> None:
    wide = "Donaudampfschifffahrtsgesellschaft" * 9
    hits = [Hit(0.5, number, f"{wide}.csv", wide, number, {"title": wide, wide: wide}) for number in range(3)]
    with served(Fixed([*BIRDS, *hits], folder=wide[:200], model=wide)) as site:
        tab.view(width, 900, scheme)
        tab.open(f"{site.address}/?q={wide}+owls")
        assert tab.wait(SHOWN) == 15
        assert tab.value("document.documentElement.scrollWidth") == width
        columns = tab.value("[...document.querySelectorAll('section')].map((each) => each.getBoundingClientRect().x)")
        assert len(set(columns)) == (3 if width == 1280 else 1)
        tab.shot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
    tab.view(1280, 900)
