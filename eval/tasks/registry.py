"""The words that `--tasks` understands. A new task is a file with a `FAMILY`, and a line here."""

from eval.tasks import captions, geometry, glue, multilingual, relatedness, retrieval, sts
from eval.tasks.task import Family

FAMILIES: dict[str, Family] = {
    "sts": sts.FAMILY,
    "relatedness": relatedness.FAMILY,
    "captions": captions.FAMILY,
    "geometry": geometry.FAMILY,
    "stsb-multilingual": multilingual.FAMILY,
    "retrieval": retrieval.FAMILY,
    "glue": glue.FAMILY,
}
