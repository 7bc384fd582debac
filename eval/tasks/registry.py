"""The words that `--tasks` accepts. A new task is a module with a `FAMILY`, and a line here."""

from clearspan.eval.tasks import captions, geometry, glue, multilingual, probing, relatedness, retrieval, sts, transfer
from clearspan.eval.tasks.task import Family

FAMILIES: dict[str, Family] = {
    "sts": sts.FAMILY,
    "transfer": transfer.FAMILY,
    "relatedness": relatedness.FAMILY,
    "captions": captions.FAMILY,
    "probing": probing.FAMILY,
    "probing-mlp": probing.MLP_FAMILY,
    "geometry": geometry.FAMILY,
    "stsb-multilingual": multilingual.FAMILY,
    "retrieval": retrieval.FAMILY,
    "glue": glue.FAMILY,
}
