"""The model folder that training starts from: its weights, and its settings for inference, which the export keeps.

A sentence-transformers folder holds more than weights: pooling, a length limit, layers after the pooling, prompts.
Training keeps all of this, except the prompts of queries and documents, which become the prompts of the training texts
(`train.prompts`). A plain Hugging Face folder, or a model with random weights, has no such settings.
"""

import dataclasses
from pathlib import Path

from torch import Tensor, nn

from clearspan.common.encoder.prompts import Prompts, Sides
from clearspan.common.model_folder import EncoderError, read_modules


@dataclasses.dataclass
class Inference:
    """Settings for embedding a text, in addition to the encoder, its pooling and the layers after the pooling.

    Attributes:
        max_tokens: the maximum length of a sequence, special tokens included; None for the architecture's limit.
        normalize: whether embeddings are scaled to unit length.
        lower_case: whether texts are lower-cased before tokenization.
        prompts, default_prompt_name, similarity_fn_name, truncate_dim: the arguments of `SentenceTransformer` that
            have these names; None, or {} for `prompts`, if the folder states nothing.
    """

    max_tokens: int | None = None
    normalize: bool = False
    lower_case: bool = False
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = None

    @property
    def sides(self) -> Sides:
        """The prompts of queries, of documents, and of other texts."""
        return Prompts(self.prompts, self.default_prompt_name).sides()


@dataclasses.dataclass(frozen=True)
class Given:
    """Properties of the model in the folder `model.path`. Those of the run's encoder may differ.

    Attributes:
        pooling: the pooling that the folder states; if it states none, the pooling of the run.
        layers: the number of layers that this model has after its pooling. If the run needs more, the additional
            layers are initialized at random.
        has_mlm_head: whether the folder has a masked-LM head.
    """

    pooling: str
    layers: int
    has_mlm_head: bool


@dataclasses.dataclass
class ModelSource:
    """The contents of a model folder.

    Attributes:
        weights: the folder that holds the weights of the transformer or of the static model; `Path()` if training
            starts from random weights.
        table: the token vectors of a static model, (vocabulary, hidden size) fp32; None for a transformer.
        pooling: the pooling; None if the folder states none.
        head: the layers after the pooling; [] if there are none.
        inference: the other settings for embedding a text.
        token_weights: the weights of tokens for pooling `weighted`, (vocabulary,) fp32; None for another pooling.
    """

    weights: Path = Path()
    table: Tensor | None = None
    pooling: str | None = None
    head: list[nn.Module] = dataclasses.field(default_factory=list)
    inference: Inference = dataclasses.field(default_factory=Inference)
    token_weights: Tensor | None = None


def read_source(folder: Path) -> ModelSource:
    """Return what a local model folder states besides its weights: pooling, layers after it, settings for inference.

    Of the weights, only those that training needs apart from the encoder are read: the layers after the pooling, the
    table of a static model, and token weights. A folder without `modules.json`, such as a plain Hugging Face folder,
    states nothing.

    Raises:
        EncoderError: the folder is an incomplete sentence-transformers folder, or has modules that training cannot
            export again.
    """
    listed = read_modules(folder)
    if not listed:
        return ModelSource(folder)
    # Imported late: sentence-transformers takes seconds.
    from sentence_transformers.sentence_transformer.modules import (
        Dense,
        Normalize,
        Pooling,
        StaticEmbedding,
        Transformer,
        WordWeights,
    )

    from clearspan.common.encoder.library import load_with_library

    model = load_with_library(folder).modules
    weighting = next((module for module in list(model)[1:2] if isinstance(module, WordWeights)), None)
    first, *after = (module for module in model if module is not weighting)
    table = first.embedding.weight.detach().float() if isinstance(first, StaticEmbedding) else None
    pooling = after.pop(0) if table is None and after else None
    normalize = bool(after) and isinstance(after[-1], Normalize)
    head = after[:-1] if normalize else after
    is_plain = isinstance(first, Transformer) and isinstance(pooling, Pooling) and pooling.include_prompt
    has_head = all(
        isinstance(dense, Dense)
        and dense.in_features == dense.out_features
        and dense.module_input_name == "sentence_embedding"
        for dense in head
    )
    if not ((is_plain or table is not None) and has_head):
        names = ", ".join(type(module).__name__ for module in model)
        raise EncoderError(
            f"{folder}: training supports the modules Transformer, WordWeights, Pooling with the prompt, Dense of one "
            f"width and Normalize, in this order, or StaticEmbedding in place of the first three, not {names}"
        )
    inference = Inference(
        max_tokens=first.max_seq_length if table is None else None,
        normalize=normalize,
        lower_case=table is None and first.do_lower_case,
        prompts=model.prompts,
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
    )
    mode = "mean" if pooling is None else pooling.pooling_mode
    mode = mode if isinstance(mode, str) else "+".join(mode)
    if weighting is None:
        return ModelSource(listed[0].folder, table, mode, head, inference)
    weights = weighting.emb_layer.weight.detach()[:, 0].clone()
    if mode != "mean" or not (weights.isfinite() & (weights > 0)).all():
        raise EncoderError(
            f"{folder}: training supports WordWeights only with positive weights and before mean pooling"
        )
    return ModelSource(listed[0].folder, table, "weighted", head, inference, weights)
