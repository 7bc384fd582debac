"""Vectors: the embeddings of texts by a model in a local folder, the command `embed`.

    records -> texts (empty ones dropped), with titles, in chunks -> windows of 4 MB -> batches of similar length
            -> vectors -> batches (4 MiB)

An example is {id, source, vector, record}: the file, and the number of the record in it. It has `scale` for int8, and
on demand `text`, `document` and `chunk` and the kept fields (`kinds.kept_fields`). The id is a hash of the bytes that
are embedded without the prompt: the text, or as in BEIR its title, a space and the text. The vectors are those of
sentence-transformers' `encode_document`, to 1e-5 in float32: the model's prompt of documents, or the one that is
chosen, is before each text. A text whose vector is not finite is a bad record.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from annotated_types import Ge

from clearspan.common.compute import AUTO, Compute, Device, Precision, resolve, resolve_device
from clearspan.common.encoder import static
from clearspan.common.encoder.fingerprint import model_sha256
from clearspan.common.encoder.folder import device_of, load
from clearspan.common.encoder.prompts import DOCUMENT, Prompts, Side, shown
from clearspan.common.encoder.sentence_encoder import FolderEncoder, Pooling
from clearspan.common.model_folder import EncoderError, read_modules
from clearspan.common.model_forms import misnamed
from clearspan.common.options import Flag, Options
from clearspan.common.progress import counted
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError, check_extra
from clearspan.pipelines.kinds import Dedup, Update
from clearspan.pipelines.kinds.copied import Copied
from clearspan.pipelines.kinds.embedding import VectorWorker
from clearspan.pipelines.kinds.kept_fields import check_names, split, types_of
from clearspan.pipelines.kinds.text_inputs import EMPTY, TITLES, TextInputs
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.columns import DEFAULT, named, plain
from clearspan.pipelines.records import Inputs, Reading, Record
from clearspan.shards.schema import VECTOR_TYPES

LEAST_UNIT_BYTES, MOST_UNIT_BYTES = 250_000, 4_000_000
"""Input size of a unit: a quarter of a minute of short texts on a core, enough to sort them by length, and minutes. A
static model embeds the larger one in seconds.
"""
UNITS, MOST_UNITS = 64, 50_000
"""Number of units up to which they are small, and above which they are larger than MOST_UNIT_BYTES."""
BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Default of --batch-tokens by type of device. On a CPU the states of a batch should fit its caches."""
DEVICE = re.compile(r"auto|(cpu|cuda)((?<=cuda):\d+)?")
LOOKED_AT = 1000
"""Number of first records that decide on the types of kept fields."""
KEPT = "fields that travel with the vectors, e.g. id,title,meta.year; NAME:string sets a type"
TITLE = "embed this field before each text (without NAME: title, headline, ...); it is kept, too"
CHUNKS = "embed texts in chunks of whole sentences of at most N tokens (default: cut off what the model does not read)"
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
    keep_fields: Annotated[tuple[str, ...], Flag(KEPT, "NAMES", commas=True)] = ()
    title_field: Annotated[str | None, Flag(TITLE, "NAME", const=AUTO)] = None
    chunk_tokens: Annotated[int | None, Flag(CHUNKS, "N"), Ge(8)] = None
    chunk_overlap: Annotated[
        int | None, Flag("tokens of whole sentences that a chunk repeats of the one before (default 0)", "N"), Ge(0)
    ] = None
    dedup: Dedup = False
    update: Update = False
    batch_tokens: Annotated[int | None, Flag("tokens of a batch (default: CPU 1024, GPU 16384)", "N"), Ge(1)] = None

    kept: tuple[tuple[str, str], ...] = ()
    """The fields to keep and their types, which the first records decide (`looked`)."""

    name: ClassVar[str] = "vectors"
    numbers_records: ClassVar[bool] = True
    can_update: ClassVar[bool] = True
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
        check_names(self.keep_fields)
        if self.chunk_overlap is not None and self.chunk_tokens is None:
            raise ValueError("--chunk-overlap has no effect without --chunk-tokens: leave it out, or add that")
        if self.chunk_tokens is not None and 2 * (self.chunk_overlap or 0) > self.chunk_tokens:
            raise ValueError(f"--chunk-overlap {self.chunk_overlap}: must be at most half of --chunk-tokens")
        if self.title_field is not None and plain(self.title_field) == plain(self.text_field or DEFAULT):
            raise ValueError(f"--title-field {self.title_field}: is the field of the text: name another one")

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
            kept=tuple(began.get("keep_fields", {}).items()),
            title_field=began.get("title_field", AUTO) if self.title_field == AUTO else self.title_field,
        )

    def reading(self) -> Reading:
        names = [name for name, _ in map(split, self.keep_fields)]
        titles = TITLES if self.title_field == AUTO else filter(None, [self.title_field])
        return dataclasses.replace(super().reading(), keep=tuple(dict.fromkeys([*names, *titles])))

    def looked(self, inputs: Inputs, reading: Reading) -> Self:
        """Return the kind with the name of the title, and the types of the fields to keep: those of the run that
        continues, or of the first records.
        """
        if not reading.keep:
            return self
        records = first_records(inputs.root, inputs.files, reading, LOOKED_AT, any_format=True)
        title = self._title_in(records) if self.title_field == AUTO else self.title_field
        known = dict(self.kept)
        words = [word if word not in known else f"{word}:{known[word]}" for word in self.keep_fields]
        types = types_of(words, records)
        if title is not None:
            types_of([title], records, "--title-field")
            types |= {title: "string"}
        return dataclasses.replace(self, title_field=title, kept=tuple(types.items()))

    def _title_in(self, records: list[Record]) -> str:
        """Return the usual name of a title that the records have."""
        objects = [record.value for record in records if isinstance(record.value, dict)]
        text = plain(self.text_field or DEFAULT)
        for title in TITLES:
            if title != text and any(isinstance(value.get(named(value, title) or ""), str) for value in objects):
                return title
        raise PipelineError(f"--title-field: the records have none of {', '.join(TITLES)}: name the field of the title")

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EMPTY,)

    @property
    def bytes_per_s(self) -> float:
        """Rate of all-MiniLM-L6-v2, or of a static model, on a core; a GPU is best used by one process."""
        if check_device(self.device) != "cpu":
            return float("inf")
        return 2e6 if static.reads(Path(self.model)) else 2e4

    @property
    def has_chunks(self) -> bool:
        return self.chunk_tokens is not None

    def unit_bytes(self, inputs: Inputs) -> int:
        num_bytes = sum(entry.bytes for entry in inputs.files)
        least = MOST_UNIT_BYTES if static.reads(Path(self.model)) else LEAST_UNIT_BYTES
        small = min(MOST_UNIT_BYTES, max(least, num_bytes // UNITS))
        return max(small, num_bytes // MOST_UNITS)

    def options(self) -> dict[str, Any]:
        names = ("pooling", "prompt_name", "precision", "batch_tokens", "keep_text")
        own: dict[str, Any] = {
            "model": self.model_sha256,
            "device": check_device(self.device),
            "dtype": self.vector_dtype,
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
        return super().options() | own | {name: getattr(self, name) for name in names}

    def worker(self, resources: Mapping[str, bytes]) -> "VectorWorker":
        old = Copied(self.old[0], Path(self.old[1])) if self.old else None
        return VectorWorker(self, loaded(self), self.batch_tokens or BATCH_TOKENS["cpu"], old)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return how the vectors were computed, how many texts were truncated, and the prompt before them."""
        lines = [f"vectors {Compute(*(fingerprint['options'][name] for name in ('device', 'precision')))}"]
        if sums.get("truncated"):
            cut = f"{sums['truncated']:,} texts are longer than the model reads: their ends were cut off"
            lines.append(f"{cut} (--chunk-tokens embeds them whole)")
        if self.chunk_tokens is not None:
            lines.append(f"{counted(sums.get('documents', 0), 'text')} in {counted(sums.get('chunks', 0), 'chunk')}")
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
