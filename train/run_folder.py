"""The folder of a run: its files, and the check whether it holds the run that a recipe describes.

    OUTPUT/recipe.yaml   the recipe with all its values
    OUTPUT/inputs.json   a hash of each file and dataset that the run reads, by recipe key; whether the run has finished
                         and, if so, the hash of its metrics.jsonl; and a hash of all of these
    OUTPUT/model/        the exported model, a checksummed folder

    recipe, OUTPUT ──> the state of the run (new, halted or finished), or a RecipeError that names what differs

This module imports neither torch nor DeepSpeed, so that `clearspan train` and `clearspan.train_model` can refuse a
folder before they start processes that import both.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from clearspan.common import files, terminal
from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.checksummed_folder import FolderChangedError, check_folder, set_aside
from clearspan.common.encoder.fingerprint import OTHERS, digest, model_sha256
from clearspan.common.hub import is_reference, model_folder
from clearspan.common.model_folder import EncoderError, read_json
from clearspan.common.records import MissingDataError
from clearspan.shards import Dataset
from clearspan.train.config.keys import naming
from clearspan.train.config.options import HELD_OUT, LORA, Recipe, RecipeError, refuse
from clearspan.train.config.resume_policy import blocking_keys, differing, dotted, matches
from clearspan.train.recipe import is_written, load_saved, to_file

RECIPE, INPUTS, CHECKPOINTS, MODEL = "recipe.yaml", "inputs.json", "checkpoints", "model"
METRICS = "metrics.jsonl"
"""Names in a run's folder. The exported model is a checksummed folder of the kind MODEL."""
INFERENCE = "inference.json"
"""The file, in the folder `encoder` of a run, that says how the exported model embeds texts."""
ADAPTER = "adapter"
"""The folder in a model folder that holds the LoRA adapter which was merged into its weights."""
TAG = re.compile(r"step-(\d{8,})")
DATASETS = ("data.*.path", "data.*.validation")
FILES = ("model.path", "data.*.modality.path", "objectives.*.synonyms", "training.eval_data")
"""Recipe keys whose values are paths that a run reads: DATASETS lists the paths of datasets, FILES the other paths."""


def tags(run: Path) -> list[str]:
    """Return the names of a run's checkpoints, such as `step-00000100`, newest first."""
    matches = (TAG.fullmatch(path.name) for path in (run / CHECKPOINTS).glob("step-*"))
    return [match[0] for match in sorted(filter(None, matches), key=lambda match: -int(match[1]))]


def dataset_sha256(folder: str | Path) -> str:
    """Return one hash of what a dataset's manifest lists: the hashes of the shards, in order, and of the resources.

    Resources are included because they change the training input while the shards stay the same: the tokenizer adds the
    special tokens, which shards do not hold, and the table of synonyms is used to make views.

    Raises:
        ManifestError, OSError: the manifest cannot be read.
    """
    dataset = Dataset(folder)
    shards = [[shard.sha256, shard.examples] for shard in dataset.shards]
    return digest(shards=shards, resources=dataset.manifest.resources)


def inputs(recipe: Recipe) -> dict[str, str]:
    """Return recipe key -> hash of the dataset, file or model folder that a run reads under this key.

    Keys without a value are left out. For `training.eval_data: heldout`, the word `heldout` takes the place of a hash,
    because the held-out texts already have one under `data.NAME.validation`.

    Raises:
        RecipeError: a file or a model folder cannot be read.
        ManifestError, OSError: a dataset cannot be read.
    """
    read = {}
    for key, value in dotted(dataclasses.asdict(recipe)).items():
        if value and matches(key, FILES):
            read[key] = _file_sha256(key, value)
        elif value and matches(key, DATASETS):
            read[key] = dataset_sha256(value)
    return read


def _file_sha256(key: str, value: str) -> str:
    path = Path(value)
    with naming(key, OSError, MissingDataError):
        if key == "training.eval_data":
            if value == HELD_OUT:
                return value  # the texts of data.NAME.validation
            from clearspan.eval.tasks.sts import stsb_dev_file  # here: it takes a second to import

            path = stsb_dev_file(value)
        return model_sha256(path) if path.is_dir() else files.sha256(path)


def _read_state(run: Path) -> dict[str, Any]:
    """Return the content of a run's inputs.json.

    It has the keys `inputs` (recipe key -> hash of what the run read), `finished` (whether the run has finished) and
    `metrics.jsonl` (the hash of this file when the run finished; None before).

    Raises:
        RecipeError: the file is missing or damaged.
    """
    path = run / INPUTS
    with contextlib.suppress(OSError, ValueError):
        state = load_checksummed(path.read_bytes())
        if isinstance(state.get("inputs"), dict):
            return {METRICS: None, **state}
    raise RecipeError(f"{path}: missing or damaged, so this run's data cannot be compared: start a new run")


def mark_finished(run: Path) -> None:
    """Record in a run's inputs.json that the run has finished, and the hash of its metrics.jsonl."""
    metrics = run / METRICS
    state = {**_read_state(run), "finished": True, METRICS: files.sha256(metrics) if metrics.is_file() else None}
    files.write_bytes(run / INPUTS, dump_checksummed(state, indent=2))


def check_metrics(run: Path) -> None:
    """Check that the metrics.jsonl of a run has not changed since the run finished.

    If inputs.json holds no hash of the file, as before the end of a run, nothing is checked.

    Raises:
        RecipeError: metrics.jsonl is missing or has changed, or inputs.json is missing or damaged.
    """
    path, stated = run / METRICS, _read_state(run)[METRICS]
    if stated is not None and not (path.is_file() and files.sha256(path) == stated):
        raise RecipeError(f"{path}: missing or changed since the run ended: put it back, or delete {run}")


def check_adapted(run: Path) -> None:
    """Check that the model that a run with `model.train: lora` adapts is as the run read it.

    Checkpoints of such a run lack its weights, which the export needs. Nothing is checked for other runs.

    Args:
        run: the run's folder.

    Raises:
        EncoderError: the model of `model.path` is missing, has changed, or cannot be fetched.
        RecipeError: inputs.json is missing or damaged.
    """
    model = yaml.safe_load((run / RECIPE).read_text())["model"]
    if model.get("train") != LORA:
        return
    base = read_json(run / "encoder" / INFERENCE)["base"]
    path = Path(model_folder(model["path"]) if is_reference(model["path"]) else base)
    if not path.is_dir() or model_sha256(path) != _read_state(run)["inputs"].get("model.path"):
        raise EncoderError(
            f"model.path {path}: missing or changed since {run} read it, and the checkpoints hold its adapter only: "
            "put it back"
        )


def check_model(model: Path) -> None:
    """Check that an exported model has not changed since its export.

    Files that cannot affect embeddings, such as a README, may change.

    Args:
        model: the folder of the exported model.

    Raises:
        FolderChangedError: a file is missing, has changed or was added.
    """
    check_folder(model, MODEL, unchecked_suffixes=OTHERS)


def set_aside_model(run: Path) -> None:
    """Rename the exported model of a finished run if it is damaged, so that the run exports the model again.

    The folder `model` becomes `model.damaged`. If the run has not finished, or has no folder `model`, nothing is done.
    """
    model = run / MODEL
    if not model.is_dir() or not _read_state(run)["finished"]:
        return
    try:
        check_model(model)
    except FolderChangedError as error:
        terminal.notice(f"{error}: moved to {set_aside(model)}, and exported again from the checkpoint")


def repeated(recipe: Recipe) -> Literal["new", "halted", "finished"]:
    """Return the state of the run in a recipe's output folder, so that a command can train it, resume it or skip it.

    `new`: there is no checkpoint yet. `halted`: there is a checkpoint, but the run has not finished, or its exported
    model is damaged. `finished`: the run has finished, and its model is undamaged.

    Raises:
        RecipeError: the folder holds a run with a different recipe (even if only its length differs) or with different
            data, or it holds files that no run wrote.
        ManifestError, OSError: a dataset cannot be read.
    """
    run = Path(recipe.output)
    check(recipe, resume=True)
    if not tags(run):
        return "new"
    differences = differing(load_saved(run / RECIPE, recipe), recipe)
    if changed := [key for key in differences if not matches(key, ["data.*.path"])]:  # `check` compares the content
        mend = "name another output, or continue it with `resume`"
        raise RecipeError(f"output {run}: the run in it has another {', '.join(changed)} (see {run / RECIPE}): {mend}")
    if not _read_state(run)["finished"]:
        return "halted"
    try:
        check_model(run / MODEL)
    except FolderChangedError:  # the run goes on, and exports it again
        return "halted"
    return "finished"


def check(recipe: Recipe, resume: bool) -> None:
    """Check that a run can start, or resume, in the output folder of a recipe.

    Args:
        recipe: the recipe of the run.
        resume: if true, the folder may hold a run with checkpoints, which then must be the run of this recipe. If
            false, a folder with a checkpoint is an error.

    Raises:
        RecipeError: the folder cannot be made or written to, or holds files that no run wrote; it holds a run with a
            checkpoint although `resume` is false; or the run to resume has a different recipe or read different data.
        ManifestError, OSError: a dataset of the run to resume cannot be read.
    """
    run = Path(recipe.output)
    check_writable(run)
    if tags(run) and resume:
        _check_same(run, recipe)
    elif tags(run):
        raise RecipeError(f"output {run}: holds a run already; continue it with `resume`, or name another folder")
    elif run.is_dir():
        _check_written(run)


def other_tokenizer(folder: Path, named_by: str = "model.path") -> str:
    """Return the error message for a model whose tokenizer is not the one that the shards were made with.

    Args:
        folder: the folder of the model.
        named_by: the recipe key or the option by which the user named the folder.
    """
    return (
        f"{named_by} {folder}: its tokenizer is not the one the shards were made with: run the pipeline with "
        f"`tokenizer` {folder}"
    )


def with_tokenizer(datasets: Mapping[str, Dataset]) -> Dataset:
    """Return the first text dataset, whose tokenizer the run uses.

    Args:
        datasets: name of a dataset in the recipe -> dataset, of any kind.

    Raises:
        RecipeError: two text datasets have different tokenizers, or there is no text dataset.
    """
    texts = {name: dataset for name, dataset in datasets.items() if dataset.manifest.tokenizer is not None}
    if not texts:
        raise RecipeError("data: no dataset holds text, whose tokenizer the model needs: add one")
    first = next(iter(texts))
    for name, dataset in texts.items():
        if dataset.manifest.tokenizer != texts[first].manifest.tokenizer:
            raise RecipeError(
                f"data.{name}: was made with another tokenizer than data.{first}: a run has one tokenizer"
            )
    return texts[first]


def save(recipe: Recipe) -> None:
    """Write recipe.yaml and inputs.json into the output folder of a run that starts or resumes.

    inputs.json then states that the run has not finished.
    """
    files.write_bytes(Path(recipe.output) / RECIPE, to_file(recipe))
    state = {"finished": False, "inputs": inputs(recipe)}
    files.write_bytes(Path(recipe.output) / INPUTS, dump_checksummed(state, indent=2))


def check_writable(run: Path) -> None:
    """Raise RecipeError if a run's output folder cannot be made or cannot be written to."""
    file = files.file_in_way(run.absolute())
    existing = next(path for path in (run.absolute(), *run.absolute().parents) if path.exists())
    refuse(
        (file is not None, f"output {run}: {file} is a file, not a folder: name a new or an empty folder"),
        (not os.access(existing, os.W_OK), f"output {run}: {existing} cannot be written to: name another folder"),
    )


def _check_same(run: Path, recipe: Recipe) -> None:
    """Raise RecipeError if the run in a folder cannot be resumed with a recipe.

    That is so if the run's recipe.yaml or inputs.json is missing, if its recipe differs in a key that shapes the
    training, if the recipe lists its datasets or objectives in another order, or if a dataset or file has changed since
    the run read it.

    Args:
        run: the output folder.
        recipe: the recipe of the command that would resume the run.
    """
    saved = run / RECIPE
    if not saved.is_file():
        raise RecipeError(
            f"{saved}: missing, so this run's recipe cannot be compared: put the file back, or the recipe that "
            f"`dry_run` prints"
        )
    started_with = load_saved(saved, recipe)
    if changed := blocking_keys(started_with, recipe):
        raise RecipeError(
            f"output {run}: the run in it has another {', '.join(changed)}; see {saved}, or start a new run"
        )
    if any(list(getattr(started_with, part)) != list(getattr(recipe, part)) for part in ("data", "objectives")):
        raise RecipeError(
            f"output {run}: the run in it has its data or objectives in another order, which changes the results; "
            f"see {saved}, or start a new run"
        )
    read, reads, values = _read_state(run)["inputs"], inputs(recipe), dotted(dataclasses.asdict(recipe))
    for key in {**reads, **read}:
        if read.get(key) != reads.get(key):
            reason = f"is no longer what the run in {run} read: put it back, or start a new run"
            raise RecipeError(f"{key} {values[key] or '(none)'}: {reason}")


def _check_written(run: Path) -> None:
    """Raise RecipeError if a folder without checkpoints holds files that no run wrote.

    The folder passes if it is empty. It also passes if it holds a recipe.yaml that nobody has changed since a run wrote
    it, but no folder `model`. Hidden files are ignored.
    """
    names = sorted(path.name for path in run.iterdir() if not path.name.startswith("."))
    if names and (MODEL in names or not ((run / RECIPE).is_file() and is_written(run / RECIPE))):
        other = MODEL if MODEL in names else names[0]
        raise RecipeError(f"output {run}: holds other files ({other}): name a new or an empty folder")
