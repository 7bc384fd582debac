"""One packed forward of text, pictures and clips beside separate padded forwards: seconds, rows and memory of a step.

    python -m benchmarks.mixed_step --layers 4 --hidden 256

A step is a forward and a backward of what the recipe `combined` trains, on a part of its batch: DeCLUTR's spans of
32 to 512 tokens, their anchors masked, CLEAR's views, SimCSE's sentences twice (cut to 32 tokens), pictures in two
views of 197 patches, clips twice of 211. Ids and pixels are random, lengths drawn by a seed; sentences are as long as
those of wiki1m (28 tokens in the mean, with a long tail), or as those of a folder of shards. RoBERTa's layer, with its
dropout. Contenders, in one process, in turn, medians of the rounds:

    mixed     one packed forward of all objectives, one backward: what the trainer does
    packed    a packed forward and a backward of each objective (masked anchors are those of the spans)
    padded    for each objective a padded forward of each of its blocks through the plain transformers model, SDPA with
              an attention mask, pictures and clips without one; then its backward
    three     the same with one padded forward of all text, one of all pictures, one of all clips

The padded ones are spared the padding itself, which is done beforehand, and share the objectives' losses with the
others: the masked-LM head too sees masked positions only. That all give one loss is checked first, without dropout.
Memory is the most that CUDA has allocated, or on a CPU what a forward keeps for its backward.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.fresh import SPECIAL, fresh_encoder, setting, texts, weighted
from benchmarks.report import command, finish, machine
from clearspan.shards import Dataset
from clearspan.shards.ragged import Ragged
from clearspan.train.data.batch import Batch
from clearspan.train.learner import Learner
from clearspan.train.modalities import audio, images
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.packing import Packed
from clearspan.train.objectives import Objective, clear, mlm, patches, simcse, spans
from clearspan.train.options import ALL

BATCH = {"documents": 16, "sentences": 64, "images": 48, "audio": 48}
"""The recipe's examples of a step."""
SIMCSE_TOKENS = 32
VIEW_SHARE = 0.78
"""Tokens of a view, of subs and del-span, to one of its sentence."""
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


def build(layers: int, hidden: int, dropout: float) -> Learner:
    """The objectives of `combined` over a fresh encoder."""
    encoder = fresh_encoder(layers, hidden, dropout)
    modalities = {"images": images.Images(images.Config()), "audio": audio.Audio(audio.Config(), 0.0, 0.5)}
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
        own = setting(encoder, name, data, modalities[data])
        objectives.append(weighted(patches.PatchContrast(patches.Config(loss="paper"), own, own.modality), weight))
    embeddings = {name: modality.embedding(hidden) for name, modality in modalities.items()}
    return Learner(encoder, objectives, SPECIAL, embeddings, TURNS)


def sentence_lengths(count: int, generator: np.random.Generator, folder: Path | None) -> np.ndarray:
    """Tokens of so many sentences: of a folder of shards the first, or drawn."""
    if folder is None:
        return generator.lognormal(np.log(28) - 0.5**2 / 2, 0.5, count).astype(int).clip(4, 510)
    found = np.concatenate([Ragged.from_arrow(batch.column("tokens")).lengths for batch in Dataset(folder)])
    return generator.permutation(found)[:count].clip(1, 510)


def batches_of(part: int, folder: Path | None, seed: int) -> dict[str, Batch]:
    """One micro-batch: a part of the recipe's batch of every dataset."""
    generator = np.random.default_rng(seed)
    counts = {name: max(2, count // part) for name, count in BATCH.items()}
    documents = texts(generator.integers(2048, 4096, counts["documents"]), generator)
    lengths = sentence_lengths(counts["sentences"], generator, folder)
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
    """Stands in for the encoder's forward: a padded forward of each block through the plain model, or of all blocks of
    text `together`.

    What is padded is kept by the sequences' lengths, for the next round with the same.
    """

    def __init__(self, encoder: Encoder, together: bool = False) -> None:
        self.encoder, self.together, self.kept = encoder, together, {}

    def prepare(self, packed: Packed) -> list[tuple[Tensor, Tensor | None]]:
        """(ids (N, L), attention mask; None: the block's sequences are patches) of each block, in the packed order."""
        found: list[tuple[Tensor, Tensor | None]] = []
        parts = packed.ids.split(packed.lengths)
        blocks = sorted(packed.blocks, key=lambda block: block.start)
        if self.together:
            texts = [block for block in blocks if packed.cu_seqlens[block.start] >= packed.patch_rows]
            blocks = [block for block in blocks if block not in texts]
            blocks += [slice(texts[0].start, texts[-1].stop)] if texts else []
        for block in blocks:
            ids = nn.utils.rnn.pad_sequence(parts[block], True, SPECIAL.pad)
            lengths = torch.tensor([len(part) for part in parts[block]], device=ids.device)
            mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
            found.append((ids, None if packed.cu_seqlens[block.start] < packed.patch_rows else mask))
        return found

    def __call__(self, packed: Packed, patches: Tensor | None = None) -> Tensor:
        key = tuple(packed.lengths)
        if key not in self.kept:
            self.kept[key] = self.prepare(packed)
        states, first = [], 0
        for ids, mask in self.kept[key]:
            if mask is None:
                own = patches[first : first + ids.numel()].view(*ids.shape, -1)
                first += ids.numel()
                with self.encoder.base.embeddings.register_forward_hook(lambda *_, own=own: own):
                    states.append(self.encoder.base(input_ids=ids).last_hidden_state.flatten(0, 1))
            else:
                states.append(self.encoder.base(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask])
        return torch.cat(states)

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within it, the encoder's forward is this one, and its model the plain one."""
        self.encoder.forward = self
        self.encoder.base.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            del self.encoder.forward
            self.encoder.base.set_attn_implementation(PACKED_ATTENTION)


@dataclasses.dataclass
class Step:
    """What a step gave and took; seconds by turn, of the clock and of all processors."""

    loss: float = 0.0
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    processor_seconds: dict[str, float] = dataclasses.field(default_factory=dict)


class Contenders:
    """The ways to make a step, over one learner and one micro-batch."""

    def __init__(self, learner: Learner, batches: Mapping[str, Batch], bf16: bool) -> None:
        self.learner, self.batches = learner, batches
        self.padded, self.three = Padded(learner.encoder), Padded(learner.encoder, together=True)
        self.device = learner.encoder.base.device
        self.autocast = lambda: torch.autocast(self.device.type, torch.bfloat16, enabled=bf16)
        self.ways: dict[str, Callable[[], Step]] = {
            "mixed": lambda: self.step([ALL]),
            "packed": lambda: self.step(SEPARATE),
            "padded": lambda: self.step_padded(self.padded, SEPARATE),
            "three": lambda: self.step_padded(self.three, THREE),
        }

    def step(self, turns: list[str]) -> Step:
        """Forward and backward of each turn."""
        self.learner.zero_grad()
        found = Step()
        for turn in turns:
            self.wait()
            clock, processor = time.perf_counter(), time.process_time()
            with self.autocast():
                loss, _ = self.learner(self.batches, turn)
            loss.backward()
            self.wait()
            found.seconds[turn] = time.perf_counter() - clock
            found.processor_seconds[turn] = time.process_time() - processor
            found.loss += loss.item()
        return found

    def step_padded(self, padded: Padded, turns: list[str]) -> Step:
        with padded.instead():
            return self.step(turns)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def memory(self, work: Callable[[], Any]) -> int:
        """Bytes: see the module's docstring."""
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

        backward = Tensor.backward

        def and_forget(loss: Tensor) -> None:
            backward(loss)
            live.clear()

        Tensor.backward = and_forget  # of several forwards, each one's is gone when its backward is done
        try:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                work()
        finally:
            Tensor.backward = backward
        return most

    def rows(self) -> dict[str, dict[str, int]]:
        """Of every turn: sequences, rows packed, rows padded by block, and with all text in one forward."""
        found = {}
        for turn in TURNS:
            packed = self._packed(turn)
            padded = sum(ids.numel() for ids, _ in self.padded.prepare(packed))
            three = sum(ids.numel() for ids, _ in self.three.prepare(packed))
            found[turn] = {"sequences": packed.num_sequences, "rows": len(packed.ids)}
            found[turn] |= {"padded_rows": padded, "rows_in_three": three}
        return found

    @torch.no_grad()
    def _packed(self, turn: str) -> Packed:
        seen: list[Packed] = []
        hook = self.learner.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        self.learner(self.batches, turn)
        hook.remove()
        return seen[0]


def check(contenders: Contenders, tolerance: float) -> None:
    """Without dropout, all ways give one loss and one gradient."""
    learner = contenders.learner
    learner.eval()
    found = {}
    for name, way in contenders.ways.items():
        loss = way().loss
        found[name] = loss, nn.utils.get_total_norm([p.grad for p in learner.parameters() if p.grad is not None]).item()
    learner.train()
    for name, (loss, norm) in found.items():
        expected = found["padded"]
        if abs(loss - expected[0]) > tolerance * expected[0] or abs(norm - expected[1]) > tolerance * expected[1]:
            raise SystemExit(f"benchmark: {name} gives {loss}, {norm}: padded {expected}")


def profiled(work: Callable[[], Any], most: int = 12) -> dict[str, float]:
    """Seconds in the operations that take most of a step."""
    from torch.profiler import profile

    with profile() as found:
        work()
    events = sorted(found.key_averages(), key=lambda event: -(event.self_cpu_time_total + event.self_device_time_total))
    return {one.key: round((one.self_cpu_time_total + one.self_device_time_total) / 1e6, 4) for one in events[:most]}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    learner = build(arguments.layers, arguments.hidden, arguments.dropout).to(arguments.device)
    batches = batches_of(arguments.part, arguments.sentences, seed=1)
    batches = {name: batch.to(torch.device(arguments.device)) for name, batch in batches.items()}
    result: dict[str, Any] = {
        "machine": machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device,
        "layers": arguments.layers,
        "hidden": arguments.hidden,
        "dropout": arguments.dropout,
        "part": arguments.part,
        "rounds": arguments.rounds,
        "rows": Contenders(learner, batches, False).rows(),
        "precisions": {},
    }
    for precision in arguments.precisions:
        contenders = Contenders(learner, batches, precision == "bf16")
        check(contenders, 0.05 if precision == "bf16" else 1e-4)
        taken: dict[str, list[Step]] = {name: [] for name in contenders.ways}
        for _ in range(arguments.rounds):
            for name, way in contenders.ways.items():
                taken[name].append(way())
        seconds, processor = (medians(taken, of) for of in ("seconds", "processor_seconds"))
        result["precisions"][precision] = {
            "seconds": seconds,
            "processor_seconds": processor,
            "every_round": {name: [round(sum(one.seconds.values()), 4) for one in own] for name, own in taken.items()},
            **{f"times_{peer}": ratio(seconds, peer) for peer in ("padded", "three", "packed")},
            **{f"times_{peer}_by_processor": ratio(processor, peer) for peer in ("padded", "three", "packed")},
            "memory_bytes": {name: contenders.memory(way) for name, way in contenders.ways.items()},
        }
        if arguments.profile:
            found = {name: profiled(contenders.ways[name]) for name in ("mixed", "padded")}
            result["precisions"][precision]["operations"] = found
    return result


def medians(taken: Mapping[str, list[Step]], of: str) -> dict[str, dict[str, float]]:
    """Of each contender and turn, and of all its turns together, the median of the rounds."""
    found: dict[str, dict[str, float]] = {}
    for name, steps in taken.items():
        rounds = [getattr(step, of) for step in steps]
        found[name] = {turn: round(statistics.median(one[turn] for one in rounds), 4) for turn in rounds[0]}
        found[name][ALL] = round(statistics.median(sum(one.values()) for one in rounds), 4)
    return found


def ratio(seconds: Mapping[str, Mapping[str, float]], peer: str) -> float:
    return round(seconds[peer][ALL] / seconds["mixed"][ALL], 2)


def table(result: dict[str, Any]) -> str:
    """What is printed, and quoted in the documentation."""
    return "\n".join(_lines(result))


def _lines(result: dict[str, Any]) -> Iterator[str]:
    rows = result["rows"]
    yield (
        f"{result['device']}, {result['threads']} threads, {result['machine']['cpu']}; {result['layers']} layers of "
        f"{result['hidden']}, dropout {result['dropout']}; 1/{result['part']} of the recipe's batch; medians of "
        f"{result['rounds']} rounds"
    )
    for precision, found in result["precisions"].items():
        yield ""
        header = f"{'sequences':>10} {'rows':>8} {'padded rows':>12} {'packed s':>9} {'padded s':>9} {'ratio':>6}"
        yield f"{precision:<12} {header} {'of processor s':>15}"
        times = [found[of] for of in ("seconds", "processor_seconds")]
        for turn in SEPARATE:
            yield _line(turn, rows[turn], [(one["packed"][turn], one["padded"][turn]) for one in times])
        for name, way in (("separate", "packed"), ("mixed", "mixed")):
            yield _line(name, rows[ALL], [(one[way][ALL], one["padded"][ALL]) for one in times])
        three, ours = found["seconds"]["three"][ALL], found["seconds"]["mixed"][ALL]
        yield f"beside three forwards, {rows[ALL]['rows_in_three']:,} rows, {three:.3f} s: {three / ours:.2f}x"
        text, padded_text = (sum(found["seconds"][way][turn] for turn in TEXT) for way in ("packed", "padded"))
        yield f"text alone, {', '.join(TEXT)}: {padded_text / text:.2f}x"
        memory = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in found["memory_bytes"].items())
        yield f"memory: {memory}"
        for name, operations in found.get("operations", {}).items():
            yield f"{name}: " + ", ".join(f"{key} {seconds:.3f} s" for key, seconds in operations.items())


def _line(name: str, rows: dict[str, int], times: list[tuple[float, float]]) -> str:
    counts = f"{rows['sequences']:>10,} {rows['rows']:>8,} {rows['padded_rows']:>12,}"
    (ours, padded), (processor, padded_processor) = times
    return (
        f"{name:<12} {counts} {ours:>9.3f} {padded:>9.3f} {padded / ours:>5.2f}x {padded_processor / processor:>14.2f}x"
    )


def main() -> None:
    parser = command(__doc__, "mixed_step")
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="default 4")
    parser.add_argument("--hidden", type=int, default=256, metavar="N", help="default 256; heads are of 64")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P", help="default 0.1")
    parser.add_argument("--part", type=int, default=8, metavar="N", help="a rank's part of a batch, 1/N (default 1/8)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    parser.add_argument("--sentences", type=Path, metavar="SHARDS", help="sentences as long as these shards' are")
    parser.add_argument("--profile", action="store_true", help="say in which operations the time goes")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
