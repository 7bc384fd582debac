"""Readers for SentEval's files of labeled sentences and pairs.

    MR CR SUBJ MPQA   one file for each of the two classes
    SST TREC          one file for each split; a line holds a label and a sentence
    MRPC SICK         one TAB-separated table for each split
    SNLI              three files for each split: first sentences, second sentences and labels, line by line
    probing           one file for all three splits

Each reader raises MissingDataError if a file does not exist. It raises DataError, which names the line, if a file is
empty or malformed.

A sentence may be empty, because some of the published sentences are. As in SentEval, the files of MR, CR, SUBJ, MPQA
and TREC and the sentences of SNLI are read as Latin-1. SentEval splits a file into lines with `str.splitlines`; here
only LF ends a line. On the published files, the result is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.records import DataError, head, read_lines
from clearspan.eval.data.senteval import single_spaced
from clearspan.eval.files import table_rows

TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
SICK_CLASSES = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
SNLI_CLASSES = ("entailment", "neutral", "contradiction")
BINARY = ("0", "1")
_PROBING_SPLITS = {"tr": "train", "va": "dev", "te": "test"}


@dataclass(frozen=True)
class Labeled:
    """Labeled sentences or sentence pairs.

    Attributes:
        columns: one list of n sentences, or two lists of n sentences each for pairs.
        labels: class indices from 0, (n,) int64. GLUE's labels are (n,) float64: class indices, or scores from 0 to 5.
        num_broken: the number of rows that were left out because they have a wrong number of fields.
    """

    columns: tuple[list[str], ...]
    labels: NDArray[Any]
    num_broken: int = 0

    def __len__(self) -> int:
        return len(self.labels)


def order(columns: Sequence[list[str]], values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row indices, (n,) int64, that sort n sentences or pairs in SentEval's order.

    SentEval sorts by the number of tokens in the first text, then by the number of tokens in the second text, and last
    by the label or score.

    Args:
        columns: one or two lists of n texts.
        values: the n labels or scores.
    """
    lengths = [np.array([len(text.split()) for text in column]) for column in columns]
    return np.lexsort((values, *reversed(lengths)))


def read_two_classes(positive: Path, negative: Path) -> Labeled:
    """Read two files with one sentence per line, one for each class: MR, CR, MPQA or SUBJ.

    Args:
        positive: the file of class 1, which is read first: `.pos`, or SUBJ's objective sentences.
        negative: the file of class 0: `.neg`, or SUBJ's subjective sentences.

    Raises:
        MissingDataError: one of the files does not exist.
        DataError: one of the files is empty.
    """
    files = ((1, positive), (0, negative))
    return _labeled([(line, label) for label, path in files for line in _lines(path, "latin-1")])


def read_sst(path: Path, num_classes: int) -> Labeled:
    """Read a split of SST. A line is `sentence TAB label` with two classes, and `label SPACE sentence` with five.

    The training split with two classes contains phrases as well as whole sentences.

    Args:
        path: the file of the split.
        num_classes: the number of classes, 2 or 5.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the file is empty or malformed.
    """
    classes = tuple(str(label) for label in range(num_classes))
    rows = []
    for number, line in enumerate(_lines(path), start=1):
        if num_classes == 2:
            text, separator, label = line.strip().rpartition("\t")
        else:
            label, separator, text = line.strip().partition(" ")
        if not separator:
            form = "a sentence, a TAB and its label" if num_classes == 2 else "a label, a space and its sentence"
            raise DataError(f"{path}:{number}: expected {form}, found {head(line)}")
        rows.append((text, _label(label, classes, path, number)))
    return _labeled(rows)


def read_trec(path: Path) -> Labeled:
    """Read a split of TREC, whose lines are `COARSE:fine question`. The labels are the coarse classes' indices.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the file is empty or malformed.
    """
    rows = []
    for number, line in enumerate(_lines(path, "latin-1"), start=1):
        kind, space, text = line.strip().partition(" ")
        label, colon, _ = kind.partition(":")
        if not space or not colon:
            raise DataError(f"{path}:{number}: expected COARSE:fine, a space and a question, found {head(line)}")
        rows.append((text, _label(label, TREC_CLASSES, path, number)))
    return _labeled(rows)


def read_mrpc(path: Path) -> Labeled:
    """Read a split of MRPC, `msr_paraphrase_{train,test}.txt`.

    The file is TAB-separated and has a header. Field 1 is the label, and fields 4 and 5 are the sentences.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the file is empty or malformed.
    """
    return _read_table(path, "Quality", columns=(3, 4, 0), classes=BINARY)


def read_sick_entailment(path: Path) -> Labeled:
    """Read the sentences and entailment labels of a split of SICK, `SICK_{train,trial,test_annotated}.txt`.

    The file is TAB-separated and has a header. Fields 2 and 3 are the sentences, and field 5 is the label.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the file is empty or malformed.
    """
    return _read_table(path, "entailment_judgment", columns=(1, 2, 4), classes=SICK_CLASSES)


def read_snli(folder: Path, split: str) -> Labeled:
    """Read a split of SNLI: first sentences `s1.<split>`, second sentences `s2.<split>` and `labels.<split>`.

    The same line of the three files belongs to one pair.

    Raises:
        MissingDataError: one of the files does not exist.
        DataError: a file is empty or malformed, or the files have different numbers of lines.
    """
    paths = [folder / f"{kind}.{split}" for kind in ("s1", "s2", "labels")]
    left, right, labels = _lines(paths[0], "latin-1"), _lines(paths[1], "latin-1"), _lines(paths[2])
    for path, lines in ((paths[1], right), (paths[2], labels)):
        if len(lines) != len(left):
            raise DataError(
                f"{path}: {len(lines)} lines for the {len(left)} of {paths[0].name}, and they must match line by line; "
                "restore the three files from the original"
            )
    classes = [_label(label.strip(), SNLI_CLASSES, paths[2], number) for number, label in enumerate(labels, start=1)]
    return _labeled(list(zip(left, right, classes, strict=True)))


def read_probing(path: Path) -> tuple[dict[str, Labeled], tuple[str, ...]]:
    """Read the file of a probing task, and return its splits and the names of its classes.

    A line holds the split (`tr`, `va` or `te`), the name of the class and the sentence, separated by TABs.

    Returns:
        The splits by their names, which are `train`, `dev` and `test`; and the sorted names of the classes. A label in
        a split is an index into these names.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the file is malformed or lacks a split, or a class does not occur in the split `tr`.
    """
    rows: dict[str, list[tuple[str, str, int]]] = {split: [] for split in _PROBING_SPLITS.values()}
    for number, line in enumerate(_lines(path), start=1):
        fields = line.rstrip().split("\t")
        if len(fields) < 2 or fields[0] not in _PROBING_SPLITS:
            raise DataError(
                f"{path}:{number}: expected tr, va or te, a label and a sentence, separated by TABs, found {head(line)}"
            )
        # An empty sentence leaves two fields; as in SentEval, the label then also serves as the sentence.
        rows[_PROBING_SPLITS[fields[0]]].append((fields[-1], fields[1], number))
    for short, split in _PROBING_SPLITS.items():
        if not rows[split]:
            raise DataError(f"{path}: holds no line of the split {short}; it may be truncated, so restore the original")
    classes = tuple(sorted({label for _, label, _ in rows["train"]}))
    numbers = {label: number for number, label in enumerate(classes)}
    for split in ("dev", "test"):
        for _, label, number in rows[split]:
            if label not in numbers:
                raise DataError(f"{path}:{number}: the label {head(label)} does not occur in the training split (tr)")
    return {
        split: _labeled([(text, numbers[label]) for text, label, _ in part]) for split, part in rows.items()
    }, classes


def _read_table(path: Path, header: str, columns: tuple[int, int, int], classes: Sequence[str]) -> Labeled:
    rows = list(table_rows(path, max(columns) + 1, header))
    left, right, label = columns
    if not rows:
        raise DataError(f"{path}: holds no pair; restore it from the original")
    return _labeled(
        [(row[left], row[right], _label(row[label].strip(), classes, path, number)) for number, row in rows]
    )


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    lines = list(read_lines(path, encoding))
    if not lines:
        raise DataError(f"{path}: is empty; restore it from the original")
    return lines


def _label(text: str, classes: Sequence[str], path: Path, number: int) -> int:
    if text not in classes:
        raise DataError(f"{path}:{number}: expected one of {', '.join(classes)} as label, found {head(text)}")
    return classes.index(text)


def _labeled(rows: Sequence[tuple[Any, ...]]) -> Labeled:
    """Build `Labeled` from at least one row: (text, class index) or (first text, second text, class index)."""
    *columns, labels = zip(*rows, strict=True)
    return Labeled(tuple([single_spaced(text) for text in column] for column in columns), np.array(labels, np.int64))
