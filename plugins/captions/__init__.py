"""Image-caption retrieval on COCO: rank a thousand images for each caption, and the captions for each image.

    {train,valid,test}.pkl ──> captions embedded ──> projections trained (`ranking`) ──> ranks ──> recalls

The task follows SentEval's protocol: two linear projections, one for images and one for captions, are trained to map an
image and its captions to similar vectors. The main score is the mean of six recalls, namely the recall at 1, 5 and 10
of captions for an image and of images for a caption; DeCLUTR's averages use this mean. The images are published as
feature vectors, which another network computed, in pickles. Code in these pickles is not run (`pickles`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearspan.common.encoder.embedder import finite
from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.details import Details, Table
from clearspan.eval.scores import Examples, TaskScores
from clearspan.eval.tasks.task import TaskContext
from clearspan.plugins.captions.pickles import CAPTIONS_PER_IMAGE, Captioned, read_captioned

if TYPE_CHECKING:  # imports torch
    from clearspan.plugins.captions.ranking import FoldRanks, Side

_FILES = {"train": "train.pkl", "dev": "valid.pkl", "test": "test.pkl"}


class Captions:
    """Image-caption retrieval on COCO's train, dev and test splits.

    Args:
        data: a SentEval data folder with the files of all three splits.

    Raises:
        MissingDataError: the file of a split does not exist.
        DataError: a file is malformed or holds code, the image features of the splits differ in width, or the train
            split is too small.
    """

    name = "ImageCaptionRetrieval"

    def __init__(self, data: Path) -> None:
        folder = find_downstream(data) / "COCO"
        self.files = tuple(folder / file for file in _FILES.values())
        if absent := [file.name for file in self.files if not file.is_file()]:
            raise MissingDataError(f"no {', '.join(absent)} in {folder}")
        self.splits = {split: read_captioned(file) for split, file in zip(_FILES, self.files, strict=True)}
        from clearspan.plugins.captions.ranking import BATCH

        width = self.splits["train"].images.shape[1]
        for captioned, file in zip(self.splits.values(), self.files, strict=True):
            if (other := captioned.images.shape[1]) != width:
                raise DataError(
                    f"{file}: {other} numbers per image, train.pkl has {width}: take all three files from one copy"
                )
        if len(self.splits["train"].captions) <= BATCH:
            raise DataError(
                f"{self.files[0]}: {len(self.splits['train'])} images are too few: a batch of {BATCH} captions needs "
                f"contrastive images outside it; give {BATCH // CAPTIONS_PER_IMAGE + 1} or more"
            )

    def score(self, run: TaskContext) -> TaskScores:
        """Train projections for the model's embeddings, and return the recalls and median ranks on the test split.

        `i2t_r1`, `i2t_r5`, `i2t_r10` and `i2t_medr` are the recalls at 1, 5 and 10 and the median rank of captions that
        are ranked for an image. For images that are ranked for a caption, the names begin with `t2i`. `acc` is the mean
        of the six recalls on the test split, and `devacc` their mean on the dev split. Recalls are in percent. To
        compare models, the mean of the recalls at 1, 5 and 10 is also returned for each test image and test caption.

        Args:
            run: the model that embeds the captions, the seed and the device.
        """
        from clearspan.plugins.captions.ranking import train

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


def _side(run: TaskContext, captioned: Captioned) -> "Side":
    from clearspan.plugins.captions.ranking import Side

    return Side(captioned.images, finite(run.embedder.embed(captioned.captions, keep=False)))


def _examples(ranks: "FoldRanks") -> Examples:
    from clearspan.plugins.captions.ranking import CUTS

    folds = [*ranks.image_to_text, *ranks.text_to_image]
    recalls = [np.mean([fold <= cut for cut in CUTS], axis=0) for fold in folds]
    return Examples.of("mean", np.concatenate(recalls), groups=np.repeat(np.arange(len(folds)), [*map(len, folds)]))
