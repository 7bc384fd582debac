"""Sentences and their views: which are kept, what they hold, and that only the options shape them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.common import same_text
from clearspan.common.ragged import Ragged, segments
from clearspan.common.same_text import text_id
from clearspan.pipelines.__main__ import main
from clearspan.pipelines.augment.steps import STEPS, Augmentation, Augmenter, SentenceBatch
from clearspan.pipelines.augment.synonyms import read_synonyms
from clearspan.pipelines.builders import sentences, text
from clearspan.pipelines.builders.sentences import Sentences, SentenceWorker, ViewOptions
from clearspan.pipelines.builders.text_steps import TextSteps
from clearspan.pipelines.counter import RecordCounter
from clearspan.pipelines.records import Record
from clearspan.pipelines.text.exclude import Excluded
from clearspan.pipelines.text.segmentation import segment
from clearspan.pipelines.text.tokenization import MAIN, Tokenization, TokenizerFiles, read_tokenizer, with_special_token
from clearspan.shards import Dataset, keyed, verify
from tests.pipelines.conftest import rows

LINES = ("--no-split", "--text-per", "line")


def counts(folder: Path) -> dict:
    figures = json.loads((folder / "manifest.json").read_text())["counts"]
    assert figures["read"] == figures["kept"] + sum(figures["filtered"].values()) + figures["bad"]
    return figures


def normalized(wiki: Path) -> list[str]:
    return [" ".join(line.split()) for line in wiki.read_text(encoding="utf-8").split("\n") if line.strip()]


@pytest.fixture(scope="module")
def augmented(wiki: Path, synonyms: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of Wikipedia sentences with two views."""
    folder = tmp_path_factory.mktemp("augmented") / "out"
    words = ["sentences", "--input", wiki, *LINES, "--augment", "subs+del-span", "--synonyms", synonyms]
    assert main([*map(str, words), "--tokenizer", str(roberta_tokenizer), "--output", str(folder)]) == 0
    return folder


@pytest.mark.exhaustive
def test_every_sentence_that_is_long_enough_is_kept_once_and_counted(
    augmented: Path, wiki: Path, del_tokenizer: Tokenizer
) -> None:
    texts = normalized(wiki)
    ids = {text: del_tokenizer.encode(text, add_special_tokens=False).ids for text in texts}
    long_enough = [text for text in texts if 4 <= len(ids[text]) <= 510]
    first = {same_text.key(text): text for text in reversed(long_enough)}
    kept = [text for text in dict.fromkeys(long_enough) if first[same_text.key(text)] == text]
    assert [(row["id"], row["tokens"]) for row in rows(augmented)] == [
        (int.from_bytes(hashlib.blake2b(text.encode()).digest()[:8], "big") >> 1, ids[text]) for text in kept
    ]
    assert counts(augmented) == {
        "read": len(texts),
        "kept": len(kept),
        "filtered": {
            "empty": 0,
            "short_tokens": sum(len(ids[text]) < 4 for text in texts),
            "long_tokens": sum(len(ids[text]) > 510 for text in texts),
            "duplicate": len(long_enough) - len(kept),
        },
        "bad": 0,
    }
    assert len(texts) > len(long_enough) > len(kept) > 2500


@pytest.mark.exhaustive
def test_a_view_is_what_the_augmenter_makes_of_its_sentence_alone(
    augmented: Path, del_tokenizer: Tokenizer, synonyms: Path
) -> None:
    augmenter = Augmenter(Augmentation.parse("subs+del-span"), del_tokenizer, read_synonyms(synonyms))
    found = rows(augmented)
    for row in found[::50]:
        block = Ragged.of([np.array(row["tokens"])], np.uint16)
        for view in range(2):
            key = keyed.mix(42, np.array([row["id"]]), view)
            assert row[f"view_{view}"] == augmenter(block, key)[0].tolist()
    assert sum(row["view_0"] != row["view_1"] for row in found) > 0.9 * len(found)
    assert verify(augmented) == []


@pytest.mark.slow
def test_the_fingerprint_holds_all_that_shapes_the_views(augmented: Path, synonyms: Path) -> None:
    fingerprint = json.loads((augmented / "manifest.json").read_text())["fingerprint"]
    options = fingerprint["options"]
    assert options["augmentation"]["steps"] == "subs+del-span"
    assert options["augmentation"]["del_spans"] == 5 and options["augmentation"]["subs"] == 0.3
    assert (options["views"], options["augment_seed"], options["segmenter"]) == (2, 42, None)
    published = (augmented / "_files" / "synonyms.json").read_bytes()
    assert options["files"] == {"synonyms.json": hashlib.sha256(published).hexdigest()}
    assert json.loads(published) == read_synonyms(synonyms)
    assert str(synonyms.parent) not in (augmented / "plan.json").read_text()


@pytest.mark.slow
def test_another_augmentation_is_a_function_and_a_line(
    direct, wiki: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def halve(augmenter: Augmenter, sentences: SentenceBatch, keys: np.ndarray) -> SentenceBatch:
        """Keep the first half of each sentence."""
        tokens = sentences.tokens
        kept = segments(tokens.values, tokens.offsets[:-1], (np.diff(tokens.offsets) + 1) // 2)
        return SentenceBatch(kept, np.ones(len(kept.values), bool))

    monkeypatch.setitem(STEPS, "halve", halve)
    command = ("sentences", "--input", wiki, *LINES, "--limit", "40", "--augment", "halve", "--views", "1")
    assert direct(*command).code == 0
    assert all(row["view_0"] == row["tokens"][: (len(row["tokens"]) + 1) // 2] for row in rows(tmp_path / "out"))
    refused = direct(*command[:-3], "quarter", "--output", tmp_path / "other")
    assert refused.code == 2 and "'quarter' is not one of del-word, del-span, reorder, subs, halve" in refused.err


@pytest.mark.slow
def test_del_is_in_the_tokenizer_beside_the_shards(augmented: Path, with_del: TokenizerFiles) -> None:
    assert (augmented / "tokenizer" / MAIN).read_bytes() == with_del.files[MAIN]
    assert Dataset(augmented).vocab_size == 50266
    assert any(50265 in row["view_0"] for row in rows(augmented))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased", "gpt2"])
def test_transformers_loads_the_tokenizer_with_del(shared_data: Path, tmp_path: Path, name: str) -> None:
    from transformers import AutoTokenizer

    files = read_tokenizer(str(shared_data / "tokenizers" / name))
    extended = with_special_token(files, "[DEL]")
    for file, data in extended.files.items():
        (tmp_path / file).write_bytes(data)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == extended.vocab_size == files.vocab_size + 1
    assert loaded.convert_tokens_to_ids("[DEL]") == files.vocab_size
    plain = AutoTokenizer.from_pretrained(shared_data / "tokenizers" / name)
    text = "The old town, [MASK] <mask> and its harbour."
    assert loaded(text).input_ids == plain(text).input_ids
    assert loaded("a [DEL] b").input_ids.count(files.vocab_size) == 1
    assert with_special_token(extended, "[DEL]") is extended


@pytest.mark.slow
def test_copies_may_stay_and_every_other_switch_works(direct, wiki: Path, tmp_path: Path) -> None:
    excluded = tmp_path / "test.txt"
    excluded.write_text("\n".join(wiki.read_text(encoding="utf-8").splitlines()[100:140]))
    everything, some = tmp_path / "all", tmp_path / "some"
    assert direct("sentences", "--input", wiki, *LINES, "--no-dedup", "--output", everything).code == 0
    assert "duplicate" not in counts(everything)["filtered"]
    switches = ("--limit", "1500", "--holdout-fraction", "0.2", "--exclude", excluded)
    assert direct("sentences", "--input", wiki, *LINES, *switches, "--output", some).code == 0
    kept, held = rows(some), rows(some / "validation")
    assert 200 < len(held) < 400 and not {row["id"] for row in kept} & {row["id"] for row in held}
    test_set = Excluded.of(excluded.read_text().splitlines(), among_sentences=True)
    long_enough = {row["id"] for row in rows(everything)}
    first: dict[str, int] = {}
    for line in normalized(wiki):
        if text_id(line.encode()) in long_enough and not test_set.contains_excluded(line):
            first.setdefault(same_text.key(line), text_id(line.encode()))
    expected = list(first.values())[:1500]
    assert {row["id"] for row in [*kept, *held]} == set(expected)
    assert [row["id"] for row in kept] == [found for found in expected if found in {row["id"] for row in kept}]
    assert counts(some)["filtered"]["excluded"] >= 30


@pytest.mark.slow
def test_small_letters_come_after_segmentation_and_words_are_counted_by_text(
    direct, head: Path, texts: list[str], del_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    most = ("sentences", "--input", head, "--lowercase", "--prefix-space", "--min-words", "500", "--no-dedup")
    assert direct(*most).code == 0
    long_enough = [text for text in texts[:40] if len(text.split()) >= 500]
    sentences = [sentence.lower() for text in long_enough for sentence in segment(text, "en")]
    ids = [del_tokenizer.encode(f" {sentence}", add_special_tokens=False).ids for sentence in sentences]
    expected = [
        (text_id(s.encode()), tokens) for s, tokens in zip(sentences, ids, strict=True) if 4 <= len(tokens) <= 510
    ]
    assert [(row["id"], row["tokens"]) for row in rows(tmp_path / "out")] == expected
    figures = counts(tmp_path / "out")
    assert figures["filtered"]["few_words"] == 40 - len(long_enough) > 20
    assert figures["read"] == len(sentences) + 40 - len(long_enough)
    outcome = direct(*most[:-3], "--min-words", "99999", "--output", tmp_path / "none")
    assert "none of 40 sentences is kept: 40 few_words; the longest has " in outcome.err


def records(texts: list[str]) -> list[Record]:
    return [Record("a.jsonl", number, {"text": text}, b"") for number, text in enumerate(texts)]


@pytest.mark.exhaustive
def test_batches_are_bounded_and_rows_the_same_whatever_is_tokenized_together(
    roberta_tokenization: Tokenization, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(SentenceWorker, "batch_examples", 700)
    kind = Sentences(augmenting=ViewOptions(augment="reorder", views=3))
    monkeypatch.setattr(TextSteps, "loaded", lambda *_: roberta_tokenization)
    worker = kind.worker({})
    found = []
    for characters, number in ((1, 1), (100_000, 64), (10**9, 350)):
        monkeypatch.setattr(sentences, "TOKENIZE_CHARACTERS", characters)
        monkeypatch.setattr(sentences, "TOKENIZE_SENTENCES", number)
        counter = RecordCounter(kind.reasons, 0.0)
        batches = list(worker.examples(records(texts[:80]), counter))
        assert all(batch.num_rows <= 700 for batch in batches)
        assert counter.counts.kept == sum(batch.num_rows for batch in batches)
        found.append([row for batch in batches for row in batch.to_pylist()])
    assert found[0] == found[1] == found[2]
    assert set(found[0][0]) == {"id", "tokens", "view_0", "view_1", "view_2"}


def test_a_panic_in_the_segmenter_is_a_bad_record(
    roberta_tokenization: Tokenization, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentencex

    panic, real = type("PanicException", (BaseException,), {}), sentencex.segment

    def panics(language: str, text: str) -> list[str]:
        if " ".join(texts[0].split()[:3]) in text:
            raise panic("byte index 2 is not a char boundary")
        return real(language, text)

    monkeypatch.setattr(sentencex, "segment", panics)
    counter = RecordCounter(Sentences().reasons, 0.5)
    worker = SentenceWorker(Sentences(), roberta_tokenization)
    assert list(worker.examples(records([*texts[:2], "\u3000"]), counter))
    assert counter.counts.filtered["empty"] == 1
    ((place, said),) = counter.counts.bad_examples
    assert place == "a.jsonl:0" and said.startswith("sentencex cannot segment it: byte index 2")


@pytest.mark.exhaustive
def test_the_summary_says_how_far_synonyms_reach(direct, wiki: Path, synonyms: Path, tmp_path: Path) -> None:
    words = ("sentences", "--input", wiki, *LINES, "--augment", "subs", "--synonyms", synonyms)
    sums = json.loads(direct(*words, "--json").out)["sums"]
    assert sums["words"] > 60_000
    share = f"synonyms: {100 * sums['words_with_synonym'] / sums['words']:.1f} % of words have one"
    assert share in direct(*words).out
    assert 5 < 100 * sums["words_with_synonym"] / sums["words"] < 60
    assert Dataset(tmp_path / "out").vocab_size == 50265
