"""Catalog of the commands: the module of each, and its summary. Imports nothing, so that `clearspan --help` is quick.

A class that states a summary, such as a kind of dataset, takes it from here.
"""

from typing import NamedTuple

PIPELINES = "clearspan.pipelines.__main__"


class Entry(NamedTuple):
    """A command: the module whose `main(argv, prog)` runs it, and its line in the list of commands."""

    module: str
    summary: str

    @property
    def kept(self) -> bool:
        """Return whether `argv` begins with the command's name, because the module runs several commands."""
        return self.module == PIPELINES


COMMANDS = {
    "adapt": Entry("clearspan.adapt.__main__", "adapt a model to your own texts, and measure whether that helped"),
    "vocabulary": Entry(PIPELINES, "learn a tokenizer from texts, for a domain or a language without one"),
    "documents": Entry(PIPELINES, "long documents -> dataset of token shards"),
    "sentences": Entry(PIPELINES, "texts -> dataset of sentences, with augmented views"),
    "pairs": Entry(PIPELINES, "two fields of each record, e.g. title and text -> dataset of positive pairs"),
    "triplets": Entry(PIPELINES, "labeled pairs of sentences -> dataset with hard negatives"),
    "mine": Entry(PIPELINES, "add hard negatives to a dataset of pairs or triplets, from its own texts"),
    "images": Entry(PIPELINES, "image files and tars -> dataset of images with classes"),
    "audio": Entry(PIPELINES, "sound files -> dataset of log-mel spectrograms with classes"),
    "train": Entry("clearspan.train.__main__", "train an encoder by a recipe, on one or more devices"),
    "sweep": Entry("clearspan.train.sweep", "train a grid of runs, and compare them"),
    "distill": Entry("clearspan.train.distill", "make a static encoder of a local encoder, without training"),
    "export": Entry("clearspan.train.export", "write a run's checkpoint as a model folder"),
    "eval": Entry("clearspan.eval.__main__", "score models by the published protocols; write a report"),
    "compare": Entry("clearspan.eval.compare", "test which differences between two evaluations exceed noise"),
    "tables": Entry("clearspan.eval.tables.__main__", "print a paper's table with your own models in it"),
    "data": Entry("clearspan.eval.data.__main__", "check the evaluation data, and say where to obtain the rest"),
    "embed": Entry(PIPELINES, "texts -> dataset of their vectors, by a trained model"),
    "search": Entry(PIPELINES, "find the texts of a collection that queries ask for"),
    "serve": Entry(PIPELINES, "a page on this machine to search a collection by model, BM25 and both, side by side"),
    "shards": Entry("clearspan.shards.__main__", "list, verify, print or export a dataset of any kind"),
}
"""The commands in the order in which a user needs them."""
