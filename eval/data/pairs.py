"""Read the user's sentence pairs from csv or tsv files: rows of two texts and a score.

`--pairs`, `training.eval_data` and the multilingual STS-B (stsb_multi_mt's csv files) use this format.
"""

from collections.abc import Iterator
from pathlib import Path

from clearspan.eval.data.sts import Pairs, pairs_of, parsed_score
from clearspan.eval.files import DataError, csv_rows, head, read_lines

SUFFIXES = (".csv", ".tsv")
_SCORE_COLUMN = {"score", "similarity", "gold", "label"}


def read_pairs(path: Path) -> Pairs:
    """Read the pairs of a csv file, or of a tsv file if its name ends with `.tsv`.

    A row holds two texts and a score, which may be any number. The first row may be a header: its third cell contains
    the word `score`, `similarity`, `gold` or `label`, in any case. Further columns are ignored, and allowed only with a
    header: otherwise they may come from unquoted commas. Empty lines are skipped. Files are UTF-8, with or without a
    byte order mark.

    In a csv, a cell with a comma, a quote (doubled) or an end of line must be quoted. In a tsv, quotes around a cell
    are removed unless it contains an undoubled quote, since many tsv files are written without quoting.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a row is malformed, or there is none.
    """
    is_tsv = path.suffix.lower() == ".tsv"
    separator = "\t" if is_tsv else ","
    rows = []
    expected = f"two sentences and a score, separated by {'TABs' if is_tsv else 'commas'}"
    width, is_first = 3, True
    for number, fields in _tsv_rows(path) if is_tsv else csv_rows(path):
        if not any(fields) and len(fields) < 2:
            continue
        if is_first and len(fields) >= 3 and _SCORE_COLUMN & set(fields[2].lower().replace("_", " ").split()):
            width, expected = len(fields), f"{len(fields)} fields, as in the header"
        elif len(fields) != width:
            raise DataError(
                f"{path}:{number}: expected {expected}, found {len(fields)} fields: {head(separator.join(fields))}"
            )
        else:
            rows.append((fields[0], fields[1], parsed_score(fields[2], path, number)))
        is_first = False
    return pairs_of(rows, path)


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        yield number, [_unquoted(field) for field in line.split("\t")]


def _unquoted(field: str) -> str:
    inside = field[1:-1].replace('""', "")
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"' and '"' not in inside
    return field[1:-1].replace('""', '"') if is_quoted else field
