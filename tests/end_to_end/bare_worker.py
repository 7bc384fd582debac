"""`python bare_worker.py NAMES JOBS`: does pickled jobs as a Beam worker in an environment of the packages NAMES and
theirs alone: no other can be imported.
"""

import pickle
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(names: Iterable[str]) -> set[str]:
    """These distributions and all that pip would install with them."""
    found: set[str] = set()
    left = {(name, "") for name in names}
    seen = set(left)
    while left:
        name, extra = left.pop()
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # of another platform
        found.add(name)
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = {(canonicalize_name(requirement.name), one) for one in ("", *requirement.extras)} - seen
                seen |= wanted
                left |= wanted
    return found


def others(allowed: set[str]) -> set[str]:
    """The modules of all other distributions."""
    allowed = {*allowed, "clearspan"}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed
    }


class Without:
    """A finder as another one is where some modules are not installed: it does not find them."""

    def __init__(self, finder: Any, refused: set[str]) -> None:
        self.finder, self.refused = finder, refused

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if name.partition(".")[0] in self.refused else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def main() -> None:
    refused = others(needed(sys.argv[1].split(",")))
    assert {"torch", "deepspeed", "sentence_transformers"} <= refused
    for name in list(sys.modules):
        if name.partition(".")[0] in refused:
            del sys.modules[name]
    sys.meta_path[:] = [Without(finder, refused) for finder in sys.meta_path]  # type: ignore[misc]
    from apache_beam.runners.worker import sdk_worker_main  # noqa: F401

    import clearspan.pipelines.execution.worker  # noqa: F401
    from clearspan.pipelines.execution import graph
    from clearspan.pipelines.units.rounds import rounds

    for job, units in pickle.loads(Path(sys.argv[2]).read_bytes()):
        process = graph.ProcessUnit(job)
        process.setup()
        for unit in units:
            list(process.process(unit))
        for each in rounds(job.curation) if job.curation.is_staged else []:
            for element in graph.deal(None, job, each):
                graph.work(element, job, each)
        graph.finish(None, job)


if __name__ == "__main__":
    main()
