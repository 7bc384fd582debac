"""`pairs`: two fields of each record, which are found by their usual names, or parts of its text."""

import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from clearspan.adapt.fields import find_titles
from clearspan.common.fast_tokenizer import load_tokenizer
from clearspan.common.token_ids import without_prompt
from clearspan.pipelines.text.structure import cloze_pairs, headings
from clearspan.shards import Dataset
from tests.pipelines.conftest import Command, rows

ROWS = [("Owls at night", "They hunt by ear."), ("Rain", "It rains, and the streets are wet."), ("A party", "He left.")]
RECORDS = [{"title": title, "url": "x", "text": text, "number": 3} for title, text in ROWS]


def written(records: list[dict[str, Any]], folder: Path) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(("title", "text"), [("title", "text"), ("question", "answer"), ("Headline", " BODY")])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_usual_names_are_found_and_said(
    direct: Command, tmp_path: Path, title: str, text: str, form: str, decoded
) -> None:
    records = [{"id": "7", title: row[0], text: row[1]} for row in ROWS]
    path = written(records, tmp_path)
    if form == "csv":
        path = tmp_path / "a.csv"
        path.write_text(f"id,{title},{text}\n" + "".join(f'7,"{first}","{second}"\n' for first, second in ROWS))
    ended = direct("pairs", "--input", path)
    assert ended.code == 0, ended.err
    assert f"read from a.{form}: {title}, {text}\n" in ended.out
    assert decoded(tmp_path / "out") == ROWS


@pytest.mark.parametrize("command", ["pairs", "triplets"])
@pytest.mark.parametrize("prompt", ["", "query: "])
def test_texts_are_trained_on_as_they_are_judged_without_white_space_at_their_ends(
    direct: Command, tmp_path: Path, roberta_tokenizer: Path, command: str, prompt: str
) -> None:
    """For a tokenizer of bytes " Owls" and "Owls" are two tokens."""
    spaced = [(f"{title}\n", f" \t{text}\u00a0\n\n") for title, text in ROWS]
    for name, pairs in (("plain", ROWS), ("spaced", spaced)):
        folder = tmp_path / name
        folder.mkdir()
        fields = ("sent0", "sent1") if command == "triplets" else ("title", "text")
        path = written([dict(zip(fields, pair, strict=True)) for pair in pairs], folder)
        words = ["--prompt", prompt] if prompt else []
        assert direct(command, "--input", path, *words, "--output", folder / "out").code == 0
    plain, stripped = rows(tmp_path / "plain" / "out"), rows(tmp_path / "spaced" / "out")
    assert stripped == plain
    tokenizer = load_tokenizer((roberta_tokenizer / "tokenizer.json").read_bytes())
    texts = without_prompt(tokenizer, [row["positive"] for row in stripped], prompt)
    ids = [tokenizer.encode(prompt + text, add_special_tokens=False).ids for text in texts]
    assert ids == [row["positive"] for row in stripped]
    assert Dataset(tmp_path / "plain" / "out").manifest.fingerprint["options"]["ends"] == "stripped"


@pytest.mark.parametrize(
    ("records", "words", "code", "complaint"),
    [
        ([{"name": "Rain", "words": "It rains."}], (), 1, "among name, words: name them in order with --fields"),
        (RECORDS, ("--fields", "title,text,url"), 2, "--fields must name two different fields, e.g. title,body"),
        (RECORDS, ("--fields", "title"), 2, "--fields must name two different fields, e.g. title,body"),
        (RECORDS, ("--fields", "title,title"), 2, "--fields: title is named twice"),
        (
            RECORDS,
            ("--fields", "title,body"),
            1,
            "3 missing_field; no fields title,body among title, url, text, number",
        ),
        (RECORDS, ("--nli",), 2, "no such option: --nli"),
        ([{"title": "Rain", "text": " Rain"}], (), 1, "1 equal_texts: name another pair with --fields"),
        ([{"title": 7, "text": "It rains."}], (), 1, "a.jsonl:0: a text of the row is not a string but a number"),
    ],
)
def test_bad_input_is_one_line(
    direct: Command, tmp_path: Path, records: list[dict[str, Any]], words: tuple[str, ...], code: int, complaint: str
) -> None:
    ended = direct("pairs", "--input", written(records, tmp_path), *words)
    assert ended.code == code and complaint in ended.err and ended.err.count("\n") == 1


def test_a_table_without_such_columns_names_the_option(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,words\nRain,It rains.\n")
    ended = direct("pairs", "--input", tmp_path / "a.csv")
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert "or the like; there are name, words: name them in order with --fields" in ended.err


MARKDOWN = """Preamble.

# Owls #

They hunt by ear.
```
# no heading
```
At night.

Rain
====
It rains.

## Empty
## Last

The end."""


def test_a_heading_and_its_section_are_a_pair() -> None:
    owls = "They hunt by ear.\n```\n# no heading\n```\nAt night."
    assert headings(MARKDOWN) == [("Owls", owls), ("Rain", "It rains."), ("Last", "The end.")]
    assert headings("One line, underlined by nothing\nand the rest\n---") == [
        ("One line, underlined by nothing", "and the rest\n---")
    ]
    assert headings("alone") == headings("") == []
    assert headings("# C#\r\nsharp\r\n\r\nOwls\r\n====\r\nhunt") == [("C#", "sharp"), ("Owls", "hunt")]
    assert headings("# A\n~~~ sh\n# a comment\n```\n~~~\nend\n# B\n```x```\nb\n# C\nc") == [
        ("A", "~~~ sh\n# a comment\n```\n~~~\nend"), ("B", "```x```\nb"), ("C", "c")
    ]  # fmt: skip
    assert headings("# " + "# " * 50_000 + "x\nb")[0][1] == "b"


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("Install\n~~~\n# comment\nmake\n~~~\nDone.", [("Install", "~~~\n# comment\nmake\n~~~\nDone.")]),
        ("Run:\n~~~ sh\n# a\nmake\n~~~\n# Real\nwords", [("Real", "words")]),
        ("# A\n<!--\n# no\n-->\nwords", [("A", "<!--\n# no\n-->\nwords")]),
        ("# A\n\n    # code\n\nwords\n\n- item\n\n  # inner\n", [("A", "# code\n\nwords\n\n- item\n\n  # inner")]),
        ("# A\n````\n```\n# no\n````\nwords", [("A", "````\n```\n# no\n````\nwords")]),
        ("First line\nmore of it\n~~~\n# no\n~~~", [("First line", "more of it\n~~~\n# no\n~~~")]),
    ],
)
def test_a_comment_in_code_or_html_is_no_heading(text: str, pairs: list[tuple[str, str]]) -> None:
    assert headings(text) == pairs


def test_underlined_and_overlined_titles_are_headings() -> None:
    text = "=====\nBirds\n=====\nAll of them.\n\nOwls\n~~~~\nThey hunt."
    text += "\n\nFalcons\n~~~~~~~\nThey fly.\n\nWait\n...\nfor it."
    assert headings(text) == [
        ("Birds", "All of them."),
        ("Owls", "They hunt."),
        ("Falcons", "They fly.\n\nWait\n...\nfor it."),
    ]


RST = "Owls\n====\n\nUse::\n\n  # a comment\n  call()\n\nNight\n~~~~~\nThey hunt.\n\n"


@pytest.mark.parametrize("end", ["", "Rain\n````````\nIt rains.\n", "Rain\n----\nAs root::\n# make install\n"])
def test_comments_in_the_code_of_a_text_that_is_no_markdown_are_no_headings(end: str) -> None:
    assert [title for title, _ in headings(RST + end)] == ["Owls", "Night", *["Rain"] * bool(end)]
    assert headings("A list\n\n  # a comment\n  call()\n")[0][0] == "A list"


@pytest.mark.parametrize("mark", ["# Birds\n", "Owls\n====\nThey hunt.\n\n### Birds\n", "```\n# no\n```\nBirds\n===\n"])
def test_one_sure_mark_of_markdown_among_underlined_titles_is_enough(mark: str) -> None:
    titles = [title for title, _ in headings(mark + "Fly.\n\nOwls\n----\nHunt.\n\nRain\n----\nFalls.\n")]
    assert "Birds" in titles and titles[-2:] == ["Owls", "Rain"] and "no" not in titles


def test_a_sentence_of_each_passage_and_the_rest_of_it_are_a_pair() -> None:
    """Every word is in one of the two, and the draw is the same in every run."""
    text = " ".join(topics["assignment"].split())
    pairs = cloze_pairs(text)
    assert len(pairs) > 3 and pairs == cloze_pairs(text)
    assert sum(len((one + " " + rest).split()) for one, rest in pairs) == len(text.split())
    assert all(one not in rest and len(rest.split()) < 400 for one, rest in pairs)
    assert len({rest.startswith(text.split(" ")[0]) for _, rest in pairs}) == 2
    assert cloze_pairs("Only this one sentence is here.") == []
    assert len(cloze_pairs("梟は夜に狩りをする。狐は昼に狩りをする。川は海へ流れる。", "ja")) == 1


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([{"title": "", "text": "It rains."}] * 9 + [{"title": "Rain", "text": "It rains."}], None),
        ([{"text": "It rains."}] * 3 + [{"title": "Rain", "text": "It rains."}] * 9, ("title", "text")),
        ([{"question": "Rain?", "answer": "It rains.", "title": None}] * 9, ("question", "answer")),
        ([{"Title": "Rain", "TEXT ": "It rains."}], ("Title", "TEXT ")),
        ([{"Title": "Rain", "Text": "It rains."}] * 4 + [{"title": "R", "text": "It rains."}] * 3, ("Title", "Text")),
        ([{"Title": "Rain", "Text": "It rains.", "TEXT": "Or not."}] * 9, None),
        ([{"name": "Rain", "words": "It rains."}], None),
    ],
)
def test_titles_are_found_where_most_records_have_them(
    records: list[dict[str, Any]], found: tuple[str, str] | None, tmp_path: Path
) -> None:
    assert find_titles([str(written(records, tmp_path))]).names == found


@pytest.mark.guarantee("records-counted")
def test_parts_of_texts_are_pairs_and_a_text_without_any_is_counted(direct: Command, tmp_path: Path, decoded) -> None:
    path = written([{"text": MARKDOWN}, {"text": "alone"}, {"body": "x"}], tmp_path)
    ended = direct("pairs", "--input", path, "--structure", "headings", "--json", "--max-bad-fraction", "1")
    assert ended.code == 0, ended.err
    counts = json.loads(ended.out)
    assert (counts["read"], counts["kept"], counts["bad"], counts["filtered"]["no_pair"]) == (5, 3, 1, 1)
    assert [title for title, _ in decoded(tmp_path / "out")] == ["Owls", "Rain", "Last"]
    for words, complaint in {
        ("--structure", "headings", "--fields", "a,b"): "--fields and --structure: leave one of them out",
        ("--text-field", "text"): "--text-field has no effect without --structure",
        ("--structure", "sentences"): "1 no_pair: choose another --structure",
    }.items():
        bad = direct("pairs", "--input", written([{"text": "a b"}], tmp_path), "--output", tmp_path / "no", *words)
        assert bad.code in (1, 2) and complaint in bad.err
