"""The sizes of a run: of the encoder, of the batches, of each system's training, and the time that they take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Speeds for the estimate of a plan: seconds of one process with the scale's threads.

    Those of `cpu` are processor seconds, measured on two busy cores; those of `gpu` are guesses.

    Attributes:
        tokens_per_s: tokens of the encoder in training.
        pretraining_tokens_per_s: the same in pretraining, with all cores.
        shards_s: an input pipeline, start-up included.
        start_s: start-up, saving and export of a training.
        evaluation_s: the evaluation of an encoder.
        words_s: the evaluation of word vectors and of counts.
        glue_s: fine-tuning on the GLUE tasks.
    """

    tokens_per_s: float
    pretraining_tokens_per_s: float
    shards_s: float
    start_s: float
    evaluation_s: float
    words_s: float
    glue_s: float


@dataclass(frozen=True)
class Scale:
    """A size of the whole benchmark.

    Attributes:
        vocabulary: ids of the tokenizer that is learned from the text.
        layers, hidden, heads: of the encoder, whose feed-forward layers are as wide as its hidden states.
        positions: the longest sequence, special tokens included.
        max_span: the exclusive upper bound of a span's length.
        documents: documents of a step with two anchors each; other systems have batches of about as many tokens.
        sentences: sentences of a step of SimCSE.
        pairs: images or clips of a step.
        pretraining_tokens, tokens: tokens of the encoder in pretraining, and in the training of each system.
        pretraining_rate, rate: peak learning rates.
        glue: systems that are fine-tuned on GLUE; None: all that are trained.
        sets: SentEval's folders in `downstream/` that are scored.
        limit: examples of each dataset, and SentEval's files may be cut, too; None: all.
        held_out: fraction of the documents that are held out for retrieval.
        precision: of the encoder in evaluation, but for GLUE, which is fp32; the result has what `auto` was.
        threads: threads of a training or evaluation; None: all cores.
    """

    vocabulary: int
    layers: int
    hidden: int
    heads: int
    positions: int
    max_span: int
    documents: int
    sentences: int
    pairs: int
    pretraining_tokens: int
    tokens: int
    pretraining_rate: float
    rate: float
    glue: tuple[str, ...] | None
    sets: tuple[str, ...]
    limit: int | None
    held_out: float
    precision: str
    threads: int | None
    rates: Rates

    @property
    def min_tokens(self) -> int:
        """The shortest document that holds two anchors, a span's distance between them, and an adjacent positive."""
        return 4 * self.max_span


STS = ("STS/STS12-en-test", "STS/STS14-en-test", "STS/STS16-en-test", "STS/STSBenchmark", "SICK")
SCALES = {
    "tiny": Scale(
        vocabulary=800,
        layers=1,
        hidden=32,
        heads=2,
        positions=32,
        max_span=16,
        documents=4,
        sentences=8,
        pairs=4,
        pretraining_tokens=600,
        tokens=1_500,
        pretraining_rate=1e-3,
        rate=5e-4,
        glue=(),
        sets=("STS/STSBenchmark", "TREC"),
        limit=300,
        held_out=0.6,
        precision="fp32",
        threads=1,
        rates=Rates(4_000, 4_000, 6, 10, 15, 10, 30),
    ),
    "cpu": Scale(
        vocabulary=8_192,
        layers=4,
        hidden=256,
        heads=4,
        positions=128,
        max_span=64,
        documents=24,
        sentences=64,
        pairs=32,
        pretraining_tokens=6_000_000,
        tokens=250_000,
        pretraining_rate=1e-3,
        rate=5e-4,
        glue=(),
        sets=(*STS, "MR", "SUBJ", "SST/fine", "TREC", "MRPC"),
        limit=None,
        held_out=0.08,
        precision="auto",
        threads=1,
        rates=Rates(5_500, 9_000, 15, 10, 90, 25, 350),
    ),
    "gpu": Scale(
        vocabulary=16_384,
        layers=6,
        hidden=512,
        heads=8,
        positions=256,
        max_span=128,
        documents=64,
        sentences=256,
        pairs=64,
        pretraining_tokens=100_000_000,
        tokens=10_000_000,
        pretraining_rate=5e-4,
        rate=2e-4,
        glue=None,
        sets=(*STS, "MR", "CR", "SUBJ", "MPQA", "SST/binary", "SST/fine", "TREC", "MRPC"),
        limit=None,
        held_out=0.08,
        precision="auto",
        threads=None,
        rates=Rates(300_000, 300_000, 20, 60, 40, 20, 60),
    ),
}
