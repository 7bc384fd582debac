"""The words that `--tasks` understands. A new task is a file with a `FAMILY`, and a line here."""

from eval.tasks import probing, retrieval, sts, transfer
from eval.tasks.task import Family

FAMILIES: dict[str, Family] = {
    "sts": sts.FAMILY,
    "transfer": transfer.FAMILY,
    "probing": probing.FAMILY,
    "probing-mlp": probing.MLP_FAMILY,
    "retrieval": retrieval.FAMILY,
}
