"""One evaluation: models x tasks -> figures, and the files that keep them.

    tasks loaded and checked ──> for each model: embedded, scored ──> results.json, examples.npz ──> report.html

With one model its results lie in the output folder; with several, in a folder each under the model's name, and the
report has a column for each.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearspan.common.files import sha256, write_bytes, write_text
from clearspan.common.model_folder import EncoderError
from clearspan.common.plugins import PluginError
from clearspan.eval.data.catalogue import other_rows
from clearspan.eval.files import DataError, MissingDataError, check_writable
from clearspan.eval.models.cache import Cache
from clearspan.eval.models.embed import Embedder
from clearspan.eval.models.load import load
from clearspan.eval.report.html import is_report, write_report
from clearspan.eval.results import Results, Scored, environment, examples_bytes
from clearspan.eval.saved import EXAMPLES, RESULTS, is_results
from clearspan.eval.scores import TaskScores
from clearspan.eval.sections import report_lead, report_sections
from clearspan.eval.summary import Summary
from clearspan.eval.tables import published
from clearspan.eval.tables.averages import averages
from clearspan.eval.tasks import pairs
from clearspan.eval.tasks.registry import family
from clearspan.eval.tasks.task import ProtocolName, Run, Task, UnscoredError

REPORT = "report.html"


class EvaluationError(Exception):
    """The work failed; the message is for the user, in one line. `skipped`: task -> why it was not scored."""

    def __init__(self, message: str, skipped: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.skipped = skipped or {}


@dataclass(frozen=True)
class Request:
    """What is asked for: the command's arguments, checked.

    Attributes:
        models: name -> what `eval.models.load` takes.
        words: families of tasks.
        pairs: csv or tsv files of one's own pairs.
        data: the data folder; may be None with pairs alone.
        cache: where embeddings are kept; None: nowhere.
    """

    models: dict[str, str]
    words: Sequence[str]
    pairs: Sequence[Path]
    data: Path | None
    output: Path
    protocol: ProtocolName = "full"
    seed: int = 1111
    pooling: str | None = None
    dtype: str = "fp32"
    batch_tokens: int = 16384
    device: str | None = None
    cache: Path | None = None
    quiet: bool = False


def evaluate(request: Request) -> list[Scored]:
    """Scores each model on every task whose data is there, and writes what was found.

    Raises:
        EvaluationError: a model cannot be used, or there is nothing to score. Of several models, those that can be used
            are scored before, and their results written.
        DataError: a data file is malformed.
        OSError: a file cannot be read or written.
    """
    folders = {name: request.output if len(request.models) == 1 else request.output / name for name in request.models}
    for folder in dict.fromkeys([request.output, *folders.values()]):
        _check_output(folder)
        for name in (RESULTS, EXAMPLES) if folder not in folders.values() else ():
            (folder / name).unlink(missing_ok=True)  # one model's of before would be read in place of these models'
    tasks, families, skipped = _load_tasks(request)
    cut = _other_rows([task for task in tasks if families[task.name] != "pairs"])
    checksums = {task.name: {str(path): sha256(path) for path in task.files} for task in tasks}
    found: list[Scored] = []
    failed: list[EvaluationError] = []
    for name, spec in request.models.items():
        try:
            scored = _score(request, name, spec, tasks, families, skipped)
        except EvaluationError as error:  # of this model; the others are scored all the same
            failed.append(error)
            continue
        scored.results.data = checksums
        scored.results.warnings += cut
        write_bytes(folders[name] / EXAMPLES, examples_bytes(scored.tasks))
        write_text(folders[name] / RESULTS, scored.results.to_json())
        found.append(scored)
    if found:
        summary = summary_of(found)
        title = f"Evaluation of {', '.join(summary.names)}"
        write_report(request.output / REPORT, title, report_sections(summary), report_lead(summary), summary.warnings)
    if failed:
        others = f" (scored, in {request.output}: {', '.join(one.results.model for one in found)})" if found else ""
        reasons = {task: reason for error in failed for task, reason in error.skipped.items()}
        raise EvaluationError("; ".join(map(str, failed)) + others, reasons)
    return found


def summary_of(scored: Sequence[Scored]) -> Summary:
    """What readers are shown of an evaluation."""
    summary = Summary(scored)
    return replace(summary, baselines=published.baselines(summary.figures))


def _load_tasks(request: Request) -> tuple[list[Task], dict[str, str], dict[str, str]]:
    """The tasks; task -> family; task -> why it is skipped."""
    tasks: list[Task] = []
    families: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for word in request.words:
        assert request.data is not None
        try:
            loaded = family(word).load(request.data)
        except PluginError as error:
            raise EvaluationError(f"--tasks: {error}") from None
        tasks += loaded.tasks
        families |= dict.fromkeys((task.name for task in loaded.tasks), word)
        skipped |= loaded.missing
    try:
        own = pairs.load(request.pairs)
    except (DataError, MissingDataError) as error:
        raise DataError(f"--pairs: {error}") from None
    tasks += own
    families |= dict.fromkeys((task.name for task in own), "pairs")
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise EvaluationError(f"--tasks: two tasks are called {twice!r}: rename one of them")
    if not tasks:
        raise EvaluationError(
            f"--data {request.data}: holds no data for --tasks {','.join(request.words)}, so nothing was scored",
            skipped,
        )
    return tasks, families, skipped


def _other_rows(tasks: list[Task]) -> list[str]:
    """A warning where tasks were read from files that are cut or added to: figures of such look like any others."""
    found = {task.name: other for task in tasks if (other := other_rows(task.files))}
    if not found:
        return []
    each = [f"{name} ({other[0]}{', ...' * (len(other) > 1)})" for name, other in found.items()]
    return [
        f"not the published data, so not comparable with published figures: {', '.join(each)}; python -m eval.data "
        "check says more"
    ]


def _score(
    request: Request, name: str, spec: str, tasks: list[Task], families: dict[str, str], skipped: dict[str, str]
) -> Scored:
    # Only now: torch takes seconds to import, and mistakes in arguments and data should show at once.
    import torch

    device = request.device or ("cuda" if torch.cuda.is_available() else "cpu")
    results = Results(model=name, spec=spec, skipped=dict(skipped))
    try:
        model = load(spec, request.pooling, request.dtype, device)
        fingerprint = model.fingerprint
        cache = Cache(request.cache / fingerprint, model.dim) if request.cache and fingerprint else None
        embedder = Embedder(
            lambda texts: model.encode(texts, batch_tokens=request.batch_tokens, progress=not request.quiet), cache
        )
        run = Run(embedder, request.protocol, request.seed, device, not request.quiet, model.folder)
        scored, seconds = _score_tasks(run, tasks, results)
    except EncoderError as error:
        raise EvaluationError(f"--model: {error}") from None
    if not scored:
        raise EvaluationError(f"--model {spec}: no task of --tasks can be scored with it", results.skipped)
    results.averages = averages(results.scores)
    if embedder.num_nonfinite:
        results.warnings.append(
            f"{embedder.num_nonfinite} of {embedder.num_texts} embeddings hold a NaN or an infinity, which count as 0: "
            "the model is broken or overflows in this precision"
        )
    if embedder.num_zero:
        results.warnings.append(
            f"{embedder.num_zero} of {embedder.num_texts} embeddings are all zeros, whose cosines count as 0: word "
            "vectors have no word of such a text (they may want other case or tokens); of another model, it is broken"
        )
    if cache and cache.num_damaged:
        results.warnings.append(
            f"embeddings damaged in {request.cache}: {cache.num_damaged:,} (they do not match their checksums); they "
            "were computed again: check that disk"
        )
    results.warnings += cache.warnings if cache else []
    results.environment = environment(
        device=device,
        embedding_dim=model.dim,
        texts_embedded=embedder.num_texts,
        texts_cached=embedder.num_cached,
        embedding_s=round(embedder.encode_s, 3),
        scoring_s=seconds,
        protocol=request.protocol,
        seed=request.seed,
        dtype=request.dtype,
        pooling=request.pooling,
        fingerprint=fingerprint,
        data_path=str(request.data),
    )
    return Scored(results, scored, families)


def _score_tasks(run: Run, tasks: list[Task], results: Results) -> tuple[dict[str, TaskScores], dict[str, float]]:
    """Task -> its scores, which `results` gets too; task -> seconds of scoring, those of embedding left out."""
    scored: dict[str, TaskScores] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        start, embedding_s = time.perf_counter(), run.embedder.encode_s
        try:
            scores = task.score(run)
        except UnscoredError as error:
            results.skipped[task.name] = str(error)
            continue
        if not isinstance(scores, TaskScores):  # the task is the user's
            raise EvaluationError(
                f"{task.name}: score() must return eval.scores.TaskScores, not {type(scores).__name__}"
            )
        scored[task.name] = scores
        seconds[task.name] = round(time.perf_counter() - start - (run.embedder.encode_s - embedding_s), 3)
        results.add(task.name, scored[task.name])
    return scored, seconds


def _check_output(folder: Path) -> None:
    """Before any work: the folder can be written, and what it holds under our names was written by an evaluation."""
    check_writable(folder)
    for name, is_ours in ((RESULTS, is_results), (REPORT, is_report)):
        if (folder / name).exists() and not is_ours(folder / name):
            raise EvaluationError(
                f"--output {folder}: its {name} is not one that python -m eval wrote: move it, or name another folder"
            )
