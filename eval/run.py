"""One evaluation: models x tasks -> figures, and the files that keep them.

    tasks loaded and checked ──> for each model: embedded, scored ──> results.json, examples.npz ──> report.html

With one model its results lie in the output folder; with several, in a folder each under the model's name, and the
report has a column for each.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.files import DataError, MissingDataError, check_writable, sha256, write_bytes, write_text
from eval.report.html import is_report, write_report
from eval.results import Results, environment, examples_bytes, is_results, report_sections
from eval.scores import TaskScores
from eval.tables.averages import averages
from eval.tasks import pairs
from eval.tasks.registry import FAMILIES
from eval.tasks.task import ProtocolName, Run, Task, UnscoredError

RESULTS, EXAMPLES, REPORT = "results.json", "examples.npz", "report.html"


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
        pairs: csv files of one's own pairs.
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


@dataclass(frozen=True)
class Scored:
    """One model's evaluation."""

    results: Results
    tasks: dict[str, TaskScores]


def evaluate(request: Request) -> list[Scored]:
    """Scores each model on every task whose data is there, and writes what was found.

    Raises:
        EvaluationError: a model cannot be used, or there is nothing to score.
        DataError: a data file is malformed.
        OSError: a file cannot be read or written.
    """
    folders = {name: request.output if len(request.models) == 1 else request.output / name for name in request.models}
    for folder in dict.fromkeys([request.output, *folders.values()]):
        _check_output(folder)
    tasks, skipped = _load_tasks(request)
    checksums = {task.name: {str(path): sha256(path) for path in task.files} for task in tasks}
    found = []
    for name, spec in request.models.items():
        scored = _score(request, name, spec, tasks, skipped)
        scored.results.data = checksums
        write_bytes(folders[name] / EXAMPLES, examples_bytes(scored.tasks))
        write_text(folders[name] / RESULTS, scored.results.to_json())
        found.append(scored)
    names = ", ".join(request.models)
    sections = [section for one in found for section in report_sections(one.results, one.tasks)]
    write_report(request.output / REPORT, f"Evaluation of {names}", sections)
    return found


def _load_tasks(request: Request) -> tuple[list[Task], dict[str, str]]:
    tasks: list[Task] = []
    skipped: dict[str, str] = {}
    for word in request.words:
        assert request.data is not None
        loaded = FAMILIES[word].load(request.data)
        tasks += loaded.tasks
        skipped |= loaded.missing
    for path in request.pairs:
        try:
            tasks.append(pairs.load(path))
        except MissingDataError as error:
            raise DataError(f"--pairs: {error}") from None
    if not tasks:
        raise EvaluationError(
            f"--data {request.data}: holds no data for --tasks {','.join(request.words)}, so nothing was scored",
            skipped,
        )
    return tasks, skipped


def _score(request: Request, name: str, spec: str, tasks: list[Task], skipped: dict[str, str]) -> Scored:
    # Only now: torch takes seconds to import, and mistakes in arguments and data should show at once.
    import torch

    from eval.models.embed import Embedder
    from eval.models.folder import EncoderError
    from eval.models.load import load

    device = request.device or ("cuda" if torch.cuda.is_available() else "cpu")
    results = Results(model=name, skipped=dict(skipped))
    scored: dict[str, TaskScores] = {}
    seconds: dict[str, float] = {}
    try:
        model = load(spec, request.pooling, request.dtype, device)
        embedder = Embedder(
            lambda texts: model.encode(texts, batch_tokens=request.batch_tokens, progress=not request.quiet)
        )
        run = Run(embedder, request.protocol, request.seed, device, not request.quiet, model.folder)
        for task in tasks:
            start, embedding_s = time.perf_counter(), embedder.encode_s
            try:
                scored[task.name] = task.score(run)
            except UnscoredError as error:
                results.skipped[task.name] = str(error)
                continue
            seconds[task.name] = round(time.perf_counter() - start - (embedder.encode_s - embedding_s), 3)
            results.add(task.name, scored[task.name])
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
    results.environment = environment(
        device=device,
        embedding_dim=model.dim,
        texts_embedded=embedder.num_texts,
        embedding_s=round(embedder.encode_s, 3),
        scoring_s=seconds,
        protocol=request.protocol,
        seed=request.seed,
        dtype=request.dtype,
        pooling=request.pooling,
        fingerprint=model.fingerprint,
        model_path=spec,
        data_path=str(request.data),
    )
    return Scored(results, scored)


def _check_output(folder: Path) -> None:
    """Before any work: the folder can be written, and what it holds under our names was written by an evaluation."""
    check_writable(folder)
    for name, is_ours in ((RESULTS, is_results), (REPORT, is_report)):
        if (folder / name).exists() and not is_ours(folder / name):
            raise EvaluationError(
                f"--output {folder}: its {name} is not one that python -m eval wrote: move it, or name another folder"
            )
