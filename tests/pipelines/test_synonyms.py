"""Synonyms: forms of files, case, inflection, and token ids that fit the place of a word."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import SynonymError, SynonymTable, forms, inflection, read_synonyms


@pytest.mark.published("synonyms")
def test_the_list_that_clear_used(counterfitted: dict[str, list[str]]) -> None:
    assert counterfitted["movie"][:3] == ["film", "filmmaking", "films"] and "br" not in counterfitted
    assert 20_000 < len(counterfitted) <= 25_591


def test_pairs_of_words_and_tabs(shared_data: Path, tmp_path: Path) -> None:
    pairs = read_synonyms(shared_data / "synonyms" / "counterfitting_ppdb_synonyms.txt")
    assert pairs["mediaeval"] == ["medieval"] and pairs["modelling"][0] == "modeling"
    (tmp_path / "twice.json").write_text('{"the": ["one"], "the": ["two", "one"]}')
    assert read_synonyms(tmp_path / "twice.json") == {"the": ["one", "two"]}
    (tmp_path / "own.tsv").write_text("big\tlarge\thuge\n\nbig\tgreat\tlarge\nNew York\tGotham\nsole\tsole\n")
    assert read_synonyms(tmp_path / "own.tsv") == {"big": ["large", "huge", "great"], "New York": ["Gotham"]}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "holds no word"),
        (b'{"a": ["b"', "not readable as JSON"),
        (b'["a", "b"]', "a JSON list"),
        (b'{"a": "b"}', "entry of 'a'"),
        (b'{"a": ["b"], "c": {"d": 1}}', "entry of 'c'"),
        (b'{"a": [1]}', "entry of 'a'"),
        (b"big large\nthis is no pair of words\n", "line 2"),
        (b"big\tlarge\nalone\n", "line 2"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 100_000, "not readable as JSON"),
        (b'{"a": [' + b"9" * 5000 + b"]}", "not readable as JSON"),
        (b'{"film": ["\\ud83d", "movie"]}', "entry of 'film'"),
    ],
)
def test_a_file_of_the_wrong_shape_is_one_line_that_says_what_is_expected(
    content: bytes, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(SynonymError) as raised:
        read_synonyms(path)
    message = str(raised.value)
    assert named in message and str(path) in message and "expected a JSON object" in message and "\n" not in message


def test_an_ending_is_an_inflection_where_the_rest_is_a_word_of_the_table() -> None:
    known = {"movie", "need", "walk", "stop", "make", "study", "box", "fast", "quick", "king", "th", "br"}
    words = {"movies": "s", "needed": "ed", "walking": "ing", "stopped": "ed", "making": "ing", "studies": "s"}
    words |= {"studied": "ed", "boxes": "s", "fastest": "est", "quickly": "ly"}
    words |= {"bring": "", "need": "", "speed": "", "thing": "", "king": "", "virus": "", "movie": "", "": "", "s": ""}
    assert {word: inflection(word, known) for word in words} == words


def test_a_words_own_inflection_and_case_are_kept_where_the_table_allows() -> None:
    table = {
        "movies": ["film", "films", "movie"],
        "ran": ["fled"],
        "Paris": ["Lutetia"],
        "i": ["me"],
        "bring": ["fetch", "bringing"],
    }
    assert list(forms(table)) == [
        ("movies", ["films"]),
        ("ran", ["fled"]),
        ("Paris", ["Lutetia"]),
        ("i", ["me"]),
        ("bring", ["fetch"]),
        ("Movies", ["Films"]),
        ("MOVIES", ["FILMS"]),
        ("Ran", ["Fled"]),
        ("Bring", ["Fetch"]),
        ("BRING", ["FETCH"]),
    ]


@pytest.mark.exhaustive
def test_a_word_of_the_table_goes_before_another_one_in_capitals(del_tokenizer: Tokenizer) -> None:
    table = {"polish": ["shine"], "Polish": ["Slavic"], "march": ["walk"]}
    augmenter = Augmenter(Augmentation.parse("subs", subs=1.0), del_tokenizer, table)
    ids = del_tokenizer.encode("He is Polish. In March they polish, Polish's", add_special_tokens=False).ids
    view = augmenter(Ragged.of([np.array(ids)], np.uint16), np.array([1]))[0]
    assert del_tokenizer.decode(view.tolist()) == "He is Slavic. In Walk they shine, Slavic's"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased", "gpt2"])
def test_a_word_is_replaced_wherever_it_stands(shared_data: Path, name: str) -> None:
    """At the start of a sentence, after a space, after a sign, capitalized, of one token or several."""
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / name / "tokenizer.json"))
    tokenizer.no_truncation()
    table = {"movie": ["film"], "antiquarianism": ["pedantry"], "said": ["told you"]}
    augmenter = Augmenter(Augmentation.parse("subs", subs=1.0), tokenizer, table)
    text = "Movie, said a movie (movie). Antiquarianism MOVIE movies antiquarianism!"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    view = augmenter(Ragged.of([np.array(ids)], np.uint16), np.array([5]))[0]
    expected = "Film, told you a film (film). Pedantry FILM movies pedantry!"
    if name == "bert-base-uncased":
        expected = expected.lower()
    assert view.tolist() == tokenizer.encode(expected, add_special_tokens=False).ids


@pytest.fixture
def bert(shared_data: Path) -> Tokenizer:
    return Tokenizer.from_file(str(shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json"))


def test_padding_and_special_tokens_of_the_tokenizer_do_not_get_into_the_table(bert: Tokenizer) -> None:
    table = {"film": ["movie", "[MASK]", "a[SEP]b"], "the": ["[CLS]"]}
    plain = SynonymTable.build(table, bert)
    movie = bert.encode("movie", add_special_tokens=False).ids
    assert len(plain.options) == 1 and plain.options.values.tolist() == movie
    bert.enable_padding(length=128)
    bert.enable_truncation(4)
    padded = SynonymTable.build(table, bert)
    assert np.array_equal(padded.options.values, plain.options.values)
    with pytest.raises(SynonymError, match="cannot encode any word of the synonyms"):
        SynonymTable.build({"the": ["[CLS]"]}, bert)


@pytest.mark.exhaustive
def test_coverage_is_about_the_papers(augmenter: Callable[..., Augmenter], wiki_tokens: Ragged) -> None:
    """Section 3.3: roughly 40 % of tokens have an entry."""
    covered, words = augmenter("subs").coverage(wiki_tokens)
    assert 0.38 < covered / words < 0.5
