"""Poolings by name: where each can be used, and its name in an exported model folder. Imports no torch.

    cls               the state of the first token, [CLS]
    pooler            [CLS] through the model's own head, BERT's pooler: a dense layer and tanh
    first-last        the mean over the tokens of the first layer and the last

`common.encoder.packed_pooling` computes poolings of packed batches. `common.encoder.library_pooling` builds the modules
of sentence-transformers for a plain Hugging Face folder.

Records of a plain folder (the fingerprints of vectors, of mined datasets and of cached embeddings) call `cls`
`cls-before-head`, as version 0.1 did, so that a later version finds them and brings them up to date (`recorded`).
"""

from typing import Literal, NamedTuple, get_args

TrainedPooling = Literal["mean", "cls", "lasttoken", "weighted"]
"""The poolings that `model.pooling` of a recipe may name."""


class PoolingUse(NamedTuple):
    """The places where a pooling can be used.

    Attributes:
        exported: the key that turns the pooling on in the settings of the module `Pooling` in a model folder, as
            sentence-transformers wrote them before version 6; "" if `Pooling` cannot compute this pooling.
        of_plain_folder: whether `--pooling` may name this pooling, for a plain Hugging Face folder.
    """

    exported: str = ""
    of_plain_folder: bool = False


POOLINGS = {
    "mean": PoolingUse("pooling_mode_mean_tokens", of_plain_folder=True),
    "cls": PoolingUse("pooling_mode_cls_token", of_plain_folder=True),
    "max": PoolingUse("pooling_mode_max_tokens"),
    "mean_sqrt_len_tokens": PoolingUse("pooling_mode_mean_sqrt_len_tokens"),
    "weightedmean": PoolingUse("pooling_mode_weightedmean_tokens"),
    "lasttoken": PoolingUse("pooling_mode_lasttoken"),
    "weighted": PoolingUse(),  # exported as the module WordWeights before a mean
    "pooler": PoolingUse(of_plain_folder=True),
    "first-last": PoolingUse(of_plain_folder=True),
}
TRAINED: tuple[str, ...] = get_args(TrainedPooling)
OF_PLAIN_FOLDER = tuple(name for name, use in POOLINGS.items() if use.of_plain_folder)
EXPORTED = {name: use.exported for name, use in POOLINGS.items() if use.exported}
RECORDED = {"cls": "cls-before-head"}
"""A pooling of a plain Hugging Face folder -> its name in records, if that differs."""


def recorded(pooling: str | None) -> str | None:
    """Return the name of a pooling in records; None for no pooling."""
    return RECORDED.get(pooling, pooling) if pooling else pooling


def from_record(pooling: str | None) -> str | None:
    """Return the pooling that has a name in records; None for no pooling."""
    return next((name for name, record in RECORDED.items() if record == pooling), pooling)
