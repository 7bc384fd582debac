"""One part of the measurements, in a process of its own: `python -m tests.cuda_without_gpu.probe PART FOLDER`.

The last line of its output is the answer, a JSON list of rows (`Row`). `tests.cuda_without_gpu.answers` starts it.
"""

import contextlib
import dataclasses
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.cuda_without_gpu import device
from tests.cuda_without_gpu.answers import Row

WINDOW = 12
"""Number of texts in a window of `encode`: there are two windows."""


def main(part: str, folder: str) -> None:
    device.start(device.build(Path(folder)))
    rows = list(PARTS[part]())
    print(json.dumps([dataclasses.asdict(row) for row in rows]))


@contextlib.contextmanager
def watched() -> Iterator[list[tuple[str, int]]]:
    """Return a context that yields a list of what each call of packed attention is given: dtypes, number of tokens."""
    from transformers import AttentionInterface

    from clearspan.common.encoder import attention, relative
    from tests.cuda_without_gpu.kernels import short

    calls: list[tuple[str, int]] = []

    def noted(module: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
        calls.append((" ".join(short(x.dtype) for x in (query, key, value)), query.shape[2]))
        return attention.packed_attention(module, query, key, value, *rest, **options)

    AttentionInterface.register(attention.PACKED_ATTENTION, noted)
    relative.packed_attention = noted  # type: ignore[assignment]
    try:
        yield calls
    finally:
        AttentionInterface.register(attention.PACKED_ATTENTION, attention.packed_attention)
        relative.packed_attention = attention.packed_attention


def row_of(name: str, precision: str, way: str, ledger: Any, calls: list[tuple[str, int]], texts: int) -> Row:
    """Return the row of one measurement, without graphs and without the difference from the CPU."""
    tokens = sum(count for _, count in calls)
    rows = sum(call.rows for call in ledger.attention)
    return Row(
        name,
        precision,
        way,
        kernels=sorted({call.kernel for call in ledger.attention}),
        given=sorted({dtypes for dtypes, _ in calls}),
        dtypes=sorted({" ".join(call.dtypes) for call in ledger.attention}),
        waits=dict(sorted(Counter(map(str, ledger.waits)).items())),
        events=ledger.events,
        launches=ledger.launches,
        texts=texts,
        padding=rows / tokens if tokens else 1.0,
        blind=sum(call.blind for call in ledger.attention),
        casts=[len(ledger.casts), len(set(ledger.casts))],
    )


def embed() -> Iterator[Row]:
    """`load_model(...).encode` of two windows of texts; and the dev score's embedding by an encoder in training."""
    import numpy as np

    from clearspan.common.compute import LARGE_BATCH_TOKENS
    from clearspan.common.encoder import ahead
    from clearspan.common.encoder.library import load_with_library
    from clearspan.common.pretrained import quiet_transformers
    from clearspan.train.model.embedding import encode_texts
    from clearspan.train.model.tokenizer import load_tokenizer
    from tests.cuda_without_gpu import models
    from tests.cuda_without_gpu.tensors import recording

    ahead.WINDOW_TEXTS = WINDOW
    texts = models.texts()
    with tempfile.TemporaryDirectory() as work, quiet_transformers():
        tokenizer = models.write_tokenizer(Path(work) / "tokenizer")
        for name, config in models.configs().items():
            folder = models.write_model(Path(work) / name.replace(" ", "-"), config, tokenizer)
            expected = load_with_library(folder).encode(texts)
            for precision in ("fp32", "bf16"):
                model = load_with_library(folder, device="cuda", precision=precision)
                assert model.batch_tokens == LARGE_BATCH_TOKENS
                with recording() as ledger, watched() as calls:
                    vectors = model.encode(texts)
                row = row_of(name, precision, "embed", ledger, calls, len(texts))
                row.difference = float(np.abs(vectors - expected).max() / np.abs(expected).max())
                row.refused = "" if model.is_packed else "padded by sentence-transformers"
                yield row
        from tests.cuda_without_gpu.training import encoder_of

        encoder = encoder_of(models.configs()["BERT"]).to("cuda").train()
        with recording() as ledger, watched() as calls:
            encode_texts(encoder, load_tokenizer(tokenizer), texts)
        yield row_of("BERT", "bf16", "dev score", ledger, calls, len(texts))


def train() -> Iterator[Row]:
    """A step of each architecture, by SimCSE over sentences; in bf16 also compiled."""
    from clearspan.common.model_folder import EncoderError
    from clearspan.common.pretrained import quiet_transformers
    from tests.cuda_without_gpu import models, training

    with quiet_transformers():
        for name, config in models.configs().items():
            for precision in ("fp32", "bf16"):
                bf16 = precision == "bf16"
                try:
                    encoder = training.encoder_of(config)
                except EncoderError as error:
                    yield Row(name, precision, "train", refused=str(error).partition(": ")[2])
                    continue
                learner = training.learner_of("simcse", encoder, bf16)
                with watched() as calls:
                    step = training.two_steps(learner, bf16, False)
                calls = calls[len(calls) // 2 :]  # of the second step
                row = row_of(name, precision, "train", step.ledger, calls, 2 * training.EXAMPLES)
                row.difference = 0.0 if math.isfinite(step.loss) and math.isfinite(step.norm) else math.inf
                if bf16:
                    row.graphs, compiled = _compiled(learner)
                    row.waits |= Counter(f"compiled: {wait}" for wait in compiled.ledger.waits)
                yield row


def _compiled(learner: Any, caching: bool = False) -> tuple[int, Any]:
    """Return the number of graphs of two compiled steps, and what they showed; a break of a graph raises."""
    from tests.cuda_without_gpu import training

    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward  # type: ignore[no-any-return]

    learner.encoder.compile_static(backend)
    step = training.two_steps(learner, True, caching)
    return len(graphs), step


def _learner(name: str, static: bool) -> Any:
    """Return the learner of one of `training.OBJECTIVES`, of a RoBERTa without dropout or a static encoder."""
    import transformers

    from tests.cuda_without_gpu import models, training

    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.RobertaConfig(**models.SIZE, max_position_embeddings=514, type_vocab_size=1, **without)
    encoder = training.static_encoder() if name == "static" else training.encoder_of(config, head=True)
    return training.learner_of(name, encoder, static)


def objectives() -> Iterator[Row]:
    """A step of each objective, in fp32 and bf16, with gradient caching and without, beside a CPU's."""
    import torch

    from clearspan.common.pretrained import quiet_transformers
    from tests.cuda_without_gpu import training

    with quiet_transformers():
        for name in training.OBJECTIVES:
            for caching in (False, True):
                expected = training.two_steps(_learner(name, False), False, caching, torch.device("cpu"))
                for precision in ("fp32", "bf16"):
                    bf16 = precision == "bf16"
                    built = _learner(name, bf16)
                    with watched() as calls:
                        step = training.two_steps(built, bf16, caching)
                    way = "cached" if caching else "step"
                    row = row_of(name, precision, way, step.ledger, calls[len(calls) // 2 :], training.EXAMPLES)
                    differences = [(step.loss, expected.loss), (step.norm, expected.norm)]
                    if "clear" in name:  # the second step's negatives are those in its memory bank
                        differences.append((step.losses[1], expected.losses[1]))
                    row.difference = max(abs(a - b) / max(abs(b), 1e-3) for a, b in differences)
                    yield row


def ways() -> Iterator[Row]:
    """Steps with activation checkpointing, compiled steps, a step that is logged, and what two ranks exchange."""
    from clearspan.common.pretrained import quiet_transformers
    from tests.cuda_without_gpu import training

    with quiet_transformers():
        yield from _checkpointed(training)
        yield _logged("spans + mlm", _learner("spans + mlm", True), training)
        checkpointed = _learner("spans + mlm", True)
        checkpointed.encoder.checkpoint_activations()
        yield _logged("checkpointing", checkpointed, training)
        for name, caching in (("spans + mlm", True), ("clear", False), ("triplets", False), ("turns", False)):
            uncompiled = training.two_steps(_learner(name, True), True, caching)
            graphs, step = _compiled(_learner(name, True), caching)
            way = "compiled, cached" if caching else "compiled"
            row = row_of(name, "bf16", way, step.ledger, [], training.EXAMPLES)
            row.graphs = graphs
            row.difference = max(abs(a - b) for a, b in zip(step.losses, uncompiled.losses, strict=True))
            yield row
    yield _stop(training)


def _checkpointed(training: Any) -> Iterator[Row]:
    """Steps with dropout and activation checkpointing, beside steps without, which must have the same gradient.

    The device has a random state of its own: the layers are computed again with the state that torch has kept.
    """
    from tests.cuda_without_gpu import models

    def learner(checkpoints: bool, static: bool) -> Any:
        built = training.learner_of("simcse", training.encoder_of(models.configs()["BERT"]), static)
        if checkpoints:
            built.encoder.checkpoint_activations()
        return built

    for precision, way in (("fp32", "step"), ("bf16", "step"), ("bf16", "cached")):
        bf16, caching = precision == "bf16", way == "cached"
        expected = training.two_steps(learner(False, bf16), bf16, caching)
        built = learner(True, bf16)
        with watched() as calls:
            step = training.two_steps(built, bf16, caching)
        row = row_of("checkpointing", precision, way, step.ledger, calls[len(calls) // 2 :], training.EXAMPLES)
        pairs = [(step.norm, expected.norm), *zip(step.losses, expected.losses, strict=True)]
        row.difference = max(abs(a - b) / abs(b) for a, b in pairs)
        yield row
    graphs, step = _compiled(learner(True, True))
    row = row_of("checkpointing", "bf16", "compiled", step.ledger, [], training.EXAMPLES)
    row.graphs = graphs
    yield row


def _logged(name: str, learner: Any, training: Any) -> Row:
    """A step that is logged, with the gradient norm of each objective: the host reads all metrics at once."""
    from clearspan.train.engine.tracking import Clock
    from tests.cuda_without_gpu.tensors import CUDA, recording

    learner.to(CUDA).train()
    trainer = training.trainer_of(learner, True, False, CUDA, gradient_norms=True, logging_steps=1)
    batches = training.moved(learner, CUDA)
    with watched() as calls, recording() as ledger:
        metrics, _ = trainer._train_step(batches, Clock())
        trainer._reduced(metrics)
    batches.close()
    return row_of(name, "bf16", "logged", ledger, calls, training.EXAMPLES)


def _stop(training: Any) -> Row:
    """The exchange of the stop flag between two ranks, after a step."""
    from types import SimpleNamespace

    from clearspan.train import collectives
    from tests.cuda_without_gpu import models
    from tests.cuda_without_gpu.tensors import CUDA, recording

    learner = training.learner_of("simcse", training.encoder_of(models.configs()["BERT"]), True).to("cuda")
    trainer = training.trainer_of(learner, True, False, CUDA)
    trainer.ranks, trainer._signalled, trainer._pending_stop = 2, False, None
    trainer._launcher_gone = trainer._late = lambda: False
    collectives.dist = SimpleNamespace(all_reduce=lambda *_, **__: SimpleNamespace(wait=lambda: None))  # type: ignore[attr-defined]
    trainer._shared_stop()
    with recording() as ledger:
        trainer._shared_stop()
    return row_of("stop flag", "bf16", "two ranks", ledger, [], 1)


def device_itself() -> Iterator[Row]:
    """What the device does with faults that are put in on purpose."""
    import torch

    from tests.cuda_without_gpu.tensors import recording

    values = torch.arange(6.0, device="cuda")

    def unpinned() -> Any:
        return torch.ones(3).to("cuda", non_blocking=True)

    faults: dict[str, Callable[[], Any]] = {
        "a mix of devices": lambda: values + torch.ones(6),
        "a number of the host": lambda: values + torch.tensor(1.0),
        "item": lambda: values.sum().item(),
        "tolist": lambda: values.tolist(),
        "a mask as an index": lambda: values[values > 2],
        "a mask that is filled": lambda: values.index_put_((values > 2,), torch.zeros((), device="cuda")),
        "a blocking copy": lambda: torch.ones(3).to("cuda"),
        "an unpinned copy": unpinned,
        "a pinned copy": lambda: torch.ones(3).pin_memory().to("cuda", non_blocking=True),
        "a copy to the host": lambda: values.cpu(),
        "numpy": lambda: values.numpy(),
        "repeats of unknown number": lambda: values.repeat_interleave(torch.arange(6, device="cuda")),
    }
    for name, fault in faults.items():
        refused = ""
        with recording() as ledger:
            try:
                fault()
            except (RuntimeError, TypeError) as error:
                refused = str(error)
        row = row_of(name, "fp32", "device", ledger, [], 1)
        row.refused = refused
        row.waits = dict(Counter(wait.why for wait in ledger.waits))
        yield row


PARTS = {"embed": embed, "train": train, "objectives": objectives, "ways": ways, "device": device_itself}

if __name__ == "__main__":
    main(*sys.argv[1:])
