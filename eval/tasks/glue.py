"""Fine-tune the model on each GLUE task, and score it on the dev set, as in CLEAR's Table 1.

    glue/<TASK>/{train,dev}.tsv ──> one run for each seed ──> best epoch of each run ──> scores of the median run

CLEAR's Table 1 has the same eight tasks, metrics and dev sets. CLEAR fine-tunes with RoBERTa's hyperparameters and an
additional fully connected layer (section 4.2). RoBERTa (Liu et al. 2019, section 5.1, "single-task, dev") trains each
task alone for 10 epochs, takes the epoch with the best dev metric, and reports the median over five seeds. RoBERTa also
searches a batch size and a learning rate for each task; this module uses the results of that search. The scores are
higher than they would be on a test set, because the best epoch is chosen on the dev set that is scored.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearspan.eval.data.glue_data import LAYOUTS, GlueColumns, read_glue
from clearspan.eval.data.labeled import Labeled
from clearspan.eval.details import Details, Table
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import Family, Loaded, TaskContext, UnscoredError, load_each

if TYPE_CHECKING:
    from clearspan.eval.fit.finetuning import FinetuningSettings

METRICS: dict[str, dict[str, str]] = {
    "CoLA": {"matthews": "matthews"},
    "MRPC": {"mean": "accuracy_f1", "accuracy": "accuracy", "f1": "f1"},
    "QQP": {"mean": "accuracy_f1", "accuracy": "accuracy", "f1": "f1"},
    "STS-B": {"mean": "pearson_spearman", "pearson": "pearson", "spearman": "spearman"},
    "MNLI": {"mean": "accuracy"},  # the plain mean over its two dev files, which are Examples' groups
}
"""Task -> name of a score -> its metric, a key of `eval.scores.METRICS`. CLEAR reports the first score of a task.
Tasks that are not listed have the score `accuracy`."""
SEARCHED: dict[str, tuple[int, float]] = {
    "MNLI": (32, 1e-5),
    "QNLI": (32, 1e-5),
    "QQP": (32, 1e-5),
    "RTE": (16, 2e-5),
    "SST-2": (32, 1e-5),
    "MRPC": (16, 1e-5),
    "CoLA": (16, 1e-5),
    "STS-B": (16, 2e-5),
}
"""Task -> batch size and learning rate, from RoBERTa's search over {16, 32} and {1e-5, 2e-5, 3e-5}, as its authors
publish them (fairseq's `examples/roberta/README.glue.md`)."""
SEEDS = {"full": 5, "fast": 1}
EPOCHS = {"full": 10, "fast": 3}


def examples_of(task: str, predicted: NDArray[np.float64], dev: dict[str, Labeled]) -> dict[str, Examples]:
    """Return name of a score -> its examples, for all scores of a task. The first one is the score that CLEAR reports.

    CLEAR reports Matthews' coefficient for CoLA, the mean of accuracy and F1 for MRPC and QQP, the mean of Pearson and
    Spearman for STS-B, the mean of the accuracies on the two dev files for MNLI, and accuracy for all other tasks.

    Args:
        task: the name of the task, such as `CoLA`.
        predicted: the predicted class indices (or scores, for STS-B) of the n dev rows of all files, (n,) float64, in
            the order of `dev`.
        dev: name of a dev file, such as `matched` -> the rows of the file.
    """
    gold = np.concatenate([split.labels for split in dev.values()])
    groups = np.repeat(np.arange(len(dev)), [len(split) for split in dev.values()])
    examples = {
        key: Examples.of(metric, predicted, gold, groups)
        for key, metric in METRICS.get(task, {"accuracy": "accuracy"}).items()
    }
    for number, name in enumerate(dev if len(dev) > 1 else ()):
        rows = groups == number
        examples[f"accuracy_{name}"] = Examples.of("accuracy", predicted[rows], gold[rows])
    return examples


@dataclass(frozen=True)
class GlueTask:
    """A GLUE task, which fine-tunes the model instead of embedding texts.

    Attributes:
        name: the name of the task, such as `glue/CoLA`.
        train: the training rows.
        dev: name of a dev file -> the rows of the file. The names are `matched` and `mismatched` for MNLI, and `dev`
            for all other tasks.
        num_classes: the number of classes; 0 for a regression.
        files: the data files.
    """

    name: str
    train: Labeled
    dev: dict[str, Labeled]
    num_classes: int
    files: tuple[Path, ...] = ()

    def score(self, run: TaskContext) -> TaskScores:
        """Fine-tune the model once with each of several seeds, and return the scores of the median run.

        There are five seeds, or one with `--protocol fast`. The median run is the run with the median main score. All
        scores and examples come from the best epoch of this run.

        Raises:
            UnscoredError: the model is not a folder with a transformer, or transformers' Trainer cannot use the device.
            EncoderError: the folder's transformer cannot be fine-tuned.
        """
        # Imported here because torch takes seconds to import.
        from clearspan.eval.fit.finetuning import FinetuningSettings, is_trainer_device, transformer_folder

        folder = transformer_folder(run.folder) if run.folder else None
        if folder is None:
            raise UnscoredError("is fine-tuned, which takes a model folder with a transformer")
        if not is_trainer_device(run.device):
            raise UnscoredError(
                f"transformers' Trainer cannot be told `device` {run.device}: give cpu or cuda, with "
                "CUDA_VISIBLE_DEVICES for another GPU than the first"
            )
        settings = FinetuningSettings(*SEARCHED[self.name.partition("/")[2]], epochs=EPOCHS[run.protocol])
        seeds = [run.seed + number for number in range(SEEDS[run.protocol])]
        runs = [self._best_epoch(run, folder, settings, seed) for seed in seeds]
        epochs, best = [epoch for epoch, _ in runs], [examples for _, examples in runs]
        by_seed = {key: [figure(examples[key]) for examples in best] for key in best[0]}
        main = next(iter(by_seed))
        median = median_run(by_seed[main])
        text = (
            f"Fine-tuned on {len(self.train)} rows; each seed's best of {settings.epochs} epochs by the dev metric. "
            f"The figures above are those of seed {seeds[median]}, the median."
        )
        constant = self.constant_answer()
        if not by_seed[main][median] > constant:
            text += (
                f" It is not better than one answer for all rows, which has {main} {constant:.2f}: this fine-tuning "
                "has learned nothing."
            )
        rows = list(zip(seeds, epochs, *by_seed.values(), strict=True))
        counts = {"train": len(self.train), "dev": sum(map(len, self.dev.values()))}
        if broken := self.train.num_broken + sum(split.num_broken for split in self.dev.values()):
            counts["broken rows left out"] = broken
        return TaskScores(
            scores={key: values[median] for key, values in by_seed.items()},
            main=main,
            headline=(main,),
            counts=counts,
            details=Details(text, [Table(("seed", "epoch", *by_seed), rows)]),
            examples=best[median],
            settings={
                **asdict(settings),
                "seeds": seeds,
                "best_epochs": epochs,
                "median_seed": seeds[median],
                "by_seed": by_seed,
                "constant_answer": constant,
            },
        )

    def constant_answer(self) -> float:
        """Return the main score, in percent, that a model would have if it predicted the same class for all dev rows.

        The class is the most frequent one of the training rows. For a regression, 0 is returned, because a constant
        prediction has no correlation with the gold scores.
        """
        if not self.num_classes:
            return 0.0
        classes, counts = np.unique(self.train.labels, return_counts=True)
        answers = np.full(sum(map(len, self.dev.values())), classes[counts.argmax()], np.float64)
        return figure(next(iter(examples_of(self.name.partition("/")[2], answers, self.dev).values())))

    def _best_epoch(
        self, run: TaskContext, folder: Path, settings: "FinetuningSettings", seed: int
    ) -> tuple[int, dict[str, Examples]]:
        """Fine-tune with one seed; return the number of the epoch with the best main score, and the epoch's examples.

        Args:
            run: the device to use, and whether to show progress.
            folder: the folder of the model's transformer.
            settings: the hyperparameters.
            seed: the seed of the initial head, of dropout and of the order of rows.

        Returns:
            (The number of the epoch, from 1; name of a score -> the examples from which it is computed in this epoch).
        """
        from clearspan.eval.fit.finetuning import finetune

        dev_texts = tuple(
            [text for split in self.dev.values() for text in split.columns[column]]
            for column in range(len(self.train.columns))
        )
        train = (self.train.columns, self.train.labels)
        history = finetune(
            folder, train, dev_texts, self.num_classes, settings, seed, run.device, progress=run.progress
        )
        by_epoch = [examples_of(self.name.partition("/")[2], predicted, self.dev) for predicted in history]
        best = best_epoch([figure(next(iter(examples.values()))) for examples in by_epoch])
        return best + 1, by_epoch[best]


def best_epoch(figures: list[float]) -> int:
    """Return the index, from 0, of the epoch with the highest main score; if several are equal, of the first one.

    Args:
        figures: the main score after each epoch; NaN, which counts as the lowest, if it is undefined.
    """
    return int(np.argmax(np.nan_to_num(figures, nan=-np.inf)))


def median_run(figures: list[float]) -> int:
    """Return the index of the run with the median main score.

    If the number of runs is even, it is the run with the lower one of the two middle scores.

    Args:
        figures: the main score of each run; NaN, which counts as the lowest, if it is undefined.
    """
    order = np.argsort(np.nan_to_num(figures, nan=-np.inf), kind="stable")
    return int(order[(len(order) - 1) // 2])


def load(data: Path) -> Loaded:
    """Read the GLUE tasks in the folder `glue/` of a data folder.

    A task needs its training file and its dev files. If one of them does not exist, the task is left out, and
    `Loaded.missing` has the reason.

    Raises:
        DataError: a file is malformed.
    """
    return load_each({f"glue/{task}": partial(_read, data / "glue" / task, layout) for task, layout in LAYOUTS.items()})


def _read(folder: Path, layout: GlueColumns) -> GlueTask:
    files = (folder / "train.tsv", *(folder / name for name in layout.dev))
    train, *splits = (read_glue(path, layout) for path in files)
    dev = {
        name.removeprefix("dev_").removesuffix(".tsv"): split for name, split in zip(layout.dev, splits, strict=True)
    }
    return GlueTask(f"glue/{folder.name}", train, dev, len(layout.classes), files)


FAMILY = Family(load, "DIR/glue/<TASK>/{train,dev}.tsv, GLUE's files; fine-tunes the model, which takes hours on a CPU")
