"""Image-caption retrieval on COCO: rank a thousand images for each caption, and the captions for each image.

    {train,valid,test}.pkl ──> captions embedded ──> projections fitted (eval.fit.ranking) ──> ranks ──> recalls

Follows SentEval's protocol. The task's main score is the mean of six recalls, three in each direction, as in DeCLUTR's
averages.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearspan.eval.data.captions import CAPTIONS_PER_IMAGE, Captioned, read_captioned
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.details import Details, Table
from clearspan.eval.files import DataError, MissingDataError
from clearspan.eval.models.embed import finite
from clearspan.eval.scores import Examples, TaskScores
from clearspan.eval.tasks.task import Family, Loaded, Run, load_each

if TYPE_CHECKING:
    from clearspan.eval.fit.ranking import Ranks, Side

NAME = "ImageCaptionRetrieval"
_FILES = {"train": "train.pkl", "dev": "valid.pkl", "test": "test.pkl"}


@dataclass(frozen=True)
class CaptionsTask:
    """Image-caption retrieval on COCO's train, dev and test splits."""

    splits: dict[str, Captioned]
    files: tuple[Path, ...] = ()
    name: str = NAME

    def score(self, run: Run) -> TaskScores:
        """Return recall at 1, 5 and 10 and the median rank in both directions, and the mean recall as `acc`.

        `*_medr` is a rank, not a percentage. The examples of `acc` are the ranked images and captions, each with the
        mean of its three recalls, grouped by fold and direction.
        """
        from clearspan.eval.fit.ranking import train

        sides = {split: _side(run, captioned) for split, captioned in self.splits.items()}
        ranked = train(sides["train"], sides["dev"], sides["test"], run.seed, run.device)
        figures = ranked.test.figures()
        scores = {"acc": ranked.test.mean_recall(), "devacc": ranked.dev.mean_recall(), **figures}
        directions = (("a picture's caption", "i2t"), ("a caption's picture", "t2i"))
        columns = ("r1", "r5", "r10", "medr")
        details = Details(
            "Means over folds. A median rank is not a percentage.",
            [
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
            details=details,
            examples={"acc": _examples(ranked.test)},
            settings={"seed": run.seed, "passes": ranked.passes, "folds": len(ranked.test.image_to_text)},
        )


def load(data: Path) -> Loaded:
    """Read COCO from a SentEval data folder that has all three splits.

    Raises:
        DataError: a file is malformed or holds code, the splits' features differ in width, or the train split is too
            small.
    """
    return load_each({NAME: lambda: _read(find_downstream(data) / "COCO")})


FAMILY = Family(load, "DIR/downstream/COCO/{train,valid,test}.pkl, SentEval's; takes hours on a CPU")


def _read(folder: Path) -> CaptionsTask:
    files = tuple(folder / file for file in _FILES.values())
    if absent := [file.name for file in files if not file.is_file()]:
        raise MissingDataError(f"no {', '.join(absent)} in {folder}")
    splits = {split: read_captioned(file) for split, file in zip(_FILES, files, strict=True)}
    from clearspan.eval.fit.ranking import BATCH  # imports torch, so only once there is something to score

    width = splits["train"].images.shape[1]
    for captioned, file in zip(splits.values(), files, strict=True):
        if (other := captioned.images.shape[1]) != width:
            raise DataError(
                f"{file}: {other} numbers per image, train.pkl has {width}: take all three files from one copy"
            )
    if len(splits["train"].captions) <= BATCH:
        raise DataError(
            f"{files[0]}: {len(splits['train'])} images are too few: a batch of {BATCH} captions needs contrastive "
            f"images outside it; give {BATCH // CAPTIONS_PER_IMAGE + 1} or more"
        )
    return CaptionsTask(splits, files)


def _side(run: Run, captioned: Captioned) -> "Side":
    from clearspan.eval.fit.ranking import Side

    return Side(captioned.images, finite(run.embedder.embed(captioned.captions, keep=False)))


def _examples(ranks: "Ranks") -> Examples:
    from clearspan.eval.fit.ranking import CUTS

    folds = [*ranks.image_to_text, *ranks.text_to_image]
    recalls = [np.mean([fold <= cut for cut in CUTS], axis=0) for fold in folds]
    return Examples.of("mean", np.concatenate(recalls), groups=np.repeat(np.arange(len(folds)), [*map(len, folds)]))
