"""Vectors: the embeddings of texts by a model in a local folder, the command `embed`.

    records -> texts (empty ones dropped) -> windows of 4 MB -> batches of similar length -> vectors -> batches (4 MiB)

An example is {id, source, vector}, with `scale` for int8 and on demand with `text`; the id is a hash of the text's
bytes, as that of a document. The vectors are those of sentence-transformers' `encode_document`, to 1e-5 in float32: the
model's prompt of documents, or the one that is chosen, is before each text. A text whose vector is not finite is a bad
record.

The model is loaded once in each worker process and is not copied into the dataset: the fingerprint holds the hash of
its files, which each worker compares with the folder that it loads. (Beam's RunInference would pass every text and
vector through Beam and batch texts as they arrive; a unit could then neither sort them by length nor end with the same
bytes after a kill.) On a CPU a process computes in one thread, so that the bytes do not depend on the number of
processes. A static model (`common.encoder.static`) has no batches, and needs neither torch nor
sentence-transformers.
"""

import dataclasses
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from clearspan.common import same_text
from clearspan.common.compute import AUTO, Compute, Device, Precision, resolve, resolve_device
from clearspan.common.encoder import static
from clearspan.common.encoder.fingerprint import model_sha256
from clearspan.common.encoder.folder import device_of, load
from clearspan.common.encoder.prompts import DOCUMENT, Prompts, Side, shown
from clearspan.common.encoder.sentence_encoder import FolderEncoder, Pooling
from clearspan.common.model_folder import EncoderError, read_modules
from clearspan.common.model_forms import misnamed
from clearspan.common.options import Flag, Options
from clearspan.common.terminal import one_line
from clearspan.pipelines.attached import HASHES, attach
from clearspan.pipelines.errors import PipelineError, check_extra
from clearspan.pipelines.kinds import Dedup
from clearspan.pipelines.kinds.text_inputs import EMPTY, TextInputs, grouped, text_id, texts_of
from clearspan.pipelines.records import Inputs, Record
from clearspan.pipelines.tally import RecordError, Tally
from clearspan.shards import vectors
from clearspan.shards.schema import KINDS, VECTOR_TYPES

WINDOW_TEXTS = 8192
WINDOW_BYTES = 4_000_000
"""A window of texts is sorted by length: at most this many texts, or this many bytes of text."""
BATCH_BYTES = 1 << 22
LEAST_UNIT_BYTES, MOST_UNIT_BYTES = 250_000, 4_000_000
"""Input size of a unit: a quarter of a minute of short texts on a core, enough to sort them by length, and minutes. A
static model embeds the larger one in seconds.
"""
UNITS, MOST_UNITS = 64, 50_000
"""Number of units up to which they are small, and above which they are larger than MOST_UNIT_BYTES."""
BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Default of --batch-tokens by type of device. On a CPU the states of a batch should fit its caches."""
Text = tuple[Record, str, bytes]
"""A record, its text, and the same in UTF-8."""
DEVICE = re.compile(r"auto|(cpu|cuda)((?<=cuda):\d+)?")


STORED = "type of the stored values; int8 has a scale for each vector"


PROMPT = "the model's prompt before each {0}, by its name, or none (default: that of encode_{1})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """Options of a command that embeds texts by a model. `side` is that of the texts (`common.encoder.prompts`)."""

    model: Annotated[str, Flag("a local folder of sentence-transformers or Hugging Face", "DIR")]
    prompt_name: str | None = None
    device: Device = AUTO

    side: ClassVar[Side]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)
        check_folder(self.model)
        self.prompts.of_side(self.side, self.prompt_name)

    @property
    def prompts(self) -> Prompts:
        return Prompts.read(Path(self.model))

    @property
    def prompt(self) -> str:
        """The text before each text."""
        return self.prompts.of_side(self.side, self.prompt_name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors(ModelOptions, TextInputs):
    """The kind `vectors`. `model_sha256`, the hash of the model's files, and `batch_tokens` are set by `resolved`.

    `vector_dtype` is the type of the stored values, in the fingerprint `dtype`; `precision` is that of the
    transformer's computation.
    """

    prompt_name: Annotated[str | None, Flag(PROMPT.format("text", DOCUMENT), "NAME")] = None
    model_sha256: str = ""
    precision: Precision = "fp32"
    pooling: Pooling = None
    vector_dtype: Annotated[str, Flag(STORED, choices=tuple(VECTOR_TYPES))] = "float32"
    keep_text: Annotated[bool, Flag("store each text beside its vector")] = False
    dedup: Dedup = False
    batch_tokens: Annotated[int | None, Flag("tokens of a batch (default: CPU 1024, GPU 16384)", "N"), Ge(1)] = None

    name: ClassVar[str] = "vectors"
    command: ClassVar[str] = "embed"
    side: ClassVar[Side] = DOCUMENT
    summary: ClassVar[str] = "embeddings of texts by a trained model, from the inputs that documents takes"
    example: ClassVar[str] = (
        "clearspan embed --input 'corpus/*.jsonl' --output data/vectors --model runs/mine/model --keep-text"
    )
    max_bytes: ClassVar[int] = 8_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if read_modules(Path(self.model)) and self.pooling:
            raise ValueError(f"--model {self.model} defines its own pooling: leave out --pooling")

    def resolved(self, began: Mapping[str, Any]) -> Self:
        device = began.get("device", AUTO) if self.device == AUTO else self.device
        precision = began.get("precision", AUTO) if self.precision == AUTO else self.precision
        compute = resolve(device_of(Path(self.model), device), precision)
        if compute.line:
            print(compute.line, file=sys.stderr)
        tokens = self.batch_tokens or BATCH_TOKENS[check_device(compute.device)]
        return dataclasses.replace(
            self,
            model_sha256=self.model_sha256 or model_hash(self.model),
            device=compute.device,
            precision=compute.precision,
            batch_tokens=tokens,
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EMPTY,)

    @property
    def bytes_per_s(self) -> float:
        """Rate of all-MiniLM-L6-v2, or of a static model, on a core; a GPU is best used by one process."""
        if check_device(self.device) != "cpu":
            return float("inf")
        return 2e6 if static.reads(Path(self.model)) else 2e4

    def unit_bytes(self, inputs: Inputs) -> int:
        num_bytes = sum(entry.bytes for entry in inputs.files)
        least = MOST_UNIT_BYTES if static.reads(Path(self.model)) else LEAST_UNIT_BYTES
        small = min(MOST_UNIT_BYTES, max(least, num_bytes // UNITS))
        return max(small, num_bytes // MOST_UNITS)

    def options(self) -> dict[str, Any]:
        names = ("pooling", "prompt_name", "precision", "batch_tokens", "keep_text")
        own = {"model": self.model_sha256, "device": check_device(self.device), "dtype": self.vector_dtype}
        if any(self.prompts.texts.values()):
            own["prompt"] = self.prompt
        return super().options() | own | {name: getattr(self, name) for name in names}

    def worker(self, resources: Mapping[str, bytes]) -> "VectorWorker":
        return VectorWorker(self, loaded(self))

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return how the vectors were computed, how many texts were truncated, and the prompt before them."""
        lines = [f"vectors {Compute(*(fingerprint['options'][name] for name in ('device', 'precision')))}"]
        if sums.get("truncated"):
            lines.append(f"{sums['truncated']:,} texts are longer than the model reads: their ends were cut off")
        if "prompt" in fingerprint["options"]:
            lines.append(f"{shown(fingerprint['options']['prompt'])} before each text")
        if self.prompt_name is None and (unused := self.prompts.unused(DOCUMENT)):
            lines.append(unused)
        return lines


def check_device(device: str) -> str:
    """Return the type of a device, auto, cpu or cuda; raise ValueError for any other."""
    if not (match := DEVICE.fullmatch(device)):
        raise ValueError(f"--device {device}: choose auto, cpu, cuda, or one GPU as cuda:1")
    return match[1] or AUTO


def check_folder(folder: str) -> None:
    """Raise EncoderError unless there is a folder of a model."""
    if problem := misnamed(folder):
        raise EncoderError(f"--model {folder!r}: {problem}")
    if not Path(folder).is_dir():
        raise EncoderError(f"--model {folder}: no such folder: name a local folder with a model")


def model_hash(folder: str) -> str:
    """Return the hash of all files of a model folder that affect its embeddings.

    Raises:
        EncoderError: there is no such folder, or its list of modules cannot be read.
    """
    check_folder(folder)
    return model_sha256(Path(folder))


@functools.lru_cache(maxsize=1)
def loaded(kind: Vectors) -> FolderEncoder:
    """Return the model of these options; a process loads it once.

    Raises:
        PipelineError: the folder holds no usable model, or another one than when the run was planned.
    """
    model = load_model(kind.model, kind.model_sha256, kind.pooling, kind.device, kind.precision)
    if kind.device == "cpu" and "torch" in sys.modules:  # a static model does without
        sys.modules["torch"].set_num_threads(1)
    return model


def load_model(folder: str, sha256: str, pooling: str | None, device: str, precision: str) -> FolderEncoder:
    """Load the model whose files have this hash.

    Raises:
        PipelineError: it cannot be loaded, or has another hash; the message says why.
    """
    try:
        if model_hash(folder) != sha256:
            raise PipelineError(f"--model {folder}: not the model of these vectors: its files differ, or have changed")
        if device != "cpu" or not static.reads(Path(folder)):
            check_extra("embed", "torch", "sentence_transformers", what="embedding")
        if device != "cpu" and resolve_device(AUTO) == "cpu":
            raise PipelineError(f"--device {device}: no GPU here: compute on the CPU with --device cpu")
        return load(Path(folder), pooling, device, precision)
    except EncoderError as error:
        raise PipelineError(one_line(error)) from None


@dataclasses.dataclass(frozen=True)
class VectorWorker:
    """Worker of the kind `vectors`."""

    kind: Vectors
    model: FolderEncoder

    def examples(self, records: Iterable[Record], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a unit's records, in order, as record batches; count every record in `tally`."""
        texts = texts_of(records, self.kind.text_field, tally)
        for window in grouped(((text, len(text[-1])) for text in texts), WINDOW_BYTES, WINDOW_TEXTS):
            yield from self._embedded(window, tally)

    def _embedded(self, window: list[Text], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a window's texts; a text whose vector is not finite is a bad record."""
        place = {text: row for row, text in enumerate(dict.fromkeys(text for _, text, _ in window))}
        try:
            tokens, prompt = self.kind.batch_tokens or BATCH_TOKENS["cpu"], self.kind.prompt
            made = self.model.embed(list(place), tokens, prompt=prompt)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None
        is_finite = np.asarray(np.isfinite(made.vectors).all(axis=1))
        stored = vectors.columns(np.where(is_finite[:, None], made.vectors, 0), self.kind.vector_dtype)
        table = pa.record_batch(list(stored.values()), names=list(stored))
        is_finite &= np.isfinite(vectors.decoded(table)).all(axis=1)
        kept = []
        for record, text, data in window:
            if is_finite[place[text]]:
                kept.append((record, text, data))
                tally.counts.count("truncated", int(made.truncated[place[text]]))
            else:
                tally.reject(record, RecordError(f"its vector is not finite in {self.kind.vector_dtype}"))
        tally.counts.kept += len(kept)
        size = max(1, BATCH_BYTES // (table.nbytes // len(table) + 1))
        for first in range(0, len(kept), size):
            yield self._batch(kept[first : first + size], place, table)

    def _batch(self, window: list[Text], place: dict[str, int], table: pa.RecordBatch) -> pa.RecordBatch:
        records, texts, data = zip(*window, strict=True)
        taken = table.take(pa.array([place[text] for text in texts], pa.int64()))
        columns = {
            "id": pa.array(map(text_id, data), pa.int64()),
            "source": pa.array([record.source for record in records], pa.string()),
            **dict(zip(table.schema.names, taken.columns, strict=True)),
        }
        if self.kind.keep_text:
            columns["text"] = pa.array(texts, pa.string())
        optional = [name for name in ("scale", "text") if name in columns]
        schema = KINDS["vectors"].schema(optional=optional, vector=table.schema.field("vector").type)
        batch = pa.record_batch(list(columns.values()), schema=schema)
        return attach(batch, HASHES, same_text.digests(texts)) if self.kind.compares else batch
