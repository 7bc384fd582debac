"""Special tokens that a text spells out are text: in shards of every kind, with every tokenizer and backend."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

from clearspan.common import fast_tokenizer
from clearspan.common.encoder.tokens import PostProcessing, TokenReader
from clearspan.common.fast_tokenizer import FastTokenizer
from clearspan.common.special_tokens import json_without_hiding, read_special_as_text, spell_special
from clearspan.pipelines.__main__ import main
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.pipelines.text.tokenization import BACKENDS, Tokenization
from clearspan.shards import Dataset

WRITTEN = ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "<|endoftext|>", "[DEL]")


def spelling(texts: list[str]) -> list[str]:
    """Return real texts into whose words special tokens are written."""
    made = []
    for number, text in enumerate(texts):
        words = text.split(" ")
        for place in range(number % 3, min(len(words), 200), 7):
            words[place] += (" ", "")[place % 2] + WRITTEN[(number + place) % len(WRITTEN)]
        made.append(" ".join(words))
    return [*made, *WRITTEN, "".join(WRITTEN), " ".join(WRITTEN)]


def special_ids(tokenizer: Tokenizer) -> set[int]:
    return {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased", "gpt2"])
def test_a_special_token_in_a_text_has_the_ids_of_its_characters(
    name: str, shared_data: Path, texts: list[str]
) -> None:
    """As in transformers with `split_special_tokens`, by each backend."""
    folder = shared_data / "tokenizers" / name
    data = (folder / "tokenizer.json").read_bytes()
    some = spelling(texts[:40])
    theirs = AutoTokenizer.from_pretrained(folder)
    expected = theirs(some, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert expected != theirs(some, add_special_tokens=False)["input_ids"]
    for backend in BACKENDS:
        made = Tokenization(data, backend=backend)
        assert made._ids.is_fast is (backend == "auto")
        assert [ids.tolist() for ids in made.tokenize(some, some)] == expected
        present = special_ids(made.tokenizer).intersection(np.concatenate(expected).tolist())
        assert present <= {made.tokenizer.token_to_id("[UNK]")}  # of words that BERT does not know


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["documents", "sentences", "pairs"])
def test_shards_hold_no_special_token_but_those_of_views(
    kind: str, shared_data: Path, texts: list[str], tmp_path: Path
) -> None:
    some = spelling(texts[:10])
    records = ({"text": text, "title": f"<s> {text[:40]} [MASK]"} for text in some)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    tokenizer = shared_data / "tokenizers" / "bert-base-uncased"
    words = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out"), "--tokenizer", str(tokenizer)]
    own = {
        "documents": ["--min-tokens", "1"],
        "sentences": ["--augment", "del-span"],
        "pairs": ["--fields", "title,text"],
    }[kind]
    assert main([kind, *words, *own, "--quiet"]) == 0
    dataset = Dataset(str(tmp_path / "out"))
    made = Tokenizer.from_file(str(dataset.local_tokenizer() / "tokenizer.json"))
    deletion = made.token_to_id("[DEL]")
    found = dict(columns(dataset))
    assert len(found) > (kind != "documents")
    for column, ids in found.items():
        present = special_ids(made).intersection(ids.tolist()) - {made.token_to_id("[UNK]")}
        assert present == ({deletion} if column.startswith("view_") else set()), column


def columns(dataset: Dataset) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each token column and all of its ids."""
    (batch,) = dataset
    for name in batch.schema.names:
        column = batch.column(name)
        if hasattr(column.type, "value_type"):
            yield name, column.flatten().to_numpy()


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.parametrize("model", ["Unigram", "WordLevel"])
def test_a_models_own_entry_for_a_special_token_is_no_piece_of_text(model: str) -> None:
    """T5 and XLM-R have such entries, which `split_special_tokens` alone still gives."""
    pieces = ["<unk>", "</s>", "▁", "the", "cat", "<", "/", "s", ">"]
    if model == "Unigram":
        tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        expected = ["▁", "the", "▁", "<", "/", "s", ">", "cat", "▁", "cat"]
    else:
        tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        expected = ["the", "<unk>", "cat"]
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    text = "the </s>cat cat" if model == "Unigram" else "the </s> cat"
    made = fast_tokenizer.load_tokenizer(tokenizer.to_str().encode())
    assert made.encode(text).tokens == expected
    assert made.token_to_id("</s>") == 1 and made.decode([3, 1], skip_special_tokens=False).endswith("</s>")


PIECES = ["[UNK]", "[MASK]", "</s>", "the", "owl", "[", "]", "<", "/", "s", ">", "##MASK", "##]", "##/", "##s", "##>"]


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.parametrize(
    ("model", "before", "expected"),
    [
        ("WordPiece", pre_tokenizers.WhitespaceSplit(), "the [ ##MASK ##] owl < ##/ ##s ##>"),
        ("WordPiece", pre_tokenizers.Split(" ", "removed"), "the [ ##MASK ##] owl < ##/ ##s ##>"),
        ("WordPiece", pre_tokenizers.BertPreTokenizer(), "the [ [UNK] ] owl < / s >"),
        ("merges ignored", pre_tokenizers.WhitespaceSplit(), "the [ [UNK] ] owl < / s >"),
        ("BPE", pre_tokenizers.WhitespaceSplit(), "the [ [UNK] ] owl < / s >"),
        ("WordLevel", pre_tokenizers.WhitespaceSplit(), "the [UNK] owl [UNK]"),
        ("Unigram", pre_tokenizers.WhitespaceSplit(), "the [ [UNK] ] owl < / s >"),
    ],
)
def test_a_special_token_that_stays_a_whole_word_is_no_word_of_the_model(
    model: str, before: pre_tokenizers.PreTokenizer, expected: str
) -> None:
    ids = {piece: number for number, piece in enumerate([*PIECES, *"theowl"])}
    merges = [("t", "h"), ("th", "e"), ("o", "w"), ("ow", "l")]
    ids |= {"".join(pair): ids.get("".join(pair), len(ids) + number) for number, pair in enumerate(merges)}
    made = {
        "WordPiece": lambda: models.WordPiece(ids, unk_token="[UNK]"),
        "BPE": lambda: models.BPE(ids, merges, unk_token="[UNK]", fuse_unk=True),
        "merges ignored": lambda: models.BPE(ids, merges, unk_token="[UNK]", fuse_unk=True, ignore_merges=True),
        "WordLevel": lambda: models.WordLevel(ids, unk_token="[UNK]"),
        "Unigram": lambda: models.Unigram([(piece, -float(number)) for piece, number in ids.items()], 0),
    }[model]()
    tokenizer = Tokenizer(made)
    tokenizer.pre_tokenizer = before
    tokenizer.add_special_tokens(["[UNK]", "[MASK]", "</s>"])
    loaded = fast_tokenizer.load_tokenizer(tokenizer.to_str().encode())
    assert loaded.encode("the [MASK] owl </s>").ids == [ids[piece] for piece in expected.split(" ")]
    assert [loaded.token_to_id(token) for token in ("[UNK]", "[MASK]", "</s>")] == [0, 1, 2]
    assert json.loads(json_without_hiding(loaded))["model"] == json.loads(tokenizer.to_str())["model"]


@pytest.mark.guarantee("special-tokens-are-text")
def test_a_special_token_that_merges_make_is_found_by_its_name() -> None:
    """A model that ignores merges for whole words would lose the merges with it."""
    ids = {piece: number for number, piece in enumerate(["[UNK]", "<", "s", ">", "<s", "<s>", "[MASK]"])}
    made = models.BPE(ids, [("<", "s"), ("<s", ">")], unk_token="[UNK]", ignore_merges=True)
    tokenizer = Tokenizer(made)
    tokenizer.add_special_tokens(["[UNK]", "<s>", "[MASK]"])
    loaded = fast_tokenizer.load_tokenizer(tokenizer.to_str().encode())
    assert loaded.encode("<s").ids == [4] and loaded.token_to_id("<s>") == 5
    assert 6 not in loaded.encode("[MASK]").ids


@pytest.mark.guarantee("special-tokens-are-text")
def test_an_added_token_that_is_not_special_keeps_its_id(shared_data: Path) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / "gpt2" / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<drug>", normalized=False)])
    made = FastTokenizer(fast_tokenizer.load_tokenizer(tokenizer.to_str().encode()), np.uint32)
    for ids in (made.quick(["a<drug>b"])[0], made.exact(["a<drug>b"])[0]):
        assert 50257 in ids.tolist()


@pytest.mark.guarantee("special-tokens-are-text")
def test_a_learned_tokenizer_makes_no_special_token_of_text(tmp_path: Path, texts: list[str]) -> None:
    """Not even where a corpus is full of them, so that merges could make them."""
    some = [f"<s>{text[:300]}</s><mask> {' <s>' * 50}" for text in texts[:50]]
    learn_tokenizer(some, 1000, tmp_path)
    made = Tokenization((tmp_path / "tokenizer.json").read_bytes())
    ids = made.tokenize(some, some).values
    assert len(special_ids(made.tokenizer)) == 5 and special_ids(made.tokenizer).isdisjoint(ids.tolist())


def of_owls(model: str, byte_fallback: bool = False) -> Tokenizer:
    """Return a tokenizer with two special tokens that its model knows, too."""
    pieces = ["[UNK]", "</s>", "▁", "the", "owl", "<", "/", "s", ">", "[MASK]"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    made = {
        "Unigram": lambda: models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, byte_fallback),
        "WordLevel": lambda: models.WordLevel(ids, unk_token="[UNK]"),
        "WordPiece": lambda: models.WordPiece(ids, unk_token="[UNK]"),
        "BPE": lambda: models.BPE(ids, [], unk_token="[UNK]", dropout=0.5),
    }[model]()
    tokenizer = Tokenizer(made)
    by_words = pre_tokenizers.BertPreTokenizer() if model == "WordPiece" else pre_tokenizers.WhitespaceSplit()
    tokenizer.pre_tokenizer = by_words
    tokenizer.add_special_tokens(["[UNK]", "</s>", "[MASK]"])
    tokenizer.add_tokens(["owl"])
    return tokenizer


KNOWING = pytest.mark.parametrize("model", ["Unigram", "WordLevel", "WordPiece", "BPE"])


@pytest.mark.guarantee("special-tokens-are-text")
@KNOWING
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_tokenizer_that_reads_special_tokens_as_text_is_described_as_it_was(model: str, byte_fallback: bool) -> None:
    tokenizer = of_owls(model, byte_fallback)
    before = json.loads(tokenizer.to_str())
    read_special_as_text(tokenizer)
    assert tokenizer.encode_special_tokens
    now = json.loads(tokenizer.to_str())["model"]
    hides = {"Unigram": 3, "BPE": 0}.get(model, 2)  # [UNK] of words that are not known stays
    known = [entry[0] if model == "Unigram" else entry for entry in now["vocab"]]
    assert sum(entry in known for entry in ("[UNK]", "</s>", "[MASK]")) == 3 - hides and "owl" in known
    described = json.loads(json_without_hiding(tokenizer))
    assert described["model"] == before["model"] and described["added_tokens"] == before["added_tokens"]


@pytest.mark.guarantee("special-tokens-are-text")
@KNOWING
def test_a_special_token_is_recognized_only_if_a_prompt_spells_it_out(model: str) -> None:
    tokenizer = of_owls(model)
    assert all(spell_special(tokenizer, ["query: ", f"the{token}"]) for token in ("[UNK]", "</s>", "[MASK]"))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    data = tokenizer.to_str().encode()
    for prompts, is_special in (((), False), (("query: ", ""), False), (("query: ", "the [MASK] "), True)):
        assert spell_special(tokenizer, prompts) is is_special
        loaded = fast_tokenizer.load_tokenizer(data, prompts=iter(prompts))
        ids = loaded.encode("the [MASK] </s> owl the", add_special_tokens=False).ids
        assert ({9, 1} <= {*ids}) is is_special and ({9, 1}.isdisjoint(ids)) is not is_special
        assert 4 in ids and len(ids) >= 5 and getattr(loaded.model, "dropout", None) is None
        assert len(fast_tokenizer.load_tokenizer(data, True, prompts).encode("the owl the").ids) == 2


@pytest.mark.guarantee("special-tokens-are-text")
@KNOWING
def test_special_tokens_of_any_spelling_and_number_are_text(model: str) -> None:
    special = [
        "@@mask",
        "owlsep",
        "madeup7",
        "|end|",
        "{pad}",
        "\u2581eos",
        "ÄÖ",
        "<a>",
        "</a>",
        "[B]",
        "<extra_id_0>",
        "zz",
    ]
    pieces = [*special, *sorted({*"".join(special), "[UNK]"})]
    ids = {piece: number for number, piece in enumerate(pieces)}
    made = {
        "Unigram": lambda: models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], ids["[UNK]"]),
        "WordLevel": lambda: models.WordLevel(ids, unk_token="[UNK]"),
        "WordPiece": lambda: models.WordPiece(ids, unk_token="[UNK]"),
        "BPE": lambda: models.BPE(ids, [], unk_token="[UNK]", ignore_merges=True),
    }[model]()
    tokenizer = Tokenizer(made)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    texts = [f"a {token} b" for token in special] + [f"\0{token} \0 {token}" for token in special]
    for loaded in (fast_tokenizer.load_tokenizer(tokenizer.to_str().encode(), prompts=["query: "]) for _ in range(2)):
        found = {number for text in texts for number in loaded.encode(text).ids}
        assert found and found.isdisjoint(range(len(special)))
    for token in special:  # each is one in a model whose prompt has it, also after another use
        loaded = fast_tokenizer.load_tokenizer(tokenizer.to_str().encode(), prompts=["", f"{token} query: "])
        assert ids[token] in loaded.encode(f"a {token} b").ids


@pytest.mark.guarantee("special-tokens-are-text")
def test_readers_of_one_name_read_as_their_own_description_says() -> None:
    """As after a model was trained on, or given a prompt, under the same name."""
    texts, descriptions, expected = ["the [MASK] owl </s>"], [], []
    for model, prompt in (("WordPiece", ""), ("WordPiece", "[MASK] "), ("Unigram", ""), ("WordPiece", "")):
        loaded = fast_tokenizer.load_tokenizer(of_owls(model).to_str().encode(), prompts=[prompt])
        reader = TokenReader(loaded, PostProcessing([1], [9], 12, False, [0, 1, 9]), 10, "owls")
        descriptions.append(reader.description())
        expected.append(reader.read(texts).ids.tolist())
    assert [TokenReader.from_description(each).read(texts).ids.tolist() for each in descriptions] == expected
    assert expected[0] == expected[3] and len({*map(tuple, expected)}) == 3


@pytest.mark.guarantee("special-tokens-are-text")
@KNOWING
@pytest.mark.parametrize("prompt", ["", "[MASK] "])
def test_a_reader_by_its_description_reads_special_tokens_as_the_first_one(model: str, prompt: str) -> None:
    loaded = fast_tokenizer.load_tokenizer(of_owls(model).to_str().encode(), prompts=[prompt])
    reader = TokenReader(loaded, PostProcessing([1], [9], 12, False, [0, 1, 9]), 10, "owls")
    description = json.loads(json.dumps(reader.description()))
    again = TokenReader.from_description(description)
    assert again.description() == description
    texts = ["the [MASK] owl", "</s> the", ""]
    assert again.read(texts).ids.tolist() == reader.read(texts).ids.tolist()
    assert (sorted(reader.read(texts[:1]).ids.tolist())[-2:] == [9, 9]) is bool(prompt)
