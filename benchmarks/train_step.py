"""A whole training step of spans, packed, beside plain transformers with padding and sentence-transformers' loss.

    python -m benchmarks.train_step --tokenizer roberta-base --layers 4 --hidden 256

One encoder, one draw of DeCLUTR's spans of random documents, RoBERTa's layer with its dropout. A step is forward,
backward, clipping and AdamW; of ours, drawing, packing and masking too, which the others are spared. DeepSpeed around
ours is not in it. Contenders, in one process, in turn; ratios are medians of those of each round:

    packed         DeCLUTR's objectives (A = 2, P = 2, masked anchors): what the trainer does
    padded         the same through transformers: anchors padded to their longest, with its own masked-LM head on all
                   their positions, which is its loss; positives padded to theirs; NT-Xent of the means
    packed pairs   anchors and one positive each, NT-Xent alone
    mnrl           the same pairs, padded, through sentence-transformers' model and MultipleNegativesRankingLoss, which
                   contrasts one way only; its trainer adds its own work to this. Its unpadding, which needs flash
                   attention, is not measured

That packed and padded give one loss is checked first, without dropout. Rates count real tokens only.
"""

import argparse
import copy
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from benchmarks.mixed_step import SPECIAL, VOCABULARY, NoShards, fresh_encoder
from benchmarks.pipelines import machine, write
from shards.ragged import Ragged
from train.data.batch import Batch, TokenLists
from train.engine.optimization import adamw
from train.learner import Learner
from train.losses import IGNORED, nt_xent
from train.objectives import Encoded, Metrics, Objective, Setting, mlm, spans
from train.schedules import OptimizerConfig
from train.span_sampler import SpanConfig

MAX_GRAD_NORM = 1.0
PAIRS = {"packed": "padded", "packed pairs": "mnrl"}
"""Each of ours, and the one it is set beside."""


class Watched(spans.SpanContrast):
    """The trainer's own, which keeps the forward that its loss was of."""

    def loss(self, encoded: Encoded, context: None) -> tuple[Tensor, Metrics]:
        self.seen = encoded.forward
        return super().loss(encoded, context)


def build(layers: int, hidden: int, dropout: float, pairs: bool) -> Learner:
    """DeCLUTR's objectives over a fresh encoder, or its contrast of pairs alone."""
    encoder = fresh_encoder(layers, hidden, dropout)
    sizes = {"capacity": encoder.max_tokens - SPECIAL.count, "vocab_size": VOCABULARY, "dim": hidden}

    def setting(name: str) -> Setting:
        return Setting(name, "documents", 0, **sizes, special=SPECIAL, dataset=NoShards())

    contrast = Watched(spans.Config(sampler=SpanConfig(num_positives=1 if pairs else 2)), setting("spans"))
    objectives: list[Objective] = [contrast]
    if not pairs:
        moments = contrast.block_moments("anchors")
        objectives.append(mlm.MaskedLM(mlm.Config(), setting("mlm"), "spans/anchors", moments))
    else:
        encoder.drop_mlm_head()
    for objective in objectives:
        objective.name, objective.data, objective.weight = objective.setting.name, "documents", 1.0
    return Learner(encoder, objectives, SPECIAL)


def documents(count: int, device: str) -> dict[str, Batch]:
    generator = np.random.default_rng(1)
    lengths = generator.integers(2048, 4096, count)
    ids = generator.integers(5, VOCABULARY, lengths.sum(), np.int32)
    tokens = TokenLists.of(Ragged(ids, np.concatenate([[0], lengths.cumsum()])))
    numbers = torch.arange(count)
    columns: dict[str, TokenLists | Tensor] = {"spans/tokens": tokens, "mlm/tokens": tokens}
    return {"documents": Batch(columns, numbers, torch.zeros_like(numbers)).to(torch.device(device))}


@dataclasses.dataclass
class Padded:
    """What a packed forward was given, padded: ids and attention mask of its anchors and of its positives, and the
    anchors' labels, -100 where nothing is masked. `tokens` counts the real ones, `rows` those with padding.
    """

    anchors: dict[str, Tensor]
    positives: dict[str, Tensor]
    labels: Tensor
    tokens: int
    rows: int


@torch.no_grad()
def padded(learner: Learner, batches: dict[str, Batch]) -> Padded:
    learner(batches)
    seen = learner.objectives[0].seen
    packed, labels = seen.packed, torch.full_like(seen.packed.ids, IGNORED)
    for masked in seen.masked.values():
        labels[masked.index] = masked.labels

    def block(name: str, values: Tensor, fill: int) -> Tensor:
        parts = values.split(packed.lengths)[seen.blocks[f"spans/{name}"]]
        return nn.utils.rnn.pad_sequence(list(parts), True, fill)

    made = {}
    for name in ("anchors", "positives"):
        mask = block(name, torch.ones_like(packed.ids), 0)
        made[name] = {"input_ids": block(name, packed.ids, SPECIAL.pad), "attention_mask": mask}
    rows = sum(one["input_ids"].numel() for one in made.values())
    return Padded(**made, labels=block("anchors", labels, IGNORED), tokens=len(packed.ids), rows=rows)


def padded_loss(model: Any, given: Padded, temperature: float) -> Tensor:
    """DeCLUTR's, of transformers' model: two forwards, the head on all positions of the anchors."""

    def mean(states: Tensor, mask: Tensor) -> Tensor:
        return (states.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    found = model(**given.anchors, labels=given.labels, output_hidden_states=True)
    anchors = mean(found.hidden_states[-1], given.anchors["attention_mask"])
    states = model.base_model(**given.positives).last_hidden_state
    positives = mean(states, given.positives["attention_mask"]).view(len(anchors), -1, anchors.shape[1]).mean(1)
    return found.loss + nt_xent(anchors, positives, temperature)


def plain(learner: Learner) -> Any:
    """transformers' own model with the learner's weights."""
    model = copy.deepcopy(learner.encoder.model)
    model.set_attn_implementation("sdpa")
    return model


def sentence_transformer(model: Any, tokenizer: Path, device: str) -> Any:
    """sentence-transformers' model with the weights of a base model, mean pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
        transformer = Transformer(folder, model_kwargs={"add_pooling_layer": False})
    return SentenceTransformer(modules=[transformer, Pooling(model.config.hidden_size, "mean")], device=device)


class Contender:
    """A way to make a step: its loss, and an optimizer of its own."""

    def __init__(self, module: nn.Module, loss: Callable[[], Tensor], device: str) -> None:
        self.module, self.loss, self.device = module.train(), loss, device
        self.optimizer = adamw(list(module.parameters()), OptimizerConfig())

    def step(self, bf16: bool) -> tuple[float, float]:
        """Seconds of the clock and of all processors."""
        self.wait()
        clock, processor = time.perf_counter(), time.process_time()
        with torch.autocast(self.device, torch.bfloat16, enabled=bf16):
            loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.wait()
        return time.perf_counter() - clock, time.process_time() - processor

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def contenders(arguments: argparse.Namespace) -> tuple[dict[str, Contender], dict[str, Padded]]:
    """The four, by name, and what each pair of them is given."""
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    device = arguments.device
    batches = documents(arguments.documents, device)
    declutr, pairs = (
        build(arguments.layers, arguments.hidden, arguments.dropout, one).to(device) for one in (False, True)
    )
    inputs = {"packed": padded(declutr, batches), "packed pairs": padded(pairs, batches)}
    model, temperature = plain(declutr), spans.Config().temperature
    contrast = MultipleNegativesRankingLoss(
        sentence_transformer(plain(pairs), arguments.tokenizer, device), scale=1 / temperature
    )
    given = inputs["packed pairs"]

    def mnrl() -> Tensor:
        return contrast([dict(given.anchors), dict(given.positives)], None)

    made = {
        "packed": Contender(declutr, lambda: declutr(batches)[0], device),
        "padded": Contender(model, lambda: padded_loss(model, inputs["packed"], temperature), device),
        "packed pairs": Contender(pairs, lambda: pairs(batches)[0], device),
        "mnrl": Contender(contrast, mnrl, device),
    }
    return made, inputs


@torch.no_grad()
def check(made: dict[str, Contender]) -> None:
    """Without dropout, packed and padded give one loss."""
    found = []
    for one in (made["packed"], made["padded"]):
        one.module.eval()
        found.append(one.loss().item())
        one.module.train()
    packed, other = found
    if abs(packed - other) > 1e-4 * other:
        raise SystemExit(f"benchmark: packed gives a loss of {packed}, padded {other}")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    made, inputs = contenders(arguments)
    check(made)
    result: dict[str, Any] = {
        "machine": machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device,
        **{key: getattr(arguments, key) for key in ("layers", "hidden", "dropout", "documents", "rounds")},
        "inputs": {name: {"tokens": one.tokens, "padded_rows": one.rows} for name, one in inputs.items()},
        "precisions": {},
    }
    for precision in arguments.precisions:
        bf16 = precision == "bf16"
        for one in made.values():
            one.step(bf16)  # the first makes what later ones have
        rounds = [{name: one.step(bf16) for name, one in made.items()} for _ in range(arguments.rounds)]
        result["precisions"][precision] = {
            ours: {
                "seconds": round(statistics.median(one[ours][0] for one in rounds), 4),
                "peer_seconds": round(statistics.median(one[peer][0] for one in rounds), 4),
                "times": round(statistics.median(one[peer][0] / one[ours][0] for one in rounds), 2),
                "times_by_processor": round(statistics.median(one[peer][1] / one[ours][1] for one in rounds), 2),
            }
            for ours, peer in PAIRS.items()
        }
    return result


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    lines = [
        f"{result['device']}, {result['threads']} threads, {result['machine']['cpu']}; {result['layers']} layers of "
        f"{result['hidden']}, {result['documents']} documents; medians of {result['rounds']} rounds"
    ]
    for precision, found in result["precisions"].items():
        header = f"{'tokens':>8} {'padded rows':>12} {'seconds':>8} {'peer':>8} {'tokens/s':>9} {'times':>7}"
        lines += ["", f"{precision:<24} {header} {'by processor':>13}"]
        for ours, row in found.items():
            tokens, padded_rows = result["inputs"][ours].values()
            lines.append(
                f"{ours + ' / ' + PAIRS[ours]:<24} {tokens:>8,} {padded_rows:>12,} {row['seconds']:>8.3f} "
                f"{row['peer_seconds']:>8.3f} {tokens / row['seconds']:>9,.0f} {row['times']:>6.2f}x "
                f"{row['times_by_processor']:>12.2f}x"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR", help="sentence-transformers wants one")
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="default 4")
    parser.add_argument("--hidden", type=int, default=256, metavar="N", help="default 256; heads are of 64")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P", help="default 0.1")
    parser.add_argument("--documents", type=int, default=4, metavar="N", help="of a step (default 4)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/train_step.json"), metavar="FILE")
    arguments = parser.parse_args()
    result = measure(arguments)
    print(table(result))
    write(result, arguments.output)


if __name__ == "__main__":
    main()
