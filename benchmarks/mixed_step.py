"""One packed forward pass of text, images and clips beside separate padded passes: seconds, rows and memory of a step.

    python -m benchmarks.mixed_step --layers 4 --hidden 256

A step is the forward and backward pass of the objectives of the recipe `combined`, on a part of its batch: DeCLUTR's
spans of 32 to 512 tokens with masked anchors, CLEAR's views, SimCSE's sentences twice (cut to 32 tokens), images in two
views of 197 patches, clips twice of 211. Ids and pixels are random. Lengths are drawn with a fixed seed; sentences have
the lengths of wiki1m's (28 tokens on average, with a long tail). The layers are RoBERTa's, with dropout. The contenders
take turns in one process, and times are medians over rounds:

    mixed     one packed forward pass of all objectives, one backward pass, as in the trainer
    packed    a packed forward and backward pass for each objective (masked anchors share those of the spans)
    padded    for each objective, a padded forward pass of each of its blocks through the plain transformers model (SDPA
              with an attention mask; images and clips without one), then a backward pass
    three     the same with one padded pass of all text, one of all images, one of all clips

Padding is done beforehand, and all contenders share the objectives' losses: the masked-LM head sees masked positions
only. First, all are checked to give the same loss without dropout. Memory is the peak that CUDA allocates, or on a CPU
the most that forward passes keep for their backward passes at once.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.report import (
    Seconds,
    alternating,
    columns,
    command,
    finish,
    machine,
    option,
    precisions_option,
    resolved_precisions,
    timed,
)
from benchmarks.span_step import moved
from benchmarks.synthetic import SPECIAL, random_encoder, setting, texts, wait_for, weighted
from clearspan.train.data.batch import Batch
from clearspan.train.learner import Learner
from clearspan.train.modalities import Modality, audio, images
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.packing import Packed
from clearspan.train.objectives import Objective, clear, mlm, patches, simcse, spans
from clearspan.train.options import ALL

BATCH = {"documents": 16, "sentences": 64, "images": 48, "audio": 48}
"""The recipe's examples a step, by dataset."""
SIMCSE_TOKENS = 32
VIEW_SHARE = 0.78
"""The mean length of a view by subs and del-span, relative to its sentence."""
TURNS = {
    ALL: ["spans", "mlm", "clear", "simcse", "pictures", "clips"],
    "spans + mlm": ["spans", "mlm"],
    "clear": ["clear"],
    "simcse": ["simcse"],
    "pictures": ["pictures"],
    "clips": ["clips"],
    "all text": ["spans", "mlm", "clear", "simcse"],
}
TEXT = ["spans + mlm", "clear", "simcse"]
SEPARATE = [*TEXT, "pictures", "clips"]
THREE = ["all text", "pictures", "clips"]
WHOLE = [("separate", "packed", ALL), ("mixed", "mixed", ALL)]
"""The last rows of the table: (name, contender, turn)."""


def build(layers: int, hidden: int, dropout: float) -> Learner:
    """Return the objectives of `combined` over a random encoder."""
    encoder = random_encoder(layers, hidden, dropout)
    modalities: dict[str, Modality] = {
        "images": images.Images(images.Config()),
        "audio": audio.Audio(audio.Config(), 0.0, 0.5),
    }
    contrast = spans.SpanContrast(spans.Config(), setting(encoder, "spans", "documents"))
    masked, anchors = setting(encoder, "mlm", "documents"), contrast.block_moments("anchors")
    views, twice = setting(encoder, "clear", "sentences"), setting(encoder, "simcse", "sentences")
    objectives: list[Objective] = [
        weighted(contrast),
        weighted(mlm.MaskedLM(mlm.Config(), masked, "spans/anchors", anchors)),
        weighted(clear.Clear(clear.Config(), views, clear.StoredViews(2, views))),
        weighted(simcse.SimCSE(simcse.Config(head="tanh"), twice, ["tokens"])),
    ]
    for name, data, weight in (("pictures", "images", 0.05), ("clips", "audio", 0.01)):
        modality = modalities[data]
        own = setting(encoder, name, data, modality)
        objectives.append(weighted(patches.PatchContrast(patches.Config(loss="paper"), own, modality), weight))
    embeddings = {name: modality.embedding(hidden) for name, modality in modalities.items()}
    return Learner(encoder, objectives, SPECIAL, embeddings, TURNS)


def batches_of(part: int, seed: int) -> dict[str, Batch]:
    """Return a micro-batch: 1/`part` of the recipe's batch of every dataset."""
    generator = np.random.default_rng(seed)
    counts = {name: max(2, count // part) for name, count in BATCH.items()}
    documents = texts(generator.integers(2048, 4096, counts["documents"]), generator)
    lengths = generator.lognormal(np.log(28) - 0.5**2 / 2, 0.5, counts["sentences"]).astype(int).clip(4, 510)
    views = [texts((lengths * VIEW_SHARE).round().astype(int).clip(1), generator) for _ in range(2)]
    pixels = generator.integers(0, 256, (counts["images"], 2, 224, 224, 3), np.uint8)
    frames = generator.standard_normal((counts["audio"], 1, 1024, 128)).astype(np.float16)
    columns: dict[str, dict[str, Any]] = {
        "documents": {"spans/tokens": documents, "mlm/tokens": documents},
        "sentences": {
            "clear/view_0": views[0],
            "clear/view_1": views[1],
            "simcse/tokens": texts(lengths.clip(max=SIMCSE_TOKENS), generator),
        },
        "images": {"pictures/values": torch.from_numpy(pixels)},
        "audio": {"clips/values": torch.from_numpy(frames)},
    }
    for name, objective in (("images", "pictures"), ("audio", "clips")):
        columns[name][f"{objective}/labels"] = torch.arange(counts[name]) // 2
    numbers = {name: torch.arange(count) for name, count in counts.items()}
    return {name: Batch(columns[name], ids, torch.zeros_like(ids)) for name, ids in numbers.items()}


class Padded:
    """Replacement of the encoder's forward pass: padded passes through the plain transformers model.

    Padded inputs are cached by the lengths of the sequences, for later rounds.

    Args:
        together: pad all blocks of text to one batch, instead of one batch for each block.
    """

    def __init__(self, encoder: Encoder, together: bool = False) -> None:
        self.encoder, self.together = encoder, together
        self.cache: dict[tuple[int, ...], list[tuple[Tensor, Tensor | None]]] = {}

    def prepare(self, packed: Packed) -> list[tuple[Tensor, Tensor | None]]:
        """Return (ids (N, L), attention mask, or None for patches) of each block, in packed order."""
        inputs: list[tuple[Tensor, Tensor | None]] = []
        parts = packed.ids.split(packed.lengths)
        blocks = sorted(packed.blocks, key=lambda block: block.start)
        if self.together:
            text = [block for block in blocks if packed.cu_seqlens[block.start] >= packed.patch_rows]
            blocks = [block for block in blocks if block not in text]
            blocks += [slice(text[0].start, text[-1].stop)] if text else []
        for block in blocks:
            ids = nn.utils.rnn.pad_sequence(parts[block], True, SPECIAL.pad)
            lengths = torch.tensor([len(part) for part in parts[block]], device=ids.device)
            mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
            inputs.append((ids, None if packed.cu_seqlens[block.start] < packed.patch_rows else mask))
        return inputs

    def __call__(self, packed: Packed, patches: Tensor | None = None) -> Tensor:
        key = tuple(packed.lengths)
        if key not in self.cache:
            self.cache[key] = self.prepare(packed)
        states, first = [], 0
        for ids, mask in self.cache[key]:
            if mask is None:
                values = patches[first : first + ids.numel()].view(*ids.shape, -1)
                first += ids.numel()
                with self.encoder.base.embeddings.register_forward_hook(lambda *_, values=values: values):
                    states.append(self.encoder.base(input_ids=ids).last_hidden_state.flatten(0, 1))
            else:
                states.append(self.encoder.base(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask])
        return torch.cat(states)

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Replace the encoder's forward pass by this one, and its packed attention by SDPA."""
        self.encoder.forward = self
        self.encoder.base.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            del self.encoder.forward
            self.encoder.base.set_attn_implementation(PACKED_ATTENTION)


class Contenders:
    """The implementations of a step, over one learner and one micro-batch.

    Attributes:
        ways: contender -> a function that makes a step, and returns its loss and the time of each turn.
    """

    def __init__(self, learner: Learner, batches: Mapping[str, Batch], bf16: bool) -> None:
        self.learner, self.batches, self.bf16 = learner, batches, bf16
        self.padded, self.three = Padded(learner.encoder), Padded(learner.encoder, together=True)
        self.device = learner.encoder.base.device
        self.after_backward: Callable[[], None] = lambda: None
        self.ways: dict[str, Callable[[], tuple[float, dict[str, Seconds]]]] = {
            "mixed": lambda: self.step([ALL]),
            "packed": lambda: self.step(SEPARATE),
            "padded": lambda: self.step_padded(self.padded, SEPARATE),
            "three": lambda: self.step_padded(self.three, THREE),
        }

    def turn(self, turn: str) -> Tensor:
        """Make the forward and backward pass of a turn; return its loss."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss, _ = self.learner(self.batches, turn)
        loss.backward()
        self.after_backward()
        return loss.detach()

    def step(self, turns: list[str]) -> tuple[float, dict[str, Seconds]]:
        self.learner.zero_grad()
        total, seconds = 0.0, {}
        for turn in turns:
            seconds[turn], loss = timed(lambda turn=turn: self.turn(turn), lambda: wait_for(self.device))
            total += loss.item()
        return total, seconds

    def step_padded(self, padded: Padded, turns: list[str]) -> tuple[float, dict[str, Seconds]]:
        with padded.instead():
            return self.step(turns)

    def memory(self, work: Callable[[], Any]) -> int:
        """Return the bytes that a step takes; see the module's docstring."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            work()
            return torch.cuda.max_memory_allocated()
        weights = {p.untyped_storage().data_ptr() for p in self.learner.parameters()}
        live: dict[int, int] = {}
        most = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal most
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                live[storage.data_ptr()] = storage.nbytes()
                most = max(most, sum(live.values()))
            return tensor

        self.after_backward = live.clear  # a backward pass frees what its forward pass kept
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            work()
        self.after_backward = lambda: None
        return most

    def rows(self) -> dict[str, dict[str, int]]:
        """Return for each turn: sequences, packed rows, rows padded by block, rows padded with all text together."""
        rows = {}
        for turn in TURNS:
            packed = self._packed(turn)
            padded, three = (sum(ids.numel() for ids, _ in way.prepare(packed)) for way in (self.padded, self.three))
            rows[turn] = {"sequences": packed.num_sequences, "rows": len(packed.ids)}
            rows[turn] |= {"padded_rows": padded, "rows_in_three": three}
        return rows

    @torch.no_grad()
    def _packed(self, turn: str) -> Packed:
        """Return the input of a turn's packed forward pass."""
        inputs: list[Packed] = []
        hook = self.learner.encoder.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
        self.learner(self.batches, turn)
        hook.remove()
        return inputs[0]

    def check(self, tolerance: float) -> None:
        """Check that all contenders give the same loss and gradient norm without dropout."""
        self.learner.eval()
        results = {}
        for name, way in self.ways.items():
            loss, _ = way()
            gradients = [p.grad for p in self.learner.parameters() if p.grad is not None]
            results[name] = loss, nn.utils.get_total_norm(gradients).item()
        self.learner.train()
        for name, values in results.items():
            pairs = zip(values, results["padded"], strict=True)
            if any(abs(value - expected) > tolerance * expected for value, expected in pairs):
                raise SystemExit(f"benchmark: (loss, gradient norm): {name} gives {values}, padded {results['padded']}")

    def measure(self, rounds: int) -> dict[str, Any]:
        """Return the median times, their ratios to mixed, and the memory of all contenders."""
        taken = {name: [seconds for _, seconds in results] for name, results in alternating(self.ways, rounds).items()}
        clock, processor = (medians(taken, at) for at in (0, 1))
        peers = ("padded", "three", "packed")
        return {
            "seconds": clock,
            "processor_seconds": processor,
            "every_round": {
                name: [round(sum(each.clock for each in turns.values()), 4) for turns in steps]
                for name, steps in taken.items()
            },
            **{f"times_{peer}": round(clock[peer][ALL] / clock["mixed"][ALL], 2) for peer in peers},
            **{
                f"times_{peer}_by_processor": round(processor[peer][ALL] / processor["mixed"][ALL], 2) for peer in peers
            },
            "memory_bytes": {name: self.memory(way) for name, way in self.ways.items()},
        }


def medians(taken: Mapping[str, list[dict[str, Seconds]]], at: int) -> dict[str, dict[str, float]]:
    """Return for each contender the median seconds of each turn, and of all turns together."""
    result: dict[str, dict[str, float]] = {}
    for name, steps in taken.items():
        result[name] = {turn: round(statistics.median(step[turn][at] for step in steps), 4) for turn in steps[0]}
        result[name][ALL] = round(statistics.median(sum(each[at] for each in step.values()) for step in steps), 4)
    return result


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(arguments.device)
    learner = build(arguments.layers, arguments.hidden, arguments.dropout).to(device)
    batches = moved(batches_of(arguments.part, seed=1), device)
    options = {key: getattr(arguments, key) for key in ("layers", "hidden", "dropout", "part", "rounds")}
    result: dict[str, Any] = {
        "machine": machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device,
        **options,
        "rows": Contenders(learner, batches, False).rows(),
        "precisions": {},
    }
    for precision in resolved_precisions(arguments.precisions, arguments.device):
        contenders = Contenders(learner, batches, precision == "bf16")
        contenders.check(0.05 if precision == "bf16" else 1e-4)
        result["precisions"][precision] = contenders.measure(arguments.rounds)
    return result


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    counts = result["rows"]
    lines = [
        f"{result['device']}, {result['threads']} threads, {result['machine']['cpu']}; {result['layers']} layers of "
        f"{result['hidden']}, dropout {result['dropout']}; 1/{result['part']} of the recipe's batch; medians of "
        f"{result['rounds']} rounds"
    ]
    for precision, figures in result["precisions"].items():
        seconds, processor = figures["seconds"], figures["processor_seconds"]
        rows = []
        for name, way, turn in (*((turn, "packed", turn) for turn in SEPARATE), *WHOLE):
            sizes = [f"{counts[turn][key]:,}" for key in ("sequences", "rows", "padded_rows")]
            times = [f"{peer:.3f}" for peer in (seconds[way][turn], seconds["padded"][turn])]
            ratios = [f"{each['padded'][turn] / each[way][turn]:.2f}x" for each in (seconds, processor)]
            rows.append([name, *sizes, *times, *ratios])
        headings = ("sequences", "rows", "padded rows", "packed s", "padded s", "ratio", "of processor s")
        lines += ["", columns([precision, *headings], rows)]
        three, ours = seconds["three"][ALL], seconds["mixed"][ALL]
        lines.append(f"three passes, {counts[ALL]['rows_in_three']:,} rows: {three:.3f} s, {three / ours:.2f}x")
        packed, padded = (sum(seconds[way][turn] for turn in TEXT) for way in ("packed", "padded"))
        lines.append(f"text only, {', '.join(TEXT)}: {padded / packed:.2f}x")
        memory = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in figures["memory_bytes"].items())
        lines.append(f"memory: {memory}")
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "mixed_step")
    option(parser, "layers", 4, "layers of the encoder")
    option(parser, "hidden", 256, "hidden size of the encoder, with heads of 64")
    option(parser, "dropout", 0.1, "dropout")
    option(parser, "part", 8, "measure 1/N of the recipe's batch")
    option(parser, "rounds", 5, "rounds")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    precisions_option(parser, "fp32", "auto")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
