"""Reader for GLUE's files as downloaded: `glue/<TASK>/train.tsv` and `dev.tsv`.

    a TAB-separated file without quoting ──> Labeled: one or two texts and a class or a score for each row

Every file except CoLA's has a header. Columns are selected by name, because MNLI's dev files and its training file have
different columns. If a row has a wrong number of fields, an error is raised that names the line. QQP is the exception:
its published files break some questions over several lines, and such rows are skipped and counted.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearspan.common.parsing import finite_number
from clearspan.common.records import DataError, head, read_lines
from clearspan.eval.data.labeled import Labeled


@dataclass(frozen=True)
class GlueColumns:
    """The format of the files of one GLUE task.

    Attributes:
        texts: the names of the columns that hold the texts, one or two.
        label: the name of the column that holds the class or the score.
        classes: the class names as written in the file, in the order of their class indices; empty if the label is a
            score.
        dev: the names of the dev files. MNLI has two: one with the genres of the training file, one with other genres.
        header: the column names of a file that has no header; empty if the file has one.
        broken_rows: whether to skip rows with a wrong number of fields instead of raising an error.
    """

    texts: tuple[str, ...]
    label: str
    classes: tuple[str, ...] = ("0", "1")
    dev: tuple[str, ...] = ("dev.tsv",)
    header: tuple[str, ...] = ()
    broken_rows: bool = False


_ENTAILMENT = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")
LAYOUTS: dict[str, GlueColumns] = {
    "MNLI": GlueColumns(
        _SENTENCES, "gold_label", ("entailment", "neutral", "contradiction"), ("dev_matched.tsv", "dev_mismatched.tsv")
    ),
    "QNLI": GlueColumns(("question", "sentence"), "label", _ENTAILMENT),
    "QQP": GlueColumns(("question1", "question2"), "is_duplicate", broken_rows=True),
    "RTE": GlueColumns(_SENTENCES, "label", _ENTAILMENT),
    "SST-2": GlueColumns(("sentence",), "label"),
    "MRPC": GlueColumns(("#1 String", "#2 String"), "Quality"),
    "CoLA": GlueColumns(("sentence",), "label", header=("source", "label", "author's mark", "sentence")),
    "STS-B": GlueColumns(_SENTENCES, "score", classes=()),
}
"""Task -> the format of its files, for the eight tasks in CLEAR's Table 1, in the order of the table."""
HIGHEST_SCORE = 5.0


def read_glue(path: Path, layout: GlueColumns) -> Labeled:
    """Read a file of a GLUE task. A byte order mark, which MRPC's file has, is skipped.

    Args:
        layout: the format of the task's files, such as `LAYOUTS["MNLI"]`.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the header lacks a column, a row is malformed, or there is no row.
    """
    columns = list(layout.header)
    texts = []
    labels = []
    num_broken = 0
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if not columns:
            columns = fields
            if lacking := [name for name in (*layout.texts, layout.label) if name not in columns]:
                raise DataError(f"{path}:1: expected a header with the column {lacking[0]}, found {head(line)}")
            continue
        if len(fields) != len(columns):
            if layout.broken_rows:
                num_broken += 1
                continue
            raise DataError(f"{path}:{number}: expected {len(columns)} fields, found {len(fields)}: {head(line)}")
        row = dict(zip(columns, fields, strict=True))
        labels.append(_label(row[layout.label], layout, f"{path}:{number}"))
        texts.append([row[name] for name in layout.texts])
    if not texts:
        raise DataError(f"{path}: holds no row; restore it from GLUE's download")
    by_column = tuple(list(column) for column in zip(*texts, strict=True))
    return Labeled(by_column, np.array(labels, np.float64), num_broken)


def _label(text: str, layout: GlueColumns, place: str) -> float:
    if layout.classes:
        if text not in layout.classes:
            raise DataError(f"{place}: {layout.label} must be one of {', '.join(layout.classes)}, found {head(text)}")
        return float(layout.classes.index(text))
    try:
        value = finite_number(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= HIGHEST_SCORE:
        raise DataError(f"{place}: {layout.label} must be a number from 0 to {HIGHEST_SCORE:g}, found {head(text)}")
    return value
