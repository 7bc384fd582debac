"""The words that `--tasks` understands. A new task is a file with a `FAMILY`, and a line here."""

from eval import retrieval, sts
from eval.task import Family

FAMILIES: dict[str, Family] = {
    "sts": sts.FAMILY,
    "retrieval": retrieval.FAMILY,
}
