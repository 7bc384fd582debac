"""Short runs of everything that uses a device, by the commands that users type, in minutes and without Beam.

    Python's documentation -> tokenizer, shards -> alone: encode beside sentence-transformers, embed by two workers
                                                -> side by side: `deepspeed train/run.py` with each objective and
                                                   each option of the loop, --resume, ZeRO 1 and 2; adapt, eval

    python -m benchmarks.cuda_runs --dry-run
    python -m benchmarks.cuda_runs --work DIR
    python -m benchmarks.cuda_runs --device cpu --only declutr,resume --work DIR       a part of it, small

A training passes if it ends with exit code 0, all of its steps and finite losses; `encode`, if its embeddings are those
of sentence-transformers up to rounding; `replay`, if activation checkpointing has the gradients of the loss: of other
dropout in the backward pass it has not. Each step is a process of its own with a time limit; what needs a step that
failed is not started, and what the time does not reach is listed as "not reached: time". Rates leave out warm-up; those
of trainings are of runs side by side. DIR/logs has what each command printed. `python -m benchmarks.cuda --help` says
which packages this needs. Exit code: 0; 1 if a step failed or was not reached; 2 without a CUDA device.
"""

import argparse
import contextlib
import csv
import dataclasses
import functools
import importlib.util
import json
import math
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import wave
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch

from benchmarks.report import command, machine, option, tabulated, timed, write
from benchmarks.synthetic import config_of, wait_for

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 200
"""Seconds of a command; compilation of a small encoder is a third of them on a GPU."""
SIZES = {
    "cpu": {
        "layers": 1,
        "hidden": 64,
        "documents": 8,
        "steps": 4,
        "texts": 60,
        "encode_layers": 1,
        "encode_hidden": 64,
        "padded_texts": 60,
        "padded_layers": 1,
        "padded_hidden": 64,
        "lines": 400,
    },
    "cuda": {
        "layers": 4,
        "hidden": 256,
        "documents": 32,
        "steps": 60,
        "texts": 20_000,
        "encode_layers": 12,
        "encode_hidden": 768,
        "padded_texts": 6_000,
        "padded_layers": 6,
        "padded_hidden": 384,
        "lines": 120_000,
    },
}
"""By device: the trained encoder, a step's documents, the steps; the texts that are encoded, by an encoder of which
size, and by padded ones; the lines that `embed` reads."""
VOCABULARY = 4001
"""An odd number of ids: the masked LM pads it on CUDA."""
CLASSES, EACH = 6, 8
"""Classes of pictures and clips, and examples of each."""
BATCHES = (64, 256, 1024)
"""Batch sizes of sentence-transformers, the best of which counts."""
COSINE = {"fp32": 1 - 1e-5, "bf16": 0.9999}
"""The lowest cosine between our embedding of a text and sentence-transformers' in fp32, by precision."""
PADDED_COSINE = COSINE | {"bf16": 0.9995}
"""The same for PADDED: their random models have 0.99995 on a CPU, and 0.996 with sentence-transformers in bf16."""
BACKENDS = {"cpu": "aot_eager_decomp_partition", "cuda": "inductor"}
"""Compilers that decide themselves what to recompute, with which random state; the backend `eager` restores none."""
WARM_UP = 4096
"""Texts that are encoded before the measurement: more than a batch of 65,536 tokens holds."""
REPLAY = {"dropout": 0.5, "documents": 2, "change": 0.02, "error": 0.2}
"""Of `replay`: the dropout; the documents; the fraction by which the loss changes along its gradient; the error allowed
for this change. With other dropout in the backward pass it is half as large."""

OWN = ["objectives.spans=null", "objectives.mlm=null"]
"""Of the recipe `demo`, leave out both objectives."""
SEPARATE = [f"objectives.mlm.sampler.{key}" for key in ("min_span=8", "max_span=64", "placement=uniform")]
SIMCSE = ["objectives.simcse.data=text"]
PAIRS = ["objectives.pairs.type=simcse", "objectives.pairs.data=text"]
OBJECTIVES = {
    "declutr": ("documents", []),
    "spans": ("documents", ["objectives.mlm=null"]),
    "mlm": ("documents", ["objectives.spans=null", "objectives.mlm.input=separate", *SEPARATE]),
    "clear": ("sentences", [*OWN, "objectives.clear.augment=del-span", "objectives.clear.views=fly"]),
    "simcse": ("sentences", [*OWN, *SIMCSE]),
    "pairs": ("pairs", [*OWN, *PAIRS]),
    "images": ("sentences", [*OWN, *SIMCSE, "objectives.patches.data=images"]),
    "audio": ("sentences", [*OWN, *SIMCSE, "objectives.patches.data=audio"]),
    "caching": ("documents", ["training.gradient_accumulation_steps=4", "training.gradient_caching=true"]),
    "checkpointing": ("documents", ["training.activation_checkpointing=true"]),
    "fp32": ("documents", ["training.bf16=false"]),
    "uncompiled": ("documents", ["training.compile=false"]),
    "accumulation": ("documents", ["training.gradient_accumulation_steps=4"]),
    "turns": ("documents", ["optimization=alternate", "objectives.mlm.input=separate", *SEPARATE]),
    "modalities": ("sentences", [*OWN, *SIMCSE, "objectives.patches.data=images", "optimization=alternate"]),
    "memory": ("documents", ["objectives.spans.memory=256"]),
    "static": ("pairs", [*OWN, *PAIRS, "model.config=null", "model.config.model_type=static"]),
    "zero-1": ("documents", ["training.zero_stage=1"]),
    "zero-2": ("documents", ["training.zero_stage=2"]),
    "two-ranks": ("documents", []),
}
"""Training -> its dataset of text, and the keys that differ from the recipe `demo`; those that matter most first."""
PADDED = ("mpnet", "t5", "qwen3")
"""Model types whose attention is padded, or has rotary positions, for `encode`."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A command, or a function of this module, and what it needs.

    Attributes:
        words: of the command.
        work: what to do in place of a command; returns figures.
        needs: the steps that must have passed.
        check: raises ValueError if the step has not done its work; returns figures.
        left_out: the reason why there is nothing to do here; "" if there is.
    """

    name: str
    words: tuple[str, ...] = ()
    work: Callable[[], Mapping[str, Any]] | None = None
    needs: tuple[str, ...] = ()
    check: Callable[[], Mapping[str, Any]] | None = None
    left_out: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {shlex.join(self.words) or self.left_out or 'in this process'}"


class Plan:
    """The steps in their waves.

    Args:
        device: cpu or cuda.
        work: the folder for all files.
        only: the names of the steps to run, besides the data; empty: all.
    """

    def __init__(self, device: str, work: Path, only: list[str]) -> None:
        self.device, self.work, self.only, self.size = device, work.resolve(), only, SIZES[device]

    def waves(self) -> list[list[Step]]:
        """Return the steps; each wave ends before the next, and what is timed is alone in its wave.

        A step comes after those of its wave that it needs.
        """
        trainings = [self.training(name) for name in OBJECTIVES]
        first = next(at for at, step in enumerate(trainings) if step.name == "checkpointing")
        beside = [*trainings[:first], self.resume(), self.adapt(), self.measured("replay")]
        beside += [*trainings[first:], self.eval()]
        alone = [self.measured("encode"), self.embed(), *(self.measured(f"encode-{kind}") for kind in PADDED)]
        waves = [[step] for step in alone] + [beside]
        if self.only:
            waves = [[step for step in wave if step.name in self.only] for wave in waves]
        return [wave for wave in (self.data(), *waves) if wave]

    def names(self) -> list[str]:
        """Return the names that `--only` takes."""
        return [*OBJECTIVES, "resume", "adapt", "eval", "embed", *MEASURES]

    def data(self) -> list[Step]:
        """Return the steps that make the tokenizer and the shards."""
        files, shards, tokenizer = self.work / "files", self.work / "shards", self.work / "tokenizer"

        def made(kind: str, source: str, *words: str) -> Step:
            line = self.module("benchmarks.without_beam", kind, f"--input={files / source}", *words)
            output = tokenizer if kind == "vocabulary" else shards / kind
            needs = ("data: files",) if kind in ("vocabulary", "images", "audio") else ("data: vocabulary",)
            return Step(f"data: {kind}", (*line, f"--output={output}", "--quiet"), needs=needs)

        text = f"--tokenizer={tokenizer}"
        steps = [
            Step("data: files", work=lambda: write_files(files, self.size["lines"])),
            made("vocabulary", "documents.jsonl", f"--size={VOCABULARY}"),
            made("documents", "documents.jsonl", text, "--min-tokens=260"),
            made("sentences", "titles.csv", text, "--text-field=text", "--del-token", "--min-tokens=8"),
            made("pairs", "titles.csv", text, "--fields=title,text"),
        ]
        steps += [made(kind, f"{kind}/*") for kind in ("images", "audio") if not self.lacks(kind)]
        return steps

    def lacks(self, kind: str) -> str:
        """Return why there are no such examples, or not as many GPUs, here; "" if there are."""
        if kind == "two-ranks" and self.device == "cuda" and torch.cuda.device_count() < 2:
            return "there are no two GPUs"
        package = {"images": "PIL", "audio": "soundfile"}.get(kind, "")
        return f"{package} is not installed" if package and not importlib.util.find_spec(package) else ""

    def model(self) -> list[str]:
        """Return the keys of the encoder."""
        config = config_of(self.size["layers"], self.size["hidden"], 0.1)
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "type_vocab_size")
        keys = {name: getattr(config, name) for name in names}
        keys |= {"model_type": "roberta", "max_position_embeddings": 130}
        return ["model.config=null", *(f"model.config.{key}={value}" for key, value in keys.items())]

    def training(self, name: str) -> Step:
        """Return the training of an objective."""
        data, keys = OBJECTIVES[name]
        batch = self.size["documents"]
        words = [*self.model(), *keys, f"data.text.path={self.work / 'shards' / data}", f"data.text.batch_size={batch}"]
        kind = next((key.partition("patches.data=")[2] for key in keys if "patches.data=" in key), "")
        if kind:
            words += [f"data.{kind}.path={self.work / 'shards' / kind}", f"data.{kind}.batch_size={min(batch, 16)}"]
            words += ["model.pooling=cls", *(["data.images.modality.image_size=64"] if kind == "images" else [])]
        needs = tuple(f"data: {each}" for each in (data, kind) if each)
        reason = self.lacks(kind) or self.lacks(name)
        if reason:
            return Step(name, left_out=reason)
        return dataclasses.replace(self.run(name, self.size["steps"], words), needs=needs)

    def resume(self) -> Step:
        """Return the training of DeCLUTR's objectives for half as many steps more."""
        first = self.training("declutr")
        more = self.size["steps"] * 3 // 2
        words = [word for word in first.words if not word.startswith("training.max_steps")]
        words = [*words[:-1], f"training.max_steps={more}", "--resume", words[-1]]
        return dataclasses.replace(
            first,
            name="resume",
            words=tuple(words),
            needs=("declutr",),
            check=lambda: self.trained("declutr", more, self.size["steps"]),
        )

    def run(self, name: str, steps: int, words: list[str]) -> Step:
        line = [
            sys.executable,
            "-m",
            "deepspeed.launcher.runner",
            f"--num_accelerators={2 if name == 'two-ranks' else 1}",
            f"--master_port={free_port()}",
            "train/run.py",
            "--recipe=demo",
        ]
        line += [*words, f"training.max_steps={steps}", f"training.logging_steps={max(1, steps // 6)}"]
        line += ["training.save_steps=1000000", "training.seed=1", f"output={self.work / 'runs' / name}", "--quiet"]
        return Step(name, tuple(line), check=lambda: self.trained(name, steps))

    def trained(self, name: str, steps: int, start: int = 0) -> dict[str, Any]:
        """Return the figures of a training that has made its steps, or those after `start`."""
        run = self.work / "runs" / name
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if line["step"] > start]
        losses = [line["loss"] for line in lines if "loss" in line]
        if not lines or lines[-1]["step"] != steps or not all(map(math.isfinite, losses)):
            raise ValueError(f"{run}: has not made {steps} steps with finite losses")
        rates = [line["tokens_per_s"] for line in lines[1:] if "tokens_per_s" in line]  # the first includes compilation
        figures = {"steps": steps, "first_loss": losses[0], "last_loss": losses[-1]}
        return figures | ({"tokens_per_s": statistics.median(rates)} if rates else {})

    def adapt(self) -> Step:
        """Return `clearspan adapt` of the encoder that the masked LM trained."""
        words = ["adapt", f"--input={self.work / 'files' / 'titles.csv'}", "--fields=title,text", "--stemmer=none"]
        words += [f"--model={self.work / 'runs' / 'mlm' / 'model'}", f"--output={self.work / 'adapted'}"]
        words += ["training.epochs=1"]  # some twenty steps
        return Step("adapt", self.module("benchmarks.without_beam", *words), needs=("mlm",), check=self.adapted)

    def adapted(self) -> dict[str, Any]:
        found = sorted(path.name for path in (self.work / "adapted").iterdir())
        if not {"verdict.json", "model", "vectors"} <= {*found}:
            raise ValueError(f"{self.work / 'adapted'}: holds no verdict, model and vectors: {', '.join(found)}")
        return {}

    def eval(self) -> Step:
        """Return the scores of the trained model and its peers on the held-out titles of `adapt`."""
        folder = self.work / "scores"
        words = [f"--model={self.work / 'runs' / 'mlm' / 'model'}", "--model=bm25:none", "--tasks=heldout"]
        words += [f"--data={self.work / 'adapted' / 'texts'}", f"--output={folder}", "--quiet"]
        return Step("eval", self.module("clearspan.eval", *words), needs=("adapt",))

    def measured(self, name: str) -> Step:
        """Return one of MEASURES, in a process of its own."""
        words = (f"--measure={name}", f"--device={self.device}", f"--work={self.work}")
        return Step(
            name,
            self.module("benchmarks.cuda_runs", *words),
            needs=() if name == "replay" else ("data: vocabulary",),
            check=lambda: figures_of(self.log(name)),
        )

    def log(self, name: str) -> Path:
        """Return the file for what a step prints."""
        return self.work / "logs" / log_name(name)

    def embed(self) -> Step:
        """Return `clearspan embed` by two workers, which share one process with the model on a GPU."""
        words = ["embed", f"--model={self.work / 'encode'}", f"--input={self.work / 'files' / 'lines.txt'}"]
        words += ["--text-per=line", f"--device={self.device}", f"--output={self.work / 'vectors'}", "--workers=2"]
        words += [f"--unit-bytes={4 * self.size['lines']}", "--quiet"]
        return Step("embed", self.module("benchmarks.without_beam", *words), needs=("encode",), check=self.embedded)

    def embedded(self) -> dict[str, Any]:
        """Return the texts a second, counted from each worker's first unit on."""
        folder = self.work / "vectors"
        manifest = json.loads((folder / "manifest.json").read_text())
        found = sum(shard["examples"] for shard in manifest["shards"])
        if found != self.size["lines"]:
            raise ValueError(f"{folder}: holds vectors of {found} texts, not of {self.size['lines']}")
        ends = sorted(path.stat().st_mtime for path in (folder / ".clearspan").glob("[0-9]*.json"))[1:]
        rate = found * (len(ends) - 1) / (len(ends) + 1) / (ends[-1] - ends[0]) if len(ends) > 1 else math.nan
        return {"embed, texts_per_s": rate}

    @staticmethod
    def module(name: str, *words: str) -> tuple[str, ...]:
        return (sys.executable, "-m", name, *words)


def log_name(name: str) -> str:
    return f"{name.replace(': ', '-')}.txt"


def figures_of(log: Path) -> dict[str, Any]:
    """Return the figures that `--measure` printed; warnings may surround them."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1]))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def paragraphs() -> list[str]:
    """Return the paragraphs of Python's documentation of 20 words or more, one line each."""
    parts = (" ".join(part.split()) for text in topics.values() for part in text.split("\n\n"))
    return [part for part in dict.fromkeys(parts) if part.count(" ") >= 20]


def numbered(count: int) -> list[str]:
    """Return this many sentences of 17 words, no two alike."""
    sentences = [" ".join(text.split()[:16]) for text in paragraphs()]
    return [f"{number} {sentences[number % len(sentences)]}" for number in range(count)]


def write_files(folder: Path, lines: int) -> dict[str, Any]:
    """Write the input files: documents, texts with titles, lines, pictures and clips; return how many of each."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [json.dumps({"text": text}) + "\n" for text in topics.values()]
    (folder / "documents.jsonl").write_text("".join(documents), encoding="utf-8")
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in numbered(lines)), encoding="utf-8")
    texts, generator = paragraphs(), np.random.default_rng(0)
    with (folder / "titles.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("title", "text"))
        rows.writerows((" ".join(text.split()[:6]), " ".join(text.split()[6:])) for text in texts)
    for number in range(CLASSES):
        for kind, suffix, written in (("images", "png", write_picture), ("audio", "wav", write_clip)):
            place = folder / kind / f"class-{number}"
            place.mkdir(parents=True, exist_ok=True)
            for example in range(EACH):
                with contextlib.suppress(ImportError):  # without PIL no step reads pictures
                    written(place / f"{example}.{suffix}", number, generator)
    return {"documents": len(documents), "texts": len(texts)}


def write_picture(path: Path, label: int, generator: np.random.Generator) -> None:
    """Write a picture of 64 x 64 in the color of its class, with noise."""
    from PIL import Image

    color = np.array([label * 40, 255 - label * 40, 128])
    Image.fromarray((color + generator.integers(-30, 30, (64, 64, 3))).clip(0, 255).astype(np.uint8)).save(path)


def write_clip(path: Path, label: int, generator: np.random.Generator) -> None:
    """Write 1.2 seconds of a tone of its class, with noise."""
    times = np.arange(19_200) / 16_000
    sound = np.sin(2 * np.pi * 200 * (label + 1) * times) + 0.1 * generator.standard_normal(len(times))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((sound * 12_000).astype("<i2").tobytes())


def encoded(work: Path, device: str, size: Mapping[str, int]) -> dict[str, Any]:
    """Return the figures of `compared` for RoBERTa, packed, as a training exports it."""
    from transformers import RobertaForMaskedLM

    from clearspan.common.encoder.attention import PACKED_ATTENTION
    from clearspan.train.export import save_model
    from clearspan.train.model.encoder import TrainableEncoder
    from clearspan.train.model.tokenizer import load_tokenizer

    tokenizer, folder = load_tokenizer(work / "tokenizer"), work / "encode"
    torch.manual_seed(0)
    config = config_of(size["encode_layers"], size["encode_hidden"], 0.1, len(tokenizer))
    config.pad_token_id = tokenizer.pad_token_id
    encoder = TrainableEncoder(RobertaForMaskedLM._from_config(config, attn_implementation=PACKED_ATTENTION))
    encoder.drop_mlm_head()
    save_model(encoder, tokenizer, folder, "")
    return compared(folder, numbered(size["texts"]), device, BATCHES, COSINE)


def encoded_as(model_type: str, work: Path, device: str, size: Mapping[str, int]) -> dict[str, Any]:
    """Return the figures of `compared` for a random model of another architecture."""
    import transformers

    from clearspan.train.model.tokenizer import load_tokenizer

    tokenizer, folder = load_tokenizer(work / "tokenizer"), work / f"encode-{model_type}"
    layers, hidden = size["padded_layers"], size["padded_hidden"]
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    keys = {"vocab_size": len(tokenizer), "hidden_size": hidden, "intermediate_size": 4 * hidden, **ids}
    keys |= {"num_hidden_layers": layers, "num_attention_heads": max(1, hidden // 64), "max_position_embeddings": 514}
    if model_type == "t5":
        keys = {"vocab_size": len(tokenizer), "d_model": hidden, "d_ff": 4 * hidden, "num_layers": layers, **ids}
        keys |= {"num_heads": max(1, hidden // 64)}
    if model_type == "qwen3":
        keys |= {"num_key_value_heads": keys["num_attention_heads"], "head_dim": 64}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **keys)
    made = transformers.T5EncoderModel if model_type == "t5" else transformers.AutoModel
    build = made._from_config if model_type == "t5" else made.from_config
    build(config).save_pretrained(folder)
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    return compared(folder, numbered(size["padded_texts"]), device, BATCHES[1:2], PADDED_COSINE)


def compared(
    folder: Path, texts: list[str], device: str, batches: Sequence[int], lowest: Mapping[str, float]
) -> dict[str, Any]:
    """Return the texts a second of `load_model(...).encode` and of sentence-transformers at the best of its batch
    sizes, and the lowest cosine between our embedding of a text and the library's in fp32, by precision.

    Args:
        lowest: precision -> the lowest cosine that rounding explains.

    Raises:
        ValueError: the embeddings differ by more.
    """
    from sentence_transformers import SentenceTransformer

    from clearspan import load_model

    figures: dict[str, Any] = {}
    exact = np.zeros(0)
    for precision in ("fp32", "bf16") if device == "cuda" else ("fp32",):
        ours = load_model(folder, precision=precision, device=device)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        peer = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": dtype})
        seconds, vectors = seconds_of(ours.encode, texts, device)
        best = math.inf
        for batch in batches:
            encode = functools.partial(peer.encode, batch_size=batch, normalize_embeddings=True)
            peer_seconds, theirs = seconds_of(encode, texts, device)
            best = min(best, peer_seconds)
        exact = theirs if precision == "fp32" else exact
        cosine = float(((vectors * exact).sum(1) / np.linalg.norm(vectors, axis=1)).min())
        rates = {"texts_per_s": len(texts) / seconds, "peer_texts_per_s": len(texts) / best, "cosine": cosine}
        figures |= {f"{folder.name} {name}, {precision}": value for name, value in rates.items()}
        if not cosine >= lowest[precision]:
            raise ValueError(f"{precision}: an embedding has a cosine of {cosine} with sentence-transformers'")
    return figures


def replayed(work: Path, device: str, size: Mapping[str, int]) -> dict[str, Any]:
    """Return how much the loss changes along its gradient, relative to what the gradient says, with activation
    checkpointing and without; the layers are compiled, and the dropout is that of the same seed.

    Raises:
        ValueError: with checkpointing it is another change.
    """
    figures = {}
    for name, checkpointing in (("off", False), ("on", True)):
        figures[f"replay {name}, change"], figures[f"replay {name}, loss"] = replay(device, size, checkpointing)
    off, on = (figures[f"replay {name}, change"] for name in ("off", "on"))
    if not abs(on - off) <= REPLAY["error"]:
        raise ValueError(
            f"the backward pass has other dropout: changes of {on:.2f} with checkpointing, {off:.2f} without"
        )
    return figures


def replay(device: str, size: Mapping[str, int], checkpointing: bool, backend: str = "") -> tuple[float, float]:
    """Return (the change of the loss along the gradient of the layers' matrices, relative to what the gradient says;
    the loss).
    """
    from benchmarks.span_step import budget, build, documents, moved
    from clearspan.train.config.options import ALL

    count = int(REPLAY["documents"])
    learner = build(size["layers"], size["hidden"], REPLAY["dropout"], pairs=True).to(device).train()
    if checkpointing:
        learner.encoder.checkpoint_activations()
    learner.budgets = {ALL: budget(learner, count)}
    learner.encoder.compile_static(backend or BACKENDS[device])
    batches = moved(documents(count), torch.device(device))
    layers = [each for name, each in learner.named_parameters() if ".layer." in name and each.ndim == 2]  # recomputed

    def loss() -> torch.Tensor:
        torch.manual_seed(1)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            return learner(batches)[0]

    first = loss()
    first.backward()
    gradients = [each.grad for each in layers if each.grad is not None]
    half = REPLAY["change"] / 2 * first.item()
    distance = half / sum(float(each.double().square().sum()) for each in gradients)
    ends = []
    for times in (1, -2):
        with torch.no_grad():
            for parameter, gradient in zip(layers, gradients, strict=True):
                parameter.add_(gradient, alpha=times * distance)
        ends.append(loss().item())  # by the graph that has a gradient: another one may draw other dropout
    return (ends[0] - ends[1]) / (2 * half), first.item()


MEASURES: dict[str, Callable[[Path, str, Mapping[str, int]], Mapping[str, Any]]] = {
    "encode": encoded,
    **{f"encode-{kind}": functools.partial(encoded_as, kind) for kind in PADDED},
    "replay": replayed,
}
"""What `--measure NAME` computes; its last line is the figures as JSON."""


def seconds_of(encode: Callable[[list[str]], Any], texts: list[str], device: str) -> tuple[float, np.ndarray]:
    """Return the seconds of encoding all texts, after some for warm-up, and their vectors in fp32."""
    encode(texts[:WARM_UP])
    spent, vectors = timed(lambda: encode(texts), lambda: wait_for(torch.device(device)))
    return spent.clock, np.asarray(vectors, np.float32)


def run(
    step: Step, logs: Path, passed: Mapping[str, bool], environment: Mapping[str, str], left_s: float
) -> dict[str, Any]:
    """Run a step; return its result, its seconds, and its figures or the reason of the failure.

    Args:
        passed: whether earlier steps passed, by name.
        left_s: the seconds that are left for all steps.
    """
    start, limit = time.perf_counter(), min(LIMIT_S, left_s)
    result: dict[str, Any] = {"ok": False, "seconds": 0.0}
    if step.left_out:
        return {"ok": True, "seconds": 0.0, "left_out": step.left_out}
    if limit <= 0:
        return {**result, "reason": "not reached: time"}
    if missing := [name for name in step.needs if not passed.get(name)]:
        return {**result, "reason": f"needs {', '.join(missing)}"}
    try:
        if step.words:
            log = logs / log_name(step.name)
            if code := ended(step.words, log, limit, environment):
                lines = log.read_text(errors="replace").strip().splitlines()
                lines = [line for line in lines if "[launch.py:" not in line] or [""]
                raise ValueError(f"exit code {code}: {lines[-1]}")
        result |= step.work() if step.work else {}
        result |= step.check() if step.check else {}
        result["ok"] = True
    except subprocess.TimeoutExpired:
        result["reason"] = f"took more than {limit:.0f} s"
    except Exception as error:  # of one step; the others go on
        result["reason"] = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return {**result, "seconds": round(time.perf_counter() - start, 1)}


def ended(words: Sequence[str], log: Path, limit_s: float, environment: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code; end it with all that it started when its time is over.

    Raises:
        subprocess.TimeoutExpired: the time is over.
    """
    with log.open("w") as file:
        options = {"cwd": ROOT, "stdout": file, "stderr": file, "env": {**os.environ, **environment}}
        with subprocess.Popen(words, start_new_session=True, **options) as process:  # type: ignore[call-overload]
            try:
                return int(process.wait(limit_s))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise


def run_all(plan: Plan, at_once: int, limit_s: float) -> dict[str, Any]:
    """Run all steps, print each when it ends, and return their results by name."""
    end = time.perf_counter() + limit_s
    logs, results = plan.work / "logs", dict[str, dict[str, Any]]()
    logs.mkdir(parents=True, exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        **({"DS_ACCELERATOR": "cpu"} if plan.device == "cpu" else {}),
    }
    if plan.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""

    def one(step: Step) -> None:
        for need in step.needs:  # started earlier
            if need in ended_steps:
                ended_steps[need].wait()
        passed = {name: result["ok"] for name, result in results.items()}
        results[step.name] = result = run(step, logs, passed, environment, end - time.perf_counter())
        ended_steps[step.name].set()
        state = result.get("left_out") or result.get("reason") or "passed"
        print(f"{step.name:<16} {result['seconds']:6.1f} s  {state}", flush=True)

    for steps in plan.waves():
        ended_steps = {step.name: threading.Event() for step in steps}
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, steps))
    return results


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures of the trainings as text, and those of the other steps below."""
    rows = {name: result for name, result in results.items() if "steps" in result}
    figures = {"steps": ("steps", "d"), "first loss": ("first_loss", ".3f"), "last": ("last_loss", ".3f")}
    figures |= {"tokens/s": ("tokens_per_s", ",.0f"), "seconds": ("seconds", ".0f")}
    pairs = [pair for result in results.values() for pair in result.items()]
    lines = [f"{name} {value:,.5g}" for name, value in pairs if isinstance(value, float) and "," in name]
    return "\n".join([tabulated("", rows, figures), *lines])


def main(argv: list[str] | None = None) -> int:
    parser = command(__doc__, "cuda_runs")
    parser.add_argument("--device", choices=list(SIZES), default="cuda")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder for data, runs and logs (default: temporary)")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these steps alone, besides the data")
    parser.add_argument("--dry-run", action="store_true", help="print the commands; run none")
    parser.add_argument("--measure", choices=list(MEASURES), help=argparse.SUPPRESS)
    option(parser, "at-once", 8, "commands side by side")
    option(parser, "limit", 430, "seconds for all steps")
    arguments = parser.parse_args(argv)
    if arguments.measure:
        print(json.dumps(MEASURES[arguments.measure](arguments.work, arguments.device, SIZES[arguments.device])))
        return 0
    only = [name for name in arguments.only.split(",") if name]
    with contextlib.ExitStack() as stack:
        plan = Plan(arguments.device, arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory())), only)
        if unknown := sorted({*only} - {*plan.names()}):
            parser.error(f"--only {unknown[0]}: there is no such step; there are {', '.join(plan.names())}")
        if arguments.dry_run:
            print("\n".join(str(step) for steps in plan.waves() for step in steps))
            return 0
        if arguments.device == "cuda" and not torch.cuda.is_available():
            print("benchmarks.cuda_runs: no CUDA device here: add --device cpu, and --only some steps", file=sys.stderr)
            return 2
        start = time.perf_counter()
        results = run_all(plan, arguments.at_once, arguments.limit)
        device = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    print(table(results))
    seconds = round(time.perf_counter() - start, 1)
    content = {"device": device, "machine": machine(), "torch": torch.__version__, "seconds": seconds, "steps": results}
    write(content, arguments.output)
    return 0 if all(result["ok"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
