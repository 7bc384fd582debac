"""The words that `--tasks` understands. A new task is a file with a `FAMILY`, and a line here."""

from eval.tasks import glue, retrieval, sts
from eval.tasks.task import Family

FAMILIES: dict[str, Family] = {
    "sts": sts.FAMILY,
    "retrieval": retrieval.FAMILY,
    "glue": glue.FAMILY,
}
