"""Adapting from Python: `clearspan adapt` in a process of its own.

inputs, model, options, recipe keys ──> python -m clearspan.adapt ──> output folder ──> Adapted
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clearspan.adapt.options import Adapt
from clearspan.adapt.state import STATE
from clearspan.common.child_commands import Option, run_module
from clearspan.common.options import checked_words
from clearspan.common.terminal import UsageError
from clearspan.common.typed import checked
from clearspan.train.api import Overrides, assignments


@dataclasses.dataclass(frozen=True)
class Adapted:
    """The result of `adapt`.

    Attributes:
        folder: the output folder; `report.html` in it has all scores.
        verdict: `better`, `worse` or `no difference`: the best system with the trained model, compared with the best
            system that needs no training.
        winner: name of the system to take, such as `trained + BM25`, `BM25` or `all-MiniLM-L6-v2 + BM25`.
        weight: the weight of the winner's model when combined with BM25: 0 for BM25 alone, None for the model alone.
        difference: the MRR of the best system with the trained model, minus the MRR of the best system that needs no
            training, in percentage points.
        low, high: the ends of the 95 % interval of the difference.
        task: the kind of queries: `titles`, `crops` of texts without titles, or `questions`.
        num_queries: number of queries with which the systems were compared.
        num_texts: number of texts that are ranked for each query.
        mrr: name of each system, best first -> its MRR in percent.
        others: the results of the second verdict, which did not decide, under the name of its kind of queries, e.g.
            `{"questions": {"difference": 2.1, ...}}`. Empty if you gave no questions.
        sentence: the outcome in words.
    """

    folder: Path
    verdict: str
    winner: str
    weight: float | None
    difference: float
    low: float
    high: float
    task: str
    num_queries: int
    num_texts: int
    mrr: Mapping[str, float]
    others: Mapping[str, Mapping[str, Any]]
    sentence: str

    @property
    def model(self) -> Path:
        """The folder of the winner's model, or of the best untrained model if BM25 alone wins."""
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
        output: a new or empty folder, or the folder of the same call to continue.
        model: the folder of a sentence-transformers model, or `static:FOLDER` for a static encoder that is initialized
            with the vectors of the model in FOLDER. None trains a static encoder from the texts alone.
        overrides: recipe keys to change: a dictionary, or texts of the form `key=value`.
        quiet: print nothing.
        options: options of `clearspan adapt --help` by their names with underscores: `fields="title,body"`,
            `holdout_fraction=0.2`. `update=True` brings a finished folder up to date with changed inputs.

    Raises:
        UsageError: an option is unknown or cannot work, or another call wrote the output folder.
        CommandError: a step failed; the message says why and what to do.
    """
    if unusable := options.keys() & {"dry_run", "help", "version", "input"}:
        raise UsageError(f"{min(unusable)} is an option of the command `clearspan adapt` alone")
    keys = assignments(overrides)
    if wrong := [key for key in keys if key.startswith("-") or "=" not in key]:
        raise UsageError(f"overrides: {wrong[0]}: is no recipe key with a value, such as training.epochs=3")
    listed = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    given = {"overrides": keys, "input": listed, "output": output, "model": model, "quiet": quiet, **options}
    run_module("clearspan.adapt", checked_words(Adapt, given), quiet)
    state = json.loads((Path(output) / STATE).read_text(encoding="utf-8"))
    result = {field.name: state[field.name] for field in dataclasses.fields(Adapted) if field.name != "folder"}
    return Adapted(Path(output), **result)
