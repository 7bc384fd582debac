"""The faster method of tokenization gives the ids of `tokenizers`, or is not used: small tokenizers, made here."""

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import gigatoken
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from clearspan.common import fast_tokenizer
from clearspan.common.errors import PipelineError
from clearspan.common.fast_tokenizer import FastTokenizer, TokenizerError, load_tokenizer
from clearspan.common.ragged import Ragged
from clearspan.pipelines.text import tokenization
from clearspan.pipelines.text.tokenization import Tokenization

LINES = ["The tawny owl calls at night.", "The barn owl screeches in New York."]
WORDS = {word: number for number, word in enumerate(["[UNK]", "the", "barn", "owl", "calls", "in", "New", "York"])}
NFC = normalizers.NFC()


def of_bytes(*added: AddedToken, normalizer: Any = None) -> bytes:
    """Return a byte-level BPE tokenizer with the special tokens <s> and </s>, and these added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=alphabet, special_tokens=special
    )
    tokenizer.train_from_iterator(LINES * 3, trainer)
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(added))
    return tokenizer.to_str().encode()


def of_words(*added: str, normalizer: Any = None, unknown: str | None = "[UNK]") -> bytes:
    """Return a tokenizer of whole words, with these added tokens."""
    words = {word: number for word, number in WORDS.items() if unknown or word != "[UNK]"}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    return tokenizer.to_str().encode()


def made(data: bytes, dtype: type = np.uint16, prompts: Sequence[str] = ()) -> FastTokenizer:
    return FastTokenizer(load_tokenizer(data, prompts=prompts), dtype)


def lists(ids: Ragged) -> list[list[int]]:
    return [row.tolist() for row in ids]


def token(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, **{"normalized": False, **flags})


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize(
    ("added", "normalizer", "careful"),
    [
        (
            [token("<barn>", single_word=True), token("<owl>", single_word=True)],
            None,
            ["a<owl>s", "<owl>s", "the<owl>"],
        ),
        ([token("barn"), token("owl", normalized=True)], NFC, ["the owl\u0301", "owl\u0301s"]),
        ([token("<owl>", normalized=True)], NFC, ["a<owl>\u0338", "<owl>\u0338"]),
        ([token("  "), token("<owl>", rstrip=True)], None, ["<owl>  calls", "the <owl>   "]),
        ([token("\u00f3wl", normalized=True)], NFC, ["an o\u0301wl calls", "o\u0301wls"]),
        ([token("o\u0301wl", normalized=True)], NFC, ["an \u00f3wl calls", "\u00f3wls"]),
        ([token("o\u0301wl", normalized=True)], NFC, ["o\u0301wl\u0301", "o\u0301wl\u0301s"]),
        ([token("caf\u00e9")], NFC, ["cafe\u0301", "cafe\u0301 calls"]),
    ],
    ids=["single word", "accent", "stroke", "spaces", "composed", "decomposed", "more marks", "as spelled"],
)
def test_texts_in_which_the_faster_method_may_mistake_a_token_have_the_same_ids(
    added: list[AddedToken], normalizer: Any, careful: list[str]
) -> None:
    ids = made(of_bytes(*added, normalizer=normalizer))
    assert ids.is_fast and ids._fast
    texts = [careful[0], LINES[0], *careful[1:], "", LINES[1]]
    assert lists(ids.quick(texts)) == lists(ids.exact(texts))
    alike = [wrong == right for wrong, right in zip(lists(ids._fast(texts)), lists(ids.exact(texts)), strict=True)]
    assert alike == [text not in careful for text in texts], "each of them needs care, and no other text"
    far = [f"{LINES[0]} " * 2500 + text for text in careful]
    assert lists(ids.quick(far)) == lists(ids.exact(far))


@pytest.mark.guarantee("same-ids")
def test_only_texts_that_need_care_are_left_to_tokenizers() -> None:
    ids = made(of_words("owl", normalizer=NFC))
    ids._fast = lambda texts: Ragged.of([np.full(len(text), 7) for text in texts], np.int64)
    quick = ids.quick(["calls", "the owl", "in", "owl owl", "", "Ka\u0308uze"])
    assert lists(quick) == [[7] * 5, [1, 3], [7] * 2, [3, 3], [], [7] * 6]
    assert quick.values.dtype == np.uint16 == ids.quick(["calls"]).values.dtype
    assert lists(ids.quick([])) == []


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize(
    ("fast", "expected"),
    [
        (lambda exact: lambda texts: exact(texts), True),
        (lambda exact: lambda texts: Ragged(exact(texts).values + 1, exact(texts).offsets), False),
        (lambda exact: lambda texts: Ragged(exact(texts).values, np.minimum(exact(texts).offsets, 1)), False),
        (lambda exact: lambda texts: exact(texts[:-1]), False),
    ],
    ids=["equal", "another id", "another end of a text", "a text less"],
)
def test_ids_agree_if_they_and_the_ends_of_texts_are_equal(
    fast: Callable[[Any], Callable[[Sequence[str]], Ragged]], expected: bool
) -> None:
    ids = made(of_words())
    ids._fast = fast(ids.exact)
    assert ids.agrees(["the owl", "calls", "in"]) is expected


@pytest.mark.guarantee("same-ids")
def test_a_text_that_a_method_cannot_encode_agrees_with_none() -> None:
    ids = made(of_words(unknown=None))
    assert not ids.is_fast and not ids.agrees(["an unknown"])
    assert lists(ids.quick(["the owl"])) == [[1, 3]]
    with pytest.raises(TokenizerError, match=r"cannot encode a text: .*UNK"):
        ids.quick(["an unknown"])
    ids = made(of_words())
    ids._fast = lambda texts: 1 / 0  # type: ignore[assignment,return-value]
    assert not ids.agrees(["the owl"])
    with pytest.raises(TokenizerError, match="cannot encode a text: division by zero"):
        ids.quick(["the owl"])


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (of_words(normalizer=normalizers.Replace("New York", "owl")), "in New York"),
        (of_words(normalizer=normalizers.Sequence([NFC, normalizers.Replace("New York", "owl")])), "in New York"),
        (of_words(normalizer=normalizers.Sequence([normalizers.Replace("barn owl", "owl"), NFC])), "the barn owl"),
        (of_words(*[f"<{number}>" for number in range(300)], "New York"), "in New York"),
        (of_words("New York", *[f"<{number}>" for number in range(300)]), "in New York"),
        (of_words(*[f"<{number}>" for number in range(300)], "New\nYork"), "in New\nYork"),
    ],
    ids=["a normalizer", "its last step", "its first step", "last token", "first token", "a token with a line end"],
)
def test_a_tokenizer_that_joins_words_is_not_run_word_by_word(data: bytes, text: str) -> None:
    ids = made(data)
    assert not ids.is_fast
    assert lists(ids.quick([text])) == lists(ids.exact([text]))


@pytest.mark.guarantee("same-ids")
def test_a_tokenizer_that_splits_at_spaces_alone_is_run_word_by_word() -> None:
    ids = made(of_words("<owl>", normalizer=normalizers.Sequence([normalizers.Lowercase(), NFC])))
    assert ids.is_fast
    assert lists(ids.quick(["THE\nbarn owl  <owl>", ""])) == [[1, 2, 3, 8], []]


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_a_tokenizer_that_the_faster_library_refuses_is_left_to_tokenizers(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: bytes) -> Any:
        raise error("unsupported")

    monkeypatch.setattr(gigatoken.Tokenizer, "from_json", refuse)
    ids = made(of_bytes())
    assert not ids.is_fast
    assert lists(ids.quick(LINES)) == lists(ids.exact(LINES))


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize("other", [None, b"owl", 7])
@pytest.mark.parametrize("data", [of_words(), of_bytes()], ids=["words", "bytes"])
def test_what_is_no_text_is_refused_by_every_method(data: bytes, other: Any) -> None:
    ids = made(data)
    assert ids.is_fast
    for tokenize in (ids.quick, ids.exact):
        with pytest.raises(TokenizerError, match="cannot encode a text"):
            tokenize(["the barn owl", other])


@pytest.mark.guarantee("same-ids")
def test_thousands_of_texts_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call keeps Python's lock for a moment alone: a call for each text would hold up other threads."""
    encode_batch = gigatoken.Tokenizer.encode_batch
    calls: list[int] = []

    def noted(tokenizer: gigatoken.Tokenizer, texts: list[str], **options: Any) -> Any:
        calls.append(len(texts))
        return encode_batch(tokenizer, texts, **options)

    ids = made(of_bytes())
    texts = [*LINES * 1000, "owl " * 10_000, "", *(" ".join(LINES * size) for size in range(40))]
    expected = lists(ids.exact(texts))
    monkeypatch.setattr(gigatoken.Tokenizer, "encode_batch", noted)
    assert lists(ids.quick(texts)) == expected and calls == [len(texts)]


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize("prompts", [[], ["<s>query: "]], ids=["special as text", "special"])
def test_the_faster_method_knows_all_tokens_that_tokenizers_knows(prompts: list[str]) -> None:
    ids = made(of_bytes(token("<owl>"), token("<barn>"), token("<night>")), prompts=prompts)
    assert ids.is_fast and ids._fast and ids._careful is None
    texts = ["a<owl>b <barn><night>", "<s>the owl</s>", "<night> </s><s>"]
    assert lists(ids._fast(texts)) == lists(ids.exact(texts))


@pytest.mark.guarantee("same-ids")
def test_words_keep_their_ids_however_many_come_together_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokenizer, "TOGETHER", 2)
    ids = made(of_words())
    calls = [
        ["the barn owl calls", "owl the"],
        ["in New York the owl", ""],
        ["a word that nobody knows"],
        ["York barn"],
    ]
    for texts in calls:
        assert lists(ids.quick(texts)) == [[WORDS.get(word, 0) for word in text.split()] for text in texts]


@pytest.mark.guarantee("same-ids")
def test_words_are_forgotten_when_they_are_too_many_or_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    words = fast_tokenizer.WordTokens(load_tokenizer(of_words()))
    monkeypatch.setattr(fast_tokenizer, "MAX_IDS", 2)
    known = []
    for text in ("the barn", "owl", "in New", "in York"):
        assert lists(words([text])) == [[WORDS[word] for word in text.split()]]
        known.append([*words._numbers])
    assert known == [["the", "barn"], ["the", "barn", "owl"], ["in", "New"], ["in", "New", "York"]]
    monkeypatch.setattr(fast_tokenizer, "MAX_IDS", 100)
    monkeypatch.setattr(fast_tokenizer, "MAX_CHARACTERS", len("inNewYork"))
    known = []
    for text in ("owl", "barn", "the"):
        words([text])
        known.append([*words._numbers])
    assert known == [["in", "New", "York", "owl"], ["barn"], ["barn", "the"]]


@pytest.mark.guarantee("same-ids")
def test_each_call_proves_texts_from_its_beginning_to_its_end() -> None:
    """A method that mistakes a word is not used for a call in whose sample the word is."""
    ids = made(of_words())
    usual = ids._fast
    assert usual
    ids._fast = lambda texts: usual([text.replace("barn", "York") for text in texts])
    plain, size = ["the owl calls"] * 300, fast_tokenizer.SAMPLE
    for place in (None, 0, 2 * size, 299 // size * size, None, size):
        texts = [*plain]
        if place is not None:
            texts[place] = "the barn owl"
        assert lists(ids.quick_if_equal(texts)) == lists(ids.exact(texts)), place
    assert lists(ids.quick_if_equal(["in York", "the barn"])) == [[5, 7], [1, 7]], "the second text is not proved"


@pytest.mark.guarantee("same-ids")
def test_words_of_any_length_are_tokenized_whole() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ids = made(tokenizer.to_str().encode())
    ids._fast = fast_tokenizer.WordTokens(ids._tokenizer)  # it cannot encode other letters
    texts = ["ab" * 60_000 + "b", "a " + "b" * 60_000 + " a"]
    assert [row.tolist() for row in ids.quick(texts)] == [[2] * 60_000 + [1], [0, *[1] * 60_000, 0]]


@pytest.mark.guarantee("same-ids")
def test_of_very_many_added_tokens_each_is_one() -> None:
    ids = made(of_bytes(*(token(f"<{number}>", single_word=True) for number in range(300))))
    assert ids.is_fast
    texts = [text for number in (0, 150, 299) for text in (f"the<{number}>s", f"the <{number}> owl")]
    assert lists(ids.quick(texts)) == lists(ids.exact(texts))


@pytest.mark.guarantee("same-ids")
def test_threads_that_share_a_tokenizer_get_their_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread comes while the first one stores the ids of its words."""
    words = fast_tokenizer.WordTokens(load_tokenizer(of_words()))
    concatenate, threads, second = Ragged.concatenate, list[Thread](), list[list[list[int]]]()

    def interrupted(parts: Sequence[Ragged]) -> Ragged:
        if not threads:
            threads.append(Thread(target=lambda: second.append(lists(words(["New York owl", "barn"])))))
            threads[0].start()
            threads[0].join(0.05)
        return concatenate(parts)

    monkeypatch.setattr(Ragged, "concatenate", interrupted)
    assert lists(words(["the barn owl", "calls in"])) == [[1, 2, 3], [4, 5]]
    threads[0].join()
    assert second == [[[6, 7, 3], [2]]]
    assert lists(words(["the New barn York owl calls in"])) == [[1, 6, 2, 7, 3, 4, 5]]


@pytest.mark.guarantee("same-ids")
@pytest.mark.parametrize(
    ("lengths", "fraction", "expected"),
    [
        ([30, 1, 1], 0.0, [0]),
        ([4, 6, 1, 1], 0.0, [0, 1]),
        ([4, 7, 6, 1], 0.0, [0, 2]),
        ([8, 20, 20, 2, 1, 0], 0.25, [0, 3, 4, 5]),
        ([0, 11, 3], 0.0, [0, 1]),
        ([1, 10, 3], 0.0, [0, 2]),
    ],
)
def test_the_first_text_is_proved_and_then_what_a_share_or_a_minimum_allows(
    lengths: list[int], fraction: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenization, "PROOF_CHARACTERS", 10)
    monkeypatch.setattr(tokenization, "PROOF_FRACTION", fraction)
    unit = Tokenization(of_words())
    texts = ["x" * length for length in lengths]
    assert unit._sample(texts) == expected
    unit.start_unit()
    assert [index for index, text in enumerate(texts) if unit._sample([text])] == expected


@pytest.mark.guarantee("same-ids")
def test_each_text_of_the_sample_is_proved_up_to_the_longest_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization, "PROOF_LONGEST", 9)
    unit = Tokenization(of_words())
    texts, sources = ["the owl", "barn owl", "barn owl in New York", "the barn."], ["a:0", "a:1", "a:2", "a:3"]
    assert lists(unit.tokenize(texts, sources)) == [[1, 3], [2, 3], [2, 3, 5, 6, 7], [1, 0]]
    usual = unit._ids._fast
    assert usual
    for text, source in zip(["the owl", "barn owl", "barn owl ", "the barn."], sources, strict=True):
        for given in ("York", f"{text} York", text.split()[0]):
            unit.start_unit()
            by_text = {text: given}
            unit._ids._fast = lambda texts, by_text=by_text: usual([by_text.get(text, text) for text in texts])
            with pytest.raises(PipelineError, match=f"^{source}: fast tokenization and tokenizers give different ids"):
                unit.tokenize(texts, sources)
