"""One rank's part of a training run, from the recipe to the exported model. `train.run` parses the options.

recipe -> datasets, learner, feed, held-out examples -> output folder -> Trainer -> OUTPUT/model

Importing this module imports torch and DeepSpeed, which takes seconds.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.exc import TorchDynamoException

from clearspan.common import files, terminal
from clearspan.common.allocator import keep_tensors
from clearspan.common.answers import STOPPED, Failure, continue_with, report, types_of
from clearspan.common.encoder import flash3
from clearspan.common.encoder.attention import VARLEN_DROPOUT
from clearspan.common.model_folder import EncoderError, abbreviated
from clearspan.common.plugins import PluginError
from clearspan.shards import Dataset, ShardError
from clearspan.shards.manifest import ManifestError
from clearspan.train import run_folder
from clearspan.train.card import dataset_facts
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.config.resume_policy import dotted
from clearspan.train.data.feed import Feed
from clearspan.train.data.stream import StreamError
from clearspan.train.engine import machines
from clearspan.train.engine.checkpoint import CheckpointError
from clearspan.train.engine.loop import Trainer, total_steps
from clearspan.train.engine.precision import check_ranks, resolve_precision
from clearspan.train.engine.ranks import ReportedElsewhereError, agreed, gathered, join_ranks, one_machine
from clearspan.train.engine.signals import PREFIX, leave_to_first_rank, reports
from clearspan.train.export import SKELETON, check_replaceable, export, save_skeleton
from clearspan.train.recipe import load_recipe, to_yaml
from clearspan.train.selection.dev_score import evaluator
from clearspan.train.selection.validation import HeldOutExamples
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed, build_held_out
from clearspan.train.start.estimate import describe
from clearspan.train.start.padding import padding_share
from clearspan.train.step.learner import Learner

NOTHING_PICKS = (
    "training.eval_data and data.NAME.validation are not set: no score picks a checkpoint, the last is exported; to "
    "pick the best, give SentEval's folder, a csv of scored pairs, or held-out examples"
)
SHARED_S = 70
"""The time, in seconds, that a file of rank 0 may take to be seen on other machines; NFS keeps names for 60 seconds."""
NOT_COMPARED = "whether it is better than the model you began with was not measured: set training.eval_data"


@contextlib.contextmanager
def output(recipe: Recipe, resume: bool, dry_run: bool = False) -> Iterator[bool]:
    """Return a context in which the run's folder is locked; at its beginning, check whether the run may use the folder.

    If the run does not resume, recipe.yaml and inputs.json are written too. The context yields True if the run resumes
    from a checkpoint. A run that was killed before its first checkpoint starts from the beginning.

    Args:
        recipe: the recipe, which names the folder (OUTPUT).
        resume: True if the user wants to resume the run in the folder.
        dry_run: True to make the same checks, but neither create the folder nor write the files.

    Raises:
        RecipeError: the folder holds another run, or a run that the recipe cannot continue.
        CheckpointError: OUTPUT/model holds something that an export must not replace.
        InUseError: another run has locked the folder.
    """
    run = Path(recipe.output)
    run_folder.check_writable(run)
    with contextlib.nullcontext() if dry_run and not run.is_dir() else files.locked(run):
        run_folder.check(recipe, resume)
        resume = resume and bool(run_folder.tags(run))
        if resume and not dry_run:
            run_folder.set_aside_model(run)
        check_replaceable(run / run_folder.MODEL)
        if not resume and not dry_run:  # a resumed run saves its recipe once its checkpoint is known to fit
            run_folder.save(recipe)
        yield resume


def check_same_inputs(recipe: Recipe) -> None:
    """Raise RecipeError, on every rank, if the machines train by other recipes or read other inputs.

    Paths may differ where their content is the same. Of each machine, the first rank alone hashes its inputs.
    """
    facts: dict[str, Any] = {}
    if reports():
        read = run_folder.inputs(recipe)
        keys = dotted(dataclasses.asdict(recipe)).items()
        facts = {name: str(value) for name, value in keys if name not in read}
        facts |= {f"what {name} holds": value for name, value in read.items()}
    machines.check_same(facts, gathered, "give all machines the same recipe, model and shards")


def check_shared_output(recipe: Recipe) -> None:
    """Raise RecipeError, on every rank, if a machine does not see what rank 0 wrote into the output folder.

    A network file system may show a new file later; this is waited for.
    """
    path = Path(recipe.output) / run_folder.RECIPE
    written = agreed(lambda: files.sha256(path))

    def seen() -> str:
        with contextlib.suppress(OSError):
            return files.sha256(path)
        return "nothing"

    end = time.monotonic() + SHARED_S
    while (found := seen()) != written and time.monotonic() < end:
        time.sleep(0.2)
    facts = {f"what output {recipe.output} holds": found}
    machines.check_same(facts, gathered, "give all machines one shared folder")


def notes(
    recipe: Recipe, learner: Learner, feed: Feed, held_out: HeldOutExamples | None, total: int, padding: float = 0.0
) -> list[str]:
    """Return lines for the user about a new run, which rank 0 prints before training; [] if there are none.

    They state facts about the encoder, the datasets, the objectives and the held-out examples that the user may not
    expect.

    Args:
        recipe: the recipe of the run.
        learner: the module to train: the encoder and the objectives.
        feed: the streams of the datasets.
        held_out: the held-out examples for the held-out loss; None if there are none.
        total: the number of steps of the run.
        padding: the fraction of padding among the tokens that the encoder computes (`train.start.padding`).
    """
    lines: list[str] = learner.encoder.notes + feed.notes(total)
    if because := learner.encoder.padded_because:
        lines.append(f"{because}: it trains padded, and {padding:.1%} of the tokens of its first batch are padding")
    for objective in (each for turn in learner.turns for each in learner.of_turn(turn)):
        lines += objective.notes(total / feed.streams[objective.data].steps_per_epoch)
    if not recipe.training.eval_data and (recipe.training.eval_steps or recipe.model.path):
        lines += held_out.notes() if held_out else [NOTHING_PICKS]
    for name, data in recipe.data.items():
        if data.validation and not (held_out and name in held_out.streams):
            lines.append(f"data.{name}.validation: fewer examples than are contrasted with each other, so no losses")
    if new := learner.encoder.new_weights:
        lines.append(f"{recipe.model.path}: has no masked-LM head; a new one is drawn: {abbreviated(new)}")
    flashes = learner.static and not learner.encoder.has_position_bias
    if flashes and learner.encoder.attention_dropout and not VARLEN_DROPOUT:
        slow = "this torch has no variable-length attention with dropout, so attention is padded and slow"
        lines.append(f"model: {slow}; use another torch, or a model without dropout in its attention")
    return lines


def train(name_or_file: str, overrides: Sequence[str], resume: bool, dry_run: bool, quiet: bool) -> bool:
    """Train as one rank and export the model, after checking whether the recipe can work.

    Return False if the run was stopped before its last step, and has saved a checkpoint; otherwise True.

    Args:
        name_or_file: the name of a recipe, or the path of its file.
        overrides: settings that replace those of the recipe, each as `key=value`.
        resume: True to resume the run in the output folder.
        dry_run: True to only check the recipe, and print it with an estimate of the cost of the run.
        quiet: True to show no progress.

    Raises:
        RecipeError: the recipe cannot work with its data, model or device.
    """
    if "RANK" in os.environ and not one_machine() and not dry_run:
        join_ranks()  # before the work that may fail on one of them, so that the others are told
        machines.check_same(machines.versions(), gathered, "install the same version on all machines")
    recipe = load_recipe(name_or_file, overrides)
    if machines.several():
        check_same_inputs(recipe)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    precision = resolve_precision(recipe, resume)
    static = torch.cuda.is_available() and recipe.training.bf16 is True
    learner, tokenizer, sizes = build_learner(recipe, datasets, ranks, static)
    encoder = learner.encoder
    static = static and not encoder.padded_because
    flashes = static and not encoder.has_position_bias  # variable-length attention takes no bias
    kernels = flash3.activate(torch.device("cuda"), encoder.attention_dropout) if flashes else ""
    if static and recipe.training.compile:
        encoder.compile_static(several_backwards=recipe.training.gradient_norms)
    feed = build_feed(recipe, datasets, learner, rank, ranks)
    total = total_steps(recipe, feed)
    held_out = build_held_out(recipe, datasets, learner, rank, ranks)
    evaluate = evaluator(recipe, datasets, tokenizer, quiet)
    padding = padding_share(learner, feed)
    keep_tensors()
    if dry_run and rank > 0:
        return True
    if ranks > 1 and not dry_run:
        join_ranks()
        check_ranks(recipe)
    with contextlib.ExitStack() as stack:
        resumes = agreed(lambda: stack.enter_context(output(recipe, resume, dry_run)))
        if machines.several():
            check_shared_output(recipe)
        lines = [line for stream in feed.streams.values() for line in stream.left_out()] + precision
        lines += [kernels] if kernels else []
        lines += [] if resumes else notes(recipe, learner, feed, held_out, total, padding)
        streams = {f"data.{name}": stream for name, stream in feed.streams.items()}
        validation = {f"{name}.validation": stream for name, stream in held_out.streams.items()} if held_out else {}
        if dry_run:
            cost = describe(recipe, learner, sizes, {**streams, **validation}, total, ranks, padding)
            terminal.say("\n".join([to_yaml(recipe), cost, *lines]))
            return True
        if resume and not resumes:
            lines.insert(0, f"{recipe.output}: no checkpoint to resume from: starts from the beginning")
        for line in lines if rank == 0 else ():
            terminal.notice(line)
        join_ranks()
        trainer = Trainer(recipe, learner, feed, evaluate, quiet, held_out)
        for line in trainer.resume() if resumes else ():
            if rank == 0:
                terminal.notice(line)
        if resumes:
            agreed(lambda: run_folder.save(recipe))
        known = {**datasets, **{name: stream.dataset for name, stream in validation.items()}}
        skeleton = Path(recipe.output) / SKELETON
        agreed(lambda: save_skeleton(learner.encoder, tokenizer, skeleton, dataset_facts(known)))
        trainer.fit()
        agreed(lambda: finish(trainer))
        return trainer.step == trainer.total


def finish(trainer: Trainer) -> None:
    """Export the model if the run has made all its steps; report how the run ended. Only rank 0 calls this function."""
    run = Path(trainer.recipe.output)
    if trainer.step < trainer.total:
        steps = f"stopped and saved at step {trainer.step} of {trainer.total}"
        report(Failure(PREFIX, f"{run}: {steps}; {continue_with('resume')}", STOPPED))
    else:
        exported = export(run, run / run_folder.MODEL)
        run_folder.mark_finished(run)
        unknown = bool(trainer.recipe.model.path) and not trainer.judge.picks
        compared = f"; {NOT_COMPARED}" if unknown else ""
        terminal.notice(f"{run / run_folder.MODEL}: {exported}, after {trainer.step:,} steps{compared}")


def work(name_or_file: str, overrides: Sequence[str], resume: bool, dry_run: bool, quiet: bool) -> int:
    """Train as one rank, and report errors.

    Args:
        name_or_file: the name of a recipe, or the path of its file.
        overrides: settings that replace those of the recipe, each as `key=value`.
        resume: True to resume the run in the output folder.
        dry_run: True to only check the recipe, and print it with an estimate of the cost of the run.
        quiet: True to show no progress.

    Returns:
        The exit code: 0 for success; 2 if the recipe cannot work (RecipeError); 130 if the run was stopped before its
        last step, and has saved a checkpoint; 1 after any other error.
    """
    same_everywhere = (RecipeError, ManifestError, StreamError, FloatingPointError)
    try:
        is_finished = train(name_or_file, overrides, resume, dry_run, quiet)
    except ReportedElsewhereError as error:
        return failed(machines.explain() if reports() else "", 2 if issubclass(error.kind, RecipeError) else 1)
    except (*same_everywhere, ShardError, CheckpointError, EncoderError, PluginError, OSError) as error:
        printed = not reports() and isinstance(error, same_everywhere)  # the machine's first rank prints it
        code = 2 if isinstance(error, RecipeError) else 1
        return failed("" if printed else terminal.one_line(error), code, types_of(error))
    except dist.DistNetworkError as error:
        reason = str(error).splitlines()[0]
        return failed(f"the ranks cannot connect ({reason}): is the port in use? choose another with `master_port`")
    except TorchDynamoException as error:
        reason = terminal.one_line(error)
        return failed(f"the encoder cannot be compiled as one graph ({reason}): set training.compile=false")
    except torch.OutOfMemoryError:
        return failed(
            "the GPU has not enough memory for a step: set training.activation_checkpointing=true, "
            "or see docs/training.md"
        )
    except RuntimeError as error:
        # The connection between ranks broke: gloo has no error type for it, but names its source files.
        if not isinstance(error, dist.DistBackendError) and "/gloo/transport/" not in str(error):
            raise
        ended = "another rank ended while this one waited for it; that rank's message gives the reason"
        return failed(machines.explain() or ended)
    finally:
        machines.end()
        if dist.is_initialized():
            dist.destroy_process_group()
    if is_finished:
        return 0
    leave_to_first_rank()
    return STOPPED


def failed(problem: str, code: int = 1, types: tuple[str, ...] = ()) -> int:
    """Report the problem that ended the run; return the exit code `code`.

    Ranks of other machines are told. A rank that is not the first of its machine waits, so that the first one can
    report the problem before the launcher ends all ranks.

    Args:
        problem: one line for the user; "" if another rank reports the problem.
        code: the exit code of this rank.
        types: the names of the error's class and of its base classes, by which the command that started this
            process chooses the type of the exception that it raises; () if there is no error to name.
    """
    machines.tell(problem, code)
    leave_to_first_rank()
    if problem:
        report(Failure(PREFIX, problem, code, types=types))
    return code
