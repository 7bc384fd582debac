"""What an export writes, by tiny encoders: its card, the masked-LM head, and settings that libraries read."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer, models, processors
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    DistilBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.reading import _around
from clearspan.train.card import NO_STEP, Origin
from clearspan.train.export import save_model
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.mlm_head import HEAD

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "an", "owl", "hunts", "at", "night"]
SIZE = {"vocab_size": len(WORDS), "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "pad_token_id": 0}
CONFIGS = {
    "bert": BertConfig(num_hidden_layers=1, max_position_embeddings=16, **SIZE),
    "roberta": RobertaConfig(num_hidden_layers=1, max_position_embeddings=18, **{**SIZE, "vocab_size": 13}),
    "distilbert": DistilBertConfig(dim=8, n_layers=1, n_heads=2, hidden_dim=8, vocab_size=len(WORDS), pad_token_id=0),
}


@pytest.fixture
def tokenizer() -> Any:
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", **special)


def encoder(kind: str, pooling: str = "mean", weights: torch.Tensor | None = None) -> TrainableEncoder:
    torch.manual_seed(0)
    made = AutoModelForMaskedLM if kind == "bert" else AutoModel
    model = made.from_config(CONFIGS[kind], attn_implementation=PACKED_ATTENTION)
    return TrainableEncoder(model, pooling, token_weights=weights)


@pytest.mark.guarantee("same-vectors")
def test_an_export_has_its_card_and_its_head_and_a_folder_of_its_own(tokenizer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "exported" / "eulen" / "owls-small"
    save_model(encoder("bert"), tokenizer, folder, "model: tiny", origin=Origin(start=NO_STEP))
    card = (folder / "README.md").read_text("utf-8")
    assert "# owls-small\n" in card and NO_STEP in card and "model: tiny" in card
    assert not [path for path in folder.iterdir() if path.name.startswith(".")], "nothing of its own is left"
    with safe_open(folder / HEAD, "pt") as head:
        assert "cls.predictions.bias" in head.keys()  # noqa: SIM118  # no dict
    again = AutoModelForMaskedLM.from_pretrained(folder, variant="mlm")
    expected = encoder("bert").model.cls.state_dict()
    for name, value in again.cls.state_dict().items():
        torch.testing.assert_close(value, expected[name], msg=name)
    shutil.rmtree(folder)
    save_model(encoder("bert"), tokenizer, folder, "model: tiny", "Eulen — größer")
    card = (folder / "README.md").read_text("utf-8")
    assert "# Eulen — größer\n" in card and "owls-small" not in card and NO_STEP not in card


@pytest.mark.guarantee("same-vectors")
@pytest.mark.parametrize("kind", [*CONFIGS])
def test_a_pooler_that_no_pooling_uses_is_not_exported_nor_made_anew(kind: str, tokenizer: Any, tmp_path: Path) -> None:
    """The library would else make one at random, and warn of it."""
    save_model(encoder(kind, "cls"), tokenizer, tmp_path, "")
    settings = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    has_pooler = kind != "distilbert"
    assert settings.get("model_args") == ({"add_pooling_layer": False} if has_pooler else None)
    assert settings.keys() == {"max_seq_length", "do_lower_case"} | ({"model_args"} if has_pooler else set())
    with safe_open(tmp_path / "model.safetensors", "pt") as weights:
        assert not [name for name in weights.keys() if "pooler" in name]  # noqa: SIM118  # no dict


@pytest.mark.guarantee("same-vectors")
def test_each_token_has_its_weight_also_where_there_are_more_embeddings_than_tokens(
    tokenizer: Any, tmp_path: Path
) -> None:
    weights = torch.arange(1, 14) / 4
    save_model(encoder("roberta", "weighted", weights), tokenizer, tmp_path, "")
    settings = json.loads((tmp_path / "1_WordWeights" / "config.json").read_text())
    assert settings["vocab"] == [*WORDS, "<id 10>", "<id 11>", "<id 12>"]
    assert settings["word_weights"] == dict(zip(settings["vocab"], weights.tolist(), strict=True))


@pytest.mark.guarantee("same-vectors")
def test_what_a_template_puts_around_a_text_is_known_if_the_text_stands_there_once(tokenizer: Any) -> None:
    backend = tokenizer.backend_tokenizer
    assert _around(backend) == ([1], [2])
    for single in ("[CLS] $A [SEP] $A", "[CLS] [SEP]"):
        backend.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
        assert _around(backend) is None
    assert _around(Tokenizer(models.WordLevel({"owl": 0}, "owl"))) == ([], [])
