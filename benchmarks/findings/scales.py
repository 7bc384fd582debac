"""The scales of the study: data and nothing else, so that all of them go through the same code.

small: two cores, hours        large: a GPU, several systems at once, about 20 times the tokens
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of a study; a test has smaller ones.

    Attributes:
        vocabulary: ids of the tokenizer that is learned from the text.
        layers, hidden, heads: of the encoder, whose feed-forward layers are as wide as its hidden states.
        positions: the longest sequence, special tokens included.
        max_span: the exclusive upper bound of a span's length.
        documents: documents of a step with two anchors each; other systems have batches of about as many tokens.
        sentences: sentences of a step of SimCSE.
        pairs: images or clips of a step.
        pretraining_factor: a step of pretraining has this many times the documents and sentences.
        pretraining_tokens, tokens: tokens of the encoder in pretraining, and in the training of each system.
        pretraining_rate, rate: peak learning rates.
        at_once: systems to train at the same time on an accelerator; on a CPU one at a time.
        systems: the systems to train by default; (): all.
        sets: the folders of SentEval's that are scored; (): all.
        transfers: whether every system is scored on transfer, or those that a finding on transfer names.
    """

    vocabulary: int = 8_192
    layers: int = 4
    hidden: int = 256
    heads: int = 4
    positions: int = 128
    max_span: int = 64
    documents: int = 24
    sentences: int = 64
    pairs: int = 32
    pretraining_factor: int = 1
    pretraining_tokens: int = 6_000_000
    tokens: int = 250_000
    pretraining_rate: float = 1e-3
    rate: float = 5e-4
    at_once: int = 1
    systems: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    transfers: bool = False


SMALL, LARGE = "small", "large"
SCALES = {
    SMALL: Scale(),
    LARGE: Scale(
        layers=6,
        hidden=512,
        heads=8,
        documents=96,
        sentences=256,
        pairs=128,
        pretraining_factor=4,
        pretraining_tokens=120_000_000,
        tokens=5_000_000,
        at_once=6,
        systems=(
            *("mlm", "declutr", "declutr-spans-only", "mlm-sentences", "clear-del-word", "clear-del-span"),
            *("clear-reorder", "clear-del-word-mean", "clear-del-span-mean", "clear-reorder-mean", "simcse"),
            "simcse-sup",
        ),
        sets=("STS", "SICK", "TREC", "MRPC"),
        transfers=True,
    ),
}
"""The datasets and the tokenizer of both are the same: they differ in the encoder, the tokens and the batches."""
