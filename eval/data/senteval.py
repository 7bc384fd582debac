"""Find SentEval's data folders, and helpers that the readers of its files share.

    DATA/{downstream,probing}/, DATA/senteval/{downstream,probing}/, or one of the two itself

Texts are what SentEval passes to an encoder: the tokens of a line joined by single spaces, in their original case.
"""

from collections.abc import Sequence
from pathlib import Path

from clearspan.eval.files import DataError, MissingDataError, head, read_lines

_DOWNSTREAM = ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SNLI", "COCO")
PROBING = {
    "Length": "sentence_length.txt",
    "WordContent": "word_content.txt",
    "Depth": "tree_depth.txt",
    "TopConstituents": "top_constituents.txt",
    "BigramShift": "bigram_shift.txt",
    "Tense": "past_present.txt",
    "SubjNumber": "subj_number.txt",
    "ObjNumber": "obj_number.txt",
    "OddManOut": "odd_man_out.txt",
    "CoordinationInversion": "coordination_inversion.txt",
}
"""SentEval's name of each probing task -> its file."""


def find_downstream(data: Path) -> Path:
    """Return SentEval's `downstream` folder: `data/downstream`, `data/senteval/downstream` or `data`.

    Raises:
        MissingDataError: `data` is none of these.
    """
    return _find(data, "downstream", _DOWNSTREAM)


def find_probing(data: Path) -> Path:
    """Return SentEval's `probing` folder: `data/probing`, `data/senteval/probing` or `data`.

    Raises:
        MissingDataError: `data` is none of these.
    """
    return _find(data, "probing", tuple(PROBING.values()))


def _find(data: Path, name: str, holds: Sequence[str]) -> Path:
    """Return `data/name`, `data/senteval/name`, or `data` itself if it contains one of the names in `holds`."""
    for place in (data / name, data / "senteval" / name):
        if place.is_dir():
            return place
    if any((data / entry).exists() for entry in holds):
        return data
    raise MissingDataError(f"{data} is not a SentEval data folder: it holds neither {name}/ nor senteval/{name}/")


def table_rows(path: Path, num_fields: int, header: str = "") -> list[tuple[int, list[str]]]:
    """Return (line number, fields) of each row of a TAB-separated file without quoting.

    Args:
        num_fields: minimum number of fields in a row.
        header: a column name that the header must contain; empty: the file has no header.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the header is missing, or a row has too few fields.
    """
    lines = list(read_lines(path))
    if header and header not in "".join(lines[:1]).split("\t"):
        raise DataError(f"{path}:1: expected a header with a field {header}, found {head(''.join(lines[:1]))}")
    rows = []
    for number, line in enumerate(lines[bool(header) :], start=1 + bool(header)):
        fields = line.split("\t")
        if len(fields) < num_fields:
            raise DataError(
                f"{path}:{number}: expected {num_fields} TAB-separated fields, found {len(fields)}: {head(line)}"
            )
        rows.append((number, fields))
    return rows


def joined(text: str) -> str:
    """Return the tokens of a text, joined by single spaces."""
    return " ".join(text.split())
