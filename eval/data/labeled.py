"""Readers for SentEval's files of labeled sentences and pairs.

    MR CR SUBJ MPQA   a file for each of two classes     SST TREC   a label and a sentence a line
    MRPC SICK         TAB-separated tables               SNLI       three files, line by line
    probing           one file for all three splits

Each reader raises MissingDataError if a file does not exist, and DataError, which names the line, if a file is empty or
malformed.

Some published sentences are empty. As in SentEval, MR, CR, SUBJ, MPQA, TREC and SNLI's sentences are read as Latin-1.
SentEval splits lines like `str.splitlines`; here only LF ends a line, with the same result on the published files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.records import DataError, head, read_lines
from clearspan.eval.data.senteval import joined
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
        columns: one or two columns of n texts.
        labels: int64 (n,), classes from 0; GLUE's are float64, class numbers or scores from 0 to 5.
        num_broken: number of rows that were left out for a wrong number of fields.
    """

    columns: tuple[list[str], ...]
    labels: NDArray[Any]
    num_broken: int = 0

    def __len__(self) -> int:
        return len(self.labels)


def order(columns: Sequence[list[str]], values: NDArray[Any]) -> NDArray[np.int64]:
    """Return row numbers in SentEval's order: by tokens of the first text, then of the second, then by `values`."""
    lengths = [np.array([len(text.split()) for text in column]) for column in columns]
    return np.lexsort((values, *reversed(lengths)))


def read_two_classes(positive: Path, negative: Path) -> Labeled:
    """Read two files with one sentence per line: MR, CR, MPQA (`.pos`, `.neg`), SUBJ (objective, subjective).

    Sentences of class 1 come first, sentences of class 0 second.
    """
    files = ((1, positive), (0, negative))
    return _labeled([(line, label) for label, path in files for line in _lines(path, "latin-1")])


def read_sst(path: Path, num_classes: int) -> Labeled:
    """Read a split of SST: `sentence TAB label` for two classes, `label SPACE sentence` for five.

    SST2's training split also holds phrases.
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
    """Read a split of TREC, `COARSE:fine question`; labels are the coarse classes."""
    rows = []
    for number, line in enumerate(_lines(path, "latin-1"), start=1):
        kind, space, text = line.strip().partition(" ")
        label, colon, _ = kind.partition(":")
        if not space or not colon:
            raise DataError(f"{path}:{number}: expected COARSE:fine, a space and a question, found {head(line)}")
        rows.append((text, _label(label, TREC_CLASSES, path, number)))
    return _labeled(rows)


def read_mrpc(path: Path) -> Labeled:
    """Read a split of MRPC, `msr_paraphrase_{train,test}.txt`: header, TAB-separated; uses fields 1, 4 and 5."""
    return _read_table(path, "Quality", columns=(3, 4, 0), classes=BINARY)


def read_sick_entailment(path: Path) -> Labeled:
    """Read a split of SICK, `SICK_{train,trial,test_annotated}.txt`: header, TAB-separated; uses fields 2, 3 and 5."""
    return _read_table(path, "entailment_judgment", columns=(1, 2, 4), classes=SICK_CLASSES)


def read_snli(folder: Path, split: str) -> Labeled:
    """Read a split of SNLI: `s1.<split>`, `s2.<split>` and `labels.<split>`, line by line."""
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
    """Read a probing task, and return its splits `train`, `dev` and `test`, and its classes in alphabetical order.

    A line holds `tr`, `va` or `te`, a label, and last the sentence, separated by TABs.
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
    """Build `Labeled` from one or more rows, each of one or two texts and a label."""
    *columns, labels = zip(*rows, strict=True)
    return Labeled(tuple([joined(text) for text in column] for column in columns), np.array(labels, np.int64))
