"""Texts by language: the languages that are kept, the threshold, and what is counted."""

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("py3langid", reason="extra `language`")

from clearspan.pipelines.text.segmentation import segment
from clearspan.plugins import language
from clearspan.shards import Manifest
from tests.pipelines.conftest import rows, summary

EACH = 20
likeliest = language.DETECTOR.likeliest


@pytest.fixture(scope="module")
def mixed(shared_data: Path, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty German, Chinese and English texts each, in turn; those of STS-B have eight sentences."""
    by_language = {"en": texts[:EACH]}
    for code in ("de", "zh"):
        with (shared_data / "stsb_multi_mt" / f"stsb-{code}-test.csv").open(encoding="utf-8", newline="") as lines:
            sentences = [row[0] for row in csv.reader(lines)]
        by_language[code] = [" ".join(sentences[first : first + 8]) for first in range(0, 8 * EACH, 8)]
    path = tmp_path_factory.mktemp("mixed") / "mixed.jsonl"
    rows = ({"text": by_language[code][number], "code": code} for number in range(EACH) for code in ("de", "zh", "en"))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def codes(mixed: Path, folder: Path) -> list[str]:
    """Return the true language of each document in a dataset."""
    lines = mixed.read_bytes()
    offsets = [int(row["source"].rpartition(":")[2]) for row in rows(folder)]
    return [json.loads(lines[offset:].split(b"\n", 1)[0])["code"] for offset in offsets]


@pytest.mark.slow
def test_documents_of_the_named_languages_are_kept(direct, mixed: Path, tmp_path: Path) -> None:
    found = summary(direct("--input", mixed, "--min-tokens", "1", "--language", "de, zh", "--json"))
    assert found["filtered"] == {"empty": 0, "short_bytes": 0, "short_tokens": 0, "language": EACH}
    assert codes(mixed, tmp_path / "out") == ["de", "zh"] * EACH
    options = Manifest.load(str(tmp_path / "out")).fingerprint["options"]["languages"]
    assert (options["keep"], options["least"]) == (["de", "zh"], 0.5)
    assert options["detector"].startswith("py3langid ")


@pytest.mark.slow
def test_the_threshold_is_the_least_probability(direct, mixed: Path, tmp_path: Path) -> None:
    texts = [json.loads(line)["text"] for line in mixed.read_text().splitlines()]
    probabilities = [
        probability for _, probability in (language.DETECTOR.likeliest(text, ["en", "de"]) for text in texts)
    ]
    middle = sorted(probability for probability in probabilities if probability > 0.5)[EACH]
    words = ["--input", mixed, "--min-tokens", "1", "--language", "en,de", "--language-threshold", f"{middle:.17g}"]
    found = summary(direct(*words, "--json"))
    assert found["kept"] == sum(probability >= middle for probability in probabilities) < 2 * EACH


def test_wu_and_cantonese_count_as_chinese(shared_data: Path) -> None:
    with (shared_data / "stsb_multi_mt" / "stsb-zh-test.csv").open(encoding="utf-8", newline="") as lines:
        sentences = [row[0] for row in csv.reader(lines)][:200]
    alone = [dict(language.identifier().rank(sentence))["zh"] for sentence in sentences]
    added = [likeliest(sentence, ["zh"])[1] for sentence in sentences]
    assert min(added) > 0.5 > min(alone)


def test_sentences_are_split_by_the_rules_of_their_texts_language(direct, mixed: Path, tmp_path: Path) -> None:
    texts = [json.loads(line) for line in mixed.read_text().splitlines()]
    words = ["sentences", "--input", mixed, "--min-tokens", "1", "--max-tokens", "4000", "--no-dedup", "--json"]
    found = summary(direct(*words, "--language", "de,zh"))
    assert found["filtered"]["language"] == EACH
    assert found["kept"] == sum(len(segment(row["text"], row["code"])) for row in texts if row["code"] != "en")


def test_one_language_of_sentences_is_no_filter_unless_a_threshold_is_set(direct, mixed: Path, tmp_path: Path) -> None:
    words = ["sentences", "--input", mixed, "--min-tokens", "1", "--language", "de", "--json"]
    assert "language" not in summary(direct(*words))["filtered"]
    assert "languages" not in Manifest.load(str(tmp_path / "out")).fingerprint["options"]
    found = summary(direct(*words, "--language-threshold", "0.5", "--output", tmp_path / "filtered"))
    assert found["filtered"]["language"] == 2 * EACH


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--language", "deutsch"], "--language deutsch: the detector knows the languages ace af "),
        (["--language", " , "], "--language: names nothing: leave it out"),
        (["--language", "de,de"], "--language: de is named twice"),
        (["--language-threshold", "0.9"], "--language-threshold has no effect without --language: add it"),
        (["--language", "de", "--language-threshold", "90"], "--language-threshold must be at most 1"),
    ],
)
def test_options_that_cannot_work_are_refused(direct, mixed: Path, words: list[str], message: str) -> None:
    outcome = direct("--input", mixed, *words)
    assert outcome.code == 2 and message in outcome.err
