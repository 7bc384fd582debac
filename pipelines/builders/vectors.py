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
from typing import Annotated, Any, ClassVar, Self

from annotated_types import Ge

from clearspan.cli.catalog import COMMANDS
from clearspan.common import same_text
from clearspan.common.compute import (
    AUTO,
    CPU_TOKENS,
    Compute,
    Device,
    Precision,
    batch_tokens_of,
    check_device,
    gpus,
    resolve,
)
from clearspan.common.encoder import static
from clearspan.common.encoder.checked_model import load_model, model_hash
from clearspan.common.encoder.folder import device_of
from clearspan.common.encoder.pooling_names import recorded
from clearspan.common.encoder.prompts import DOCUMENT, Prompts, quoted_prompt
from clearspan.common.encoder.sentence_encoder import FolderEncoder, Pooling
from clearspan.common.encoder.shared_model import SharedModel
from clearspan.common.hub import hub_record, model_folder
from clearspan.common.model_folder import read_modules
from clearspan.common.model_forms import check_folder
from clearspan.common.options import Flag
from clearspan.common.parsing import normalized_name
from clearspan.common.progress import counted
from clearspan.common.terminal import warn
from clearspan.pipelines.builders import Builder, BuildPlan, Dedup, Update, model_processes
from clearspan.pipelines.builders.copied import Copied
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts
from clearspan.pipelines.builders.embedding import VectorWorker
from clearspan.pipelines.builders.kept_fields import check_names
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, TextOptions, text_of
from clearspan.pipelines.readers.columns import DEFAULT
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.shards.schema import VECTOR_TYPES

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
SHARED = ("cuda",)
"""Types of devices on which one process holds the model for all workers."""


@dataclasses.dataclass(frozen=True)
class VectorPlan(BuildPlan):
    """Values that the options of `Vectors` leave open.

    Attributes:
        model_sha256: hash of the model's files.
        device: the device of the model, such as cpu or cuda.
        precision: precision in which the transformer computes, fp32 or bf16.
        batch_tokens: number of tokens that the model encodes at a time.
        title_field: the name of the field that holds the title; None for no title.
        kept: (name, type) of each field of the records to store with the vectors.
    """

    model_sha256: str = ""
    device: str = AUTO
    precision: str = AUTO
    batch_tokens: int | None = None
    title_field: str | None = None
    kept: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors(Builder):
    """Builder of the kind `vectors`, whose examples are the embeddings of texts. The command `embed` makes such
    datasets.

    Attributes:
        numbers_records: true, because each example holds the number of its record in the input file.
        can_update: true, because the command has the option --update.
        max_bytes: the default maximum size of a record, in bytes. A larger record is bad.
    """

    model: Annotated[str, Flag("DIR", path=True, resolve=model_folder)]
    """Folder of a sentence-transformers or Hugging Face model, or hf:ORG/NAME[@REVISION], fetched from the hub."""
    prompt_name: Annotated[str | None, Flag("NAME")] = None
    """Name of the model's prompt before each text; none: no prompt (default: as encode_document chooses)."""
    device: Device = AUTO
    """Device to use: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu."""
    precision: Precision = "fp32"
    """Precision of the transformer; auto: bf16 if the hardware computes in bf16, else fp32."""
    pooling: Pooling = None
    """Pooling of a plain Hugging Face model (default mean)."""
    vector_dtype: Annotated[str, Flag(choices=tuple(VECTOR_TYPES))] = "float32"
    """Type of the stored numbers; int8 stores a scale with each vector."""
    keep_text: Annotated[bool, Flag()] = False
    """Store each text with its vector; search with BM25 and texts in hits need it."""
    keep_fields: Annotated[tuple[str, ...], Flag("NAMES", commas=True)] = ()
    """Fields to store with the vectors, e.g. id,title,meta.year; NAME:string sets the type of a field."""
    title_field: Annotated[str | None, Flag("NAME", const=AUTO)] = None
    """Put this field before each text, and store it; without NAME, the first of title, headline, ... that exists."""
    chunk_tokens: Annotated[int | None, Flag("N"), Ge(8)] = None
    """Embed texts in chunks of whole sentences, of at most N tokens (default: cut texts after the model's maximum)."""
    chunk_overlap: Annotated[int | None, Flag("N"), Ge(0)] = None
    """Repeat up to N tokens, in whole sentences, at the beginning of the next chunk (default 0)."""
    dedup: Dedup = False
    """Drop duplicates: keep only the first of equal examples."""
    update: Update = False
    """Bring a finished OUTPUT up to date with changed inputs: embed new texts, remove deleted ones."""
    batch_tokens: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Maximum number of tokens of a batch (default: 1024 on a CPU, 65536 on a GPU, 16384 if it has less than 36 GiB).
    """
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    files: FileOptions = dataclasses.field(default_factory=FileOptions)
    plan: VectorPlan = dataclasses.field(default_factory=VectorPlan)

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

    def validate(self) -> None:
        super().validate()
        check_device(self.device)
        check_folder(self.model)
        self.prompts.of_side(DOCUMENT, self.prompt_name)
        if read_modules(Path(self.model)) and self.pooling:
            raise ValueError(f"`model` {self.model} defines its own pooling: leave out `pooling`")
        check_names(self.keep_fields)
        if self.chunk_overlap is not None and self.chunk_tokens is None:
            raise ValueError(
                "`chunk_overlap` has no effect without `chunk_tokens`: leave it out, or add `chunk_tokens`"
            )
        overlap = self.chunk_overlap or 0
        if self.chunk_tokens is not None and 2 * overlap > self.chunk_tokens:
            raise ValueError(f"`chunk_overlap` {self.chunk_overlap}: must be at most half of `chunk_tokens`")
        if self.title_field is not None and normalized_name(self.title_field) == normalized_name(
            self.texts.text_field or DEFAULT
        ):
            raise ValueError(f"`title_field` {self.title_field}: is the field of the text: name another field")

    @property
    def prompts(self) -> Prompts:
        return Prompts.read(Path(self.model))

    @property
    def prompt(self) -> str:
        """The prompt to put before each text; "" for no prompt."""
        return self.prompts.of_side(DOCUMENT, self.prompt_name)

    @property
    def embedded(self) -> EmbeddedTexts:
        """The part that makes the texts to embed of the records."""
        plan = self.plan
        return EmbeddedTexts(
            self.texts.text_field, plan.title_field, self.keep_fields, plan.kept, plan.compares, self.update
        )

    def resolved(self, earlier_options: Mapping[str, Any]) -> Self:
        device = earlier_options.get("device", AUTO) if self.device == AUTO else self.device
        precision = earlier_options.get("precision", AUTO) if self.precision == AUTO else self.precision
        compute = resolve(device_of(Path(self.model), device), precision)
        if compute.message:
            warn(compute.message)
        tokens = self.batch_tokens or earlier_options.get("batch_tokens") or batch_tokens_of(compute.device)
        return self.with_plan(
            model_sha256=self.plan.model_sha256 or model_hash(self.model),
            device=compute.device,
            precision=compute.precision,
            batch_tokens=tokens,
            kept=tuple(earlier_options.get("keep_fields", {}).items()),
            title_field=earlier_options.get("title_field", AUTO) if self.title_field == AUTO else self.title_field,
        )

    def reading(self) -> ReadOptions:
        return self.embedded.reading(self.texts.reading(self.files))

    def check(self, record: Record) -> None:
        text_of(record, self.texts.text_field)

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        """Return a copy of the builder whose plan has the name of the title field, and the types of the fields to
        store.

        In a continued run, these are the values that its plan holds. In a new run, they are inferred from the first
        records.

        Raises:
            PipelineError: the first records lack one of the fields, or values of one of them cannot be stored.
        """
        embedded = self.embedded.infer_options(inputs, reading)
        return self.with_plan(title_field=embedded.title_field, kept=embedded.kept)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EMPTY,)

    @property
    def bytes_per_s(self) -> float:
        """Approximate number of input bytes that one process handles per second.

        For a transformer on a CPU, it was measured with all-MiniLM-L6-v2 on one core. With a GPU or a static model, it
        is the rate of reading, tokenizing and writing.
        """
        return 2e6 if check_device(self.plan.device) in SHARED or static.is_static_folder(Path(self.model)) else 2e4

    def shared_by(self, num_processes: int) -> AbstractContextManager[None]:
        if num_processes == 1 or check_device(self.plan.device) not in SHARED:
            return contextlib.nullcontext()
        own = {"folder": self.model, "sha256": self.plan.model_sha256}
        options = own | {"pooling": self.pooling, "precision": self.plan.precision}
        return model_processes.holding(gpus(self.plan.device), options)

    @property
    def has_chunks(self) -> bool:
        return self.chunk_tokens is not None

    def unit_bytes(self, inputs: Inputs) -> int:
        num_bytes = sum(entry.bytes for entry in inputs.files)
        least = MIN_UNIT_BYTES
        if static.is_static_folder(Path(self.model)):
            least = MAX_UNIT_BYTES
        elif check_device(self.plan.device) in SHARED:
            least = GPU_UNIT_BYTES
        small = min(MAX_UNIT_BYTES, max(least, num_bytes // UNITS))
        return max(small, num_bytes // MAX_UNITS)

    def options(self) -> dict[str, Any]:
        plan = self.plan
        own: dict[str, Any] = {
            **self.texts.described(),
            **self.files.described(),
            **({"same_text": same_text.VERSION} if plan.compares else {}),
            "model": plan.model_sha256,
            "device": check_device(plan.device),
            "dtype": self.vector_dtype,
            "ends": "stripped",
        }
        if any(self.prompts.texts.values()):
            own["prompt"] = self.prompt
        if plan.kept:
            own["keep_fields"] = dict(plan.kept)
        if plan.title_field is not None:
            own["title_field"] = plan.title_field
        if self.chunk_tokens is not None:
            own |= {"chunk_tokens": self.chunk_tokens, "chunk_overlap": self.chunk_overlap or 0}
        own["pooling"] = recorded(self.pooling)
        of_plan = {"precision": plan.precision, "batch_tokens": plan.batch_tokens}
        return own | {"prompt_name": self.prompt_name, **of_plan, "keep_text": self.keep_text}

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        return {**super().fingerprint(resources), **hub_record(model=self.model)}

    def worker(self, resources: Mapping[str, bytes]) -> "VectorWorker":
        old = Copied(self.plan.old[0], Path(self.plan.old[1])) if self.plan.old else None
        return VectorWorker(
            texts=self.embedded,
            model=model_of(self),
            batch_tokens=self.plan.batch_tokens or CPU_TOKENS,
            prompt=self.prompt,
            dtype=self.vector_dtype,
            keep_text=self.keep_text,
            chunk_tokens=self.chunk_tokens,
            chunk_overlap=self.chunk_overlap or 0,
            old=old,
        )

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


@functools.lru_cache(maxsize=1)
def model_of(builder: Vectors) -> FolderEncoder | SharedModel:
    """Return the model that the options name.

    If another process of this machine holds the model for all workers, return a connection to it. Otherwise load the
    model; later calls in this process return it again.

    Raises:
        PipelineError: the folder holds no usable model, or a different model than when the run was planned; or the
            process that holds the model has ended.
    """
    if shared := model_processes.connected():
        return shared
    plan = builder.plan
    model = load_model(builder.model, plan.model_sha256, builder.pooling, plan.device, plan.precision)
    if plan.device == "cpu" and "torch" in sys.modules:  # a static model does not import torch
        sys.modules["torch"].set_num_threads(1)
    return model
