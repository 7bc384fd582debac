"""The commands `clearspan KIND ...`: make verified shards or a tokenizer from a raw corpus; search vectors."""

import sys

from clearspan.common.command import Group
from clearspan.pipelines.dataset_command import MakeDataset
from clearspan.pipelines.registry import COMMANDS, own_command

OWN = "For a kind of your own pass `module:Class` as KIND (docs/data.md); --help after it lists its options."

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
