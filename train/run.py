"""Train a sentence encoder: `clearspan train --recipe NAME-or-FILE [key=value ...]`, or `deepspeed train/run.py ...`.

Read the recipe, build the model and the stream of examples, train, and export the best checkpoint (else the last one)
to OUTPUT/model. `--resume` continues a run; its length and its settings of logging, saving and evaluation may change.
`--dry-run` makes every check that a run makes before its first step, prints the resolved recipe and the run's cost, and
does not train.
"""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

# `deepspeed train/run.py` puts train/ first, where its data/, model/ or config/ could hide a user's module.
sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]

from clearspan.common import commands, files, terminal  # noqa: E402
from clearspan.common.options import Flag, Options, run  # noqa: E402
from clearspan.train.engine.signals import leave_to_rank_0  # noqa: E402

if TYPE_CHECKING:
    from clearspan.train.data.batch import Batch
    from clearspan.train.data.feed import Feed
    from clearspan.train.engine.loop import Trainer
    from clearspan.train.learner import Learner
    from clearspan.train.options import Recipe
    from clearspan.train.selection.validation import HeldOut

EXAMPLE = """examples:
  clearspan train --recipe declutr-small data.text.path=data/train output=runs/declutr-small model.path=MODEL
  clearspan train --num_accelerators 2 --recipe my-recipe.yaml data.text.batch_size=64
  clearspan train --recipe declutr-base data.text.path=data/train output=runs/try model.path=MODEL --dry-run
"""


NOTHING_PICKS = (
    "training.eval_data and data.NAME.validation are not set: no score picks a checkpoint, the last is exported; to "
    "pick the best, give SentEval's folder, a csv of scored pairs, or held-out examples"
)


RESUME = "continue from the last complete checkpoint in the output folder, or start if there is none"
DRY_RUN = "print the recipe, its parameters, device, data, token budget, memory and time; no training"


@dataclass(frozen=True, kw_only=True)
class Training(Options):
    """The command `train`, as each rank has it."""

    overrides: Annotated[
        tuple[str, ...],
        Flag("recipe keys to change, e.g. data.text.batch_size=32", "key=value", positional=True),
    ] = ()
    recipe: Annotated[str, Flag("a recipe of --list, or a YAML file of your own", "NAME-or-FILE")] = ""
    list: Annotated[bool, Flag("list the recipes, and exit")] = False
    resume: Annotated[bool, Flag(RESUME)] = False
    dry_run: Annotated[bool, Flag(DRY_RUN)] = False
    quiet: Annotated[bool, Flag("no progress bar, no metrics on the terminal")] = False
    local_rank: Annotated[int, Flag(argparse.SUPPRESS, name="--local_rank")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.recipe and not self.list:
            raise ValueError("the following arguments are required: --recipe")


def words(options: Training) -> list[str]:
    """Return the command line of the options."""
    switches = {"resume": options.resume, "dry_run": options.dry_run, "quiet": options.quiet}
    return [*commands.words({"recipe": options.recipe, **switches}), *options.overrides]


@contextlib.contextmanager
def output(recipe: "Recipe", resume: bool, dry_run: bool = False) -> Iterator[bool]:
    """Check the run's folder, lock it for this run, and save the resolved recipe and what the run reads in it; yield
    whether there is a checkpoint to resume from. A run that was killed before its first checkpoint starts over.

    A dry run makes the same checks, but neither makes the folder nor writes to it.

    Raises:
        RecipeError: see `run_folder.check`.
        CheckpointError: OUTPUT/model holds something that an export must not replace.
        InUseError: another run has locked the folder.
    """
    from clearspan.train.export import check_replaceable
    from clearspan.train.run_folder import MODEL, check, check_writable, save, tags

    run = Path(recipe.output)
    check_writable(run)
    with contextlib.nullcontext() if dry_run and not run.is_dir() else files.locked(run):
        check(recipe, resume)
        resume = resume and bool(tags(run))
        check_replaceable(run / MODEL)
        if not resume and not dry_run:  # a resumed run saves its recipe once its checkpoint is known to fit
            save(recipe)
        yield resume


def notes(recipe: "Recipe", learner: "Learner", feed: "Feed", held_out: "HeldOut | None", total: int) -> list[str]:
    """Return the notes of the encoder, datasets, objectives and held-out examples for a run of `total` steps."""
    from clearspan.common.model_folder import some
    from clearspan.train.model.attention import VARLEN_DROPOUT

    lines: list[str] = learner.encoder.notes + feed.notes(total)
    for objective in (each for turn in learner.turns for each in learner.of_turn(turn)):
        lines += objective.notes(total / feed.streams[objective.data].steps_per_epoch)
    if recipe.training.eval_steps and not recipe.training.eval_data:
        lines += held_out.notes() if held_out else [NOTHING_PICKS]
    for name, data in recipe.data.items():
        if data.validation and not (held_out and name in held_out.streams):
            lines.append(f"data.{name}.validation: fewer examples than are contrasted with each other, so no losses")
    if new := learner.encoder.new_weights:
        lines.append(f"{recipe.model.path}: has no masked-LM head; a new one is drawn: {some(new)}")
    if learner.static and learner.encoder.attention_dropout and not VARLEN_DROPOUT:
        slow = "this torch has no variable-length attention with dropout, so attention is padded and slow"
        lines.append(f"model: {slow}; use another torch, or a model without dropout in its attention")
    return lines


def train(options: Training) -> None:
    """Check everything that can be checked, then train and export; with `--dry-run` only check and print.

    Raises:
        RecipeError: the recipe cannot work with its data, model or device.
    """
    import torch

    from clearspan.common.allocator import keep_tensors
    from clearspan.shards import Dataset
    from clearspan.train.build import build_feed, build_held_out, build_learner
    from clearspan.train.card import facts
    from clearspan.train.config.recipe import load, to_yaml
    from clearspan.train.engine.loop import Trainer, total_steps
    from clearspan.train.engine.precision import check_ranks, resolve_precision
    from clearspan.train.engine.ranks import agreed, join_ranks
    from clearspan.train.engine.tracking import check_wandb
    from clearspan.train.estimate import describe
    from clearspan.train.export import SKELETON, save_skeleton
    from clearspan.train.options import RecipeError
    from clearspan.train.run_folder import save
    from clearspan.train.selection.dev_score import evaluator

    recipe = load(options.recipe, options.overrides)
    check_wandb(recipe.training.wandb)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    precision = resolve_precision(recipe, options.resume)
    static = torch.cuda.is_available() and recipe.training.bf16 is True
    learner, tokenizer, sizes = build_learner(recipe, datasets, ranks, static)
    if static and recipe.training.compile:
        learner.encoder.compile_static(repeats=recipe.training.gradient_norms)
    for name, dataset in datasets.items():
        if dataset.manifest.tokenizer is not None and learner.encoder.config.vocab_size < dataset.vocab_size:
            raise RecipeError(
                f"data.{name}.path {dataset.folder}: its manifest says {dataset.vocab_size:,} token ids, the model has "
                f"{learner.encoder.config.vocab_size:,}: run the pipeline again"
            )
    feed = build_feed(recipe, datasets, learner, rank, ranks)
    total = total_steps(recipe, feed)
    held_out = build_held_out(recipe, datasets, learner, rank, ranks)
    evaluate = evaluator(recipe, datasets, tokenizer, options.quiet)
    keep_tensors()
    if options.dry_run and rank > 0:
        return
    if ranks > 1 and not options.dry_run:
        join_ranks()
        check_ranks(recipe)
    with contextlib.ExitStack() as stack:
        resume = agreed(lambda: stack.enter_context(output(recipe, options.resume, options.dry_run)))
        if rank == 0 and options.resume and not resume:
            terminal.notice(f"{recipe.output}: no checkpoint to resume from: starts from the beginning")
        lines = [*precision, *([] if resume else notes(recipe, learner, feed, held_out, total))] if rank == 0 else []
        if options.dry_run:
            cost = describe(recipe, learner, sizes, feed, held_out, total, ranks)
            terminal.say("\n".join([to_yaml(recipe), cost, *lines]))
            return
        for stream in feed.streams.values() if rank == 0 else ():
            for line in stream.left_out():
                terminal.notice(line)
        for line in lines:
            terminal.notice(line)
        join_ranks()
        show = shower(learner, tokenizer, Path(recipe.output), options.quiet)
        trainer = Trainer(recipe, learner, feed, evaluate, options.quiet, held_out, show)
        for note in trainer.resume() if resume else ():
            if rank == 0:
                terminal.notice(note)
        if resume:
            agreed(lambda: save(recipe))
        validation = held_out.streams if held_out else {}
        known = {**datasets, **{f"{name}.validation": stream.dataset for name, stream in validation.items()}}
        skeleton = Path(recipe.output) / SKELETON
        agreed(lambda: save_skeleton(learner.encoder, tokenizer, skeleton, facts(known)))
        trainer.fit()
        agreed(lambda: finish(trainer))


def shower(learner: "Learner", tokenizer: Any, run: Path, quiet: bool) -> "Callable[[Mapping[str, Batch]], None]":
    """Return the function that writes some examples of a batch to the run's folder as text, and prints a few lines of
    them unless `quiet`.
    """
    from clearspan.train.preview import as_file, examples, in_short

    def show(batch: "Mapping[str, Batch]") -> None:
        if texts := examples(learner, tokenizer, batch):
            files.write_text(run / "examples.txt", as_file(texts))
            for line in in_short(texts) if not quiet else ():
                terminal.notice(line)

    return show


def finish(trainer: "Trainer") -> None:
    """Export a run that is complete, and print how the run ended."""
    from clearspan.train.export import export
    from clearspan.train.run_folder import MODEL, mark_finished

    run = Path(trainer.recipe.output)
    if trainer.step < trainer.total:
        terminal.notice(f"{run}: stopped and saved at step {trainer.step} of {trainer.total}; continue with --resume")
    else:
        exported = export(run, run / MODEL)
        mark_finished(run)
        terminal.notice(f"{run / MODEL}: {exported}, after {trainer.step:,} steps")


def check(options: Training) -> int:
    """Check the recipe, its output folder and its tokenizers before ranks start; return 0, or the exit code after
    printing what is wrong.
    """
    from clearspan.shards import ShardError
    from clearspan.shards.manifest import ManifestError
    from clearspan.train import run_folder
    from clearspan.train.config.recipe import load
    from clearspan.train.options import RecipeError

    try:
        recipe = load(options.recipe, options.overrides)
        run_folder.check(recipe, options.resume)
        run_folder.check_tokenizers(recipe)
        with files.locked(recipe.output) if Path(recipe.output).is_dir() else contextlib.nullcontext():
            return 0
    except (RecipeError, ManifestError, ShardError, OSError) as error:
        return failed(terminal.one_line(error), 2 if isinstance(error, RecipeError) else 1)


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings("ignore", category=FutureWarning)
    remedy = "run it again, with --resume if a checkpoint is there"
    frame = {"name": "train", "remedy": remedy, "description": __doc__, "epilog": EXAMPLE}
    return run(Training, work, argv, "deepspeed train/run.py", (), **frame)


def list_recipes() -> int:
    """Print the recipes; return the exit code."""
    from clearspan.train.reference import catalog

    terminal.say(catalog())
    return 0


def work(options: Training) -> int:
    """Train; return the exit code: 0, 1 if the work failed, 2 if the recipe cannot work."""
    if options.list:
        return list_recipes()
    import torch
    import torch.distributed as dist
    from torch._dynamo.exc import TorchDynamoException

    from clearspan.train.engine.ranks import ReportedElsewhereError, name_accelerator

    name_accelerator()
    from clearspan.common.model_folder import EncoderError
    from clearspan.shards import ShardError
    from clearspan.shards.manifest import ManifestError
    from clearspan.train.data.stream import StreamError
    from clearspan.train.engine.checkpoint import CheckpointError
    from clearspan.train.options import RecipeError

    same_everywhere = (RecipeError, ManifestError, StreamError, FloatingPointError)
    try:
        train(options)
    except ReportedElsewhereError as error:
        return failed("", 2 if issubclass(error.kind, RecipeError) else 1)
    except (*same_everywhere, ShardError, CheckpointError, EncoderError, OSError) as error:
        printed = os.environ.get("RANK", "0") != "0" and isinstance(error, same_everywhere)  # by rank 0
        return failed("" if printed else terminal.one_line(error), 2 if isinstance(error, RecipeError) else 1)
    except dist.DistNetworkError as error:
        reason = str(error).splitlines()[0]
        return failed(f"the ranks cannot connect ({reason}): is the port in use? choose another with --master_port")
    except TorchDynamoException as error:
        reason = terminal.one_line(error)
        return failed(f"the encoder cannot be compiled as one graph ({reason}): set training.compile=false")
    except torch.OutOfMemoryError:
        return failed(
            "the GPU has not enough memory for a step: set training.activation_checkpointing=true, "
            "or see docs/training.md"
        )
    except RuntimeError as error:
        if not lost_rank(error):
            raise
        return failed("another rank ended while this one waited for it; that rank's message gives the reason")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


def failed(problem: str, code: int = 1) -> int:
    """Print the problem that ended the run, if any, after giving rank 0 time to print its own; return the exit code."""
    leave_to_rank_0()
    if problem:
        print(f"train: {problem}", file=sys.stderr)
    return code


def lost_rank(error: RuntimeError) -> bool:
    """Return whether the connection between ranks broke: gloo has no error type for it, but names its source files."""
    from torch.distributed import DistBackendError

    return isinstance(error, DistBackendError) or "/gloo/transport/" in str(error)


if __name__ == "__main__":
    exit_code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code)  # everything is saved; gloo's threads sometimes abort an interpreter that shuts down
