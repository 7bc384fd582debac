"""Tokenizers as the trainer and the evaluator load them: special tokens by template, ids within bounds."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from clearspan.common.model_folder import EncoderError
from clearspan.common.token_ids import vocab_size
from clearspan.train.model.tokenizer import load_shards_tokenizer, load_tokenizer, special_tokens

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
CHINESE = [*SPECIAL, *"中国人民"]
TEMPLATE = [("[CLS]", 1), ("[SEP]", 2)]


def chinese(model: Any, single: str = "[CLS] $A [SEP]") -> Any:
    """A tokenizer without a Latin letter."""
    tokenizer = Tokenizer(model)
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=TEMPLATE)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", mask_token="[MASK]")


VOCABULARY = {token: number for number, token in enumerate(CHINESE)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prefix", "suffix"), [("roberta-base", [0], [2]), ("bert-base-uncased", [101], [102]), ("gpt2", [], [])]
)
def test_special_tokens_are_those_that_the_tokenizer_itself_puts_around_a_text(
    shared_data: Path, name: str, prefix: list[int], suffix: list[int]
) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / name)
    found = special_tokens(tokenizer)
    assert (found.prefix, found.suffix) == (prefix, suffix)
    text = "Owls hunt at night."
    bare = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer(text)["input_ids"] == [*prefix, *bare, *suffix]


@pytest.mark.parametrize(
    ("single", "prefix", "suffix"), [("$A", [], []), ("[CLS] [CLS] $A", [1, 1], []), ("$A [SEP]", [], [2])]
)
def test_templates_of_other_forms(single: str, prefix: list[int], suffix: list[int]) -> None:
    found = special_tokens(chinese(models.BPE(VOCABULARY, []), single))
    assert (found.prefix, found.suffix) == (prefix, suffix)


@pytest.mark.parametrize("single", ["[CLS] [SEP]", "$A [SEP] $A"])
def test_a_template_that_does_not_hold_the_sequence_once_is_refused(single: str) -> None:
    with pytest.raises(EncoderError, match="must hold a sequence once"):
        special_tokens(chinese(models.BPE(VOCABULARY, []), single))


def with_id(source: Path, folder: Path, number: int, bare: bool) -> Path:
    """A copy of a tokenizer with one more token, of that id."""
    folder.mkdir()
    record = json.loads((source / "tokenizer.json").read_text("utf-8"))
    record["model"]["vocab"]["zebra\u0120crossing"] = number
    (folder / "tokenizer.json").write_text(json.dumps(record))
    if not bare:
        shutil.copy(source / "tokenizer_config.json", folder)
    return folder


@pytest.mark.guarantee("no-network")
@pytest.mark.slow
@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased"])
def test_an_id_far_beyond_the_vocabulary_is_refused(shared_data: Path, tmp_path: Path, name: str, bare: bool) -> None:
    folder = with_id(shared_data / "tokenizers" / name, tmp_path / "t", 4_000_000_000, bare)
    with pytest.raises(EncoderError, match="id 4,000,000,000 ") as error:
        load_tokenizer(folder)
    assert str(folder) in str(error.value)


@pytest.mark.guarantee("no-network")
def test_an_id_far_beyond_a_vocabulary_in_its_old_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "merges.txt").write_text("#version: 0.2\no w\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    (tmp_path / "vocab.json").write_text('{"o": 0, "w": 1, "ow": 2}')
    assert load_tokenizer(tmp_path)("ow")["input_ids"] == [2]
    (tmp_path / "vocab.json").write_text('{"o": 0, "w": 1, "ow": 4000000000}')
    with pytest.raises(EncoderError, match=f"^{tmp_path}: no usable tokenizer .'ow' has id 4,000,000,000 in a vocab"):
        load_tokenizer(tmp_path)


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    ("vocabulary", "added", "special"),
    [
        (CHINESE, [], dict(zip(("pad", "cls", "sep", "mask", "unk"), SPECIAL, strict=True))),
        (["<s>", "中", "<pad>"], ["<unk>"], {"pad": "<pad>", "cls": "<s>", "unk": "<unk>"}),
        (["中", "[PAD]"], ["</s>", "<mask>"], {"pad": "[PAD]", "sep": "</s>", "mask": "<mask>"}),
        (["中"], [], {}),
    ],
)
def test_special_tokens_of_a_tokenizer_json_alone_are_found_by_their_usual_names(
    tmp_path: Path, vocabulary: list[str], added: list[str], special: dict[str, str]
) -> None:
    backend = Tokenizer(models.WordLevel({token: number for number, token in enumerate(vocabulary)}, "中"))
    backend.add_special_tokens(added)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).special_tokens_map == {f"{key}_token": token for key, token in special.items()}


@pytest.mark.exhaustive
def test_a_vocabulary_with_gaps_counts_to_its_largest_id(shared_data: Path, tmp_path: Path) -> None:
    folder = with_id(shared_data / "tokenizers" / "roberta-base", tmp_path / "t", 100_000, False)
    tokenizer = load_tokenizer(folder)
    assert (len(tokenizer), vocab_size(tokenizer.get_vocab())) == (50_266, 100_001)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased", "gpt2"])
def test_a_tokenizer_that_transformers_makes_otherwise_than_its_file_says_is_refused(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(shared_data / "tokenizers" / name, folder)
    assert load_shards_tokenizer(folder).is_fast
    record = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    lower = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    record["normalizer"] = {**lower, "lowercase": name != "bert-base-uncased"}
    (folder / "tokenizer.json").write_text(json.dumps(record))
    with pytest.raises(EncoderError, match=r"gives other ids than tokenizer\.json.*The Police ARE"):
        load_shards_tokenizer(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    load_shards_tokenizer(folder)
