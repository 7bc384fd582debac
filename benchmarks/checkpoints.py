"""What the hashes of a checkpoint cost: seconds to save and to load one of a model of RoBERTa-base's shape, with AdamW.

    python -m benchmarks.checkpoints --folder DISK

"Without": DeepSpeed's own writer and its files brought to the disk; a load without a look at them. Rounds alternate.
Loads are of files that the machine has in memory: from a slow disk, reading for the hash is reading ahead for the load.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from torch.nn import functional as F
from transformers import RobertaConfig, RobertaForMaskedLM

from benchmarks.report import command, machine, tell
from clearspan.train.engine.checkpoint import KIND, CheckpointEngine, Checkpoints
from clearspan.train.engine.integrity import check_folder
from clearspan.train.engine.optimization import adamw
from clearspan.train.engine.ranks import join_ranks
from clearspan.train.schedules import OptimizerConfig


def trained_engine() -> Any:
    """A DeepSpeed engine after one step: random weights, and moments of each."""
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
    model = RobertaForMaskedLM(config)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=adamw(list(model.parameters()), OptimizerConfig()),
        config={"train_batch_size": 1, "steps_per_print": 1 << 60},
    )
    ids = torch.arange(16, device=engine.device)[None]
    engine.backward(F.cross_entropy(engine(input_ids=ids).logits[0], ids[0]))
    engine.step()
    return engine


def save_plain(engine: Any, folder: Path, step: int) -> None:
    """A checkpoint without hashes, in place of the one before."""
    engine.checkpoint_engine = TorchCheckpointEngine()
    engine.save_checkpoint(str(folder), tag=f"plain-{step}", save_latest=False)
    for path in (folder / f"plain-{step}").iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    shutil.rmtree(folder / f"plain-{step - 1}", ignore_errors=True)


def load_plain(engine: Any, folder: Path) -> None:
    engine.checkpoint_engine = CheckpointEngine()
    engine.load_checkpoint(str(folder.parent), tag=folder.name)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    join_ranks()
    engine = trained_engine()
    checkpoints = Checkpoints(folder)
    taken: dict[str, list[float]] = {}
    for step in range(rounds):
        plain, sealed = checkpoints.folder / f"plain-{step}", checkpoints.folder / f"step-{step:08d}"
        steps: dict[str, Callable[[], Any]] = {
            "save, without": lambda: save_plain(engine, checkpoints.folder, step),  # noqa: B023 (called here)
            "save, with": lambda: checkpoints.save(engine, step, {}, best=False),  # noqa: B023
            "load, without": lambda: load_plain(engine, plain),  # noqa: B023
            "load, with": lambda: checkpoints.load(engine),
            "hashing alone": lambda: check_folder(sealed, KIND),  # noqa: B023
        }
        for name, work in steps.items():
            taken.setdefault(name, []).append(seconds(work))
    size = sum(path.stat().st_size for path in sealed.iterdir())
    return {
        "machine": machine(),
        "parameters": sum(p.numel() for p in engine.module.parameters()),
        "bytes": size,
        "rounds": rounds,
        "seconds": {name: round(statistics.median(found), 3) for name, found in taken.items()},
        "every_round": {name: [round(one, 3) for one in found] for name, found in taken.items()},
    }


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    found = result["seconds"]
    lines = [
        f"{result['parameters']:,} parameters, {result['bytes'] / 1e6:,.0f} MB, medians of {result['rounds']} rounds",
        f"{'':<6} {'without':>10} {'with':>10} {'hashes':>10}",
    ]
    for name in ("save", "load"):
        without, hashed = found[f"{name}, without"], found[f"{name}, with"]
        lines.append(f"{name:<6} {without:>8.2f} s {hashed:>8.2f} s {100 * (hashed - without) / hashed:>8.0f} %")
    rate = result["bytes"] / 1e9 / found["hashing alone"]
    return "\n".join([*lines, f"hashing the files alone: {found['hashing alone']:.2f} s, {rate:.1f} GB/s"])


def main() -> None:
    parser = command(__doc__, "checkpoints")
    parser.add_argument("--folder", type=Path, metavar="DISK", help="where to save (default: the temporary folder)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        result = measure(Path(folder), arguments.rounds)
    tell(result, table, arguments.output)


if __name__ == "__main__":
    main()
