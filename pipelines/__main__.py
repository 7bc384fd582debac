"""The commands `clearspan KIND ...`: make verified shards or a tokenizer from a raw corpus; search vectors."""

import sys

from clearspan.cli.group import Group
from clearspan.pipelines.dataset_command import MakeDataset, making
from clearspan.pipelines.registry import BUILDERS, own_command
from clearspan.pipelines.vocabulary_command import Vocabulary
from clearspan.retrieval.mining.mine_command import Mine
from clearspan.retrieval.search_command import Search
from clearspan.serve.serve_command import Serve
from clearspan.shards.command import PipelineCommand, StoreCommand

OWN = "For a kind of your own pass `module:Class` as KIND (docs/data.md); --help after it lists its options."
OTHERS: dict[str, type[StoreCommand]] = {"vocabulary": Vocabulary, "mine": Mine, "search": Search, "serve": Serve}
"""The commands that make no dataset from a corpus."""
COMMANDS: dict[str, type[PipelineCommand]] = {**{name: making(kind) for name, kind in BUILDERS.items()}, **OTHERS}

GROUP = Group(
    COMMANDS,
    prog="python -m clearspan.pipelines",
    description=str(__doc__),
    examples=[command.example for command in COMMANDS.values()],
    notes=f"{OWN}\n{MakeDataset.notes}",
    load=own_command,
)
main = GROUP.main


if __name__ == "__main__":
    sys.exit(main())
