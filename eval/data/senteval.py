"""Find SentEval's two data folders, `downstream` and `probing`, in a user's data folder DATA.

    DATA/{downstream,probing}/, DATA/senteval/{downstream,probing}/, or DATA is itself one of the two folders

SentEval splits a text at white space and passes it to an encoder as these tokens, joined by single spaces, in their
original case. `single_spaced` does the same for the readers of SentEval's files.
"""

from collections.abc import Sequence
from pathlib import Path

from clearspan.common.records import MissingDataError

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
"""SentEval's name of a probing task -> the name of its file."""


def find_downstream(data: Path) -> Path:
    """Return SentEval's `downstream` folder, which holds a folder such as `STS` or `MRPC` for each task.

    It is `data/downstream` or, if that does not exist, `data/senteval/downstream`. If neither exists, it is `data`
    itself, provided that `data` holds the folder of a task.

    Raises:
        MissingDataError: there is no such folder.
    """
    return _find(data, "downstream", _DOWNSTREAM)


def find_probing(data: Path) -> Path:
    """Return SentEval's `probing` folder, which holds a file such as `tree_depth.txt` for each probing task.

    It is `data/probing` or, if that does not exist, `data/senteval/probing`. If neither exists, it is `data` itself,
    provided that `data` holds the file of a probing task.

    Raises:
        MissingDataError: there is no such folder.
    """
    return _find(data, "probing", tuple(PROBING.values()))


def _find(data: Path, name: str, holds: Sequence[str]) -> Path:
    """Return the folder `data/name` or, if that does not exist, `data/senteval/name`.

    If neither exists, return `data` itself, provided that it contains one of the entries `holds`.

    Args:
        data: the user's data folder.
        name: `downstream` or `probing`.
        holds: names of files and folders, at least one of which is in SentEval's folder `name`.

    Raises:
        MissingDataError: neither folder exists, and `data` contains none of the entries.
    """
    for place in (data / name, data / "senteval" / name):
        if place.is_dir():
            return place
    if any((data / entry).exists() for entry in holds):
        return data
    raise MissingDataError(f"{data} is not a SentEval data folder: it holds neither {name}/ nor senteval/{name}/")


def single_spaced(text: str) -> str:
    """Return the tokens of a text, which white space separates, joined by single spaces."""
    return " ".join(text.split())
