"""The training loop: one DeepSpeed engine, one forward and one backward a batch, whatever the objectives.

    state -> [batch -> engine(batch) -> backward] x K -> clip -> AdamW step -> figures -> evaluate, save -> next state

Everything that decides a step is a function of (recipe, step, state): the learning rate, the examples, spans, views,
masks and dropout. So a run stopped anywhere and resumed repeats the uninterrupted one.
"""

import contextlib
import hashlib
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import deepspeed
import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn

from train.build import Learner
from train.data.stream import Batch, ExampleStream, StreamState
from train.engine.checkpoint import CheckpointError, Checkpoints
from train.engine.optimization import SCHEDULES, build_optimizer, whole
from train.engine.ranks import agreed
from train.engine.tracking import Tracker, check_finite, flops_per_token, peak_flops
from train.keyed import integer_seed
from train.losses import sum_over_ranks, world
from train.recipe import Recipe, RecipeError

# None of DeepSpeed's compiled operations: on a CPU it would build an all-reduce that its inference alone uses, with a
# compiler and in half a minute, and every rank of every run would leave 66 MiB in /dev/shm behind.
deepspeed.ops.__compatible_ops__ = {}


def deepspeed_config(recipe: Recipe, ranks: int) -> dict[str, Any]:
    """fp32 weights, gradients and AdamW; bf16 by torch's autocast. Stage 0 clips in the loop, to log the norm.

    `engine.backward` divides each loss by the accumulation steps, and gradients meet at the last of them only.
    """
    stage, forwards = recipe.training.zero_stage, recipe.training.gradient_accumulation_steps
    return {
        "train_micro_batch_size_per_gpu": recipe.training.batch_size // (ranks * forwards),
        "gradient_accumulation_steps": forwards,
        "gradient_clipping": recipe.optimizer.max_grad_norm if stage else 0.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "torch_autocast": {
            "enabled": recipe.training.bf16,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],  # else ZeRO sends the gradients of linear layers in bf16
        },
        "steps_per_print": 1 << 60,
    }


def total_steps(recipe: Recipe, stream: ExampleStream) -> int:
    """`max_steps`, or the steps of `epochs` over the examples that are long enough.

    Raises:
        RecipeError: they are no more than the schedule takes to rise.
    """
    training, optimizer = recipe.training, recipe.optimizer
    total = training.max_steps or max(1, whole(training.epochs * stream.steps_per_epoch))
    if optimizer.schedule == "linear" and total <= optimizer.warmup_steps:
        key = "training.max_steps" if training.max_steps else f"training.epochs {training.epochs:g}, with its steps"
        raise RecipeError(
            f"{key} {total} must be more than optimizer.warmup_steps {optimizer.warmup_steps}: set one of the two"
        )
    return total


class Trainer:
    """One run, from its first or its last saved step to its end.

    Args:
        evaluate: scores the encoder on rank 0, higher is better; None: the last checkpoint is the one to export.
    """

    def __init__(
        self,
        recipe: Recipe,
        learner: Learner,
        stream: ExampleStream,
        evaluate: Callable[[Learner], float] | None,
        quiet: bool = False,
    ) -> None:
        self.recipe, self.stream, self.evaluate, self.quiet = recipe, stream, evaluate, quiet
        self.run = Path(recipe.output)
        self.checkpoints = Checkpoints(self.run)
        self.total = total_steps(recipe, stream)
        self.rank, self.ranks = world()
        self.learner = learner
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=learner,
            optimizer=build_optimizer(learner, recipe.optimizer),
            config=deepspeed_config(recipe, self.ranks),
        )
        self.step, self.state, self.best = 0, StreamState(), float("-inf")
        self.stopping = self._signalled = False
        self.tracker: Tracker | None = None  # on rank 0, in training
        self._pending_stop: tuple[Tensor, Any] | None = None
        self._launcher_gone = launcher_watch()

    def resume(self) -> None:
        """Takes up the last checkpoint.

        Raises:
            CheckpointError: there is none, or the dataset or an objective's file is another one now.
        """
        saved = self.checkpoints.load(self.engine)
        agreed(lambda: self._check_data(saved["data"]))
        self.step, self.state, self.best = saved["step"], StreamState(**saved["stream"]), saved["best"]

    def _check_data(self, expected: str) -> None:
        if expected != self._data_hash():
            raise CheckpointError(
                f"{self.run}: the dataset (data.path {self.recipe.data.path}) or a file that an objective reads is no "
                "longer the one that this run began with: put it back, or start a new run"
            )

    def fit(self) -> None:
        """Trains to the last step, or until SIGTERM or SIGINT: then it saves and returns.

        One rank does so after the step in hand; of several, all together one step later.

        Raises:
            FloatingPointError: a loss, the gradient's norm or the weights are not finite: found when they are logged,
                and before they are saved.
            CheckpointError: a checkpoint could not be saved.
        """
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        agreed(self._open_tracker)
        batches = self.stream.prefetched(self.state, self.learner)
        training = self.recipe.training
        clock = _Clock()
        try:
            while self.step < self.total and not self.stopping:
                figures, after = self._train_step(batches, clock)
                clock.add(figures["tokens"])
                self.step, self.state = self.step + 1, after
                last = self.step == self.total
                self.stopping = self._shared_stop()
                if self.tracker:
                    self.tracker.advance()
                if last or self.stopping or self.step % training.logging_steps == 0:
                    self._log(figures, clock)
                better = False
                if self.evaluate and (last or self.step % training.eval_steps == 0):
                    better = self._evaluate()
                    clock.restart()
                if better or last or self.stopping or self.step % training.save_steps == 0:
                    self._save(figures, better)
                    clock.restart()
        finally:
            batches.close()  # type: ignore[attr-defined]
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if self.tracker:
                self.tracker.close()

    def _train_step(
        self, batches: Iterator[tuple[Batch, StreamState]], clock: "_Clock"
    ) -> tuple[dict[str, Tensor], StreamState]:
        """One update; returns detached figures of this rank, and the state after its batches."""
        optimizer, training = self.recipe.optimizer, self.recipe.training
        rate = optimizer.learning_rate * SCHEDULES[optimizer.schedule](self.step, self.total, optimizer)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        forwards = training.gradient_accumulation_steps
        found = []
        for forward in range(self.step * forwards, (self.step + 1) * forwards):
            with clock.waiting():
                batch, after = next(batches)
            torch.manual_seed(integer_seed(training.seed, forward, self.rank))
            loss, figures = self.engine(batch.to(self.engine.device))
            found.append(figures)
            self.engine.backward(loss)
            if training.zero_stage == 0 and len(found) == forwards:
                norm = nn.utils.clip_grad_norm_(self.learner.parameters(), optimizer.max_grad_norm or math.inf)
            self.engine.step()
        if training.zero_stage:
            norm = torch.as_tensor(self.engine.get_global_grad_norm())
        figures = {name: torch.stack([one[name] for one in found]).sum(0) for name in found[0]}
        figures |= {name: value / forwards for name, value in figures.items() if name != "tokens"}
        return {**figures, "grad_norm": norm, "learning_rate": torch.tensor(rate)}, after

    def _open_tracker(self) -> None:
        self.tracker = Tracker(self.run, self.total, self.step, self.quiet)

    def _write(self, figures: dict[str, Any]) -> None:
        assert self.tracker is not None
        self.tracker.log(self.step, figures)

    def _log(self, figures: dict[str, Tensor], clock: "_Clock") -> None:
        """This step's figures, means over ranks (tokens: the sum), and rates since the last log."""
        reduced = self._reduced({**figures, "tokens_per_s": clock.tokens})
        reduced["tokens"] *= self.ranks
        seconds = clock.seconds()  # after the copy above, which waited for the device
        reduced["tokens_per_s"] *= self.ranks / seconds
        reduced["data_wait"] = clock.waited / seconds
        peak = peak_flops(self.engine.device)
        if peak:
            reduced["mfu"] = reduced["tokens_per_s"] * self._flops_per_token(reduced["tokens"]) / (peak * self.ranks)
        agreed(lambda: self._write(reduced))
        clock.restart()

    def _reduced(self, figures: dict[str, Tensor]) -> dict[str, float]:
        """Means over ranks, the same on all of them; the device is waited for.

        Raises:
            FloatingPointError: one that says whether training goes on is not finite.
        """
        names = sorted(figures)
        values = sum_over_ranks(torch.stack([figures[name].double().to(self.engine.device) for name in names]))
        reduced = {name: value / self.ranks for name, value in zip(names, values.tolist(), strict=True)}
        check_finite(reduced, self.step)
        return reduced

    def _flops_per_token(self, tokens: float) -> float:
        encoder = self.learner.encoder
        embeddings = sum(p.numel() for n, p in encoder.base.named_parameters() if "embeddings" in n)
        weights = sum(p.numel() for p in encoder.base.parameters()) - embeddings
        sequences = self.recipe.training.batch_size * sum(o.load().sequences for o in self.learner.objectives)  # type: ignore[operator]
        return flops_per_token(weights, encoder.config.num_hidden_layers, encoder.dim, tokens / sequences)

    def _evaluate(self) -> bool:
        """Scores on rank 0, tells all ranks; whether it is the best so far."""
        assert self.evaluate is not None
        score = torch.zeros(1, dtype=torch.float64, device=self.engine.device)
        if self.tracker:
            score += self.evaluate(self.learner)
            if score.isfinite():  # undefined for an encoder that gives every text the same vector: never the best
                self._write({"dev_score": score.item()})
        found = sum_over_ranks(score).item()
        better = found > self.best
        self.best = found if better else self.best
        return better

    def _save(self, figures: dict[str, Tensor], best: bool) -> None:
        """Saves, after a look at the step and at what it made of the weights: few steps that are saved are logged."""
        with torch.no_grad():
            self._reduced({**figures, "weights_norm": nn.utils.get_total_norm(list(self.learner.parameters()))})
        state = {"step": self.step, "stream": asdict(self.state), "best": self.best, "data": self._data_hash()}
        self.checkpoints.save(self.engine, self.step, state, best)

    def _data_hash(self) -> str:
        """Of the shards' contents, in order, and of objectives' files: with the recipe they decide every batch."""
        contents = "".join(f"{shard.sha256} {shard.examples}\n" for shard in self.stream.dataset.shards)
        contents += "".join(f"{name} {fingerprint}\n" for name, fingerprint in self.learner.fingerprints().items())
        return hashlib.sha256(contents.encode()).hexdigest()

    def _shared_stop(self) -> bool:
        """Whether any rank was signalled. Several ranks read last step's answer, so that none waits for this step."""
        stop = self._signalled or self._launcher_gone()
        if self.ranks == 1:
            return stop
        flag = torch.tensor(float(stop), device=self.engine.device)
        pending, self._pending_stop = self._pending_stop, (flag, dist.all_reduce(flag, async_op=True))
        if pending is None:
            return False
        pending[1].wait()
        return bool(pending[0])

    def _stop(self, number: int, frame: Any) -> None:
        self._signalled = True


def launcher_watch() -> Callable[[], bool]:
    """A function that says whether the deepspeed launcher that started this rank has died.

    Killed, the `deepspeed` command leaves its ranks behind; they are to stop and save. Without that launcher: never.
    """
    parent = psutil.Process().parent()
    if parent is None or not any("deepspeed.launcher" in word for word in parent.cmdline()):
        return lambda: False
    watched = [process for process in (parent, parent.parent()) if process is not None]

    def gone() -> bool:
        try:
            return any(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in watched)
        except psutil.NoSuchProcess:
            return True

    return gone


class _Clock:
    """Tokens, seconds and seconds of waiting for data since the last log, leaving out evaluation and saving."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.tokens = torch.zeros((), dtype=torch.float64)
        self.waited, self.start = 0.0, time.perf_counter()

    def add(self, tokens: Tensor) -> None:
        self.tokens = self.tokens.to(tokens.device) + tokens

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.waited += time.perf_counter() - start


def join_ranks() -> None:
    """Joins the launcher's process group; without a launcher, a group of one."""
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # before ranks speak to each other
    deepspeed.init_distributed(verbose=False)
