"""Token ids: those of `tokenizers` for any text and any tokenizer, with each backend."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from clearspan.common import fast_tokenizer
from clearspan.common.errors import PipelineError
from clearspan.pipelines.text import tokenization
from clearspan.pipelines.text.tokenization import (
    Tokenization,
    TokenizerFiles,
    read_tokenizer,
    with_prefix_space,
    with_special_token,
)

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"]


@pytest.fixture(scope="module")
def roberta(roberta_tokenizer: Path) -> bytes:
    return (roberta_tokenizer / "tokenizer.json").read_bytes()


@pytest.fixture(scope="module")
def of_roberta(roberta: bytes) -> Tokenization:
    """RoBERTa's tokenizer as a pipeline loads it; tests must not change it."""
    return Tokenization(roberta, 50265)


def changed(data: bytes, **fields: Any) -> bytes:
    """Return a tokenizer.json with changed top-level fields."""
    return json.dumps({**json.loads(data), **fields}).encode()


def added(data: bytes, **flags: bool) -> bytes:
    """Return a tokenizer.json with changed flags of its added tokens."""
    record = json.loads(data)
    return changed(data, added_tokens=[{**token, **flags} for token in record["added_tokens"]])


@functools.cache
def reference(data: bytes) -> Tokenizer:
    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.encode_special_tokens = True
    return tokenizer


def assert_exact(made: Tokenization, data: bytes, texts: list[str]) -> None:
    for text, ids in zip(texts, made.tokenize(texts, texts), strict=True):
        assert ids.tolist() == reference(data).encode(text, add_special_tokens=False).ids, text


words = st.sampled_from(
    [*SPECIAL, " ", "  ", "\n", "\t", "\r\n", "a", " the", "é", "e\u0301", "日本", "🙂", "'s", "1", "_", "<", "s>"]
)
any_text = st.lists(words | st.text(max_size=4), max_size=12).map("".join)


def spaces_beside_a_normalizer(data: bytes) -> bytes:
    """Return a tokenizer.json with runs of spaces as tokens."""
    *known, mask = json.loads(data)["added_tokens"]
    flags = {**FLAGS, "normalized": True, "special": False}
    spaces = [{"id": 50265 + number, "content": " " * (number + 2), **flags} for number in range(10)]
    return changed(data, normalizer={"type": "NFC"}, added_tokens=[*known, {**mask, "lstrip": True}, *spaces])


@pytest.mark.exhaustive
@pytest.mark.parametrize("flag", ["", "lstrip", "rstrip", "single_word", "normalized", "spaces"])
def test_special_tokens_written_out_in_a_text_give_the_same_ids(roberta: bytes, flag: str) -> None:
    data = spaces_beside_a_normalizer(roberta) if flag == "spaces" else added(roberta, **({flag: True} if flag else {}))
    made = Tokenization(data, 50265 + 10 * (flag == "spaces"))
    assert made._ids.is_fast

    @given(st.lists(any_text, min_size=1, max_size=5))
    @settings(max_examples=80)
    def check(texts: list[str]) -> None:
        made.start_unit()
        assert_exact(made, data, [*texts, f"   {texts[0]}    <mask>", f"{texts[0]}\u0338"])

    check()


@pytest.mark.guarantee("same-ids")
@pytest.mark.slow
def test_a_sentencepiece_tokenizer_gives_the_same_ids(texts: list[str]) -> None:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    lines = [line for text in texts[:60] for line in text.splitlines()]
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=["<unk>", "<s>", "</s>", *pieces], show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    record = json.loads(tokenizer.to_str())
    record["added_tokens"] = [token for token in record["added_tokens"] if token["content"] not in pieces]
    data = json.dumps(record).encode()
    made = Tokenization(data, 1200)
    assert made._ids.is_fast and not made.byte_level
    assert_exact(made, data, [*texts[:40], "<s>a</s> <unk>  b", "", "日本🙂"])


@pytest.fixture(scope="module")
def bert(shared_data: Path) -> bytes:
    return (shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json").read_bytes()


@pytest.mark.guarantee("same-ids")
def test_wordpiece_by_words_gives_the_same_ids(bert: bytes, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokenizer, "MAX_IDS", 10_000)
    made = Tokenization(bert, 30522)
    assert made._ids.is_fast and not made.byte_level
    for start in range(0, 30, 10):
        assert_exact(made, bert, [*texts[start : start + 10], "[MASK] a [CLS]", ""])


def test_long_words_are_not_kept_for_ever(bert: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of more than 100 letters has the id of [UNK] alone, so that the number of ids does not limit memory."""
    monkeypatch.setattr(fast_tokenizer, "MAX_CHARACTERS", 20_000, raising=False)
    made = Tokenization(bert, 30522)
    for number in range(50):
        made._ids.quick([f"{number} {'a' * 2000}{number}"])
    words = made._ids._fast._numbers
    assert sum(map(len, words)) < 23_000 and "49" in words


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize(
    "normalizer", ["BertNormalizer", None, "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"]
)
def test_any_text_has_the_ids_of_its_words(bert: bytes, normalizer: str | None) -> None:
    of_type = normalizer and {"type": normalizer}
    data = bert if normalizer == "BertNormalizer" else changed(bert, normalizer=of_type)
    made = Tokenization(data, 30522)
    assert made._ids.is_fast

    @given(st.lists(any_text | st.text(max_size=20), min_size=1, max_size=5))
    @settings(max_examples=80)
    def check(texts: list[str]) -> None:
        assert [ids.tolist() for ids in made._ids.quick(texts)] == [ids.tolist() for ids in made._ids.exact(texts)]

    check()


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Prepend", "prepend": "x"}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
        {"added_tokens": [{"id": 100, "content": "a b", "special": False, **FLAGS}]},
    ],
    ids=["normalizer", "pre-tokenizer", "a token with a space"],
)
def test_other_tokenizers_are_left_to_tokenizers(bert: bytes, change: dict[str, Any]) -> None:
    assert not Tokenization(changed(bert, **change), 30522)._ids.is_fast


@pytest.mark.exhaustive
def test_a_file_that_says_to_truncate_or_drop_merges_changes_nothing(roberta: bytes, texts: list[str]) -> None:
    model = {**json.loads(roberta)["model"], "dropout": 0.5}
    truncation = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_id": 1, "pad_type_id": 0, "pad_token": "<pad>"}
    made = Tokenization(changed(roberta, truncation=truncation, padding=padding, model=model), 50265)
    assert_exact(made, roberta, texts[:20])


def wrong(word: str) -> Callable[[Tokenizer], Any]:
    """Return a fast way that gives wrong ids for texts with a certain word."""
    usual = fast_tokenizer._fast

    def fast(tokenizer: Tokenizer) -> Any:
        quick = usual(tokenizer)
        return lambda texts: quick([text.replace(word, "x") for text in texts])

    return fast


@pytest.mark.guarantee("same-ids")
@pytest.mark.slow
def test_a_backend_that_differs_on_awkward_text_is_not_used(roberta: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokenizer, "_fast", wrong("🏳️‍🌈"))
    assert not Tokenization(roberta, 50265)._ids.is_fast


@pytest.mark.guarantee("same-ids")
@pytest.mark.exhaustive
def test_a_difference_in_the_sample_stops_the_run_with_the_source(
    roberta: bytes, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_tokenizer, "_fast", wrong("Dunedin"))
    made = Tokenization(roberta, 50265)
    with pytest.raises(PipelineError, match=r"owt\.jsonl:0: fast tokenization and tokenizers give different ids"):
        made.tokenize(texts[:1], ["owt.jsonl:0"])
    assert_exact(Tokenization(roberta, 50265, "tokenizers"), roberta, texts[:1])


@pytest.mark.guarantee("same-ids")
@pytest.mark.slow
def test_of_a_very_long_text_the_head_is_proved(
    of_roberta: Tokenization, roberta: bytes, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = of_roberta
    made.start_unit()
    exact, proved = made._ids.exact, []
    monkeypatch.setattr(tokenization, "PROOF_LONGEST", 1000)
    monkeypatch.setattr(made._ids, "exact", lambda texts: (proved.extend(texts), exact(texts))[1])
    (ids,) = made.tokenize(texts[:1], ["a"])
    assert proved == [texts[0][:1000]]
    assert ids.tolist() == reference(roberta).encode(texts[0], add_special_tokens=False).ids


@pytest.mark.guarantee("any-workers", "same-ids")
@pytest.mark.slow
def test_the_sample_is_a_small_part_and_depends_on_the_unit_alone(
    of_roberta: Tokenization, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = of_roberta
    exact, proved = made._ids.exact, []
    monkeypatch.setattr(made._ids, "exact", lambda texts: (proved.extend(texts), exact(texts))[1])
    samples = []
    for size in (1, 50):
        made.start_unit()
        for start in range(0, len(texts), size):
            made.tokenize(texts[start : start + size], texts[start : start + size])
        samples.append(list(proved))
        proved.clear()
    assert samples[0] == samples[1]
    assert texts[0] in samples[0]
    assert sum(map(len, samples[0])) <= tokenization.PROOF_CHARACTERS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "byte_level"),
    [
        ({}, True),
        ({"normalizer": {"type": "NFKC"}}, False),
        (
            {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
            False,
        ),
    ],
)
def test_a_byte_bounds_a_token_only_where_nothing_adds_bytes(roberta: bytes, change: dict, byte_level: bool) -> None:
    assert Tokenization(changed(roberta, **change), 50265).byte_level is byte_level


def test_a_tokenizer_is_a_file_or_its_folder(roberta_tokenizer: Path, tmp_path: Path) -> None:
    folder = read_tokenizer(str(roberta_tokenizer))
    file = read_tokenizer(str(roberta_tokenizer / "tokenizer.json"))
    assert sorted(folder.files) == ["tokenizer.json", "tokenizer_config.json"]
    assert list(file.files) == ["tokenizer.json"]
    assert (folder.info.sha256, folder.vocab_size) == (file.info.sha256, 50265)


@pytest.fixture(scope="module", params=["roberta-base", "gpt2"])
def spaced(request: pytest.FixtureRequest, shared_data: Path) -> tuple[Path, TokenizerFiles]:
    """The folder of a byte-level tokenizer, and its files with a prefix space."""
    folder = shared_data / "tokenizers" / request.param
    return folder, with_prefix_space(read_tokenizer(str(folder)))


@pytest.mark.exhaustive
def test_a_space_before_a_text_gives_the_ids_of_transformers_setting(
    spaced: tuple[Path, TokenizerFiles], texts: list[str], tmp_path: Path
) -> None:
    """With each backend."""
    from transformers import AutoTokenizer

    folder, files = spaced
    for name, data in files.files.items():
        (tmp_path / name).write_bytes(data)
    theirs = AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
    ours = AutoTokenizer.from_pretrained(tmp_path)
    some = [
        *texts[:100],
        *fast_tokenizer.AWKWARD,
        "a<mask>b",
        "<mask>a",
        " <mask> b",
        "a<|endoftext|>b",
        "\u00a0a",
        "\na",
    ]
    as_text = {"add_special_tokens": False, "split_special_tokens": True}
    expected = theirs(some, **as_text).input_ids
    assert ours(some, **as_text).input_ids == expected
    for backend in tokenization.BACKENDS:
        made = Tokenization(files.files["tokenizer.json"], files.vocab_size, backend)
        assert made._ids.is_fast is (backend == "auto") and not made.byte_level
        assert [ids.tolist() for ids in made.tokenize(some, some)] == expected
    plain = AutoTokenizer.from_pretrained(folder)
    for text, ids in zip(texts[:100], expected, strict=False):
        assert ids == plain(f" {text}", add_special_tokens=False).input_ids
        assert ids != plain(text, add_special_tokens=False).input_ids


@pytest.mark.exhaustive
def test_a_tokenizer_that_puts_a_space_already_is_left_as_it_is(spaced: tuple[Path, TokenizerFiles]) -> None:
    folder, files = spaced
    assert with_prefix_space(files) == files
    plain = read_tokenizer(str(folder))
    assert files.vocab_size == plain.vocab_size and files.files != plain.files
    with_del = with_prefix_space(with_special_token(plain, "[DEL]"))
    assert Tokenization(with_del.files["tokenizer.json"]).tokenizer.token_to_id("[DEL]") == plain.vocab_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pre_tokenizer", "named"),
    [
        (None, "nothing"),
        ({"type": "BertPreTokenizer"}, "BertPreTokenizer"),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, "Metaspace"),
        ({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]}, "Digits"),
    ],
)
def test_a_tokenizer_without_such_a_setting_is_refused(roberta: bytes, pre_tokenizer: Any, named: str) -> None:
    files = TokenizerFiles({"tokenizer.json": changed(roberta, pre_tokenizer=pre_tokenizer)}, 50265)
    with pytest.raises(PipelineError, match=f"^`prefix_space`: .*pre_tokenizer is {named}, not ByteLevel.*leave it"):
        with_prefix_space(files)


def test_a_configuration_that_is_no_json_object_is_one_line(roberta: bytes) -> None:
    for data in (b"{", b"7"):
        files = TokenizerFiles({"tokenizer.json": roberta, "tokenizer_config.json": data}, 50265)
        with pytest.raises(PipelineError, match=r"tokenizer_config\.json .*not a JSON object"):
            with_prefix_space(files)


def vocabulary(**ids: int) -> TokenizerFiles:
    data = Tokenizer(models.WordLevel(ids, unk_token="a")).to_str().encode()
    return TokenizerFiles({"tokenizer.json": data}, 1 + max(ids.values()))


def test_a_special_token_takes_the_next_id_or_the_one_it_has() -> None:
    for ids, number, size in (({"a": 0, "b": 1}, 2, 3), ({"a": 0, "[DEL]": 1, "b": 2}, 1, 3)):
        extended = with_special_token(vocabulary(**ids), "[DEL]")
        loaded = Tokenizer.from_str(extended.files["tokenizer.json"].decode())
        assert (loaded.token_to_id("[DEL]"), extended.vocab_size) == (number, size)
        assert loaded.encode("a[DEL]").ids == [0, number]


def test_a_special_token_never_takes_anothers_id() -> None:
    with pytest.raises(PipelineError, match=r"\[DEL\] cannot be added .* id 2"):
        with_special_token(vocabulary(a=0, b=2), "[DEL]")


@pytest.mark.slow
def test_a_token_that_is_added_but_not_special_is_refused(roberta: bytes) -> None:
    record = json.loads(roberta)
    known = {**record["added_tokens"][0], "id": 50265, "content": "[DEL]", "special": False}
    data = changed(roberta, added_tokens=[*record["added_tokens"], known])
    with pytest.raises(PipelineError, match=r"\[DEL\] is .*not a special token"):
        with_special_token(TokenizerFiles({"tokenizer.json": data}, 50266), "[DEL]")


@pytest.mark.parametrize("before", [None, pre_tokenizers.BertPreTokenizer()], ids=["whole", "by words"])
def test_a_text_that_the_tokenizer_cannot_encode_is_one_line(before: Any) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}))
    if before is not None:
        tokenizer.pre_tokenizer = before
    made = Tokenization(tokenizer.to_str().encode(), 1)
    with pytest.raises(PipelineError, match=r"cannot encode .*UNK"):
        made.tokenize(["b"], ["somewhere"])
