"""Score SICK-R and STS-B as SentEval does: by a regressor that is trained on the embeddings u and v of sentence pairs.

    train, dev, test ──> |u-v|, u*v ──> regressor (eval.fit.regression) ──> Pearson, Spearman, mean squared error

These scores are higher than the cosine scores of `eval.tasks.sts`. DeCLUTR and similar papers print them as SICK-R and
STS-B. The task names `*-finetune` come from SimCSE's fork of SentEval. The fork selects the weights of the regressor
with the best Spearman correlation on the dev split, whereas SentEval and this module select the weights with the best
Pearson correlation. `--protocol` has no effect on these tasks.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from clearspan.common.records import DataError
from clearspan.eval.data.labeled import order
from clearspan.eval.data.sts_data import ScoredPairs
from clearspan.eval.details import Details
from clearspan.eval.scores import Examples, TaskScores
from clearspan.eval.tasks.sts import SPLITS, correlations, read_all_splits
from clearspan.eval.tasks.task import Family, Loaded, TaskContext, load_each


@dataclass(frozen=True)
class RelatednessTask:
    """SICK-R or STS-B, scored by a regressor.

    Attributes:
        name: the name of the task.
        splits: `train`, `dev` or `test` -> the split's sentence pairs, in SentEval's order. The regressor is fitted on
            `train`, its weights are selected on `dev`, and it is scored on `test`.
        files: the data files.
    """

    name: str
    splits: dict[str, ScoredPairs]
    files: tuple[Path, ...] = ()

    def score(self, run: TaskContext) -> TaskScores:
        """Train the regressor, and return how well its predictions match the gold scores.

        `spearman` and `pearson` are their correlations on test, in percent; `devspearman` and `devpearson` are the
        correlations on dev. `mse` is the mean squared error on test, which is not a percentage.

        Raises:
            UnscoredError: the model has no embeddings.
        """
        from clearspan.eval.fit.regression import pair_features, train

        splits = self.splits
        # A single call for the whole task, since the encoder batches by length within a call.
        run.embedder.embed([text for pairs in splits.values() for text in pairs.left + pairs.right])
        features = {
            split: pair_features(run.embedder.embed(pairs.left), run.embedder.embed(pairs.right))
            for split, pairs in splits.items()
        }
        model = train(features["train"], splits["train"].gold, features["dev"], splits["dev"].gold, run.seed)
        predicted = {split: model.predict(features[split]) for split in ("test", "dev")}
        test, dev = (correlations(predicted[split], splits[split].gold) for split in ("test", "dev"))
        gold = splits["test"].gold
        scores = {
            "spearman": test["spearman"],
            "pearson": test["pearson"],
            "mse": float(np.mean((predicted["test"] - gold) ** 2)),
            "devspearman": dev["spearman"],
            "devpearson": dev["pearson"],
        }
        return TaskScores(
            scores,
            main="spearman",
            headline=("spearman", "pearson", "devspearman"),
            counts={"pairs": len(gold), "train": len(splits["train"]), "dev": len(splits["dev"])},
            details=Details("mse is in squared points of the gold scale, not in percent."),
            examples={metric: Examples.of(metric, predicted["test"], gold) for metric in ("spearman", "pearson")},
            settings={"seed": run.seed, "passes": model.passes, "best_passes": model.best_passes},
        )


def sorted_pairs(pairs: ScoredPairs) -> ScoredPairs:
    """Return the pairs sorted as SentEval sorts them.

    SentEval sorts by the number of tokens in the left text, then by the number of tokens in the right text, then by the
    gold score. The order decides which rows form a training batch, and so it affects the last digits of the scores.
    """
    rows = order((pairs.left, pairs.right), pairs.gold)
    return ScoredPairs([pairs.left[row] for row in rows], [pairs.right[row] for row in rows], pairs.gold[rows])


def load(data: Path) -> Loaded:
    """Read SICK-R and STS-B from a SentEval data folder.

    A task needs the splits train, dev and test. If one of them does not exist, the task is left out, and
    `Loaded.missing` has the reason.

    Raises:
        DataError: a file is malformed, or a score is not from 0 to 5.
    """
    return load_each({f"{task}-finetune": partial(_read, data, task) for task in ("SICKRelatedness", "STSBenchmark")})


FAMILY = Family(
    load, f"{', '.join(f'{task}-finetune' for task in SPLITS)}: the data of sts, with a regressor trained on pairs"
)


def _read(data: Path, task: str) -> RelatednessTask:
    splits, files = read_all_splits(data, task)
    for pairs, file in zip(splits.values(), files, strict=True):
        outside = pairs.gold[(pairs.gold < 0) | (pairs.gold > 5)]
        if len(outside):
            raise DataError(f"{file}: a score is {outside[0]:g}, outside 0 to 5: restore the original")
    return RelatednessTask(f"{task}-finetune", {split: sorted_pairs(pairs) for split, pairs in splits.items()}, files)
