"""The stemmer of BM25 without a choice of the user's: that of the language of the texts."""

import csv
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

import clearspan
from clearspan.common.errors import PipelineError
from clearspan.retrieval import stemming
from clearspan.retrieval.collection import SearchSettings, write_collection
from clearspan.retrieval.stemming import (
    AUTO,
    KOREAN,
    LANGUAGES,
    NO_STEMMER,
    STEMMERS,
    Words,
    of_language,
    spread,
    stemmer_of,
    versions_of,
    words_named,
)
from tests.pipelines.conftest import Command

Sentences = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> Sentences:
    """Sentences of STS-B, of about 50 characters each, in a language."""

    def read(code: str) -> list[str]:
        with (shared_data / "stsb_multi_mt" / f"stsb-{code}-test.csv").open(encoding="utf-8", newline="") as lines:
            return [row[0] for row in csv.reader(lines)][:600]

    return read


def test_the_stemmer_is_that_of_the_language_of_most_texts(sentences: Sentences) -> None:
    assert stemmer_of(sentences("de")) == "german"
    assert stemmer_of(sentences("zh")) is None, "a language without a stemmer"
    few = sentences("zh")[:10]
    assert stemmer_of([*sentences("de")[:90], *few]) == "german"
    assert stemmer_of([*sentences("de")[:200], *sentences("zh")[:400]]) is None, "several languages"


def test_short_texts_are_joined_and_no_text_has_no_language(sentences: Sentences) -> None:
    titles = [" ".join(sentence.split()[:2]) for sentence in sentences("de")]
    assert stemmer_of(titles) == "german"
    assert stemmer_of([]) is stemmer_of(["", "  "]) is None


@pytest.mark.parametrize("texts", [["😀😀"], ["AAPL", "MSFT"], ["null"], ["12.5", "17"], ["x = 3; y = foo(4)"]])
def test_what_is_no_language_has_no_stemmer(texts: list[str]) -> None:
    assert stemmer_of(texts * 50) is None


def test_a_sample_is_spread_over_all_texts_and_small_for_many() -> None:
    texts = [str(n) for n in range(100_000)]
    sample = spread(texts)
    assert len(sample) == stemming.NUM_SAMPLED and int(sample[0]) == 0 and int(sample[-1]) > 99_000
    assert spread(texts[:5]) == texts[:5] and spread([]) == []
    assert int(spread(texts[:399])[-1]) > 396, "also if the texts are hardly more than those of the sample"


def test_every_language_that_is_identified_has_its_stemmer() -> None:
    assert set(LANGUAGES.values()) == {*STEMMERS} - {"yiddish"}


def test_a_named_stemmer_reads_no_text() -> None:
    def sample() -> list[str]:
        raise AssertionError

    assert words_named("german", sample).stemmer == "german"
    assert words_named(NO_STEMMER, sample).stemmer is words_named(None, sample).stemmer is None
    assert words_named(AUTO, lambda: ["Die Eulen jagen nachts im Wald."]).stemmer == "german"


def test_a_record_holds_the_versions_on_which_the_words_depend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stemming, "version", lambda package: f"{package} 1")
    assert versions_of(NO_STEMMER) == {"stemmer": NO_STEMMER}
    german = {"stemmer": "german", "PyStemmer": "PyStemmer 1"}
    assert versions_of("german") == german
    identified = {"stemmer": AUTO, "language": stemming.VERSION, "py3langid": "py3langid 1", "korean": 1}
    assert versions_of(AUTO) == german | identified
    assert versions_of(KOREAN) == {"stemmer": KOREAN, "korean": 1} and "PyStemmer" not in Words(KOREAN).key
    monkeypatch.setattr(stemming, "KOREAN_VERSION", 2)
    assert versions_of(KOREAN)["korean"] == versions_of(AUTO)["korean"] == Words(KOREAN).key["korean"] == 2


def test_stems_are_those_of_pystemmer_however_many_words_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    import Stemmer

    monkeypatch.setattr(stemming, "MAX_STEMS", 3)
    stemming._stemmer.cache_clear()
    owls = ["owls", "hunting", "owls", "hunted", "quietly", "nearby", "foxes", "hunting", "owls"]
    assert Words("english")(" ".join(owls)) == Stemmer.Stemmer("english").stemWords(owls)
    stemming._stemmer.cache_clear()


def test_korean_is_compared_by_two_syllables_and_apart_from_other_scripts() -> None:
    """A particle (은, 용, 에서) joins the word before it, which is also a Latin word or a number."""
    words = Words(KOREAN)
    assert words("검색엔진은 GNOME용, 집 2019년") == ["검색", "색엔", "엔진", "진은", "gnome", "용", "집", "2019", "년"]
    assert {"숲에"} < {*words("숲에서")} and words(unicodedata.normalize("NFD", "검색")) == ["검색"]
    assert words("The owls 漢字") == Words()("The owls 漢字"), "other scripts are as without a stemmer"
    assert stemmer_of(["올빼미는 밤에 숲에서 소리 없이 날아 쥐를 사냥한다."] * 30) == KOREAN
    assert "two syllables" in of_language(KOREAN) and "German" in of_language("german")


@pytest.fixture
def collection(direct: Command, encoder: Path, sentences: Sentences, tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("\n".join(["Die Häuser am Fluss sind alt.", *sentences("de")[:60]]))
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder, "--keep-text"]
    assert direct("embed", *words).code == 0
    return tmp_path / "out"


def test_a_collection_is_searched_by_the_stems_of_its_language(
    collection: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = clearspan.open_collection(collection, quiet=False)
    assert opened.search("Haus", 1, weight=0)[0].text == "Die Häuser am Fluss sind alt."
    assert opened.words.stemmer == "german" and "German" in capsys.readouterr().err
    monkeypatch.setattr(stemming, "stemmer_of", lambda texts: 1 / 0)
    assert clearspan.open_collection(collection).words.stemmer == "german", "identified once"
    whole = clearspan.open_collection(collection, stemmer=NO_STEMMER)
    assert whole.words.stemmer is None and whole.search("Haus", 1, weight=0) == []


def test_a_collection_of_several_languages_has_no_stemmer_in_whatever_order(
    direct: Command, encoder: Path, sentences: Sentences, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("\n".join([*sentences("de")[:200], *sentences("zh")[:400]]))
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder, "--keep-text"]
    assert direct("embed", *words).code == 0
    assert clearspan.open_collection(tmp_path / "out").words.stemmer is None


def test_a_folder_of_adapt_is_searched_as_its_weight_was_chosen(collection: Path, tmp_path: Path) -> None:
    """In search.json of 0.1.0, no stemmer means whole words."""
    (tmp_path / "adapted").mkdir()
    write_collection(tmp_path / "adapted", SearchSettings(str(collection), weight=0.0))
    assert clearspan.open_collection(tmp_path / "adapted").search("Haus", 1) == []
    assert clearspan.open_collection(tmp_path / "adapted", stemmer="german").search("Haus", 1)


def test_without_the_packages_whole_words_can_be_searched(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"`stemmer` none .*needs Stemmer, py3langid: .*\[search\]"):
        clearspan.open_collection(collection).search("Haus", weight=0)
    assert clearspan.open_collection(collection, stemmer=NO_STEMMER).search("Häuser", weight=0)
