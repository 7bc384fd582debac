"""SentEval's data folder, and what the readers of its files share.

    DATA/{downstream,probing}/, DATA/senteval/{downstream,probing}/, or one of the two itself

Texts are what a SentEval user's encoder gets: the line's tokens joined by single spaces, case kept.
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
"""SentEval's name of a probing task -> its file."""


def find_downstream(data: Path) -> Path:
    """The `downstream` folder of a SentEval data folder.

    Accepts the folder that holds `downstream/`, a folder that holds that one as `senteval/`, or `downstream` itself.

    Raises:
        MissingDataError: `data` is none of these.
    """
    return _find(data, "downstream", _DOWNSTREAM)


def find_probing(data: Path) -> Path:
    """The `probing` folder of a SentEval data folder: inside it, inside its `senteval/`, or the folder itself.

    Raises:
        MissingDataError: `data` is none of these.
    """
    return _find(data, "probing", tuple(PROBING.values()))


def _find(data: Path, name: str, holds: Sequence[str]) -> Path:
    """`data/name`, `data/senteval/name`, or `data` itself where it holds one of the files or folders `holds`.

    Raises:
        MissingDataError: `data` is none of these.
    """
    for place in (data / name, data / "senteval" / name):
        if place.is_dir():
            return place
    if any((data / one).exists() for one in holds):
        return data
    raise MissingDataError(f"{data} is no SentEval data folder: it holds neither {name}/ nor senteval/{name}/")


def table_rows(path: Path, num_fields: int, header: str = "") -> list[tuple[int, list[str]]]:
    """(line number, fields) of the rows of a TAB-separated file without quoting.

    Args:
        num_fields: how many a row must have at least.
        header: a field of the first line, which names the columns; empty: there is no such line.

    Raises:
        MissingDataError: the file is not there.
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
    """The tokens of a text with single spaces between."""
    return " ".join(text.split())
