"""Compare the models before and after training, and deliver the better one with the verdict."""

import shutil
from pathlib import Path
from typing import Any

from clearspan.adapt.options import Adapt
from clearspan.adapt.state import save
from clearspan.adapt.steps import AFTER, BASELINES, BEFORE, HYBRID
from clearspan.common import files, terminal
from clearspan.common.encoder.prompts import Sides
from clearspan.common.sealed_folder import set_aside

SCORED = (BEFORE, AFTER, HYBRID, *BASELINES)
FIGURE = "mrr"


def deliver(model: Path, folder: Path) -> None:
    """Copy a model folder to another one, unless the copy is there already; move a copy that differs out of the way."""
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
    copy = folder.with_name(files.temporary_name(folder.name))
    shutil.copytree(model, copy)
    copy.rename(folder)


def verdict(low: float, high: float) -> str:
    """Return what the 95 % interval of the difference after - before says; one that is undefined says nothing."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference"


def finish(options: Adapt, state: dict[str, Any]) -> None:
    """Compare the two models, copy the better one to DIR/model, and print and save the verdict."""
    from clearspan.eval import results
    from clearspan.eval.compare import compare_folders

    folder: Path = options.output
    base = options.base
    row = next(row for row in compare_folders(folder / BEFORE, folder / AFTER).rows if row.metric == FIGURE)
    scores = {name: results.read(folder / name).scores[row.task][FIGURE] for name in SCORED}
    word = verdict(row.low, row.high)
    better = folder / "run" / "model" if word == "better" else base
    deliver(better, folder / "model")
    figures = {"difference": row.difference, "low": row.low, "high": row.high, "mrr": scores, "model": str(better)}
    prompts = {name: results.read(folder / name).environment.get("prompts") for name in (BEFORE, AFTER)}
    save(folder, {**state, "verdict": word, **figures, "prompts": prompts})
    each = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
    interval = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}] (95 % interval)"
    terminal.say(f"{word}: MRR {'of held-out titles' if options.titles else 'on held-out texts'} {interval}; {each}")
    origin = "the trained model" if word == "better" else f"{base}, unchanged"
    if sides := prompts[AFTER if word == "better" else BEFORE]:
        terminal.say(f"its prompts: {Sides(**sides)}")
    terminal.say(f"{folder / 'model'} is {origin}; report: {folder / 'report.html'}")
