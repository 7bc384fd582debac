"""SentEval's transfer tasks, which classify sentences and pairs by a linear classifier on frozen embeddings.

    MR, CR, SUBJ, MPQA     sentiment, subjectivity and opinion polarity   scheme `nested`
    TREC, MRPC             type of a question, paraphrases                scheme `kfold`
    SST2, SST5             sentiment                                      scheme `split`
    SICKEntailment, SNLI   entailment                                     scheme `split`

A scheme is the way to select the L2 value (the weight of the classifier's L2 penalty) and to test the classifier.
`nested` does both by cross-validation; `kfold` selects by cross-validation on the training split, and tests on the test
split; `split` selects on the dev split, and tests on the test split.
"""

from functools import partial
from pathlib import Path

from clearspan.eval.data.labeled import (
    BINARY,
    SICK_CLASSES,
    SNLI_CLASSES,
    TREC_CLASSES,
    read_mrpc,
    read_sick_entailment,
    read_snli,
    read_sst,
    read_trec,
    read_two_classes,
)
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.tasks.classification import ClassificationTask
from clearspan.eval.tasks.task import Family, Loaded, load_each

TWO_CLASSES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}
_DIFFERENCE = ("difference", "product")
_ALL_PARTS = ("left", "right", "product", "difference")


def load(data: Path) -> Loaded:
    """Read the transfer tasks from a SentEval data folder.

    If a file of a task does not exist, the task is left out, and `Loaded.missing` has the reason.

    Raises:
        DataError: a file is malformed.
    """
    return load_each(
        {
            **{name: partial(_two_classes, name, data) for name in TWO_CLASSES},
            "SST2": lambda: _sst("SST2", find_downstream(data) / "SST" / "binary", 2),
            "SST5": lambda: _sst("SST5", find_downstream(data) / "SST" / "fine", 5),
            "TREC": lambda: _trec(find_downstream(data) / "TREC"),
            "MRPC": lambda: _mrpc(find_downstream(data) / "MRPC"),
            "SICKEntailment": lambda: _sick(find_downstream(data) / "SICK"),
            "SNLI": lambda: _snli(find_downstream(data) / "SNLI"),
        }
    )


FAMILY = Family(load, "DIR/downstream/{MR,CR,SUBJ,MPQA,SST,TREC,MRPC,SICK,SNLI}/, SentEval's layout")


def _two_classes(name: str, data: Path) -> ClassificationTask:
    files = tuple(find_downstream(data) / file for file in TWO_CLASSES[name])
    classes = tuple(file.suffix[1:] for file in reversed(files))
    return ClassificationTask(name, "nested", {"train": read_two_classes(*files)}, classes, files)


def _sst(name: str, folder: Path, num_classes: int) -> ClassificationTask:
    files = {split: folder / f"sentiment-{split}" for split in ("train", "dev", "test")}
    splits = {split: read_sst(file, num_classes) for split, file in files.items()}
    classes = tuple(str(label) for label in range(num_classes))
    return ClassificationTask(name, "split", splits, classes, tuple(files.values()))


def _trec(folder: Path) -> ClassificationTask:
    files = {"train": folder / "train_5500.label", "test": folder / "TREC_10.label"}
    splits = {split: read_trec(file) for split, file in files.items()}
    return ClassificationTask("TREC", "kfold", splits, TREC_CLASSES, tuple(files.values()))


def _mrpc(folder: Path) -> ClassificationTask:
    files = {split: folder / f"msr_paraphrase_{split}.txt" for split in ("train", "test")}
    splits = {split: read_mrpc(file) for split, file in files.items()}
    return ClassificationTask("MRPC", "kfold", splits, BINARY, tuple(files.values()), _DIFFERENCE, f1=True)


def _sick(folder: Path) -> ClassificationTask:
    names = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    files = {split: folder / name for split, name in names.items()}
    splits = {split: read_sick_entailment(file) for split, file in files.items()}
    return ClassificationTask("SICKEntailment", "split", splits, SICK_CLASSES, tuple(files.values()), _DIFFERENCE)


def _snli(folder: Path) -> ClassificationTask:
    """Read SNLI, half a million pairs, with SentEval's settings: L2 of 1e-9, a dev check a pass, at most 16 passes."""
    names = ("train", "dev", "test")
    return ClassificationTask(
        "SNLI",
        "split",
        {split: read_snli(folder, split) for split in names},
        SNLI_CLASSES,
        tuple(folder / f"{kind}.{split}" for split in names for kind in ("s1", "s2", "labels")),
        _ALL_PARTS,
        grid=(1e-9,),
        max_epoch=15,
        epoch_size=1,
        snli_order=True,
        keep=False,
    )
