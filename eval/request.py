"""The options of `clearspan eval`, and the checks of their values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le, Lt

from clearspan.common.compute import AUTO, Device, Precision
from clearspan.common.encoder.cache import folder_of
from clearspan.common.encoder.prompts import check_two
from clearspan.common.encoder.sentence_encoder import Pooling
from clearspan.common.hub import model_folder, within
from clearspan.common.model_forms import HYBRID, model_value_error
from clearspan.common.options import Flag, Json, Quiet, checking
from clearspan.eval.files import existing_folder
from clearspan.eval.models.hybrid import hybrid_folder
from clearspan.eval.models.lexical import BASELINES, is_bm25, unknown_stemmer
from clearspan.eval.models.load import default_name
from clearspan.eval.results import EXAMPLES, RESULTS
from clearspan.eval.tasks.registry import family
from clearspan.eval.tasks.task import ProtocolName
from clearspan.retrieval.scoring import ParameterOptions

REPORT = "report.html"


def check_model(spec: str) -> None:
    """Check a value of `--model`; raise ValueError if it names no model.

    A model is an existing path, `hybrid:` with an existing path, a baseline such as `bm25`, or `module:function`. This
    function does not check that the path holds a model, or that the function exists.
    """
    if problem := model_value_error(spec, HYBRID):
        raise ValueError(f"{spec!r}: {problem}")
    model = hybrid_folder(spec) or spec
    if problem := unknown_stemmer(model):
        raise ValueError(f"{spec}: {problem}")
    if ":" not in model and model not in BASELINES and not Path(model).exists():
        raise ValueError(f"no such folder or file, nor a baseline ({', '.join(BASELINES)}): {model}")


def check_name(text: str) -> None:
    """Raise ValueError if a model's name in the results (`--name`) cannot be the name of the model's subfolder."""
    if not text or text != Path(text).name or text in (".", "..", RESULTS, EXAMPLES, REPORT):
        raise ValueError(f"must be a valid folder name, not {text!r}")


@dataclass(frozen=True, kw_only=True)
class EvalOptions(ParameterOptions):
    """The options of `clearspan eval`: the models to score, the tasks, and the settings of the evaluation."""

    model: Annotated[tuple[str, ...], Flag("MODEL", parse=checking(check_model), resolve=within(HYBRID, model_folder))]
    """Model to score, in one of the forms listed above; may be repeated."""
    output: Annotated[Path, Flag("DIR", output=True)]
    """Folder for the results; created if missing."""
    name: Annotated[tuple[str, ...], Flag(parse=checking(check_name))] = ()
    """Name of a model in the results; if given, one for each --model, in the same order."""
    tasks: Annotated[tuple[str, ...], Flag("LIST", commas=True, parse=checking(family))] = ()
    """Tasks to score, separated by commas (see above)."""
    data: Annotated[Path | None, Flag("DIR", parse=existing_folder)] = None
    """Folder with the data of the tasks (see above), or with the dataset of --queries."""
    pairs: Annotated[tuple[Path, ...], Flag("FILE.csv")] = ()
    """Task of your own: csv or tsv file with two texts and a score in each row; may be repeated."""
    queries: Annotated[Path | None, Flag("FILE")] = None
    """File of your own questions, csv, tsv or jsonl with the fields query and text (the relevant document), which is
    ranked among all texts of the dataset in --data.
    """
    hybrid_weight: Annotated[float | None, Flag("W"), Ge(0), Le(1)] = None
    """Weight of the model in hybrid:DIR, 0 to 1 (default: 0.7; in heldout, the weight that is best on the half that
    picks checkpoints).
    """
    protocol: Annotated[ProtocolName, Flag()] = "full"
    """The papers' settings (full), or faster settings for prototyping (fast)."""
    seed: Annotated[int, Flag("N"), Ge(0), Lt(1 << 31)] = 1111
    """Random seed of folds and classifiers (default: %(default)s, as in SentEval)."""
    pooling: Pooling = None
    """Pooling of a plain Hugging Face model (default mean)."""
    prompt_name: Annotated[tuple[str, ...], Flag("NAME", commas=True)] = ()
    """Name of the model's prompt before every text; QUERY,DOCUMENT: two names; none: no prompt (default: in retrieval
    and heldout, as encode_query and encode_document choose; elsewhere the model's default prompt).
    """
    precision: Precision = "fp32"
    """Precision of the transformer; auto: bf16 if the hardware computes in bf16, else fp32."""
    batch_tokens: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Maximum number of tokens of a forward pass (default: 16384; 65536 on a GPU of 36 GiB or more)."""
    device: Device = AUTO
    """Device to use: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu."""
    cache: Annotated[Path | None, Flag("DIR", output=True)] = None
    """Folder that caches embeddings across runs; none: no cache (default: embeddings/ in CLEARSPAN_CACHE or
    ~/.cache/clearspan).
    """
    allow_missing: Annotated[bool, Flag()] = False
    """Exit with code 0 even if a file of published data lacks rows."""
    json: Json = False
    """Print JSON instead of text."""
    quiet: Quiet = False
    """Show no progress bar."""

    def validate(self) -> None:
        super().validate()
        if not self.tasks and not self.pairs and self.queries is None:
            raise ValueError("give `tasks`, `pairs` or `queries`, or several of them")
        if self.tasks and self.data is None:
            raise ValueError("`tasks` needs `data` DIR")
        if self.queries is not None and self.data is None:
            raise ValueError("`queries` needs `data` DIR, the dataset whose texts are ranked")
        if self.hybrid_weight is not None and not any(hybrid_folder(model) for model in self.model):
            raise ValueError("`hybrid_weight` has no effect without `model` hybrid:DIR: leave it out")
        given = [name for name in ("k1", "b") if getattr(self, name) is not None]
        if given and not any(hybrid_folder(model) or is_bm25(model) for model in self.model):
            raise ValueError(f"`{given[0]}` has no effect without `model` bm25 or hybrid:DIR: leave it out")
        if self.name and len(self.name) != len(self.model):
            number = f"{len(self.name)} `name` for {len(self.model)} `model`"
            raise ValueError(f"{number}: give one each, in the same order")
        if twice := next((name for name in self.names if self.names.count(name) > 1), None):
            raise ValueError(f"two models are called {twice!r}: tell them apart with `name`")
        check_two(self.prompt_name)
        _check_device(self.device)

    @property
    def names(self) -> list[str]:
        return list(self.name) or [default_name(model) for model in self.model]

    @property
    def models(self) -> dict[str, str]:
        """Name of a model in the results -> the value of `--model` that selects this model."""
        return dict(zip(self.names, self.model, strict=True))

    @property
    def cached(self) -> Path | None:
        """The folder in which embeddings are cached; None if they are not cached."""
        return folder_of(self.cache)


def _check_device(device: str) -> None:
    """Raise ValueError if torch cannot use the device `device` on this machine."""
    if device == AUTO:
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"`device`: {device!r} cannot be used here: {str(error).splitlines()[0]}") from None
