"""Impossible options of sentences and views: one line that names the option or file."""

import json
from pathlib import Path

import pytest

from tests.pipelines.test_sentences import LINES


@pytest.mark.slow
def test_a_table_of_another_language_is_told(direct, wiki: Path, tmp_path: Path) -> None:
    table = tmp_path / "zh.json"
    table.write_text(json.dumps({"好": ["坏"]}))
    outcome = direct("sentences", "--input", wiki, *LINES, "--augment", "subs", "--synonyms", table, "--limit", "50")
    assert "NO word has one, so nothing was substituted" in outcome.out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--views", "3"), "--views has no effect without --augment"),
        (("--synonyms", "a.json"), "--synonyms has no effect without --augment"),
        (("--augment", "del-word", "--views", "0"), "--views must be at least 1"),
        (("--augment", "del-word", "--synonyms", "a.json"), "--synonyms has no effect without the step subs"),
        (("--augment", "del-word", "--del-span", "0.1"), "--del-span has no effect without the step del-span"),
        (("--augment", "subs"), "--augment with subs needs --synonyms"),
        (("--augment", "del-words"), "--augment 'del-words': 'del-words' is not one of"),
        (("--augment", "del-word", "--del-word", "1.5"), "--del-word must be at most 1"),
        (("--augment", "del-word", "--augment-seed", str(1 << 63)), "--augment-seed must be at most 9,223"),
        (("--language", "deu"), "--language deu: give a code of ISO 639-1"),
        (("--language", "German", "--no-split"), "--language German: give a code of ISO 639-1"),
        (("--max-tokens", "3"), "--max-tokens must be at least --min-tokens"),
        (("--pack", "3"), "--pack must be at least --min-tokens"),
        (("--pack", "100", "--max-tokens", "510"), "--max-tokens has no effect with --pack"),
    ],
)
def test_bad_usage_is_exit_2_and_names_the_option(direct, wiki: Path, tmp_path: Path, options, complaint: str) -> None:
    outcome = direct("sentences", "--input", wiki, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "complaint"), [(None, "No such file"), (b'{"good": "bad"}', "expected"), (b"one two three\n", "line 1")]
)
def test_a_file_that_is_no_table_of_synonyms_is_one_line(
    direct, wiki: Path, tmp_path: Path, data: bytes | None, complaint: str
) -> None:
    if data is not None:
        (tmp_path / "table.json").write_bytes(data)
    outcome = direct("sentences", "--input", wiki, "--augment", "subs", "--synonyms", tmp_path / "table.json")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert outcome.err.startswith(f"pipelines: --synonyms {tmp_path / 'table.json'}: ")
    assert complaint in outcome.err
    assert "expected a JSON object of words" in outcome.err and "public lists: counter-fitted" in outcome.err
    assert not (tmp_path / "out").exists()


def test_when_nothing_is_kept_the_mend_is_named(direct, wiki: Path) -> None:
    outcome = direct("sentences", "--input", wiki, "--no-split")
    assert outcome.code == 1
    assert "none of 1 sentences is kept: 1 long_tokens; the longest has " in outcome.err
    assert "--text-per line" in outcome.err
