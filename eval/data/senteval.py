"""Find SentEval's data folders.

    DATA/{downstream,probing}/, DATA/senteval/{downstream,probing}/, or DATA is itself one of the two folders

SentEval passes a text to an encoder as its tokens, joined by single spaces, in their original case. `joined` does the
same for the readers of SentEval's files.
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
    """Return SentEval's `downstream` folder: `data/downstream`, `data/senteval/downstream` or `data`.

    Raises:
        MissingDataError: there is no such folder.
    """
    return _find(data, "downstream", _DOWNSTREAM)


def find_probing(data: Path) -> Path:
    """Return SentEval's `probing` folder: `data/probing`, `data/senteval/probing` or `data`.

    Raises:
        MissingDataError: there is no such folder.
    """
    return _find(data, "probing", tuple(PROBING.values()))


def _find(data: Path, name: str, holds: Sequence[str]) -> Path:
    """Return the first that exists of `data/name`, `data/senteval/name`, and `data` if it contains an entry of `holds`.

    Raises:
        MissingDataError: none of the three exists.
    """
    for place in (data / name, data / "senteval" / name):
        if place.is_dir():
            return place
    if any((data / entry).exists() for entry in holds):
        return data
    raise MissingDataError(f"{data} is not a SentEval data folder: it holds neither {name}/ nor senteval/{name}/")


def joined(text: str) -> str:
    """Return the tokens of a text, joined by single spaces."""
    return " ".join(text.split())
