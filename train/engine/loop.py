"""The training loop: one DeepSpeed engine, one forward and one backward pass per batch, for any set of objectives.

    state -> [micro-batch -> engine -> backward] x K -> clip -> AdamW step -> log, evaluate, save -> next state

The state is the position in each dataset, and K is `training.gradient_accumulation_steps`. With
`training.gradient_caching`, a forward pass without gradients over every micro-batch comes first (`train.step.caching`).
With `optimization: alternate`, a step has several turns, which are updates by some of the objectives: all that the
picture shows before "log" is done once for each turn, on the same micro-batches.

The learning rate, the examples, spans, views, masks and dropout of a step are functions of (recipe, step, state). A run
that is stopped anywhere and resumed therefore repeats the uninterrupted run. Of these, only dropout depends on the
number of ranks.
"""

import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import Tensor, nn

from clearspan.train.collectives import autocast, autocast_cache, keep_casts, sum_later, sum_over_ranks, world
from clearspan.train.config.options import GIVEN, Recipe, RecipeError
from clearspan.train.config.resume_policy import length_note
from clearspan.train.config.schedules import fraction_of_peak, round_down
from clearspan.train.data.ahead import copied_ahead
from clearspan.train.data.batch import Batch
from clearspan.train.data.feed import Feed, FeedState, MicroBatch, from_plain, to_plain
from clearspan.train.draws import Purpose, integer_seed
from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.engine.display import Display, device_name
from clearspan.train.engine.gradients import gradient_norms
from clearspan.train.engine.nan_guard import check_finite, check_limit
from clearspan.train.engine.optimization import AlternatingOptimizer, deepspeed_config
from clearspan.train.engine.ranks import agreed
from clearspan.train.engine.signals import deadline, launcher_watch
from clearspan.train.engine.tracking import Clock, Tracker, flops_per_token, peak_flops
from clearspan.train.selection.dev_score import DevScore
from clearspan.train.selection.model_selection import SHOWN, Judge
from clearspan.train.selection.validation import HeldOutExamples
from clearspan.train.step.caching import Cached
from clearspan.train.step.learner import COUNTS, Learner
from clearspan.train.step.requests import Metrics

# Disable DeepSpeed's compiled operations: on a CPU it would spend half a minute compiling an all-reduce that only its
# inference uses, and every rank of every run would leave 66 MiB in /dev/shm.
deepspeed.ops.__compatible_ops__ = {}


def total_steps(recipe: Recipe, feed: Feed) -> int:
    """Return the number of steps of a run: `training.max_steps`, or if it is 0 the steps of `training.epochs` epochs.

    The epochs are those of the primary dataset (`feed.primary`). Examples that do not fill a step at the end of an
    epoch are not used.

    Raises:
        RecipeError: the warm-up of an optimizer has at least as many steps as the run.
    """
    training = recipe.training
    total = training.max_steps or max(1, round_down(training.epochs * feed.steps_per_epoch))
    for turn, optimizer in recipe.optimizers().items():
        if 0 < optimizer.warmup_steps >= total:
            key = "training.max_steps" if training.max_steps else f"training.epochs {training.epochs:g}, with its steps"
            section = f"turns.{turn}" if turn in recipe.turns else "optimizer"
            raise RecipeError(
                f"{key} {total} must be more than {section}.warmup_steps {optimizer.warmup_steps}: change one of them"
            )
    return total


def merged(turns: dict[str, Metrics]) -> Metrics:
    """Merge the metrics of a step's turns: add them up by name, except the learning rate and the gradient norm.

    These two get the names `learning_rate/TURN` and `grad_norm/TURN`, if there are several turns.

    Args:
        turns: name of a turn -> its metrics.
    """
    if len(turns) == 1:
        return next(iter(turns.values()))
    step: Metrics = {}
    for turn, metrics in turns.items():
        for name, value in metrics.items():
            if name in ("grad_norm", "learning_rate"):
                step[f"{name}/{turn}"] = value
            else:
                step[name] = step[name] + value if name in step else value
    return step


class Trainer:
    """Trains one run on this rank, from its first step or from a checkpoint.

    Args:
        recipe: the recipe of the run.
        learner: the module to train: the encoder and the objectives.
        feed: the streams of the datasets.
        evaluate: a function that computes the encoder's dev score on rank 0, higher is better; None if there is no dev
            score.
        quiet: True to show no progress.
        held_out: examples that training does not see, for the held-out loss; None if there are none. If `evaluate` is
            None too, no best checkpoint is picked.
    """

    def __init__(
        self,
        recipe: Recipe,
        learner: Learner,
        feed: Feed,
        evaluate: DevScore | None,
        quiet: bool = False,
        held_out: HeldOutExamples | None = None,
    ) -> None:
        self.recipe, self.feed, self.quiet = recipe, feed, quiet
        self.judge = Judge(recipe, evaluate, held_out, quiet)
        self.run = Path(recipe.output)
        self.checkpoints = Checkpoints(self.run)
        self.total = total_steps(recipe, feed)
        self.rank, self.ranks = world()
        self.learner = learner
        self.optimizers = recipe.optimizers()
        self.parameters = {turn: learner.parameters_of(turn) for turn in self.optimizers}
        self.optimizer = AlternatingOptimizer(self.parameters, self.optimizers, learner.parts())
        self.engine, *_ = deepspeed.initialize(
            model=learner, optimizer=self.optimizer, config=deepspeed_config(recipe, self.ranks)
        )
        self.step, self.state = 0, feed.start()
        self.first_loss: float | None = None
        self.stopping = self._signalled = False
        self.tracker: Tracker | None = None  # on rank 0, in training
        self._pending_stop: Callable[[], Tensor] | None = None
        self._launcher_gone, self._late = launcher_watch(), deadline(recipe.training.max_hours)

    def resume(self) -> list[str]:
        """Load the last checkpoint. Every rank must call this method.

        Returns:
            A list with one line for the user if the recipe's number of steps has changed since the checkpoint was
            saved; otherwise [].

        Raises:
            CheckpointError: there is no checkpoint that can be used.
            RecipeError: the run has made more steps than the recipe asks for.
        """
        saved = self.checkpoints.load(self.engine)
        self.step, self.state, self.first_loss = saved["step"], from_plain(saved["feed"]), saved["began_at"]
        if self.total < self.step:
            key = "training.max_steps" if self.recipe.training.max_steps else "training.epochs, which makes"
            raise RecipeError(f"{key} {self.total}: the run has made {self.step} steps already: set a longer run")
        self.judge.best, self.judge.given = saved["best"], saved["given"]
        changes = length_note(self.step, saved["total"], self.total, self.optimizers)
        return [f"{self.run}: {line}" for line in changes]

    def fit(self) -> None:
        """Train to the last step, or until SIGTERM, SIGINT or `training.max_hours`; then save and return.

        A single rank stops after the current step; several ranks stop together one step later. If a dev score or a
        held-out loss picks the best checkpoint, the weights before the first step are evaluated as well.

        Raises:
            FloatingPointError: a loss, the gradient norm or the weights are not finite, or a loss has exploded. This is
                checked whenever metrics are logged and before every save.
            CheckpointError: a checkpoint could not be saved.
        """
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        agreed(self._open_tracker)
        columns = {name: self.learner.columns(name) for name in self.feed.streams}
        prefetched = self.feed.prefetched(self.state, columns, self.learner.collate)
        batches = copied_ahead(prefetched, self.engine.device)
        training = self.recipe.training
        clock = Clock()
        try:
            if self.judge.enabled and self.step == 0 and self.judge.best == -math.inf and self._evaluate_start():
                self._save({}, best=True)
            clock.restart()
            while self.step < self.total and not self.stopping:
                metrics, after = self._train_step(batches, clock)
                clock.add(metrics["tokens"])
                self.step, self.state = self.step + 1, after
                last = self.step == self.total
                self.stopping = self._shared_stop()
                if self.tracker:
                    self.tracker.display.advance()
                if last or self.stopping or self.step % training.logging_steps == 0:
                    self._log(metrics, clock)
                better = False
                if self.judge.enabled and (last or self.step % training.eval_steps == 0):
                    better = self._evaluate()
                    clock.restart()
                if better or last or self.stopping or self.step % training.save_steps == 0:
                    self._save(metrics, better)
                    clock.restart()
        finally:
            batches.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if self.tracker:
                self.tracker.close()

    def _train_step(self, batches: Iterator[tuple[MicroBatch, FeedState]], clock: Clock) -> tuple[Metrics, FeedState]:
        """Make one step: take its micro-batches, and update the weights once for each turn, on the same micro-batches.

        Args:
            batches: the micro-batches to come, each with the state of the feed after its step.
            clock: counts the time spent waiting for the micro-batches.

        Returns:
            (this rank's metrics of the step, detached; the state of the feed after the step).
        """
        step: list[MicroBatch] = []
        for _ in range(self.recipe.training.gradient_accumulation_steps):
            with clock.waiting():
                batch, after = next(batches)
            step.append(batch)
        return merged({turn: self._update(turn, number, step) for number, turn in enumerate(self.optimizers)}), after

    def _update(self, turn: str, number: int, batches: list[MicroBatch]) -> Metrics:
        """Update the weights once, with the objectives of a turn; return this rank's metrics, detached.

        Args:
            turn: the name of the turn.
            number: the index of the turn in the step, on which the dropout seeds depend.
            batches: the micro-batches of the step.
        """
        training, options = self.recipe.training, self.optimizers[turn]
        fraction = fraction_of_peak(self.step, self.total, options)
        forwards: list[Metrics] = []
        norms: Metrics = {}
        with self.optimizer.during(turn) as optimizer:
            for group, peak in zip(optimizer.param_groups, self.optimizer.peaks[turn], strict=True):
                group["lr"] = peak * fraction
            cached: list[Cached] | list[None] = [None] * len(batches)
            if training.gradient_caching:
                with autocast(self.engine):
                    first_pass = (inputs for inputs, _ in self._inputs(turn, number, batches))
                    cached = self.learner.cache(first_pass, turn, self._logged)
            with autocast_cache(self.engine):
                for (inputs, seed), cache in zip(self._inputs(turn, number, batches), cached, strict=True):
                    if training.gradient_norms and self._logged and len(forwards) == len(batches) - 1:
                        norms = gradient_norms(self.engine, inputs, turn, self.parameters[turn])
                        torch.manual_seed(seed)
                    loss, metrics = self.engine(inputs, turn, cache, self._logged)
                    forwards.append(metrics)
                    keep_casts(loss)
                    self.engine.backward(loss)
                    if training.zero_stage == 0 and len(forwards) == len(batches):
                        norm = nn.utils.clip_grad_norm_(self.parameters[turn], options.max_grad_norm or math.inf)
                    self.engine.step()  # the last one changes the weights
        if training.zero_stage:
            norm = torch.as_tensor(self.engine.get_global_grad_norm())
        summed = {name: torch.stack([metrics[name] for metrics in forwards]).sum(0) for name in forwards[0]}
        means = {name: value / len(forwards) for name, value in summed.items() if name not in COUNTS}
        rate = torch.tensor(options.learning_rate * fraction)
        return {**summed, **means, **norms, "grad_norm": norm, "learning_rate": rate}

    def _inputs(self, turn: str, number: int, batches: list[MicroBatch]) -> Iterator[tuple[dict[str, Batch], int]]:
        """For each micro-batch of a step, seed dropout on this rank, and yield the inputs of the forward pass.

        Args:
            turn: the name of the turn.
            number: the index of the turn in the step.
            batches: the micro-batches.

        Yields:
            (name of a dataset that the turn's objectives read -> its batch, the seed of dropout).
        """
        datasets = {objective.data for objective in self.learner.of_turn(turn)}
        for forward, batch in enumerate(batches, self.step * len(batches)):
            inputs = {name: batch[name] for name in datasets}
            seed = integer_seed(self.recipe.training.seed, Purpose.DROPOUT, forward, self.rank, number)
            torch.manual_seed(seed)
            yield inputs, seed

    @property
    def _logged(self) -> bool:
        """True if the metrics of the current step are to be logged: every `logging_steps` steps, and at the last step.

        In other steps, metrics that cost time are not computed.
        """
        return (self.step + 1) % self.recipe.training.logging_steps == 0 or self.step + 1 == self.total

    def _open_tracker(self) -> None:
        display = Display(self.total, self.step, self.quiet)
        device = device_name(self.engine.device, self.ranks)
        display.tell(f"training on {device}: {self.total - self.step:,} steps")
        self.tracker = Tracker(self.recipe, display)

    def _write(self, metrics: dict[str, Any]) -> None:
        assert self.tracker is not None
        self.tracker.log(self.step, metrics)

    def _log(self, metrics: Metrics, clock: Clock) -> None:
        """Log the metrics of this step, the throughput since the clock was restarted, and each dataset's epochs so far.

        Counts (`COUNTS`, such as tokens) are summed over ranks; other metrics are averaged. Afterwards the clock is
        restarted. Every rank must call this method.

        Args:
            metrics: this rank's metrics of the step.
            clock: the tokens, the steps and the time since it was restarted.
        """
        reduced = self._reduced({**metrics, "tokens_per_s": clock.tokens})
        for name in COUNTS:
            if name in reduced:
                reduced[name] *= self.ranks
        seconds = clock.seconds()  # after the copy above has waited for the device
        reduced["tokens_per_s"] *= self.ranks / seconds
        reduced["data_wait"] = clock.waited / seconds
        for name, epochs in self.feed.epochs(self.state).items():
            reduced[f"examples_per_s/{name}"] = clock.steps * self.recipe.data[name].batch_size / seconds
            reduced[f"epoch/{name}"] = epochs
        self._check_loss(reduced["loss"])
        peak = peak_flops(self.engine.device)
        if peak:
            reduced["mfu"] = reduced["tokens_per_s"] * self._flops_per_token(reduced["tokens"]) / (peak * self.ranks)
        agreed(lambda: self._write(reduced))
        clock.restart()

    def _reduced(self, metrics: Metrics) -> dict[str, float]:
        """Return the mean of each metric over ranks. Every rank must call this method, which waits for the device.

        Raises:
            FloatingPointError: a loss or a norm is not finite.
        """
        names = sorted(metrics)
        numbers = [metrics[name].double() for name in names]
        device = self.engine.device  # a copy of a host's number to it would be waited for, its value as an argument not
        on_device = [x if x.device == device else torch.full_like(x, x.item(), device=device) for x in numbers]
        values = sum_over_ranks(torch.stack(on_device))
        reduced = {name: value / self.ranks for name, value in zip(names, values.tolist(), strict=True)}
        check_finite(reduced, self.step)
        return reduced

    def _check_loss(self, loss: float) -> None:
        """Raise FloatingPointError if the loss is more than `training.loss_limit` times the highest expected loss.

        The highest expected loss is the first logged loss or, if that is higher, W log(V): the loss of guessing one of
        the V ids of the vocabulary at random, where W is the sum of the objectives' weights. If `loss_limit` is 0,
        nothing is checked.
        """
        self.first_loss = loss if self.first_loss is None else self.first_loss
        chance = math.log(self.learner.encoder.config.vocab_size)
        chance *= sum(options.weight for options in self.recipe.objectives.values())
        if limit := self.recipe.training.loss_limit * max(chance, self.first_loss):
            check_limit(loss, limit, self.step)

    def _flops_per_token(self, tokens: float) -> float:
        sequences = 0
        for turn in self.optimizers:
            for objective in self.learner.of_turn(turn):
                workload = objective.workload()
                examples = self.recipe.data[objective.data].batch_size
                sequences += examples * (workload.sequences + workload.patch_sequences)
        return flops_per_token(self.learner, tokens / sequences)

    def _evaluate_start(self) -> bool:
        """Evaluate the weights before the first step, and log and show the result.

        If the run changes the pooling of the model that it starts from, or the layers after the pooling, evaluate the
        unchanged model too.

        Return True if the result of one of these evaluations is now the run's best score or loss. Return False if no
        score or loss picks the best checkpoint, or if none of the results is finite.
        """
        if figures := self.judge.judge_given(self.engine):
            agreed(lambda: self._write(figures))
            self._show(figures, GIVEN, False)
        return self._evaluate() or self.judge.given

    def _evaluate(self) -> bool:
        """Evaluate the weights, and log and show the scores and losses.

        Return True if the weights are the best so far; False if they are not, or if no score or loss picks the best
        checkpoint.
        """
        figures, better = self.judge.judge(self.engine)
        if figures:
            agreed(lambda: self._write(figures))
        self._show(figures, "", better)
        return better

    def _show(self, figures: dict[str, float], prefix: str, better: bool) -> None:
        """Show the dev score and the held-out loss of an evaluation, on rank 0.

        Args:
            figures: name of a metric -> its value.
            prefix: the beginning of the names of metrics: "" for the current weights; `given/` (GIVEN) for the
                unchanged model that training starts from.
            better: whether the weights are the best so far.
        """
        shown = {name: figures[prefix + name] for name in SHOWN if prefix + name in figures}
        if self.tracker and shown:
            self.tracker.display.score(None if prefix else self.step, shown, better)

    def _save(self, metrics: Metrics, best: bool) -> None:
        """Save a checkpoint, after checking that losses and weights are finite.

        The check is needed because the metrics of the step are otherwise checked only if they are logged.

        Args:
            metrics: this rank's metrics of the step; {} before the first step.
            best: whether the weights are the best so far.

        Raises:
            FloatingPointError: a loss, the gradient norm or the norm of the weights is not finite.
            CheckpointError: the checkpoint cannot be written.
        """
        with torch.no_grad():
            self._reduced({**metrics, "weights_norm": nn.utils.get_total_norm(list(self.learner.parameters()))})
        state = {"step": self.step, "total": self.total, "feed": to_plain(self.state)}
        state |= {"began_at": self.first_loss, "best": self.judge.best, "given": self.judge.given}
        self.checkpoints.save(self.engine, self.step, state, best)

    def _shared_stop(self) -> bool:
        """Return whether all ranks must stop, because a rank got a signal, lost its launcher or ran out of time.

        If there are several ranks, the answer is one step old: the ranks exchange it during one step and read it after
        the next one, so that no rank waits for another.
        """
        stop = self._signalled or self._launcher_gone() or self._late()
        if self.ranks == 1:
            return stop
        flag = torch.full((), float(stop), device=self.engine.device)  # a host tensor would be waited for
        pending, self._pending_stop = self._pending_stop, sum_later(flag)
        return pending is not None and bool(pending())

    def _stop(self, number: int, frame: Any) -> None:
        self._signalled = True
