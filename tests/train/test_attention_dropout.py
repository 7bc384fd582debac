"""`model.attention_dropout`, and FlashAttention 3, which has none."""

import sys
import types
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, DistilBertConfig, GPT2Config, ModernBertConfig, RobertaConfig

from clearspan.common.encoder import flash3
from clearspan.common.encoder.packing import pack_ids
from clearspan.train.config.options import RecipeError
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_encoder import build_encoder
from tests.train.conftest import VOCABULARY

SIZE = {"vocab_size": VOCABULARY, "pad_token_id": 1}
CONFIGS = {
    "roberta": RobertaConfig(**SIZE, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48),
    "distilbert": DistilBertConfig(**SIZE, dim=32, n_layers=1, n_heads=2, hidden_dim=48),
    "modernbert": ModernBertConfig(
        **SIZE, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48
    ),
    "gpt2": GPT2Config(**SIZE, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=2),
}
RATES = ("hidden_dropout_prob", "dropout", "embedding_dropout", "mlp_dropout", "resid_pdrop", "embd_pdrop")
"""The other dropout rates of these architectures."""


@pytest.fixture
def folder(request: pytest.FixtureRequest, tokenizer_folder: Path, tmp_path: Path) -> Path:
    """A model whose only dropout is that of attention weights."""
    config = CONFIGS[request.param].from_dict(CONFIGS[request.param].to_dict())
    for name in RATES:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    for name in ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop"):
        if hasattr(config, name):
            setattr(config, name, 0.3)
    AutoModel.from_config(config).save_pretrained(tmp_path / "model")
    load_tokenizer(tokenizer_folder).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("folder", CONFIGS, indirect=True)
def test_a_rate_takes_the_place_of_that_of_the_models_folder(folder: Path, tokenizer_folder: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    for rate, same in ((None, False), ("0.0", True), ("0.5", False)):
        words = ["data.text.path=d", "output=o", f"model.path={folder}", "model.config=null"]
        words += [f"model.attention_dropout={rate}"] if rate else []
        encoder = build_encoder(load_recipe("demo", words), tokenizer).train()
        assert encoder.attention_dropout == float(rate or 0.3)
        packed = pack_ids([list(range(5, 25))])
        assert torch.equal(encoder(packed), encoder(packed)) == same


def test_a_model_without_such_dropout_is_refused(tokenizer_folder: Path) -> None:
    words = ["model.config=null", "model.config.model_type=static", "model.attention_dropout=0.0"]
    recipe = load_recipe("demo", ["data.text.path=d", "output=o", "objectives.mlm=null", *words])
    with pytest.raises(RecipeError, match=r"model\.attention_dropout: .*'static'"):
        build_encoder(recipe, load_tokenizer(tokenizer_folder))


CUDA = torch.device("cuda")


@pytest.fixture
def activated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are asked for, on an H100 with the package."""
    names: list[str] = []
    module = types.ModuleType(flash3.MODULE)
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]  # find_spec returns it
    monkeypatch.setitem(sys.modules, flash3.MODULE, module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", names.append)
    return names


def test_attention_without_dropout_is_by_flash_attention_3(activated: list[str]) -> None:
    assert flash3.activate(CUDA, 0.0) == "attention without dropout: by FlashAttention 3"
    assert activated == ["FA3"] and "FA3" in torch.nn.attention.list_flash_attention_impls()


@pytest.mark.parametrize("lacking", ["dropout", "cpu", "capability", "package", "torch"])
def test_all_else_stays_as_it_is(lacking: str, activated: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking == "capability":
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    if lacking == "package":
        monkeypatch.delitem(sys.modules, flash3.MODULE)
    if lacking == "torch":
        monkeypatch.delattr(torch.nn.attention, "activate_flash_attention_impl")
    device = torch.device("cpu") if lacking == "cpu" else CUDA
    assert flash3.activate(device, 0.1 if lacking == "dropout" else 0.0) == "" and not activated


def test_a_package_that_does_not_load_is_named(activated: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise ImportError("undefined symbol")

    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", fails)
    line = flash3.activate(CUDA, 0.0)
    assert line.startswith("flash_attn_3 cannot be used (undefined symbol)") and "\n" not in line
