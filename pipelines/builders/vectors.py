"""Vectors: the embeddings of texts by a model in a local folder, made by the command `embed`.

    records -> texts (empty ones dropped), with titles, in chunks -> windows of 4 MB -> batches of similar length
            -> vectors -> record batches (4 MiB)

An example is {id, source, vector, record}: `source` is the input file, `record` the number of the record in it. If the
vectors are stored as int8, it also has `scale`; if options ask for them, also `text`, `document`, `chunk` and fields of
the record (`kinds.kept_fields`). The id is a hash of the bytes that are embedded, without the prompt: the text, or, as
in BEIR, its title, a space and the text. The model's document prompt, or the prompt that the user chooses, is put
before each text. The vectors equal the result of sentence-transformers' `encode_document`, to 1e-5 in float32. A text
whose vector is not finite is a bad record.

The model is not copied into the dataset. The fingerprint holds the hash of its files, and each process that loads the
model compares this hash with the files in the folder. On a CPU each worker loads the model. For each GPU of this
machine, one process holds the model, and all workers send their texts to these processes (`kinds.model_processes`). If
a run has only one process, or uses another Beam runner than the local one, each process loads the model itself.

Beam's RunInference is not used, because it would pass every text and vector through Beam and batch texts as they
arrive. A unit could then not sort its texts by length, and its bytes would differ if it were repeated after a kill. On
a CPU a process computes in one thread, so that the bytes do not depend on the number of processes. A static model
(`common.encoder.static`) has no batches, and needs neither torch nor sentence-transformers.
"""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Self

from clearspan.common.catalog import COMMANDS
from clearspan.common.compute import AUTO, Compute, batch_tokens_on, resolve
from clearspan.common.encoder import static
from clearspan.common.encoder.folder import device_of
from clearspan.common.encoder.pooling_names import recorded
from clearspan.common.encoder.prompts import DOCUMENT, quoted_prompt
from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.common.encoder.shared_model import SharedModel
from clearspan.common.progress import counted
from clearspan.common.terminal import warn
from clearspan.pipelines.builders import model_processes
from clearspan.pipelines.builders.copied import Copied
from clearspan.pipelines.builders.embedding import VectorWorker
from clearspan.pipelines.builders.models import load_model, model_hash
from clearspan.pipelines.builders.text_inputs import EMPTY
from clearspan.pipelines.builders.vector_options import VectorOptions, check_device
from clearspan.pipelines.records import Inputs, ReadOptions

MIN_UNIT_BYTES, MAX_UNIT_BYTES = 250_000, 4_000_000
"""Smallest and largest size of a work unit, in bytes of input. On one core, short texts of the smaller size take a
quarter of a minute, and are enough to be sorted by length; texts of the larger size take minutes. For a static model
units have the larger size, which takes seconds.
"""
GPU_UNIT_BYTES = 1_000_000
"""Smallest size of a work unit on a GPU, which embeds it in some tenths of a second."""
UNITS, MAX_UNITS = 64, 50_000
"""The size of units grows only when there are more than UNITS of them; it exceeds MAX_UNIT_BYTES only to keep their
number at MAX_UNITS.
"""
CPU_TOKENS = 1024
"""Default of --batch-tokens on a CPU: the hidden states of a batch should fit into the caches."""
SHARED = ("cuda",)
"""Types of devices on which one process holds the model for all workers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors(VectorOptions):
    """Options of the kind `vectors`, whose examples are the embeddings of texts. The command `embed` makes such
    datasets.

    Attributes:
        numbers_records: true, because each example holds the number of its record in the input file.
        can_update: true, because the command has the option --update.
        max_bytes: the default maximum size of a record, in bytes. A larger record is bad.
    """

    name: ClassVar[str] = "vectors"
    numbers_records: ClassVar[bool] = True
    can_update: ClassVar[bool] = True
    command: ClassVar[str] = "embed"
    summary: ClassVar[str] = COMMANDS["embed"].summary
    description: ClassVar[str] = (
        "Embed texts with a trained model; make a dataset of the vectors, for `clearspan search`."
    )
    example: ClassVar[str] = (
        "clearspan embed --input 'corpus/*.jsonl' --output data/vectors --model runs/mine/model --keep-text"
    )
    max_bytes: ClassVar[int] = 8_000_000

    def resolved(self, earlier_options: Mapping[str, Any]) -> Self:
        device = earlier_options.get("device", AUTO) if self.device == AUTO else self.device
        precision = earlier_options.get("precision", AUTO) if self.precision == AUTO else self.precision
        compute = resolve(device_of(Path(self.model), device), precision)
        if compute.message:
            warn(compute.message)
        tokens = self.batch_tokens or earlier_options.get("batch_tokens") or batch_tokens_of(compute.device)
        return dataclasses.replace(
            self,
            model_sha256=self.model_sha256 or model_hash(self.model),
            device=compute.device,
            precision=compute.precision,
            batch_tokens=tokens,
            kept=tuple(earlier_options.get("keep_fields", {}).items()),
            title_field=earlier_options.get("title_field", AUTO) if self.title_field == AUTO else self.title_field,
        )

    def reading(self) -> ReadOptions:
        return self.texts.reading(super().reading())

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        """Return a copy of these options with the name of the title field, and the types of the fields to store.

        In a continued run, these are the values that its plan holds. In a new run, they are inferred from the first
        records.

        Args:
            inputs: the input files.
            reading: the rules by which the readers find records in the inputs.

        Raises:
            PipelineError: the first records lack one of the fields, or values of one of them cannot be stored.
        """
        texts = self.texts.infer_options(inputs, reading)
        return dataclasses.replace(self, title_field=texts.title_field, kept=texts.kept)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EMPTY,)

    @property
    def bytes_per_s(self) -> float:
        """Approximate number of input bytes that one process handles per second.

        For a transformer on a CPU, it was measured with all-MiniLM-L6-v2 on one core. With a GPU or a static model, it
        is the rate of reading, tokenizing and writing.
        """
        return 2e6 if check_device(self.device) in SHARED or static.is_static_folder(Path(self.model)) else 2e4

    def shared_by(self, num_processes: int) -> AbstractContextManager[None]:
        if num_processes == 1 or check_device(self.device) not in SHARED:
            return contextlib.nullcontext()
        options = {name: getattr(self, name) for name in ("pooling", "precision")}
        own = {"folder": self.model, "sha256": self.model_sha256}
        return model_processes.holding(gpus(self.device), own | options)

    @property
    def has_chunks(self) -> bool:
        return self.chunk_tokens is not None

    def unit_bytes(self, inputs: Inputs) -> int:
        num_bytes = sum(entry.bytes for entry in inputs.files)
        least = MIN_UNIT_BYTES
        if static.is_static_folder(Path(self.model)):
            least = MAX_UNIT_BYTES
        elif check_device(self.device) in SHARED:
            least = GPU_UNIT_BYTES
        small = min(MAX_UNIT_BYTES, max(least, num_bytes // UNITS))
        return max(small, num_bytes // MAX_UNITS)

    def options(self) -> dict[str, Any]:
        names = ("prompt_name", "precision", "batch_tokens", "keep_text")
        own: dict[str, Any] = {
            "model": self.model_sha256,
            "device": check_device(self.device),
            "dtype": self.vector_dtype,
            "ends": "stripped",
        }
        if any(self.prompts.texts.values()):
            own["prompt"] = self.prompt
        if self.kept:
            own["keep_fields"] = dict(self.kept)
        for name in ("title_field", "chunk_tokens"):
            if (value := getattr(self, name)) is not None:
                own[name] = value
        if self.chunk_tokens is not None:
            own["chunk_overlap"] = self.chunk_overlap or 0
        own["pooling"] = recorded(self.pooling)
        return super().options() | own | {name: getattr(self, name) for name in names}

    def worker(self, resources: Mapping[str, bytes]) -> "VectorWorker":
        old = Copied(self.old[0], Path(self.old[1])) if self.old else None
        return VectorWorker(self, model_of(self), self.batch_tokens or CPU_TOKENS, old)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the lines that the kind adds to the summary of a run.

        They are about the device and precision, the number of texts that were cut because they were too long, the
        number of chunks, the prompt, and a prompt of the model that is not used although it seems to fit.

        Args:
            fingerprint: the fingerprint of the dataset.
            sums: further counts that the kind makes, such as `chunks`: name -> count, added up over all work units.
        """
        lines = [f"vectors {Compute(*(fingerprint['options'][name] for name in ('device', 'precision')))}"]
        if sums.get("truncated"):
            cut = f"{sums['truncated']:,} texts are longer than the model reads: their ends were cut off"
            lines.append(f"{cut} (`chunk_tokens` embeds them whole)")
        if self.chunk_tokens is not None:
            lines.append(f"{counted(sums.get('documents', 0), 'text')} in {counted(sums.get('chunks', 0), 'chunk')}")
        if "prompt" in fingerprint["options"]:
            lines.append(f"{quoted_prompt(fingerprint['options']['prompt'])} before each text")
        if self.prompt_name is None and (unused := self.prompts.unused(DOCUMENT)):
            lines.append(unused)
        return lines


def batch_tokens_of(device: str) -> int:
    """Return the default of `--batch-tokens` for a device as torch names it: more on GPUs that all have much memory."""
    return CPU_TOKENS if check_device(device) == "cpu" else batch_tokens_on(*gpus(device))


def gpus(device: str) -> list[str]:
    """Return the devices on which to hold the model: all GPUs of this machine ("cuda:0", ...) if `device` is "cuda",
    otherwise only `device`.
    """
    if device != "cuda":
        return [device]
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or [device]


@functools.lru_cache(maxsize=1)
def model_of(kind: Vectors) -> FolderEncoder | SharedModel:
    """Return the model that the options name.

    If another process of this machine holds the model for all workers, return a connection to it. Otherwise load the
    model; later calls in this process return it again.

    Raises:
        PipelineError: the folder holds no usable model, or a different model than when the run was planned; or the
            process that holds the model has ended.
    """
    if shared := model_processes.connected():
        return shared
    model = load_model(kind.model, kind.model_sha256, kind.pooling, kind.device, kind.precision)
    if kind.device == "cpu" and "torch" in sys.modules:  # a static model does not import torch
        sys.modules["torch"].set_num_threads(1)
    return model
