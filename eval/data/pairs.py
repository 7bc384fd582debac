"""Files of one's own pairs, csv or tsv: rows of two texts and a score.

What `--pairs` and `training.eval_data` read, and STS-B in other languages: stsb_multi_mt's csv files are such files.
"""

from collections.abc import Iterator
from pathlib import Path

from clearspan.eval.data.sts import Pairs, pairs_of, parsed_score
from clearspan.eval.files import DataError, csv_rows, head, read_lines

SUFFIXES = (".csv", ".tsv")
_SCORE_COLUMN = {"score", "similarity", "gold", "label"}


def read_pairs(path: Path) -> Pairs:
    """The pairs of a csv, or of a tsv where the file is called so.

    A row is two texts and a score, any number. The first row may be a header: its third cell says `score`,
    `similarity`, `gold` or `label`, alone or with other words (`similarity_score`), in any case. Further columns may
    stand only under a header, which shows that they are meant, and not two commas too many; they are not read.
    Empty lines are passed over. UTF-8, with or without a byte order mark.

    In a csv a cell may be quoted, and must be where it holds a comma, a quote (doubled) or an end of line. In a tsv a
    cell within quotes is taken out of them, unless there are single quotes left inside: many write no quoting there.

    Raises:
        MissingDataError: the file is not there.
        DataError: a row is malformed, or there is none.
    """
    is_tsv = path.suffix.lower() == ".tsv"
    separator = "\t" if is_tsv else ","
    rows = []
    expected = f"two sentences and a score with {'TABs' if is_tsv else 'commas'} between them"
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
