"""Poolings for a plain Hugging Face folder: it holds a transformer, but does not say how to pool its token states.

    transformer ──> tokens' last layer ──┬─ mean        over the tokens
                                         ├─ cls         the first token, [CLS]
                                         └─ pooler      [CLS] through the model's head (BERT's pooler: dense, tanh)
                └─> every layer ────────── first-last   the mean over the tokens, of the first layer and the last

SimCSE's `--pooler` has the same choices. Its paper's supervised models use its `cls` (here `pooler`), its
unsupervised models `cls_before_pooler` (here `cls`), and its figures for BERT itself `avg_first_last`.

This module builds sentence-transformers' modules; `common.encoder.packed_pooling` computes poolings of packed batches.
"""

from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn

from clearspan.common.encoder.pooling_names import OF_PLAIN_FOLDER
from clearspan.common.former import advice
from clearspan.common.model_folder import EncoderError

HEAD = {"text": {"method": "forward", "method_output_name": "pooler_output"}}


class FirstLast(nn.Module):
    """Mean over a text's tokens of (first layer + last layer) / 2; special tokens count, padding does not.

    The first layer is the output of layer 1 (`hidden_states[1]`), as in the corrected version of SimCSE's
    `avg_first_last`. The original version used the output of the embedding layer, which gives other scores.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add `sentence_embedding`, (number of texts, dim) float32, to the features; return them.

        Args:
            features: the output of sentence-transformers' `Transformer`, with the states of all layers
                (`all_layer_embeddings`).
            kwargs: not used.
        """
        layers = features["all_layer_embeddings"]
        mask = features["attention_mask"].unsqueeze(-1).float()
        both = (layers[1].float() + layers[-1].float()) / 2
        features["sentence_embedding"] = (both * mask).sum(1) / mask.sum(1).clamp(min=1)
        return features

    def get_embedding_dimension(self) -> int:
        return self.dim


def with_pooling(folder: str, pooling: str, **options: Any) -> list[nn.Module]:
    """Load a plain Hugging Face folder as the modules of a sentence-transformers model: a transformer and a pooling.

    Args:
        pooling: the name of the pooling, one of `OF_PLAIN_FOLDER`, such as `mean`. For `pooler`, the transformer's own
            head pools, so that there is no second module.
        options: further arguments of sentence-transformers' `Transformer`.

    Raises:
        EncoderError: the pooling is unknown, or it is `pooler` and the architecture has no pooler layer.
    """
    if pooling not in OF_PLAIN_FOLDER:
        wrong = advice(f"--pooling {pooling}") or f"; choose from {', '.join(OF_PLAIN_FOLDER)}"
        raise EncoderError(f"{folder}: unknown pooling {pooling!r}{wrong}")
    if pooling == "pooler":
        transformer = Transformer(folder, modality_config=HEAD, module_output_name="sentence_embedding", **options)
        if getattr(transformer.model, "pooler", None) is None:
            raise EncoderError(
                f"{folder}: {type(transformer.model).__name__} has no head for [CLS]; `pooling` "
                "cls takes [CLS] from the last layer"
            )
        return [transformer]
    transformer = Transformer(folder, **options)
    dim = int(transformer.get_embedding_dimension())
    if pooling == "first-last":
        transformer.model.config.output_hidden_states = True
        return [transformer, FirstLast(dim)]
    return [transformer, Pooling(dim, pooling)]


def as_float32(module: nn.Module, inputs: Any, features: dict[str, Any]) -> dict[str, Any]:
    """Convert the embeddings in a transformer's output to float32, so that the modules after it run in float32.

    This is a forward hook of sentence-transformers' `Transformer`.

    Args:
        module, inputs: not used.
        features: the output of the transformer; it is changed in place and returned.
    """
    for name in ("token_embeddings", "sentence_embedding"):
        if isinstance(features.get(name), torch.Tensor):
            features[name] = features[name].float()
    return features
