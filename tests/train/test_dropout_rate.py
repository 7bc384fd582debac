"""model.dropout: the rate of all dropouts of an encoder, whatever its architecture calls them."""

from pathlib import Path

import pytest
from torch import nn
from transformers import AutoConfig

from clearspan.train.config.options import RecipeError
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_encoder import build_encoder, set_dropout


def rates(encoder: nn.Module) -> set[float]:
    return {module.p for module in encoder.modules() if isinstance(module, nn.Dropout)}


def test_a_pretrained_encoder_has_the_recipes_rate_in_layers_and_attention(minilm: Path) -> None:
    words = [f"model.path={minilm}", "data.text.path=x", "output=x"]
    for key, rate in (("null", 0.1), ("0.0", 0.0), ("0.25", 0.25)):
        encoder = build_encoder(load_recipe("pairs", [*words, f"model.dropout={key}"]), load_tokenizer(minilm))
        assert rates(encoder) == {rate} and encoder.attention_dropout == rate
        assert encoder.has_dropout is (rate > 0)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert", "mpnet", "gpt2", "t5", "qwen2"])
def test_no_rate_of_any_architecture_is_left(model_type: str) -> None:
    config = AutoConfig.for_model(model_type)
    set_dropout(config, 0.3)
    others = ("classifier_dropout", "seq_classif_dropout", "qa_dropout", "summary_first_dropout")
    left = {name: value for name, value in vars(config).items() if "drop" in name and name not in others}
    assert left and {value for value in left.values() if value is not None} == {0.3}


def test_a_rate_of_a_model_without_dropout_is_refused() -> None:
    config = AutoConfig.for_model("bert")
    for name in [name for name in vars(config) if "drop" in name]:
        delattr(config, name)
    set_dropout(config, 0.0)
    with pytest.raises(RecipeError, match="model type 'bert' has no dropout"):
        set_dropout(config, 0.1)
