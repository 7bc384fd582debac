"""One run of `clearspan eval`: score models on tasks, and write the results and a report.

    tasks loaded and checked ──> for each model: embedded, scored ──> results.json, examples.npz ──> report.html

The results of a single model are written to the output folder. Of several models, each has a subfolder with the name
of the model, and a column in the report.
"""

import contextlib
import hashlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from clearspan.common.compute import Compute, resolve
from clearspan.common.encoder.prompts import DOCUMENT, QUERY
from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.common.files import is_foreign, write_bytes, write_text
from clearspan.common.hub import reference, within
from clearspan.common.model_folder import EncoderError
from clearspan.common.model_forms import HYBRID
from clearspan.common.options import from_keywords
from clearspan.common.plain_json import Option
from clearspan.common.plugins import PluginError
from clearspan.common.progress import ProgressBar
from clearspan.common.records import DataError, MissingDataError
from clearspan.common.terminal import warn
from clearspan.common.typed import checked
from clearspan.eval.data.catalog import Compared, compared
from clearspan.eval.files import check_writable
from clearspan.eval.models.hybrid import Hybrid, hybrid_folder
from clearspan.eval.models.lexical import Lexical, is_baseline
from clearspan.eval.models.load import load_encoder
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.models.similarity import Similarity
from clearspan.eval.report.html import is_report, write_report
from clearspan.eval.report.sections import RANKED, report_lead, report_sections, report_title
from clearspan.eval.report.summary import ScoreSummary
from clearspan.eval.request import REPORT, EvalOptions
from clearspan.eval.results import (
    EXAMPLES,
    RESULTS,
    Results,
    Scored,
    environment,
    examples_bytes,
    is_examples,
    is_results,
)
from clearspan.eval.scores import Difference, TaskScores, comparable, tested
from clearspan.eval.tables.averages import averages
from clearspan.eval.tasks import queries, retrieval, sts
from clearspan.eval.tasks.registry import family
from clearspan.eval.tasks.task import Task, TaskContext, UnscoredError

OWN = ("pairs", queries.NAME)
"""Families of tasks in a user's own files."""


class EvaluationError(Exception):
    """An evaluation failed. The message is one line for the user.

    Attributes:
        skipped: name of a task -> the reason why it was not scored; empty if no task was skipped.
    """

    def __init__(self, message: str, skipped: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.skipped = skipped or {}


@checked
def evaluate(
    model: str | Path,
    tasks: str | Sequence[str] = (),
    data: str | Path | None = None,
    output: str | Path | None = None,
    **options: Option,
) -> Results:
    """Score a model by the published protocols.

    Args:
        model: a model folder, a file of word vectors, or, as `module:function`, a Python function that maps a list of n
            texts to an array (n, dim). Baselines such as `bm25` are allowed too.
        tasks: families of tasks, such as `["sts", "transfer"]` or `"sts,transfer"`. They may be empty if the option
            `pairs` names a file of your own, or `queries` a file of your own questions.
        data: the folder with the data of the tasks; None if no task needs it.
        output: the folder for `results.json`, `examples.npz` and `report.html`, which `compare` and the tables read;
            None writes none of them.
        options: options of `clearspan eval --help` by their names with underscores: `protocol="fast"`,
            `pairs="mine.csv"`, `pooling="pooler"`, `device="cuda"`.

    Returns:
        The content of `results.json`: `results.scores["STSBenchmark"]["spearman"]` is in percent.

    Raises:
        UsageError: an option is unknown or cannot work.
        EvaluationError: the model cannot be used, or there is nothing to score.
        DataError, OSError: a data file is malformed or cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if output is None:
            output = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # libraries print while a model is loaded
        given = {"model": model, "tasks": tasks or None, "data": data, "output": output, **options}
        return score_models(from_keywords(EvalOptions, given))[0].results


def score_models(request: EvalOptions) -> list[Scored]:
    """Score each model on every task whose data exists, write the results and the report, and return the evaluations.

    Raises:
        EvaluationError: the output folder has files that no evaluation wrote; the tasks cannot be used, for example
            because none of them has data; or a model cannot be used, or cannot be scored on any task. In the last case,
            all other models are scored first, and their results are written.
        DataError: a data file is malformed.
        OSError: a file cannot be read or written.
    """
    folders = {name: request.output if len(request.models) == 1 else request.output / name for name in request.models}
    for folder in dict.fromkeys([request.output, *folders.values()]):
        _check_output(folder)
    for name in (RESULTS, EXAMPLES) if request.output not in folders.values() else ():
        (request.output / name).unlink(missing_ok=True)  # results of an earlier single model would hide the subfolders
    loaded = _load_tasks(request)
    tasks = loaded.tasks
    files = {path: compared(path) for path in dict.fromkeys(path for task in tasks for path in task.files)}
    known = {task.name: [files[path] for path in task.files] for task in tasks if loaded.families[task.name] not in OWN}
    warnings = [*_data_warnings(known), *retrieval.remarks(tasks), *queries.remarks(tasks)]
    remarks = {name: ", ".join(file.remark for file in files if file.is_truncated) for name, files in known.items()}
    truncated = {name: remark for name, remark in remarks.items() if remark}
    compute = resolve(request.device, request.precision)
    if compute.message:
        warn(compute.message)
    evaluated: list[Scored] = []
    failed: list[EvaluationError] = []
    for name, spec in request.models.items():
        try:
            scored = _score(request, compute, name, spec, loaded)
        except EvaluationError as error:  # concerns this model only
            failed.append(error)
            continue
        scored.results.data = {task.name: {str(path): files[path].sha256 for path in task.files} for task in tasks}
        scored.results.truncated = truncated
        scored.results.warnings += warnings
        content = examples_bytes(scored.tasks)
        scored.results.examples = hashlib.sha256(content).hexdigest()
        write_bytes(folders[name] / EXAMPLES, content)
        write_text(folders[name] / RESULTS, scored.results.to_json())
        evaluated.append(scored)
    if evaluated:
        evaluated = with_differences(evaluated)
        summary = ScoreSummary(evaluated)
        write_report(
            request.output / REPORT,
            report_title(summary),
            report_sections(summary),
            report_lead(summary),
            summary.warnings,
        )
    if failed:
        names = ", ".join(scored.results.model for scored in evaluated)
        others = f" (scored, in {request.output}: {names})" if evaluated else ""
        reasons = {task: reason for error in failed for task, reason in error.skipped.items()}
        raise EvaluationError("; ".join(map(str, failed)) + others, reasons)
    return evaluated


def with_differences(scored: Sequence[Scored]) -> list[Scored]:
    """Return the evaluations, with the differences between each model's main scores and the first model's main scores.

    Their p-values are corrected by Holm's method for the number of all these differences. A task has no difference if
    a main score has no examples, or if the two scores were computed from different examples.
    """
    first, *others = scored
    pairs = {}
    for number, other in enumerate(others):
        for task, scores in other.tasks.items():
            before = first.tasks[task].examples.get(scores.main) if task in first.tasks else None
            after = scores.examples.get(scores.main)
            if before is not None and after is not None and comparable(before, after):
                pairs[number, task] = before, after
    differences: list[dict[str, Difference]] = [{} for _ in others]
    for (number, task), change in zip(pairs, tested(list(pairs.values())), strict=True):
        differences[number][task] = change
    return [first, *(replace(other, differences=each) for other, each in zip(others, differences, strict=True))]


class _Tasks(NamedTuple):
    """The tasks that the user chose.

    Attributes:
        tasks: the tasks whose data exists, which are scored.
        families: name of a task -> the word of `--tasks` that chose it, such as `sts`; `pairs` or `queries` for the
            tasks in the user's own files.
        skipped: name of a task -> the reason why it is skipped.
    """

    tasks: list[Task]
    families: dict[str, str]
    skipped: dict[str, str]


def _load_tasks(request: EvalOptions) -> _Tasks:
    tasks: list[Task] = []
    families: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for word in request.tasks:
        assert request.data is not None
        try:
            loaded = family(word).load(request.data)
        except PluginError as error:
            raise EvaluationError(f"`tasks`: {error}") from None
        tasks += loaded.tasks
        families |= dict.fromkeys((task.name for task in loaded.tasks), word)
        skipped |= loaded.missing
    try:
        of_user = sts.load_pairs(request.pairs)
    except (DataError, MissingDataError) as error:
        raise DataError(f"`pairs`: {error}") from None
    tasks += of_user
    families |= dict.fromkeys((task.name for task in of_user), "pairs")
    if request.queries is not None:
        assert request.data is not None
        try:
            tasks.append(queries.load(request.queries, request.data))
        except (DataError, MissingDataError) as error:
            raise DataError(f"`queries`: {error}") from None
        families[queries.NAME] = queries.NAME
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise EvaluationError(f"`tasks`: two tasks are called {twice!r}: rename one of them")
    if not tasks:
        raise EvaluationError(
            f"`data` {request.data}: holds no data for `tasks` {','.join(request.tasks)}, so nothing was scored",
            skipped,
        )
    return _Tasks(tasks, families, skipped)


def _data_warnings(known: Mapping[str, Sequence[Compared]]) -> list[str]:
    """Return a list with one warning that names the tasks whose files differ from the published ones; [] if none do."""
    remarks = {task: [file.remark for file in files if file.remark] for task, files in known.items()}
    shown = {task: [each[0], "..."] if len(each) > 1 else each for task, each in remarks.items()}
    tasks = ", ".join(f"{task} ({', '.join(each)})" for task, each in shown.items() if each)
    if not tasks:
        return []
    return [
        f"not the published data, so not comparable with published figures, unless line ends alone differ: {tasks}; "
        "clearspan data check says more"
    ]


def _score(request: EvalOptions, compute: Compute, name: str, spec: str, loaded: "_Tasks") -> Scored:
    results = Results(model=name, spec=within(HYBRID, reference)(spec), skipped=dict(loaded.skipped))
    facts: dict[str, object] = {}
    model = None
    prompted = None
    try:
        if is_baseline(spec):
            similarity: Similarity = Lexical(spec, request.scoring())
        else:
            of_hybrid = hybrid_folder(spec)
            model = load_encoder(of_hybrid or spec, request.pooling, compute.precision, compute.device)
            prompted = Prompted.of(
                model, request.prompt_name, request.cached, request.batch_tokens, progress=not request.quiet
            )
            similarity = Hybrid(prompted, request.hybrid_weight, request.scoring()) if of_hybrid else prompted
        folder = model.folder if model and similarity is prompted else None
        run = TaskContext(similarity, request.protocol, request.seed, compute.device, not request.quiet, folder)
        scored = _score_tasks(run, loaded.tasks, results)
    except EncoderError as error:
        raise EvaluationError(f"`model`: {error}") from None
    if not scored:
        raise EvaluationError(f"`model` {spec}: no task of `tasks` can be scored with it", results.skipped)
    results.averages = averages(results.scores)
    if prompted and model:
        results.warnings += prompted.warnings()
        facts = {
            "embedding_dim": model.dim,
            "texts_embedded": sum(each.num_texts for each in prompted.embedders),
            "texts_cached": sum(each.num_cached for each in prompted.embedders),
            "embedding_s": round(sum(each.encode_s for each in prompted.embedders), 3),
        }
        if isinstance(model, FolderEncoder) and model.is_packed is not None:
            facts["packed"] = model.is_packed
        if any(model.prompts.texts.values()):
            facts["prompts"] = prompted.prompts._asdict()
            ranks = any(loaded.families[task] in RANKED for task in scored)
            unused = model.prompts.unused(QUERY, DOCUMENT) if ranks and not request.prompt_name else ""
            if unused:
                results.warnings.append(unused)
    results.environment = environment(
        device=compute.device,
        **facts,
        protocol=request.protocol,
        seed=request.seed,
        precision=compute.precision,
        pooling=request.pooling,
        fingerprint=model.fingerprint if model else None,
        data_path=str(request.data),
    )
    return Scored(results, scored, loaded.families)


def _score_tasks(run: TaskContext, tasks: list[Task], results: Results) -> dict[str, TaskScores]:
    """Score one model on each task; return name of a task -> its scores, for all tasks that support the model.

    Args:
        run: the model, and the settings of the tasks.
        results: the results of the model. Each task's scores, or the reason why it is skipped, are added to them.

    Raises:
        EvaluationError: the task of a plug-in returns something other than `TaskScores`.
        EncoderError: the model cannot embed the texts of a task, or cannot be fine-tuned on it.
    """
    scored: dict[str, TaskScores] = {}
    for task in ProgressBar(len(tasks), "tasks", not run.progress, unit="task").over(tasks):
        try:
            scores = task.score(run)
        except UnscoredError as error:
            results.skipped[task.name] = str(error)
            continue
        if not isinstance(scores, TaskScores):  # a task from outside
            raise EvaluationError(
                f"{task.name}: score() must return eval.scores.TaskScores, not {type(scores).__name__}"
            )
        scored[task.name] = replace(scores, settings={**run.embedder.settings, **scores.settings})
        results.add(task.name, scored[task.name])
    return scored


def _check_output(folder: Path) -> None:
    """Check that `folder` can be written, and that results replace only files that an evaluation wrote."""
    check_writable(folder)
    for name, is_ours in ((RESULTS, is_results), (EXAMPLES, is_examples), (REPORT, is_report)):
        path = folder / name
        if is_foreign(path, is_ours):
            raise EvaluationError(
                f"`output` {folder}: its {name} is not a file of this command: move it, or name another folder"
            )
