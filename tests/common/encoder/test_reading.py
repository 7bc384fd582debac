"""A reader gives the ids that sentence-transformers gives to a model, for every kind of tokenizer and odd texts."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Transformer
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.normalizers import NFKC
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    ByT5Tokenizer,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)

from clearspan.common.encoder.library import load_with_library
from clearspan.common.encoder.reading import LibraryReader
from clearspan.common.encoder.tokens import TokenReader, Tokens
from clearspan.common.model_folder import EncoderError

LIMIT = 24
ODD = [
    "",
    " ",
    "   leading and trailing  ",
    "An owl of the northern woods hunts by ear, at night and in snow.",
    "don't I'LL they've 1,234.5 times",
    "naïve café cafe\u0301 ÀÉÎ ſ ǅ ß İ \u0345 \u0301",
    "日本語のテキスト 한국어 ไทย العربية हिन्दी",
    "🙂🙂 👨‍👩‍👧 🏳️‍🌈 \U0010ffff",
    "a\x00b \x00 \x1b[0m \x07 \ufeff\u200b\u2028c\u2029d\u3000e\u00a0f\x85g",
    "tab\tnewline\nreturn\r\n\n\nend",
    "[CLS] a [SEP]b [MASK] <s> c</s><mask> <pad> <|endoftext|> <|im_start|> <extra_id_0> [PAD]",
    "a <extra> b  <extra>c",
    "owl " * 500,
    "x" * 5000,
    "…—“quoted” ½ ² Ⅳ ﬁ ＡＢＣ",
]
PROMPTS = ("", "query: ", "Instruct: find an owl\nQuery:", "prompt of many words " * 12)


def corpus(shared_data: Path) -> list[str]:
    path = shared_data / "sentences" / "wiki1m_head_11914.txt"
    return path.read_text("utf-8").splitlines()[:400]


def wordpiece(shared_data: Path) -> Any:
    return BertTokenizer.from_pretrained(shared_data / "tokenizers" / "bert-base-uncased")


def roberta(shared_data: Path) -> Any:
    return RobertaTokenizer.from_pretrained(shared_data / "tokenizers" / "roberta-base")


def byte_level(shared_data: Path) -> dict[str, Any]:
    return dict(json.loads((shared_data / "tokenizers" / "gpt2" / "tokenizer.json").read_bytes())["model"])


def modernbert(shared_data: Path) -> Any:
    """Byte-level BPE with BERT's special tokens, and runs of spaces that are tokens."""
    model = byte_level(shared_data)
    tokenizer = Tokenizer(models.BPE(model["vocab"], [tuple(pair) for pair in pairs(model)]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"])
    tokenizer.add_tokens([AddedToken(" " * number, normalized=True) for number in range(2, 12)])
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    named = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **named)


def pairs(model: dict[str, Any]) -> list[list[str]]:
    return [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]


def qwen2(shared_data: Path) -> Any:
    """No special tokens around a text: an empty one has no ids."""
    model = byte_level(shared_data)
    return Qwen2Tokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in pairs(model)])


def unigram(shared_data: Path, special: list[str]) -> list[tuple[str, float]]:
    trained = Tokenizer(models.Unigram())
    trained.normalizer = NFKC()
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trainer = trainers.UnigramTrainer(vocab_size=2000, special_tokens=special, unk_token="<unk>", show_progress=False)
    trained.train_from_iterator(corpus(shared_data), trainer)
    return [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"]]


def xlm_roberta(shared_data: Path) -> Any:
    return XLMRobertaTokenizer(vocab=unigram(shared_data, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]))


def t5(shared_data: Path) -> Any:
    return T5Tokenizer(vocab=unigram(shared_data, ["<pad>", "</s>", "<unk>"]), extra_ids=5)


def saved(tokenizer: Any, folder: Path, **changes: Any) -> Path:
    """Write a model of one layer with a tokenizer, and changes of its settings."""
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    torch.manual_seed(0)
    rows = max(tokenizer.get_vocab().values()) + 1
    config = BertConfig(**size, vocab_size=rows, max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": LIMIT, **changes}))
    return folder


def loaded(folder: Path) -> tuple[LibraryReader, Transformer]:
    """Return the reader of a model, and its transformer."""
    transformer = load_with_library(folder).modules[0]
    return LibraryReader(transformer, folder.name), transformer


def ids_of(tokens: Tokens) -> list[list[int]]:
    return [row.tolist() for row in np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])]


def assert_read_as_by_the_library(
    reader: LibraryReader, transformer: Transformer, texts: list[str], prompt: str
) -> None:
    """Compare with one call of the library for each text, after which its tokenizer truncates and pads."""
    tokens = reader.read(texts, prompt)
    assert (tokens.ids.dtype, tokens.lengths.dtype, tokens.is_truncated.dtype) == (np.int32, np.int32, bool)
    for text, ids, is_truncated in zip(texts, ids_of(tokens), tokens.is_truncated, strict=True):
        features = transformer.preprocess([text], prompt=prompt or None)
        assert ids == features["input_ids"][0].tolist(), text
        whole = transformer.tokenizer(prompt + text, truncation=False, verbose=False)["input_ids"]
        assert is_truncated == (len(whole) > LIMIT), text
        assert tokens.prompt_tokens == features.get("prompt_length", 0)


@pytest.fixture(scope="module")
def made(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Callable], tuple[LibraryReader, Transformer]]:
    known: dict[str, tuple[LibraryReader, Transformer]] = {}

    def make(kind: Callable[[Path], Any]) -> tuple[LibraryReader, Transformer]:
        if kind.__name__ not in known:
            known[kind.__name__] = loaded(saved(kind(shared_data), tmp_path_factory.mktemp("models") / "model"))
        return known[kind.__name__]

    return make


KINDS = (wordpiece, roberta, modernbert, qwen2, xlm_roberta, t5)


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.guarantee("same-vectors")
@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS, ids=["none", "short", "lines", "long"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_texts_are_read_as_by_the_library(made: Callable, shared_data: Path, kind: Callable, prompt: str) -> None:
    """Few texts are tokenized by `tokenizers`, many in a faster way."""
    reader, transformer = made(kind)
    assert reader.is_fast
    assert_read_as_by_the_library(reader, transformer, ODD, prompt)
    assert_read_as_by_the_library(reader, transformer, [*ODD, *corpus(shared_data)[:80], *ODD], prompt)
    assert reader._quick.is_fast


@pytest.mark.guarantee("one-model-a-gpu", "same-vectors", "special-tokens-are-text")
@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS[:2], ids=["none", "short"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_another_process_reads_the_same_by_a_description(
    made: Callable, shared_data: Path, kind: Callable, prompt: str
) -> None:
    reader, texts = made(kind)[0], [*ODD, *corpus(shared_data)[:80]]
    again = TokenReader.from_description(json.loads(json.dumps(reader.description())))
    for some in (texts, texts[:20]):
        one, other = reader.read(some, prompt), again.read(some, prompt)
        assert ids_of(one) == ids_of(other) and one.prompt_tokens == other.prompt_tokens
        assert one.is_truncated.tolist() == other.is_truncated.tolist()
    assert reader.count(texts).tolist() == again.count(texts).tolist() and reader.most_tokens == again.most_tokens


def settings(tokenizer: Any, transformer: Transformer) -> dict[str, Callable[[], None]]:
    """Changes of a model's settings after it was loaded."""
    return {
        "truncation side": lambda: setattr(tokenizer, "truncation_side", "left"),
        "length limit": lambda: setattr(transformer, "max_seq_length", 9),
        "truncation and padding": lambda: tokenizer(["a", "b c"], padding="max_length", truncation=True, max_length=5),
    }


@pytest.mark.guarantee("same-vectors")
@pytest.mark.slow
@pytest.mark.parametrize("setting", ["truncation side", "length limit", "truncation and padding"])
@pytest.mark.parametrize("kind", [wordpiece, roberta, t5], ids=lambda kind: kind.__name__)
def test_settings_that_change_later_apply(shared_data: Path, tmp_path: Path, kind: Callable, setting: str) -> None:
    reader, transformer = loaded(saved(kind(shared_data), tmp_path / "model"))
    settings(transformer.tokenizer, transformer)[setting]()
    texts = [*ODD, *corpus(shared_data)[:60]]
    tokens = reader.read(texts, "query: ")
    settings(transformer.tokenizer, transformer)[setting]()
    for text, ids in zip(texts, ids_of(tokens), strict=True):
        assert ids == transformer.preprocess([text], prompt="query: ")["input_ids"][0].tolist(), text
    counts = reader.count(texts)
    assert counts.tolist() == [len(transformer.tokenizer(text, **WHOLE)["input_ids"]) for text in texts]


WHOLE = {"add_special_tokens": False, "truncation": False, "verbose": False}


@pytest.mark.guarantee("same-vectors")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [wordpiece, roberta, xlm_roberta], ids=lambda kind: kind.__name__)
def test_lower_casing_by_the_library_is_that_of_the_ids(shared_data: Path, tmp_path: Path, kind: Callable) -> None:
    """`do_lower_case` of a folder puts a step before the tokenizer's own."""
    folder = saved(kind(shared_data), tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    transformer = Transformer(str(folder), do_lower_case=True)
    reader = LibraryReader(transformer, "model")
    assert_read_as_by_the_library(reader, transformer, [*ODD, *corpus(shared_data)[:60]], "")
    assert reader.is_fast and (reader._quick.is_fast or kind is roberta)
    upper, lower, *_ = ids_of(reader.read(["AN OWL", "an owl"] * 40))
    assert upper == lower


def python_tokenizer(_: Path) -> Any:
    """A tokenizer in Python, of bytes."""
    return ByT5Tokenizer()


@pytest.mark.slow
@pytest.mark.parametrize("why", ["no tokenizer.json", "own length in processing_kwargs", "own preprocessing"])
def test_what_cannot_be_read_here_is_read_by_the_library(
    shared_data: Path, tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved((python_tokenizer if why == "no tokenizer.json" else wordpiece)(shared_data), tmp_path / "model")
    transformer = Transformer(str(folder))
    if why == "own length in processing_kwargs":
        transformer.processing_kwargs = {"text": {"max_length": 7}}
    if why == "own preprocessing":
        own = transformer.preprocess
        monkeypatch.setattr(transformer, "preprocess", lambda texts, **kw: own([f"{t}!" for t in texts], **kw))
    reader = LibraryReader(transformer, "model")
    assert not reader.is_fast
    texts = [*ODD, *corpus(shared_data)[:80]]
    for prompt in ("", "query: "):
        for text, ids in zip(texts, ids_of(tokens := reader.read(texts, prompt)), strict=True):
            features = transformer.preprocess([text], prompt=prompt or None)
            assert ids == features["input_ids"][0].tolist(), text
            assert tokens.prompt_tokens == features.get("prompt_length", 0)
    assert reader.count(texts).tolist() == [len(transformer.tokenizer(text, **WHOLE)["input_ids"]) for text in texts]
    assert len(reader.read([], "query: ")) == len(reader.count([])) == 0


@pytest.mark.slow
def test_an_id_without_an_embedding_is_refused(made: Callable, shared_data: Path, tmp_path: Path) -> None:
    reader, transformer = loaded(saved(wordpiece(shared_data), tmp_path / "model"))
    transformer.tokenizer.add_tokens(["owlish"])
    with pytest.raises(EncoderError, match="model: its tokenizer gives id 30,522, but its model has 30,522 embeddings"):
        reader.read(["an owlish text"])


@pytest.mark.slow
def test_no_texts_are_read(made: Callable) -> None:
    tokens = made(wordpiece)[0].read([], "query: ")
    assert (len(tokens), tokens.ids.dtype, tokens.lengths.dtype) == (0, np.int32, np.int32)
    assert made(wordpiece)[0].count([]).tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_threads_may_share_a_reader(made: Callable, shared_data: Path, kind: Callable) -> None:
    reader, texts = made(kind)[0], corpus(shared_data)
    alone = [reader.read(texts[first : first + 100]) for first in range(0, 400, 100)]
    reader.__dict__.pop("_quick")
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda first: reader.read(texts[first : first + 100]), range(0, 400, 100)))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.lengths, other.lengths)
