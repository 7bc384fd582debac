"""`clearspan serve`: a page on this machine, and a JSON API, to search a collection.

The collection is opened and searched once, so that everything is loaded before the address of the page is printed.
"""

import dataclasses
import json
import sys
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.command import Result
from clearspan.common import terminal
from clearspan.common.errors import check_extra
from clearspan.common.options import Flag
from clearspan.retrieval.collection_command import CollectionCommand


@dataclasses.dataclass(frozen=True, kw_only=True)
class Serve(CollectionCommand):
    """The command `serve`: serves a page and a JSON API that search collections."""

    error_prefix: ClassVar[str] = "serve"
    summary: ClassVar[str] = COMMANDS["serve"].summary
    description: ClassVar[str] = (
        "Serve a page on this machine that searches a collection with the model, with BM25 and with both, and shows\n"
        "the results side by side."
    )
    example: ClassVar[str] = "clearspan serve data/vectors --model runs/mine/model"

    weight: Annotated[float | None, Flag("W"), Ge(0), Le(1)] = None
    """Initial weight of the model with BM25, 0 to 1 (default: the weight that the folder of `adapt` names, else 0.7).
    """
    host: Annotated[str, Flag("HOST")] = "127.0.0.1"
    """Address to listen on; with any other than 127.0.0.1, other machines can read the collection."""
    port: Annotated[int, Flag("PORT"), Ge(0), Le(65535)] = 8765
    """Port of the page; 0: any free port."""

    def run(self) -> "ServeSummary":
        """Serve the page until Ctrl-C.

        Raises:
            PipelineError: a package is missing, the folder is no collection, or the port is in use.
            ManifestError, ShardError: the collection is damaged.
        """
        self.use_store()
        check_extra("serve", "starlette", "uvicorn", feature="the page")
        from clearspan.serve import guard, server
        from clearspan.serve.app import application
        from clearspan.serve.compare import SideBySide

        with server.listening(self.host, self.port) as listener:
            comparison = SideBySide(self.opened(keep=True), self.weight)
            comparison.load()
            terminal.notice(f"{comparison}\n{server.address(listener)} (Ctrl-C ends it)")
            names = guard.names_of(self.host, listener.getsockname()[0])
            server.Server.of(application(comparison, names)).run([listener])
        return ServeSummary(comparison.num_searches)


@dataclasses.dataclass(frozen=True)
class ServeSummary(Result):
    """Result of `clearspan serve`, once the server has ended: the number of queries that it answered."""

    num_searches: int

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    def __str__(self) -> str:
        return f"\nended; queries answered: {self.num_searches:,}"


main = Serve.main


if __name__ == "__main__":
    sys.exit(main())
