"""Image-caption retrieval on COCO: does a caption's embedding, projected, find its picture among a thousand?

    {train,valid,test}.pkl ──> captions embedded ──> projections fitted (eval.fit.ranking) ──> ranks ──> recalls

SentEval's protocol, whose two directions have six recalls; their mean is the task's figure, as in DeCLUTR's averages.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearspan.eval.data.captions import CAPTIONS_PER_IMAGE, Captioned, read_captioned
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.files import DataError, MissingDataError
from clearspan.eval.models.embed import finite
from clearspan.eval.report.html import Section
from clearspan.eval.report.table import Table
from clearspan.eval.scores import Examples, TaskScores
from clearspan.eval.tasks.task import Family, Loaded, Run

if TYPE_CHECKING:
    from clearspan.eval.fit.ranking import Ranks, Side

NAME = "ImageCaptionRetrieval"
_FILES = {"train": "train.pkl", "dev": "valid.pkl", "test": "test.pkl"}


@dataclass(frozen=True)
class CaptionsTask:
    """COCO's train, dev and test."""

    splits: dict[str, Captioned]
    files: tuple[Path, ...] = ()
    name: str = NAME

    def score(self, run: Run) -> TaskScores:
        """Recall at 1, 5 and 10 and the median rank, in both directions, and the mean of the six recalls as `acc`.

        `*_medr` is a rank and no percentage. `acc`'s examples are the ranked pictures and captions, each with the mean
        of its three recalls, grouped by fold and direction.
        """
        from clearspan.eval.fit.ranking import train

        sides = {split: _side(run, captioned) for split, captioned in self.splits.items()}
        ranked = train(sides["train"], sides["dev"], sides["test"], run.seed, run.device)
        figures = ranked.test.figures()
        scores = {"acc": ranked.test.mean_recall(), "devacc": ranked.dev.mean_recall(), **figures}
        directions = (("a picture's caption", "i2t"), ("a caption's picture", "t2i"))
        columns = ("r1", "r5", "r10", "medr")
        section = Section(
            self.name,
            text="Means over folds. A median rank is no percentage.",
            tables=[
                Table(
                    header=("looked for", "R@1", "R@5", "R@10", "median rank"),
                    rows=[(title, *(figures[f"{key}_{column}"] for column in columns)) for title, key in directions],
                )
            ],
        )
        return TaskScores(
            scores,
            main="acc",
            headline=("acc", "devacc"),
            counts={
                "pictures": sum(map(len, ranked.test.image_to_text)),
                "train": len(self.splits["train"]),
                "dev": sum(map(len, ranked.dev.image_to_text)),
            },
            section=section,
            examples={"acc": _examples(ranked.test)},
            settings={"seed": run.seed, "passes": ranked.passes, "folds": len(ranked.test.image_to_text)},
        )


def load(data: Path) -> Loaded:
    """Reads COCO of a SentEval data folder; it needs all its three splits.

    Raises:
        DataError: a file is malformed or holds code, the splits' features differ in width, or train has too few.
    """
    try:
        files = tuple(find_downstream(data) / "COCO" / file for file in _FILES.values())
        if absent := [file.name for file in files if not file.is_file()]:
            raise MissingDataError(f"no {', '.join(absent)} in {files[0].parent}")
        splits = {split: read_captioned(file) for split, file in zip(_FILES, files, strict=True)}
    except MissingDataError as error:
        return Loaded([], {NAME: str(error)})
    from clearspan.eval.fit.ranking import BATCH  # and torch, once there is something to score

    width = splits["train"].images.shape[1]
    for captioned, file in zip(splits.values(), files, strict=True):
        if (found := captioned.images.shape[1]) != width:
            raise DataError(f"{file}: features of {found} numbers for the {width} of train.pkl: take all from one copy")
    if len(splits["train"].captions) <= BATCH:
        raise DataError(
            f"{files[0]}: {len(splits['train'])} pictures, and a batch of {BATCH} captions needs some outside it: "
            f"give {BATCH // CAPTIONS_PER_IMAGE + 1} or more"
        )
    return Loaded([CaptionsTask(splits, files)], {})


FAMILY = Family(load, "DIR/downstream/COCO/{train,valid,test}.pkl, SentEval's; a GPU's work")


def _side(run: Run, captioned: Captioned) -> "Side":
    from clearspan.eval.fit.ranking import Side

    return Side(captioned.images, finite(run.embedder.embed(captioned.captions, keep=False)))


def _examples(ranks: "Ranks") -> Examples:
    from clearspan.eval.fit.ranking import CUTS

    folds = [*ranks.image_to_text, *ranks.text_to_image]
    recalls = [np.mean([fold <= cut for cut in CUTS], axis=0) for fold in folds]
    return Examples.of("mean", np.concatenate(recalls), groups=np.repeat(np.arange(len(folds)), [*map(len, folds)]))
