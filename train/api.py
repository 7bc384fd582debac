"""Training from Python: `clearspan train` in a process of its own, for one device or many.

recipe, overrides ──as JSON──> the command `Train` in another process ──> output folder ──> Run

A separate process makes this work in a notebook: the launcher starts a process for each device; DeepSpeed,
torch.distributed and the signal handlers of a run change global state, so that a process can train only once; and the
device's memory is free when the run ends.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clearspan.common import terminal
from clearspan.common.options import from_keywords
from clearspan.common.plain_json import Option
from clearspan.common.spawned import call
from clearspan.common.terminal import UsageError
from clearspan.common.typed import MismatchError, check_argument, checked, conform
from clearspan.train import recipe as recipes
from clearspan.train.config.keys import convert, finite, naming
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.curves import NEVER_BETTER, never_better
from clearspan.train.request import EXPECTED, TRAIN, LauncherOptions, TrainOptions
from clearspan.train.run_folder import METRICS, repeated

Overrides = Mapping[str, object] | str | Iterable[str]
"""Recipe keys with their values: {"training.max_steps": 100}, or ["training.max_steps=100"] as on the command line."""
Plain = bool | int | float | str | Path | None
"""Values of a recipe key that are neither a list nor a mapping."""


class TrainingError(RuntimeError):
    """Training failed. The message is the one that `clearspan train` printed in its own process."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The output folder of a training run."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(check_argument("folder", str | Path, self.folder)))

    @property
    def model(self) -> Path:
        """The folder of the exported model, which sentence-transformers can load; it exists once the run has ended."""
        return self.folder / "model"

    def metrics(self) -> list[dict[str, Any]]:
        """Return the logged metrics: a list with one dictionary for each logged step."""
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]


@checked
def load_recipe(name_or_file: str | Path, overrides: Overrides = ()) -> Recipe:
    """Load a recipe, and check every value.

    Args:
        name_or_file: a name that `clearspan train --list` prints, or the path of a recipe's file.
        overrides: recipe keys to change, with their values: {"training.max_steps": 100}, or texts as on the command
            line, ["training.max_steps=100"].

    Raises:
        RecipeError: there is no such recipe, a key is unknown, or a value cannot work.
    """
    return recipes.load_recipe(str(name_or_file), assignments(overrides))


@checked
def train_model(
    recipe: Recipe | str | Path,
    overrides: Overrides = (),
    *,
    resume: bool = False,
    dry_run: bool = False,
    quiet: bool = False,
    **launcher: Option,
) -> Run:
    """Train an encoder, and export it to `OUTPUT/model`.

    An interrupt (Ctrl-C, or the notebook's button) lets the run finish its step and save. The same call continues it,
    and trains nothing if the run has finished. If the output folder holds a run of another recipe or of other data, an
    error is raised.

    Args:
        recipe: a recipe, its name, or its file.
        overrides: recipe keys to change, with their values: {"training.max_steps": 100}, or texts as on the command
            line, ["training.max_steps=100"].
        resume: continue the run in the output folder even if the recipe differs in keys that a resumed run may change,
            such as the length of the run.
        dry_run: print the resolved recipe, parameters, token budget and memory, and train nothing.
        quiet: print nothing.
        launcher: options of the launcher (`clearspan train --help`), such as `num_accelerators=2`.

    Raises:
        UsageError: the launcher has no such option, or a recipe cannot have a value of this type.
        RecipeError: the recipe, the data and the model do not go together, or the output folder holds another run.
        ManifestError, OSError: the output folder holds a run, but a dataset of the recipe cannot be read, so that it
            cannot be compared with the run's dataset.
        TrainingError: the run failed, or SIGTERM or `training.max_hours` stopped it; it has saved a checkpoint then.
    """
    changes = assignments(overrides)
    devices = from_keywords(LauncherOptions, launcher)
    if isinstance(recipe, Recipe):
        recipe = json.dumps(convert("", recipes.stated(recipe), _plain))
    loaded = recipes.load_recipe(str(recipe), changes)
    if not resume and (state := repeated(loaded)) != "new":
        resume = True
        if state == "finished" and not dry_run:
            if not quiet:
                said = f"; {NEVER_BETTER}" if never_better(Path(loaded.output) / METRICS) else ""
                terminal.notice(f"{loaded.output}: this run has finished already: nothing to do{said}")
            return Run(Path(loaded.output))
    named = {"recipe": str(recipe), "overrides": (*changes, *recipes.pinned(loaded))}
    options = TrainOptions(**named, resume=resume, dry_run=dry_run, quiet=quiet)  # type: ignore[arg-type]
    try:
        call(TRAIN, options, devices, expected=(RecipeError, *EXPECTED), quiet=quiet)
    except UsageError:
        raise
    except EXPECTED as error:
        raise TrainingError(str(error)) from None
    return Run(Path(loaded.output))


@checked
def export_model(run: Run | str | Path, output: str | Path, checkpoint: str | None = None) -> Path:
    """Export a checkpoint of a run as a model folder, and return the path of that folder.

    Args:
        run: the run, or the path of its output folder.
        output: the path of the model folder to write.
        checkpoint: `best` or `last`; None for the best checkpoint, or for the last one if no best one was chosen.

    Raises:
        CheckpointError, EncoderError: the folder is not the folder of a run, its checkpoint cannot be used, or `output`
            holds files that no export wrote.
    """
    from clearspan.train.export import export

    export(run.folder if isinstance(run, Run) else Path(run), Path(output), checkpoint)
    return Path(output)


def assignments(overrides: Overrides) -> list[str]:
    """Return recipe keys and values as on the command line: a list of `key=value`.

    Args:
        overrides: a mapping from keys to values, which are written as JSON; or one or several texts `key=value`, which
            are returned unchanged. JSON is valid YAML, in which a str stays a string, even "true" or "shards #1".
    """
    if isinstance(overrides, Mapping):
        return [_assignment(key, value) for key, value in overrides.items()]
    return [overrides] if isinstance(overrides, str) else list(overrides)


def _assignment(key: str, value: object) -> str:
    """Return a recipe key and its value as `key=value` with the value as JSON; raise UsageError if JSON lacks it."""
    plain = convert(key, value, lambda place, scalar: finite(place, _plain(place, scalar)))
    with naming(key):  # Python writes no integer of more than 4,300 digits
        return f"{key}={json.dumps(plain, ensure_ascii=False)}"


def _plain(key: str, value: object) -> object:
    """Return a scalar of a recipe for JSON or YAML: a numpy number as a Python number, and a path as a str.

    Raises:
        UsageError: they cannot represent the value; the message names the key.
    """
    try:
        plain = conform(value, Plain)
    except MismatchError as error:
        raise UsageError(error.message(key)) from None
    return str(plain) if isinstance(plain, Path) else str.__str__(plain) if isinstance(plain, str) else plain
