"""Options of curation, which drops or holds out examples after they are made, and verdicts on examples.

A verdict is a number that says what happens to an example, such as KEEP or DUPLICATE. Some decisions need all examples:
duplicates, near-duplicates, the limit, and held-out rows that share texts. They are made by `decisions`, between the
two stages of a run.
"""

import dataclasses
from typing import Any

import numpy as np

from clearspan.pipelines.text import minhash
from clearspan.pipelines.units.keys import ID_BITS
from clearspan.shards import Manifest

KEEP, DUPLICATE, OVER_LIMIT, HELD_OUT, NEAR_DUPLICATE = range(5)
"""Verdicts on an example. HELD_OUT means that the example is kept in the held-out part."""
LOWER_BITS = 32


@dataclasses.dataclass(frozen=True)
class Curation:
    """Options of curation.

    Attributes:
        dedup: whether exact duplicates are dropped.
        limit: the maximum number of examples; the first in the order of the plan are kept. None for no limit.
        holdout_fraction: the approximate fraction of the examples to hold out, chosen by hashes of their texts.
        shared_texts: whether different examples may share texts. Examples that share a text are then all held out or
            all trained on (`units.linking`).
        near_dedup: an example is dropped if its Jaccard similarity to an earlier example is at least this; None to drop
            no near-duplicates.
        has_chunks: whether a document may be several consecutive rows, its chunks, which are then all dropped or all
            kept.
        group_field: the field that holds the group of a row; rows of the same group are treated as if they shared a
            text (`kinds.groups`). None for no groups.
    """

    dedup: bool = False
    limit: int | None = None
    holdout_fraction: float = 0.0
    shared_texts: bool = False
    near_dedup: float | None = None
    has_chunks: bool = False
    group_field: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options for the dataset's fingerprint, name -> value.

        `shared_texts` and `has_chunks` are left out, because they follow from the kind of dataset.
        """
        near = {"near_dedup": self.near_dedup, "sketches": minhash.VERSION} if self.near_dedup is not None else {}
        grouped = {"group_field": self.group_field} if self.group_field is not None else {}
        return {"dedup": self.dedup, "limit": self.limit, "holdout_fraction": self.holdout_fraction, **near, **grouped}

    @property
    def is_linked(self) -> bool:
        """Return whether examples that share a text or a group must be held out together."""
        return self.shared_texts and self.holdout_fraction > 0

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons for which an example may be dropped: verdict (such as DUPLICATE) -> name of the reason."""
        used = {
            DUPLICATE: ("duplicate", self.dedup),
            NEAR_DUPLICATE: ("near_duplicate", self.near_dedup is not None),
            OVER_LIMIT: ("over_limit", self.limit is not None),
        }
        return {verdict: reason for verdict, (reason, is_used) in used.items() if is_used}

    @property
    def is_staged(self) -> bool:
        """Return whether decisions on an example depend on other examples, so that the run needs two stages."""
        return bool(self.reasons) or self.is_linked

    def held_out(self, sides: np.ndarray) -> np.ndarray:
        """Return the mask of the examples to hold out, (n,) bool.

        Examples are chosen by the upper bits of their hashes. Examples with equal texts are therefore all held out or
        all trained on, and so are the parts of an audio clip, whose ids have equal upper bits.

        Args:
            sides: for each example, a hash of its texts or its id (`keys.sides`), (n,) uint64.
        """
        below = int(self.holdout_fraction * (1 << (ID_BITS - LOWER_BITS)))
        is_held: np.ndarray = sides >> np.uint64(LOWER_BITS) < below
        return is_held


def held_out_share(manifest: Manifest) -> str:
    """Return a line with the size of the held-out part and the requested fraction; "" if there is no held-out part.

    Args:
        manifest: the manifest of the training part.
    """
    asked, held = manifest.fingerprint["options"].get("holdout_fraction"), manifest.counts["filtered"].get("held_out")
    if not asked or held is None:
        return ""
    total = held + manifest.counts["kept"]
    return f"held out {held:,} of {total:,} {manifest.kind}: {100 * held / total:.3g} % (asked: {100 * asked:.3g} %)"
