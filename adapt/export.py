"""Export the best system: write its model, the settings for searches and the report, and print the verdict.

The model is copied before the collection is embedded with it. If a later call adds questions and another model wins,
the old copy is replaced together with its vectors.
"""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearspan.adapt import report
from clearspan.adapt.decision import Decision
from clearspan.adapt.judging import QUESTION_SHARES
from clearspan.adapt.options import Adapt
from clearspan.adapt.originals import find_originals, with_originals
from clearspan.adapt.runner import AdaptRecord
from clearspan.adapt.stages import VECTORS
from clearspan.adapt.updating import remark
from clearspan.cli.command import Result
from clearspan.common import files, terminal
from clearspan.common.checksummed_folder import set_aside
from clearspan.common.encoder.prompts import Prompts, Sides
from clearspan.common.hub import reference
from clearspan.eval.verdict import TRAINED
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units import update
from clearspan.pipelines.units.ownership import own_files
from clearspan.retrieval.collection import SearchSettings, write_collection
from clearspan.train.interpolate import share_of

MODEL, METRICS = "model", "metrics.jsonl"
ORIGINALS = "originals"
"""Name, in adapt.json, of the original texts that the report shows."""


def source(decision: Decision, options: Adapt) -> Path:
    """Return the folder that holds the winner's model, or the best untrained model if BM25 alone wins."""
    return models(options)[_delivered(decision, options)]


def models(options: Adapt) -> dict[str, Path]:
    """Return the folders of all models that may be delivered, by the names that adapt.json records for them."""
    shares = {f"{TRAINED} {share:g}": options.shares / f"{share:g}" for share in QUESTION_SHARES if share != 1}
    return {TRAINED: options.trained, **options.untrained, f"{TRAINED} 1": options.exported, **shares}


def _delivered(decision: Decision, options: Adapt) -> str:
    """Return the name of the decision's model, with the share if the questions chose another than the titles."""
    if decision.share in (None, share_of(options.trained)):
        return decision.model
    return f"{decision.model} {decision.share:g}"


def export(decision: Decision, record: AdaptRecord, options: Adapt) -> None:
    """Copy the winner's model, or the best untrained model if BM25 alone wins, to `model` in the output folder.

    If an earlier call copied another model, its copy and the vectors made with it are removed, but no other files. The
    vectors are also removed if they are of chunks of another length.
    """
    folder, model, name = options.output / MODEL, source(decision, options), _delivered(decision, options)
    if record.content.get("delivered", name) != name:
        terminal.notice(
            f"{folder}: the verdict has changed: the model is now {name}, not {record.content['delivered']}"
        )
        _remove(folder, _copied(folder, models(options).get(record.content["delivered"])))
        _remove_vectors(record, options)
    began = planning.began(str(options.output / VECTORS))
    if began and began["options"].get("chunk_tokens") != options.chunk_tokens:
        _remove_vectors(record, options)
    copy(model, folder)
    record.content["delivered"] = name
    record.save()


def _remove_vectors(record: AdaptRecord, options: Adapt) -> None:
    vectors = options.output / VECTORS
    update.discard(str(vectors))
    _remove(vectors, own_files(str(vectors)))
    record.commands.pop("embed", None)


def _copied(folder: Path, model: Path | None) -> list[str]:
    """Return the names of the files in a copy of a model folder that are still as in the model folder."""
    if model is None:  # this call compares other models
        return []
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    return [
        name for name in names if (model / name).is_file() and files.sha256(folder / name) == files.sha256(model / name)
    ]


def _remove(folder: Path, names: Sequence[str]) -> None:
    """Remove these files from a folder, and the folder; if it holds others, rename it to NAME.earlier, and say so."""
    files.remove_files(folder, names)
    if folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            terminal.notice(
                f"{folder}: holds files that are not of this command: moved to {set_aside(folder, 'earlier')}"
            )


def copy(model: Path, folder: Path) -> None:
    """Copy a model folder to `folder`; do nothing if `folder` holds this model already.

    If `folder` exists and holds anything else, it is renamed first, to NAME.damaged, and a message says so.
    """
    from clearspan.common.encoder.fingerprint import model_files
    from clearspan.common.model_folder import EncoderError

    if folder.exists():
        try:
            is_whole = model_files(folder) == model_files(model)
        except (EncoderError, OSError):
            is_whole = False
        if is_whole:
            return
        problem = f"{folder}: differs from {model}, of which it was a copy"
        terminal.notice(f"{problem}: moved to {set_aside(folder)}, and copied again")
    files.remove_temporaries(folder.parent)
    fresh = folder.with_name(files.temporary_name(folder.name))
    shutil.copytree(model, fresh)
    fresh.rename(folder)


def announce(decision: Decision) -> None:
    """Print the verdict at once, because embedding the collection, which follows, may take long."""
    for line in report.lines(decision.verdict, decision.other, terminal.width()):
        terminal.say(line)


@dataclass(frozen=True)
class AdaptResult(Result):
    """Result of `clearspan adapt`: the outcome, and the folder that is ready to search.

    Attributes:
        decision: the verdicts, and the recommended system; `announce` has already printed it.
        folder: the output folder.
        origin: a phrase that says where the model in DIR/model comes from, where DIR is the output folder.
        prompts: the prompts of this model, for queries and for documents.
        report: the path of report.html.
        remark: a sentence on an update of the texts to search; "" if there was none.
    """

    decision: Decision
    folder: Path
    origin: str
    prompts: Sides
    report: Path
    remark: str = ""

    def __str__(self) -> str:
        name = shlex.quote(str(self.folder))
        lines = [
            *([f"its prompts: {self.prompts}"] if any(self.prompts) else []),
            *([self.remark] if self.remark else []),
            f"{self.folder / MODEL} is {self.origin}; report: {self.report}",
            f'clearspan search {name} "..." searches the texts, clearspan serve {name} on a page',
        ]
        return "\n".join(lines)


def finish(decision: Decision, record: AdaptRecord, options: Adapt) -> AdaptResult:
    """Write search.json (the settings for searches), report.html, and adapt.json with the verdict; return a result."""
    folder: Path = options.output
    prompt_name = options.prompt_name[0] if options.prompt_name else None
    settings = SearchSettings(
        vectors=str(folder / VECTORS),
        model=str(folder / MODEL),
        weight=decision.weight,
        stemmer=options.bm25_stemmer,
        k1=decision.verdict.k1,
        b=decision.verdict.b,
        prompt_name=prompt_name,
        id_field=options.id_field,
    )
    write_collection(folder, settings)
    prompts = Prompts.read(folder / MODEL).sides(options.prompt_name)
    title = options.titles[0] if options.titles else None
    originals = find_originals(decision.verdict, folder / VECTORS, title, record.content.get(ORIGINALS, {}))
    found = {**decision.to_json(), "model": reference(source(decision, options)), "prompts": prompts._asdict()}
    found[ORIGINALS] = originals
    found["share"] = share_of(options.trained) if decision.share is None else decision.share
    record.content |= found
    record.save()
    origin = "the trained model" if decision.model == TRAINED else f"{reference(source(decision, options))}, unchanged"
    metrics = options.exported.parent / METRICS
    updated = remark(record, decision.verdict.num_collection)
    shown = with_originals(decision.verdict, originals)
    page = report.write(
        folder, shown, decision.other, metrics=metrics, origin=origin, steps=record.commands, remark=updated
    )
    return AdaptResult(decision, folder, origin, prompts, page, updated)
