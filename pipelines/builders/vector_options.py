"""Options of commands that embed texts with a model, and the options of the kind `vectors`."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge

from clearspan.common.compute import AUTO, Device, Precision
from clearspan.common.encoder.prompts import DOCUMENT, Prompts, Side
from clearspan.common.encoder.sentence_encoder import Pooling
from clearspan.common.model_folder import EncoderError, read_modules
from clearspan.common.model_forms import NO_FOLDER, model_value_error
from clearspan.common.options import Flag, Options
from clearspan.common.parsing import normalized_name
from clearspan.pipelines.builders import Dedup, Update
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts
from clearspan.pipelines.builders.kept_fields import check_names
from clearspan.pipelines.builders.text_inputs import TextInputs
from clearspan.pipelines.readers.columns import DEFAULT
from clearspan.shards.schema import VECTOR_TYPES

DEVICE = re.compile(r"auto|(cpu|cuda)((?<=cuda):\d+)?")
KEPT = "fields to store with the vectors, e.g. id,title,meta.year; NAME:string sets the type of a field"
TITLE = "put this field before each text, and store it; without NAME, the first of title, headline, ... that exists"
CHUNKS = "embed texts in chunks of whole sentences, of at most N tokens (default: cut texts after the model's maximum)"
OVERLAP = "repeat up to N tokens, in whole sentences, at the beginning of the next chunk (default 0)"
STORED = "type of the stored numbers; int8 stores a scale with each vector"
PROMPT = "name of the model's prompt before each {0}; none: no prompt (default: as encode_{1} chooses)"
MODEL = "local folder of a sentence-transformers or Hugging Face model"
BATCH = "maximum number of tokens of a batch (default: 1024 on a CPU, 65536 on a GPU, 16384 if it has less than 36 GiB)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """Options of a command that embeds texts with a model.

    Attributes:
        model: the local folder of the model.
        prompt_name: the name of the model's prompt to put before each text, or "none" for no prompt; None for the
            model's own prompt for queries or documents, as `side` says.
        side: QUERY if the texts are queries; DOCUMENT if they are documents that queries search for.
    """

    model: Annotated[str, Flag(MODEL, "DIR", path=True)]
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
        """The prompt to put before each text; "" for no prompt."""
        return self.prompts.of_side(self.side, self.prompt_name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorOptions(ModelOptions, TextInputs):
    """Options of the kind `vectors`.

    Attributes:
        model_sha256: hash of the model's files; "" until `Vectors.resolved` sets it.
        precision: precision in which the transformer computes.
        pooling: the pooling of a Hugging Face model whose folder does not define one; None to pool by the mean. It must
            be None if the folder defines the pooling.
        vector_dtype: type of the stored values; it is called `dtype` in the fingerprint.
        update: if True, a finished dataset is brought up to date with changed inputs.
        batch_tokens: number of tokens that the model encodes at a time; None until `Vectors.resolved` sets it.
        kept: (name, type) of each field of the records to store with the vectors. The types are inferred from the first
            records (`Vectors.infer_options`).
    """

    prompt_name: Annotated[str | None, Flag(PROMPT.format("text", DOCUMENT), "NAME")] = None
    model_sha256: str = ""
    precision: Precision = "fp32"
    pooling: Pooling = None
    vector_dtype: Annotated[str, Flag(STORED, choices=tuple(VECTOR_TYPES))] = "float32"
    keep_text: Annotated[bool, Flag("store each text with its vector; search with BM25 and texts in hits need it")] = (
        False
    )
    keep_fields: Annotated[tuple[str, ...], Flag(KEPT, "NAMES", commas=True)] = ()
    title_field: Annotated[str | None, Flag(TITLE, "NAME", const=AUTO)] = None
    chunk_tokens: Annotated[int | None, Flag(CHUNKS, "N"), Ge(8)] = None
    chunk_overlap: Annotated[int | None, Flag(OVERLAP, "N"), Ge(0)] = None
    dedup: Dedup = False
    update: Update = False
    batch_tokens: Annotated[int | None, Flag(BATCH, "N"), Ge(1)] = None

    kept: tuple[tuple[str, str], ...] = ()

    side: ClassVar[Side] = DOCUMENT

    @property
    def texts(self) -> EmbeddedTexts:
        """The part that makes the texts to embed of the records."""
        return EmbeddedTexts(**{field.name: getattr(self, field.name) for field in dataclasses.fields(EmbeddedTexts)})

    def __post_init__(self) -> None:
        super().__post_init__()
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
            self.text_field or DEFAULT
        ):
            raise ValueError(f"`title_field` {self.title_field}: is the field of the text: name another field")


def check_device(device: str) -> str:
    """Return the type of a device: auto, cpu or cuda. For example, the type of cuda:1 is cuda.

    Args:
        device: the name of the device, as the user writes it.

    Raises:
        ValueError: the name is neither auto nor cpu nor cuda nor cuda with a number.
    """
    if not (match := DEVICE.fullmatch(device)):
        raise ValueError(f"`device` {device}: choose auto, cpu, cuda, or one GPU as cuda:1")
    return match[1] or AUTO


def check_folder(folder: str) -> None:
    """Raise EncoderError unless the path is an existing folder. The model in it is not read."""
    if problem := model_value_error(folder):
        raise EncoderError(f"`model` {folder!r}: {problem}")
    if not Path(folder).is_dir():
        raise EncoderError(f"`model` {folder}: {NO_FOLDER}")
