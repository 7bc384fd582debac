"""A command of your own: the longest examples of a dataset. With this file in the working folder, run

    clearspan longest:Longest data/train --top 3

or the file itself, `python longest.py data/train --top 3`. In a fork of Clearspan, a line in `COMMANDS` of
cli/catalog.py makes it a subcommand of `clearspan`, with a name of its own.
"""

import heapq
import json
import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.common.options import Flag, Json
from clearspan.shards import Dataset, ShardError
from clearspan.shards.manifest import ManifestError


@dataclass(frozen=True, kw_only=True)
class Longest(Command):
    """A field with a `Flag` is an option: its type, its limits, its default and its help."""

    description: ClassVar[str] = "Print the examples of a dataset with the most tokens."
    expected: ClassVar[Errors] = (ShardError, ManifestError, OSError)

    folder: Annotated[str, Flag("DIR", positional=True, path=True)]
    """The dataset's folder."""
    top: Annotated[int, Flag("N"), Ge(1)] = 5
    """How many examples."""
    json: Json = False
    """Print JSON instead of text."""

    def run(self) -> Result:
        rows = (row for batch in Dataset(self.folder) for row in batch.select(["id", "tokens"]).to_pylist())
        lengths = {row["id"]: len(row["tokens"]) for row in rows}
        longest = heapq.nlargest(self.top, lengths, key=lambda id_: lengths[id_])
        found = [{"id": id_, "tokens": lengths[id_]} for id_ in longest]
        return Printed("\n".join("example {id}: {tokens:,} tokens".format(**each) for each in found), json.dumps(found))


main = Longest.main


if __name__ == "__main__":
    sys.exit(main())
