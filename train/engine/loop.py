"""The training loop: one DeepSpeed engine, one forward and one backward a batch, whatever the objectives.

    state -> [micro-batch -> engine -> backward] x K -> clip -> AdamW step -> log, evaluate, save -> next state

With `training.gradient_caching` a forward pass of every micro-batch without gradients precedes them
(`train.gradient_caching`).

With `optimization: alternate` what stands before "log" is done once for each turn, on the same micro-batches.

Everything that decides a step is a function of (recipe, step, state): the learning rate, the examples, spans, views,
masks and dropout. So a run stopped anywhere and resumed repeats the uninterrupted one. Dropout alone is drawn by rank:
on another number of ranks a run goes on with all else the same.
"""

import dataclasses
import hashlib
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearspan.train.config.resume_policy import flat, lengthened
from clearspan.train.data.ahead import copied_ahead
from clearspan.train.data.batch import Batch
from clearspan.train.data.feed import Feed, FeedState, MicroBatch, from_plain, to_plain
from clearspan.train.distributed import autocast, sum_over_ranks, world
from clearspan.train.draws import Purpose, integer_seed
from clearspan.train.engine.checkpoint import CheckpointError, Checkpoints
from clearspan.train.engine.display import Display, device_name
from clearspan.train.engine.gradients import gradient_norms
from clearspan.train.engine.nan_guard import Recent, check_finite, check_limit
from clearspan.train.engine.optimization import AlternatingAdamW, deepspeed_config
from clearspan.train.engine.ranks import agreed
from clearspan.train.engine.signals import deadline, launcher_watch
from clearspan.train.engine.tracking import Clock, Tracker, flops_per_token, layer_weights, peak_flops
from clearspan.train.engine.watching import Watch, watched
from clearspan.train.gradient_caching import Cached
from clearspan.train.learner import Learner
from clearspan.train.objectives import Metrics
from clearspan.train.options import Recipe, RecipeError
from clearspan.train.schedules import WARMED, learning_rate, whole
from clearspan.train.selection.model_selection import SHOWN, Judge
from clearspan.train.selection.validation import HeldOut

# None of DeepSpeed's compiled operations: on a CPU it would build an all-reduce that its inference alone uses, with a
# compiler and in half a minute, and every rank of every run would leave 66 MiB in /dev/shm behind.
deepspeed.ops.__compatible_ops__ = {}


def total_steps(recipe: Recipe, feed: Feed) -> int:
    """`max_steps`, or the steps of `epochs` over the primary dataset's examples that are long enough.

    Raises:
        RecipeError: they are no more than a schedule takes to rise.
    """
    training = recipe.training
    total = training.max_steps or max(1, whole(training.epochs * feed.steps_per_epoch))
    for turn, optimizer in recipe.optimizers().items():
        if optimizer.schedule in WARMED and total <= optimizer.warmup_steps:
            key = "training.max_steps" if training.max_steps else f"training.epochs {training.epochs:g}, with its steps"
            section = f"turns.{turn}" if turn in recipe.turns else "optimizer"
            raise RecipeError(
                f"{key} {total} must be more than {section}.warmup_steps {optimizer.warmup_steps}: set one of the two"
            )
    return total


COUNTS = ("tokens", "tokens_cut", "masks_cut")
"""Metrics that are summed over micro-batches, turns and ranks; of the others the mean is logged."""


def merged(turns: dict[str, Metrics]) -> Metrics:
    """One step's metrics of those of its turns: counts and losses add up, a turn's rate and norm bear its name."""
    if len(turns) == 1:
        return next(iter(turns.values()))
    found: Metrics = {}
    for turn, metrics in turns.items():
        for name, value in metrics.items():
            if name in ("grad_norm", "learning_rate"):
                found[f"{name}/{turn}"] = value
            else:
                found[name] = found[name] + value if name in found else value
    return found


class Trainer:
    """One run, from its first or its last saved step to its end.

    Args:
        evaluate: scores the encoder on rank 0, higher is better. held_out: examples that training leaves out. Without
            both, the last checkpoint is the one to export.
        show: is given the run's first micro-batch, on rank 0.
    """

    def __init__(
        self,
        recipe: Recipe,
        learner: Learner,
        feed: Feed,
        evaluate: Callable[[Learner], float] | None,
        quiet: bool = False,
        held_out: HeldOut | None = None,
        show: Callable[[MicroBatch], None] | None = None,
    ) -> None:
        self.recipe, self.feed, self.quiet, self.show = recipe, feed, quiet, show
        self.judge = Judge(recipe, evaluate, held_out, quiet)
        self.run = Path(recipe.output)
        self.checkpoints = Checkpoints(self.run)
        self.total = total_steps(recipe, feed)
        self.rank, self.ranks = world()
        self.learner = learner
        self.optimizers = recipe.optimizers()
        self.parameters = {turn: learner.parameters_of(turn) for turn in self.optimizers}
        self.optimizer = AlternatingAdamW(self.parameters, self.optimizers)
        self.engine, *_ = deepspeed.initialize(
            model=learner, optimizer=self.optimizer, config=deepspeed_config(recipe, self.ranks)
        )
        self.step, self.state = 0, feed.start()
        self.began_at: float | None = None  # the first logged loss
        self.recent = Recent()
        self.stopping = self._signalled = False
        self.tracker: Tracker | None = None  # on rank 0, in training
        self._pending_stop: tuple[Tensor, Any] | None = None
        self._launcher_gone, self._late = launcher_watch(), deadline(recipe.training.max_hours)

    def resume(self) -> list[str]:
        """Takes up the last checkpoint; returns what to say of what is otherwise than it was.

        Raises:
            CheckpointError: there is none, or the dataset or an objective's file is another one now.
            RecipeError: the run is longer already than it shall be.
        """
        saved = self.checkpoints.load(self.engine)
        agreed(lambda: self._check_data(saved["data"]))
        self.step, self.state, self.began_at = saved["step"], from_plain(saved["feed"]), saved.get("began_at")
        if self.total < self.step:
            key = "training.max_steps" if self.recipe.training.max_steps else "training.epochs, which makes"
            raise RecipeError(f"{key} {self.total}: the run has made {self.step} steps already: give as many or more")
        said = lengthened(self.step, saved.get("total", self.total), self.total, self.optimizers)
        self.judge.resume(saved)
        if self.judge.anew:
            self.checkpoints.judge_anew(best=False)
            said.append("the best checkpoint is picked by something else from here on, or not at all")
        return [f"{self.run}: {line}" for line in said]

    def _check_data(self, expected: str) -> None:
        if expected != self._data_hash():
            raise CheckpointError(
                f"{self.run}: a dataset ({', '.join(data.path for data in self.recipe.data.values())}) or a file that "
                "an objective reads is no longer the one that this run began with: put it back, or start a new run"
            )

    def fit(self) -> None:
        """Trains to the last step, or until SIGTERM, SIGINT or `training.max_hours`: then it saves and returns.

        One rank does so after the step in hand; of several, all together one step later. Where something is there to
        pick the best checkpoint by, the weights of before the first step are the first to be it.

        Raises:
            FloatingPointError: a loss, the gradient's norm or the weights are not finite, or a loss has exploded: found
                when they are logged, and before they are saved. The examples are in the run's folder.
            CheckpointError: a checkpoint could not be saved.
        """
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        agreed(self._open_tracker)
        self.watch = Watch(watched(self.recipe, self.learner), fresh=self.step == 0)
        columns = {name: self.learner.columns(name) for name in self.feed.streams}
        read = self.feed.prefetched(self.state, columns, self.learner.collate)
        batches = copied_ahead(read, self.engine.device)
        training = self.recipe.training
        clock = Clock()
        try:
            if self.judge.due_before(self.step):
                better = self._evaluate()
                if better and self.step == 0:
                    self._save({}, better)
                elif better:
                    self.checkpoints.judge_anew(best=True)
            if self.tracker:
                self.tracker.display.begin()
            clock.restart()
            while self.step < self.total and not self.stopping:
                metrics, after = self._train_step(batches, clock)
                clock.add(metrics["tokens"])
                begun = self.feed.begun(self.state, after)
                self.step, self.state = self.step + 1, after
                last = self.step == self.total
                self.stopping = self._shared_stop()
                if self.tracker:
                    self.tracker.display.advance()
                    for line in begun:
                        self.tracker.tell(f"{line}, at step {self.step:,}")
                if last or self.stopping or self.step % training.logging_steps == 0:
                    self._log(metrics, clock)
                better = False
                if self.judge.looks and (last or self.step % training.eval_steps == 0):
                    better = self._evaluate()
                    clock.restart()
                if better or last or self.stopping or self.step % training.save_steps == 0:
                    self._save(metrics, better)
                    clock.restart()
        except FloatingPointError as error:
            raise FloatingPointError(f"{error}{self.recent.save(self.run, self.step, str(error))}") from None
        finally:
            batches.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if self.tracker:
                self.tracker.close()

    def _train_step(self, batches: Iterator[tuple[MicroBatch, FeedState]], clock: "Clock") -> tuple[Metrics, FeedState]:
        """An update of every turn, on the same examples; returns detached metrics of this rank, and the state after
        its batches.
        """
        found: list[MicroBatch] = []
        for _ in range(self.recipe.training.gradient_accumulation_steps):
            with clock.waiting():
                batch, after = next(batches)
            found.append(batch)
        if self.step == 0 and self.show is not None:
            show = self.show
            agreed(lambda: show(found[0]))
        turns = {turn: self._update(turn, number, found) for number, turn in enumerate(self.optimizers)}
        metrics = merged(turns)
        ids = {name: [batch[name].ids for batch in found] for name in found[0]}
        norms = [value for name, value in metrics.items() if name.split("/")[0] == "grad_norm"]
        on_device = [norm for norm in norms if norm.device == metrics["loss"].device]
        self.recent.add(self.step + 1, ids, [metrics["loss"], *on_device])
        return metrics, after

    def _update(self, turn: str, number: int, batches: list[MicroBatch]) -> Metrics:
        """One turn's update; `number` is its place in the step."""
        training, options = self.recipe.training, self.optimizers[turn]
        rate = learning_rate(self.step, self.total, options)
        found: list[Metrics] = []
        norms: Metrics = {}
        with self.optimizer.during(turn) as optimizer:
            for group in optimizer.param_groups:
                group["lr"] = rate
            cached: list[Cached] | list[None] = [None] * len(batches)
            if training.gradient_caching:
                with autocast(self.engine):
                    first_pass = (inputs for inputs, _ in self._inputs(turn, number, batches))
                    cached = self.learner.cache(first_pass, turn, self._logged)
            for (inputs, seed), own in zip(self._inputs(turn, number, batches), cached, strict=True):
                if training.gradient_norms and self._logged and len(found) == len(batches) - 1:
                    norms = gradient_norms(self.engine, inputs, turn, self.parameters[turn])
                    torch.manual_seed(seed)
                loss, metrics = self.engine(inputs, turn, own, self._logged)
                found.append(metrics)
                if self.tracker:
                    self.tracker.display.forwarded(len(found), len(batches), training.gradient_caching)
                self.engine.backward(loss)
                if training.zero_stage == 0 and len(found) == len(batches):
                    norm = nn.utils.clip_grad_norm_(self.parameters[turn], options.max_grad_norm or math.inf)
                self.engine.step()
        if training.zero_stage:
            norm = torch.as_tensor(self.engine.get_global_grad_norm())
        summed = {name: torch.stack([one[name] for one in found]).sum(0) for name in found[0]}
        means = {name: value / len(found) for name, value in summed.items() if name not in COUNTS}
        return {**summed, **means, **norms, "grad_norm": norm, "learning_rate": torch.tensor(rate)}

    def _inputs(self, turn: str, number: int, batches: list[MicroBatch]) -> Iterator[tuple[dict[str, Batch], int]]:
        """What a turn reads of each micro-batch, and the seed of its dropout, which is set."""
        read = {objective.data for objective in self.learner.of_turn(turn)}
        for forward, batch in enumerate(batches, self.step * len(batches)):
            inputs = {name: batch[name] for name in read}
            seed = integer_seed(self.recipe.training.seed, Purpose.DROPOUT, forward, self.rank, number)
            torch.manual_seed(seed)
            yield inputs, seed

    @property
    def _logged(self) -> bool:
        """Whether the step in hand is one that is logged whatever happens: with all metrics."""
        return (self.step + 1) % self.recipe.training.logging_steps == 0 or self.step + 1 == self.total

    def _open_tracker(self) -> None:
        kinds = {name: stream.dataset.manifest.kind for name, stream in self.feed.streams.items()}
        units = kinds if len(set(kinds.values())) == len(kinds) else {name: f"{name} examples" for name in kinds}
        display = Display(self.total, self.step, self.quiet, units, device_name(self.engine.device, self.ranks))
        project = self.recipe.training.wandb
        online = (project, flat(dataclasses.asdict(self.recipe))) if project else None
        self.tracker = Tracker(self.run, self.total, self.step, self.quiet, display, online)

    def _write(self, metrics: dict[str, Any], said: Sequence[str] = ()) -> None:
        assert self.tracker is not None
        self.tracker.log(self.step, metrics)
        for line in said:
            self.tracker.warn(self.step, line)

    def _log(self, metrics: Metrics, clock: "Clock") -> None:
        """This step's metrics, means over ranks (tokens: the sum), rates since the last log, and datasets' epochs."""
        reduced = self._reduced({**metrics, "tokens_per_s": clock.tokens})
        for name in COUNTS:
            if name in reduced:
                reduced[name] *= self.ranks
        seconds = clock.seconds()  # after the copy above, which waited for the device
        reduced["tokens_per_s"] *= self.ranks / seconds
        reduced["data_wait"] = clock.waited / seconds
        for name, passed in self.feed.epochs(self.state).items():
            reduced[f"examples_per_s/{name}"] = clock.steps * self.recipe.data[name].batch_size / seconds
            reduced[f"epoch/{name}"] = passed
        self._check_loss(reduced["loss"])
        peak = peak_flops(self.engine.device)
        if peak:
            reduced["mfu"] = reduced["tokens_per_s"] * self._flops_per_token(reduced["tokens"]) / (peak * self.ranks)
        said = self.watch.lines(self.step, reduced)
        agreed(lambda: self._write(reduced, said))
        clock.restart()

    def _reduced(self, metrics: Metrics) -> dict[str, float]:
        """Means over ranks, the same on all of them; the device is waited for.

        Raises:
            FloatingPointError: one that says whether training goes on is not finite.
        """
        names = sorted(metrics)
        values = sum_over_ranks(torch.stack([metrics[name].double().to(self.engine.device) for name in names]))
        reduced = {name: value / self.ranks for name, value in zip(names, values.tolist(), strict=True)}
        check_finite(reduced, self.step)
        self.recent.looked()
        return reduced

    def _check_loss(self, loss: float) -> None:
        """Raises FloatingPointError for one that has exploded; chance is that of guessing among all tokens."""
        self.began_at = loss if self.began_at is None else self.began_at
        chance = math.log(self.learner.encoder.config.vocab_size)
        chance *= sum(options.weight for options in self.recipe.objectives.values())
        if limit := self.recipe.training.loss_limit * max(chance, self.began_at):
            check_limit(loss, limit, self.step)

    def _flops_per_token(self, tokens: float) -> float:
        encoder, sequences = self.learner.encoder, 0
        for turn in self.optimizers:
            for objective in self.learner.of_turn(turn):
                asked = objective.workload()
                examples = self.recipe.data[objective.data].batch_size
                sequences += examples * (asked.sequences + asked.patch_sequences)
        return flops_per_token(
            layer_weights(encoder), encoder.config.num_hidden_layers, encoder.dim, tokens / sequences
        )

    def _evaluate(self) -> bool:
        """Judges the weights, logs and shows how; whether they are the best so far."""
        figures, better = self.judge.judge(self.engine)
        if figures:
            agreed(lambda: self._write(figures))
        shown = {name: figures[name] for name in SHOWN if name in figures}
        if self.tracker and shown:
            self.tracker.display.score(self.step, shown, better)
        return better

    def _save(self, metrics: Metrics, best: bool) -> None:
        """Saves, after a look at the step and at what it made of the weights: few steps that are saved are logged."""
        with torch.no_grad():
            self._reduced({**metrics, "weights_norm": nn.utils.get_total_norm(list(self.learner.parameters()))})
        state = {"step": self.step, "total": self.total, "feed": to_plain(self.state), "data": self._data_hash()}
        state |= {"began_at": self.began_at, **self.judge.state()}
        self.checkpoints.save(self.engine, self.step, state, best)

    def _data_hash(self) -> str:
        """Hashes the shards' contents, in order, and objectives' files: with the recipe they decide every batch."""
        contents = ""
        for name, stream in self.feed.streams.items():
            contents += "".join(f"{name} {shard.sha256} {shard.examples}\n" for shard in stream.dataset.shards)
        contents += "".join(f"{name} {fingerprint}\n" for name, fingerprint in self.learner.fingerprints().items())
        return hashlib.sha256(contents.encode()).hexdigest()

    def _shared_stop(self) -> bool:
        """Whether any rank was signalled, or its time is over. Several ranks read last step's answer, so that none
        waits for this step.
        """
        stop = self._signalled or self._launcher_gone() or self._late()
        if self.ranks == 1:
            return stop
        flag = torch.full((), float(stop), device=self.engine.device)  # a tensor of the host's would be waited for
        pending, self._pending_stop = self._pending_stop, (flag, dist.all_reduce(flag, async_op=True))
        if pending is None:
            return False
        pending[1].wait()
        return bool(pending[0])

    def _stop(self, number: int, frame: Any) -> None:
        self._signalled = True
