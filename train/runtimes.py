"""Write a model folder's transformer for ONNX Runtime and OpenVINO, and compare the vectors and the speed.

    DIR (safetensors) ──torch.onnx──> DIR/onnx/model.onnx ──int8──> DIR/onnx/model_qint8.onnx
                                          └──> DIR/openvino/openvino_model.xml      └──> openvino_model_qint8.xml

The files have the names and inputs that sentence-transformers' backends `onnx` and `openvino` look for. Those backends
need optimum, whose versions refuse the transformers that this package needs, so nothing here uses it: torch writes
ONNX, ONNX Runtime rounds weights to int8, and OpenVINO reads ONNX. The layers after the transformer stay in torch.
"""

import contextlib
import dataclasses
import functools
import inspect
import io
import logging
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder.embedder import unit_vectors
from clearspan.common.encoder.prompts import Sides
from clearspan.common.errors import check_extra
from clearspan.common.model_folder import EncoderError, refusing
from clearspan.common.terminal import table
from clearspan.retrieval.ranks import ranks
from clearspan.retrieval.retrieval_set import RetrievalSet

ONNX, OPENVINO = "onnx", "openvino"
OF_ONNX = {False: "onnx/model.onnx", True: "onnx/model_qint8.onnx"}
OF_OPENVINO = {False: "openvino/openvino_model.xml", True: "openvino/openvino_model_qint8.xml"}
"""Files of each runtime, by whether their weights are int8."""
SAFETENSORS = "model.safetensors"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"
UNFUSED = ("t5", "mt5", "umt5")
"""Architectures whose attention torch can write only as separate products, not fused (sdpa)."""
OPSET = 18
BATCH = 16
"""Number of texts in a batch when vectors are compared; texts of similar length share a batch."""
NUM_TEXTS = 64

MAX_QUERIES, MAX_TEXTS = 500, 1000
"""Most held-out texts, and most texts, by which formats are compared: each format embeds them."""

Run = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]
"""Function of the inputs of n texts, each (n, length), that returns the states of their tokens, (n, length, dim)."""
EncodeAfter = Callable[[str, list[str]], NDArray[np.float32]]
"""Function of a prompt and n texts that returns the vectors of the texts, each after the prompt, (n, dim)."""


@dataclasses.dataclass(frozen=True)
class Formats:
    """The formats to write in addition to safetensors.

    Attributes:
        onnx, openvino: whether to write files for ONNX Runtime, and for OpenVINO.
        int8: whether to write each of them with weights in int8, too.
    """

    onnx: bool = False
    openvino: bool = False
    int8: bool = False

    def __bool__(self) -> bool:
        return self.onnx or self.openvino

    def check(self) -> None:
        """Raise PipelineError if a package that writes or runs one of the formats is not installed."""
        if self:
            check_extra(ONNX, "onnx", "onnxscript", "onnxruntime", feature="writing ONNX")
        if self.openvino:
            check_extra(OPENVINO, "openvino", feature="writing for OpenVINO")

    @property
    def files(self) -> list[str]:
        """The files to write, by their paths in the model's folder."""
        sorts = [False, True] if self.int8 else [False]
        named = [(self.onnx, OF_ONNX), (self.openvino, OF_OPENVINO)]
        return [names[is_int8] for is_written, names in named if is_written for is_int8 in sorts]


class FormatFigures(NamedTuple):
    """One file of a model, compared with the model in fp32 that this package runs.

    Attributes:
        name: the file, by its path in the model's folder.
        num_bytes: its size with all that belongs to it.
        texts_per_s: texts per second, of the texts that were compared.
        max_distance, mean_distance: cosine distance of a text's vector from the vector in fp32.
        mrr: MRR of the held-out texts, in percent; None if there are none.
    """

    name: str
    num_bytes: int
    texts_per_s: float
    max_distance: float
    mean_distance: float
    mrr: float | None = None


def held_out_texts(data: Path) -> RetrievalSet:
    """Return held-out texts of a dataset that judge a model, and the texts to find for them, a sample of all.

    Raises:
        DataError: the folder is not a dataset, or it has no held-out part or too few texts in it.
    """
    from clearspan.eval.data import heldout_data
    from clearspan.eval.data.heldout_folders import held_out_part

    return heldout_data.read(held_out_part(data)).collection.sample(MAX_QUERIES, MAX_TEXTS)


def add_formats(folder: Path, formats: Formats, held_out: RetrievalSet | None = None) -> list[FormatFigures]:
    """Write a model in further formats into its folder; return each format's size, speed and differences.

    The first entry is the model in safetensors, as this package runs it without padding.

    Args:
        held_out: texts to find for queries, by which each format has an MRR; None to leave it out.

    Raises:
        EncoderError: the folder holds no transformer, or its architecture cannot be written in a format.
        PipelineError: a package is not installed.
    """
    formats.check()
    from clearspan.common.encoder.folder import load_folder
    from clearspan.common.encoder.library import load_with_library

    modules = list(load_with_library(folder).modules)
    if not hasattr(modules[0], "auto_model"):
        kind = type(modules[0]).__name__
        raise EncoderError(f"a {kind} has no transformer to write for `onnx` or `openvino`")
    modules[0].eval()
    for name in ("onnx", "openvino"):
        (folder / name).mkdir(exist_ok=True)
    with refusing(f"torch cannot write a {type(modules[0].auto_model).__name__} as ONNX"):
        write_onnx(modules[0], folder / OF_ONNX[False])
    if formats.int8:
        quantize(folder / OF_ONNX[False], folder / OF_ONNX[True])
    if formats.openvino:
        for is_int8 in {False, formats.int8}:
            write_openvino(folder / OF_ONNX[is_int8], folder / OF_OPENVINO[is_int8])
    texts = sample_texts()
    encoder = load_folder(folder)
    encoders: dict[str, EncodeAfter] = {SAFETENSORS: encoder.encode_after}
    encoders |= {
        name: functools.partial(_embed_after, modules, runner(folder / name), encoder.dim) for name in formats.files
    }
    timed = {name: _timed(functools.partial(encode, "", texts)) for name, encode in encoders.items()}
    compared = []
    for name, (vectors, seconds) in timed.items():
        stored = folder.rglob(name) if name == SAFETENSORS else (folder / name).parent.glob(f"{Path(name).stem}.*")
        num_bytes = sum(path.stat().st_size for path in stored)
        distances = cosine_distances(vectors, timed[SAFETENSORS][0])
        mrr = _mrr(encoders[name], encoder.prompts.sides(()), held_out) if held_out else None
        speed = len(texts) / seconds
        compared.append(FormatFigures(name, num_bytes, speed, float(distances.max()), float(distances.mean()), mrr))
    for name in {*OF_ONNX.values()} - {*formats.files}:
        (folder / name).unlink(missing_ok=True)
    for name in ("onnx", "openvino"):
        with contextlib.suppress(OSError):
            (folder / name).rmdir()
    return compared


def write_onnx(transformer: Any, path: Path) -> None:
    """Write sentence-transformers' `Transformer` as ONNX, for batches of any size and texts of any length."""
    import torch

    model = transformer.auto_model.eval()
    if model.config.model_type in UNFUSED:
        model.set_attn_implementation("eager")
    with_padding = transformer.preprocess(["a text", "another text, of more words"])
    known = inspect.signature(model.forward).parameters
    names = [name for name in INPUTS if name in with_padding and name in known]

    class States(torch.nn.Module):
        """The transformer as a function of its inputs in order."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            states: torch.Tensor = self.model(**dict(zip(names, inputs, strict=True)))[0]
            return states

    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=max(2, transformer.max_seq_length or 512))
    with _silent():
        torch.onnx.export(
            States().eval(),
            tuple(with_padding[name] for name in names),
            str(path),
            input_names=names,
            output_names=[OUTPUT],
            dynamo=True,
            dynamic_shapes=(tuple({0: batch, 1: length} for _ in names),),
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )


def quantize(source: Path, path: Path) -> None:
    """Write an ONNX model with weights in int8, each column with its own scale; activations are rounded at run time.

    Without a scale for each column, vectors differ several times as much.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _silent():
        quantize_dynamic(str(source), str(path), weight_type=QuantType.QInt8, per_channel=True)


def write_openvino(source: Path, path: Path) -> None:
    """Write an ONNX model in OpenVINO's format: PATH.xml, and PATH.bin with the weights."""
    import openvino

    openvino.save_model(_core().read_model(source), path, compress_to_fp16=False)


def runner(path: Path) -> Run:
    """Return the function that runs a file of ONNX Runtime or OpenVINO on the CPU, in fp32 where it is not int8."""
    import torch

    threads = torch.get_num_threads()
    if path.suffix == ".xml":
        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = _core().compile_model(path, "CPU", options)
        wanted = [port.any_name for port in compiled.inputs]
        return lambda inputs: np.array(compiled({name: inputs[name] for name in wanted})[0])
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return lambda inputs: np.array(session.run([OUTPUT], {name: inputs[name] for name in names})[0])


@functools.cache
def _core() -> Any:
    """Return the only OpenVINO core of the process, which lives as long as the process."""
    import openvino

    # A core makes a stack for signal handlers, and unmaps it when it is deleted. Of two cores, the one that is deleted
    # last gives the handlers the unmapped stack of the first: the next signal ends the process.
    return openvino.Core()


def embed(modules: Sequence[Any], run: Run, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of n texts, (n, dim), with a runtime in place of the transformer.

    Args:
        modules: the modules of the model, the transformer first.
        run: the runtime, from `runner`.
    """
    import torch

    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    found: dict[int, NDArray[np.float32]] = {}
    with torch.inference_mode():
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            features = modules[0].preprocess([texts[row] for row in rows])
            inputs = {name: features[name].numpy() for name in INPUTS if name in features}
            features["token_embeddings"] = torch.from_numpy(run(inputs))
            for module in modules[1:]:
                features = module(features)
            found.update(zip(rows, features["sentence_embedding"].numpy(), strict=True))
    return np.stack([found[row] for row in range(len(texts))])


def _embed_after(modules: Sequence[Any], run: Run, dim: int, prompt: str, texts: list[str]) -> NDArray[np.float32]:
    """Return the first `dim` dimensions, the model's own, of the texts' vectors."""
    return embed(modules, run, [prompt + text for text in texts])[:, :dim]


def _mrr(encode: EncodeAfter, prompts: Sides, held_out: RetrievalSet) -> float:
    """Return the MRR of the queries among all documents, by cosine, in percent."""
    queries = unit_vectors(encode(prompts.query, held_out.queries))
    documents = unit_vectors(encode(prompts.document, held_out.documents))
    return float(100 * ranks(queries, documents, held_out).reciprocal.mean())


def cosine_distances(vectors: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return 1 minus the cosine of each pair of rows of two arrays (n, dim), in double precision: (n,)."""
    unit, others_unit = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in map(np.float64, (vectors, others))
    )
    distances: NDArray[np.float64] = np.clip(1 - (unit * others_unit).sum(axis=1), 0, None)
    return distances


def sample_texts() -> list[str]:
    """Return real texts of mixed lengths that every machine has: docstrings of Python's standard library."""
    documented = (member for module in _modules() for _, member in inspect.getmembers(module, callable))
    texts = dict.fromkeys(text for member in documented if (text := inspect.getdoc(member)) and len(text) > 20)
    every = sorted(texts, key=len)
    step = max(1, len(every) // NUM_TEXTS)
    return every[::step][:NUM_TEXTS]


def _modules() -> Iterator[Any]:
    import argparse
    import json
    import statistics

    yield from (argparse, contextlib, dataclasses, inspect, io, json, logging, statistics, textwrap, warnings)


def _timed(embed_all: Callable[[], NDArray[np.float32]]) -> tuple[NDArray[np.float32], float]:
    """Return the vectors, and the seconds that a second call takes, after the first has warmed up."""
    embed_all()
    start = time.perf_counter()
    return embed_all(), time.perf_counter() - start


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drop what the libraries print and warn of while they write a model."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def summary(compared: Sequence[FormatFigures], held_out: RetrievalSet | None = None) -> str:
    """Return the table of formats for the user.

    Args:
        held_out: the texts of the MRR, as for `add_formats`.
    """
    headings = ["file", "MB", "texts/s", "distance: max", "mean"]
    rows = []
    for each in compared:
        row = [each.name, f"{each.num_bytes / 1e6:,.1f}", f"{each.texts_per_s:,.1f}"]
        row += [f"{distance:.2g}" for distance in (each.max_distance, each.mean_distance)]
        rows.append(row if each.mrr is None else [*row, f"{each.mrr:.1f}"])
    lines = [f"{NUM_TEXTS} docstrings, batches of {BATCH}, this machine; cosine distance from safetensors in fp32"]
    if held_out:
        headings.append("MRR")
        lines.append(f"MRR of {len(held_out.queries):,} held-out texts among {len(held_out.documents):,}, by cosine")
    return "\n  ".join([table(headings, rows, right={1, 2, 3, 4, 5}), *lines])
