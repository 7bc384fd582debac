"""Ways to pool a plain Hugging Face folder, which names none.

    transformer ──> tokens' last layer ──┬─ mean             over the tokens
                                         ├─ cls-before-head  the first token, [CLS]
                                         └─ cls              [CLS] through the model's head (BERT's pooler: dense, tanh)
                └─> every layer ────────── first-last        the mean over the tokens, of the first layer and the last

The names are SimCSE's `--pooler`: its supervised models are published with `cls`, its unsupervised ones with
`cls_before_pooler`, BERT itself with `avg_first_last`. What sentence-transformers calls cls is `cls-before-head`.
"""

from typing import Any

import torch
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn

from clearspan.common.model_folder import EncoderError
from clearspan.eval.models.sentence_encoder import POOLINGS

HEAD = {"text": {"method": "forward", "method_output_name": "pooler_output"}}


class FirstLast(Module):
    """Mean over a text's tokens of (first layer + last layer) / 2, special tokens included, padding not.

    The first is the output of layer 1 (`hidden_states[1]`), as SimCSE's `avg_first_last` is since its correction; with
    the embeddings' output in its place, as it was, published figures differ.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `sentence_embedding`, float32 (texts, dim)."""
        layers, mask = features["all_layer_embeddings"], features["attention_mask"].unsqueeze(-1).float()
        both = (layers[1].float() + layers[-1].float()) / 2
        features["sentence_embedding"] = (both * mask).sum(1) / mask.sum(1).clamp(min=1)
        return features

    def get_embedding_dimension(self) -> int:
        return self.dim

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Nothing: it has neither weights nor settings."""


def pooled(folder: str, pooling: str, **options: Any) -> list[nn.Module]:
    """The modules that make a plain folder an encoder of sentences.

    Args:
        pooling: one of `POOLINGS`.
        options: what sentence-transformers' Transformer takes besides.

    Raises:
        EncoderError: the pooling is `cls` and the architecture has no head, or is none of ours.
    """
    if pooling not in POOLINGS:
        raise EncoderError(f"{folder}: unknown pooling {pooling!r}; choose from {', '.join(POOLINGS)}")
    if pooling == "cls":
        transformer = Transformer(folder, modality_config=HEAD, module_output_name="sentence_embedding", **options)
        if getattr(transformer.model, "pooler", None) is None:
            raise EncoderError(
                f"{folder}: {type(transformer.model).__name__} has no head that [CLS] could go through; "
                "--pooling cls-before-head takes [CLS] as the last layer gives it"
            )
        return [transformer]
    transformer = Transformer(folder, **options)
    dim = int(transformer.get_embedding_dimension())
    if pooling == "first-last":
        transformer.model.config.output_hidden_states = True
        return [transformer, FirstLast(dim)]
    return [transformer, Pooling(dim, "cls" if pooling == "cls-before-head" else pooling)]


def as_float32(module: nn.Module, inputs: Any, features: dict[str, Any]) -> dict[str, Any]:
    """A transformer's forward hook: what is pooled, projected and scaled after it is so in float32."""
    for name in ("token_embeddings", "sentence_embedding"):
        if isinstance(features.get(name), torch.Tensor):
            features[name] = features[name].float()
    return features
