"""Deliver the winner: DIR/model, DIR/search.json, the report and the lines of the verdict.

The model is copied before the collection is embedded with it. If a later call adds questions and another model wins,
the old copy is replaced together with its vectors.
"""

import shlex
import shutil
from pathlib import Path
from typing import Any

from clearspan.adapt import report
from clearspan.adapt.options import Adapt
from clearspan.adapt.outcome import Outcome
from clearspan.adapt.state import save
from clearspan.adapt.steps import VECTORS
from clearspan.common import files, terminal
from clearspan.common.encoder.prompts import Prompts
from clearspan.common.sealed_folder import set_aside
from clearspan.eval.verdict import TRAINED
from clearspan.pipelines.search.collection import SearchSettings, write_collection

MODEL, METRICS = "model", "metrics.jsonl"


def source(outcome: Outcome, options: Adapt) -> Path:
    """Return the folder of the model that is delivered."""
    return options.trained if outcome.model == TRAINED else options.untrained[outcome.model]


def deliver(outcome: Outcome, state: dict[str, Any], options: Adapt) -> None:
    """Copy the model of the outcome to DIR/model."""
    folder, model = options.output / MODEL, source(outcome, options)
    if state.get("delivered", outcome.model) != outcome.model:
        terminal.notice(f"{folder}: the verdict is another one: {outcome.model} in place of {state['delivered']}")
        for stale in (folder, options.output / VECTORS):
            shutil.rmtree(stale, ignore_errors=True)
        state["steps"].pop("embed", None)
    copy(model, folder)
    state["delivered"] = outcome.model
    save(options.output, state)


def copy(model: Path, folder: Path) -> None:
    """Copy a model folder to `folder`, unless the copy is there already; first move a different copy out of the way."""
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


def announce(outcome: Outcome) -> None:
    """Print the verdict."""
    for line in report.lines(outcome.verdict, outcome.other, shutil.get_terminal_size((100, 24)).columns):
        terminal.say(line)


def finish(outcome: Outcome, state: dict[str, Any], options: Adapt) -> None:
    """Write the files that a search needs, the report and the verdict; print their paths."""
    folder: Path = options.output
    prompt_name = options.prompt_name[0] if options.prompt_name else None
    settings = SearchSettings(
        vectors=str(folder / VECTORS),
        model=str(folder / MODEL),
        weight=outcome.weight,
        stemmer=options.stemmer,
        prompt_name=prompt_name,
        id_field=options.id_field,
    )
    write_collection(folder, settings)
    prompts = Prompts.read(folder / MODEL).sides(options.prompt_name)
    found = {**outcome.to_json(), "model": str(source(outcome, options)), "prompts": prompts._asdict()}
    save(folder, {**state, **found})
    origin = "the trained model" if outcome.model == TRAINED else f"{source(outcome, options)}, unchanged"
    metrics, steps = options.trained.parent / METRICS, state["steps"]
    page = report.write(folder, outcome.verdict, outcome.other, metrics=metrics, origin=origin, steps=steps)
    if any(prompts):
        terminal.say(f"its prompts: {prompts}")
    terminal.say(f"{folder / MODEL} is {origin}; report: {page}")
    name = shlex.quote(str(folder))
    terminal.say(f'clearspan search {name} "..." searches the texts, clearspan serve {name} on a page')
