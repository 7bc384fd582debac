"""Adapting from Python: `clearspan adapt` in a process of its own.

inputs, model, options, recipe keys ──> python -m clearspan.adapt ──> output folder ──> Adapted
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from clearspan.adapt.state import STATE
from clearspan.common.commands import CommandError, Option, UsageError, naming_keywords, run_module, words
from clearspan.common.typed import checked
from clearspan.train.api import Overrides, assignments


@dataclasses.dataclass(frozen=True)
class Adapted:
    """The result of `adapt`.

    Attributes:
        folder: the output folder; `report.html` in it has all scores.
        verdict: `better`, `worse` or `no difference`: the trained model against the one before.
        difference: MRR after - before, in points, of finding the text of a held-out title, or without titles one crop
            of a held-out text by another; low, high: its 95 % interval.
        mrr: MRR in percent of `before`, `after`, `hybrid` (after, beside BM25), `tfidf` and `bm25`.
    """

    folder: Path
    verdict: str
    difference: float
    low: float
    high: float
    mrr: Mapping[str, float]

    @property
    def model(self) -> Path:
        """The trained model if it is better, otherwise the one before: a folder that sentence-transformers loads."""
        return self.folder / "model"


@checked
def adapt(
    inputs: str | Path | Iterable[str | Path],
    output: str | Path,
    model: str | Path | None = None,
    overrides: Overrides = (),
    *,
    quiet: bool = False,
    **options: Option,
) -> Adapted:
    """Adapt a model to texts of your own, and measure whether that helped. A call that was stopped continues when it is
    repeated, and one that has finished returns its result again.

    Args:
        inputs: files, folders and globs.
        output: a new or empty folder, or that of the same call to continue.
        model: the folder of a sentence-transformers model, or `static:FOLDER` for a static encoder that begins with its
            vectors; None: a static encoder from the texts alone.
        overrides: recipe keys to change.
        quiet: print nothing.
        options: options of `clearspan adapt --help` by their names with underscores: `fields="title,body"`,
            `holdout_fraction=0.2`.

    Raises:
        UsageError: an option is unknown or cannot work, or the folder is of another call.
        CommandError: a step failed; the message says why and what to do.
    """
    if unusable := options.keys() & {"dry_run", "help", "version", "input"}:
        raise UsageError(f"{min(unusable)} is an option of the command `clearspan adapt` alone")
    keys = assignments(overrides)
    if wrong := [key for key in keys if key.startswith("-") or "=" not in key]:
        raise UsageError(f"overrides: {wrong[0]}: is no recipe key with a value, such as training.epochs=3")
    if isinstance(fields := options.get("fields"), list | tuple):
        options["fields"] = ",".join(map(str, fields))
    given = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    line = words({"input": given, "output": output, "model": model, "quiet": quiet, **options})
    with naming_keywords():
        try:
            run_module("clearspan.adapt", [*keys, *line], "adapt", quiet)
        except CommandError as error:
            if error.code == 2:
                raise UsageError(str(error)) from None
            raise
    state = json.loads((Path(output) / STATE).read_text(encoding="utf-8"))
    result = {field.name: state[field.name] for field in dataclasses.fields(Adapted) if field.name != "folder"}
    return Adapted(Path(output), **result)
