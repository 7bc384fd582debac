"""Detection of inputs that have changed since an earlier run on the same output folder.

The plan holds the size and samples of each input, and units record the hashes of what they have read. The times of last
modification, in a file of their own beside the plan, say which inputs need not be read again.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import CHANGED, piece_sha256
from clearspan.pipelines.records import Piece
from clearspan.pipelines.units.plan import Plan
from clearspan.shards import storage
from clearspan.shards.sealed import seal, unseal

MODIFIED = ".inputs.json"
"""When each input was modified, in plan order: no part of the dataset, and different on another machine."""


def check_inputs(folder: str, plan: Plan, hashes: Iterable[tuple[Piece, str]]) -> None:
    """Read again the pieces of inputs that were modified since an earlier run on an output folder read them.

    Args:
        hashes: what was read, as far as the plan does not tell by its samples: each piece and its `piece_sha256`.

    Raises:
        PipelineError: the content of a file has changed since.
    """
    path, record = (
        storage.join(folder, MODIFIED),
        {"plan": plan.sha256, "modified": [entry.modified for entry in plan.inputs]},
    )
    known = _modified(path, plan.sha256)
    if known == record["modified"]:
        return
    times = dict(enumerate(known or []))
    touched = {entry.name for number, entry in enumerate(plan.inputs) if times.get(number) != entry.modified}
    pieces = [(piece, sha256) for piece, sha256 in hashes if piece.input.name in touched]

    def is_same(read: tuple[Piece, str]) -> bool:
        with storage.open_input(storage.join(plan.root, read[0].input.name)) as stream:
            return piece_sha256(stream, read[0]) == read[1]

    with ThreadPoolExecutor() as pool:
        for (piece, _), same in zip(pieces, pool.map(is_same, pieces), strict=True):
            if not same:
                raise PipelineError(f"{storage.join(plan.root, piece.input.name)}: {CHANGED}")
    storage.publish_bytes(seal(record), path)


def _modified(path: str, plan: str) -> list[int] | None:
    """Return when the inputs were modified that earlier runs of a plan read; None if it is not known."""
    try:
        record = unseal(storage.read_bytes(path))
    except (FileNotFoundError, ValueError):
        return None
    return record["modified"] if record.get("plan") == plan else None
