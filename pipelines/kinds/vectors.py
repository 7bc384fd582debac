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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

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
from clearspan.common.progress import counted
from clearspan.common.terminal import one_line
from clearspan.pipelines.attached import HASHES, attach
from clearspan.pipelines.errors import PipelineError, check_extra
from clearspan.pipelines.kinds import Dedup, Update
from clearspan.pipelines.kinds.copied import Copied
from clearspan.pipelines.kinds.kept_fields import KeptFields, Plain, check_names, split, types_of
from clearspan.pipelines.kinds.text_inputs import EMPTY, TITLES, TextInputs, grouped, text_id, text_in, utf8
from clearspan.pipelines.readers import first_records
from clearspan.pipelines.readers.columns import DEFAULT, named, plain
from clearspan.pipelines.records import Inputs, Reading, Record
from clearspan.pipelines.tally import RecordError, Tally
from clearspan.pipelines.text.chunks import Chunker
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
LOOKED_AT = 1000
"""Number of first records that decide on the types of kept fields."""


class Text(NamedTuple):
    """A text to embed.

    Attributes:
        text: the text, or a chunk of it. title: what is put before it.
        fields: values of the kept fields.
        size: number of bytes of the whole text.
        digest: hash by which whole texts are compared; empty if they are not.
        document, chunk: id of the whole text, and number of the chunk.
    """

    record: Record
    text: str
    size: int = 0
    title: str = ""
    fields: tuple[Plain, ...] = ()
    digest: bytes = b""
    document: int = 0
    chunk: int = 0

    @property
    def embedded(self) -> str:
        """What is embedded, without the prompt."""
        return f"{self.title} {self.text}" if self.title else self.text


DEVICE = re.compile(r"auto|(cpu|cuda)((?<=cuda):\d+)?")


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
        return VectorWorker(self, loaded(self), old)

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


@dataclasses.dataclass
class VectorWorker:
    """Worker of the kind `vectors`."""

    kind: Vectors
    model: FolderEncoder
    old: Copied | None = None

    def examples(self, records: Iterable[Record], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a unit's records, in order, as record batches; count every record in `tally`."""
        texts = tally.made(records, lambda record: self._text(record, tally))
        if self.kind.chunk_tokens is not None:
            texts = self._chunked(texts, tally)
        for window in grouped(((text, text.size) for text in texts), WINDOW_BYTES, WINDOW_TEXTS):
            yield from self._embedded(window, tally)

    def _text(self, record: Record, tally: Tally) -> Text | None:
        """Return the text of a record; count one that is empty."""
        if (found := text_in(record, self.kind.text_field, tally.counts)) is None:
            return None
        fields = self.fields.of(record)
        title = fields[self.title] if self.title is not None else None
        text = Text(record, found[0], len(found[1]), title.strip() if isinstance(title, str) else "", fields)
        return text._replace(digest=same_text.digest(text.embedded)) if self.kind.compares else text

    @functools.cached_property
    def fields(self) -> KeptFields:
        """The fields to keep."""
        return KeptFields(dict(self.kind.kept))

    @functools.cached_property
    def title(self) -> int | None:
        """The place of the title among the kept fields."""
        names = [name for name, _ in self.kind.kept]
        return None if self.kind.title_field is None else names.index(self.kind.title_field)

    def _chunked(self, texts: Iterator[Text], tally: Tally) -> Iterator[Text]:
        """Yield the chunks of texts, which are counted as if each was read."""
        chunker = Chunker(
            self.model.count_tokens, self.kind.chunk_tokens or 0, self.kind.chunk_overlap or 0, self.model.most_tokens
        )
        prompt = self.kind.prompt
        for window in grouped(((text, text.size) for text in texts), WINDOW_BYTES, WINDOW_TEXTS):
            titles = [text.title and chunker.fitting(prompt, text.title) for text in window]
            before = [prompt + (title and f"{title} ") for title in titles]
            spans = chunker.chunks([text.text for text in window], before)
            tally.counts.count("documents", len(window))
            for text, title, parts in zip(window, titles, spans, strict=True):
                tally.counts.read += len(parts) - 1  # the text was counted
                tally.counts.count("chunks", len(parts))
                document = text_id(utf8(text.embedded))
                for number, (start, end) in enumerate(parts):
                    part = text.text[start:end]
                    yield text._replace(text=part, size=len(utf8(part)), title=title, document=document, chunk=number)

    def _embedded(self, window: list[Text], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a window's texts; a text whose vector is not finite is a bad record."""
        embedded = [text.embedded for text in window]
        new, table = list(dict.fromkeys(embedded)), None
        if self.old is not None:
            rows = self.old.rows([text_id(text.encode()) for text in new])
            known = [text for text, row in zip(new, rows, strict=True) if row >= 0]
            new = [text for text, row in zip(new, rows, strict=True) if row < 0]
            table = self.old.vectors(rows[rows >= 0]) if known else None
        place = {text: row for row, text in enumerate([*new, *(known if table else [])])}
        is_finite, truncated = np.ones(len(place), bool), np.zeros(len(place), bool)
        if new:
            made, is_finite[: len(new)], truncated[: len(new)] = self._made(new)
            table = pa.concat_batches([made, table]) if table else made
        assert table is not None
        kept = []
        for text, whole in zip(window, embedded, strict=True):
            if is_finite[place[whole]]:
                kept.append((text, whole))
                tally.counts.count("truncated", int(truncated[place[whole]]))
            else:
                tally.reject(text.record, RecordError(f"its vector is not finite in {self.kind.vector_dtype}"))
        tally.counts.kept += len(kept)
        size = max(1, BATCH_BYTES // (table.nbytes // len(table) + 1))
        for first in range(0, len(kept), size):
            yield self._batch(kept[first : first + size], place, table)

    def _made(self, texts: list[str]) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
        """Return the vectors of texts as they are stored, (n,), and which are finite and which texts truncated."""
        try:
            tokens, prompt = self.kind.batch_tokens or BATCH_TOKENS["cpu"], self.kind.prompt
            made = self.model.embed(texts, tokens, prompt=prompt)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None
        is_finite = np.asarray(np.isfinite(made.vectors).all(axis=1))
        stored = vectors.columns(np.where(is_finite[:, None], made.vectors, 0), self.kind.vector_dtype)
        table = pa.record_batch(list(stored.values()), names=list(stored))
        return table, is_finite & np.isfinite(vectors.decoded(table)).all(axis=1), made.truncated

    def _batch(self, window: list[tuple[Text, str]], place: dict[str, int], table: pa.RecordBatch) -> pa.RecordBatch:
        texts = [text for text, _ in window]
        taken = table.take(pa.array([place[whole] for _, whole in window], pa.int64()))
        columns = {
            "id": pa.array((text_id(whole.encode()) for _, whole in window), pa.int64()),
            "source": pa.array([text.record.name for text in texts], pa.string()),
            **dict(zip(table.schema.names, taken.columns, strict=True)),
        }
        if self.kind.keep_text:
            columns["text"] = pa.array([text.text for text in texts], pa.string())
        columns["record"] = pa.array([text.record.number for text in texts], pa.int64())
        if self.kind.chunk_tokens is not None:
            columns["document"] = pa.array([text.document for text in texts], pa.int64())
            columns["chunk"] = pa.array([text.chunk for text in texts], pa.int32())
        columns |= self.fields.columns([text.fields for text in texts])
        optional = [name for name in columns if name not in ("id", "source", "vector")]
        types = {name: column.type for name, column in columns.items()}
        schema = KINDS["vectors"].schema(optional=optional, vector=types["vector"], fields=types)
        batch = pa.record_batch(list(columns.values()), schema=schema)
        if not self.kind.compares:
            return batch
        digests = np.frombuffer(b"".join(text.digest for text in texts), "<u8").reshape(len(texts), -1)
        return attach(batch, HASHES, digests)
