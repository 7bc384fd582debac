"""Catalog of the commands: the class and the summary of each. Imports nothing, so that `clearspan --help` is quick.

The classes of the commands, e.g. in `pipelines/builders/`, take their summaries from here.
"""

from typing import NamedTuple

PIPELINES = "clearspan.pipelines.__main__:GROUP"


class Listing(NamedTuple):
    """A command in the catalog, as `module:name`, and its line in the list of commands."""

    command: str
    summary: str

    @property
    def module(self) -> str:
        """The name of the command's module."""
        return self.command.partition(":")[0]

    @property
    def is_of_group(self) -> bool:
        """Return whether the command is one of the group of `pipelines`, in which its name chooses it."""
        return self.command == PIPELINES


COMMANDS = {
    "adapt": Listing(
        "clearspan.adapt.__main__:AdaptCommand", "adapt a model to your own texts, and measure whether that helped"
    ),
    "vocabulary": Listing(PIPELINES, "learn a tokenizer from texts, for a domain or a language without one"),
    "documents": Listing(PIPELINES, "make a dataset of tokenized documents"),
    "sentences": Listing(PIPELINES, "make a dataset of sentences, with augmented views"),
    "pairs": Listing(PIPELINES, "make a dataset of positive pairs, e.g. titles and texts"),
    "triplets": Listing(PIPELINES, "make a dataset of sentences, positives and hard negatives, e.g. from NLI data"),
    "mine": Listing(
        "clearspan.retrieval.mining.mine_command:Mine",
        "add hard negatives to a dataset of pairs or triplets, from its own texts",
    ),
    "images": Listing(PIPELINES, "make a dataset of images with classes"),
    "audio": Listing(PIPELINES, "make a dataset of log-mel spectrograms with classes"),
    "train": Listing("clearspan.train.__main__:Train", "train an encoder with a recipe, on one or more devices"),
    "sweep": Listing(
        "clearspan.train.sweep:SweepCommand", "train a run for each value of a grid, and compare the runs"
    ),
    "distill": Listing(
        "clearspan.train.distill:Distill", "make a static encoder from a local encoder, without training"
    ),
    "export": Listing("clearspan.train.export:Export", "write a checkpoint of a run as a model folder"),
    "eval": Listing(
        "clearspan.eval.__main__:Evaluate", "score models with the published protocols, and write a report"
    ),
    "compare": Listing("clearspan.eval.compare:Compare", "test which differences between two evaluations exceed noise"),
    "tables": Listing("clearspan.eval.tables.__main__:Tables", "print a paper's table with your own models in it"),
    "data": Listing(
        "clearspan.eval.data.__main__:Data", "check the evaluation data, and say where to obtain missing data"
    ),
    "embed": Listing(PIPELINES, "embed texts with a trained model, and make a dataset of the vectors"),
    "search": Listing(
        "clearspan.retrieval.search_command:Search", "search a collection of texts by model, by BM25, or by both"
    ),
    "serve": Listing(
        "clearspan.serve.serve_command:Serve",
        "serve a page on this machine that searches a collection by model, BM25 and both",
    ),
    "shards": Listing("clearspan.shards.__main__:COMMANDS", "list, verify, print or export a dataset of any kind"),
}
"""The commands in the order in which a user needs them."""
