"""Options of curation, which drops or holds out documents after the kind has kept them, and verdicts on documents.

A verdict is a number for each document of a unit. Some decisions need all documents (duplicates, near-duplicates, the
first N, held-out rows that share texts): they are made by `decisions`, between the two stages of a run.

"Document" stands for an example of any kind.
"""

import dataclasses
from typing import Any

import numpy as np

from clearspan.pipelines.text import minhash
from clearspan.pipelines.units.keys import ID_BITS
from clearspan.shards import Manifest

KEEP, DUPLICATE, OVER_LIMIT, HELD_OUT, NEAR_DUPLICATE = range(5)
"""Verdicts on a document. HELD_OUT means kept, in the held-out part."""
LOWER_BITS = 32


@dataclasses.dataclass(frozen=True)
class Curation:
    """Options of curation.

    Attributes:
        dedup: drop exact duplicates.
        limit: keep the first documents, up to this number.
        holdout_fraction: hold out about this fraction, by the hash of the text.
        shared_texts: whether different examples may share texts. Examples with a text in common are then all held out
            or all trained on (`units.linking`).
        group_field: field of the rows. Rows with the same value of it are treated as if they shared a text
            (`kinds.groups`).
        has_chunks: an example may be several consecutive rows, its chunks, which are dropped or kept together.
        near_dedup: drop documents with this Jaccard similarity to an earlier one, or more.
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
        """The options as the fingerprint holds them; `shared_texts` follows from the kind."""
        near = {"near_dedup": self.near_dedup, "sketches": minhash.VERSION} if self.near_dedup is not None else {}
        grouped = {"group_field": self.group_field} if self.group_field is not None else {}
        return {"dedup": self.dedup, "limit": self.limit, "holdout_fraction": self.holdout_fraction, **near, **grouped}

    @property
    def is_linked(self) -> bool:
        """Return whether examples that share a text, or a group, are held out together."""
        return self.shared_texts and self.holdout_fraction > 0

    @property
    def reasons(self) -> dict[int, str]:
        """Reasons for which an example that the kind keeps may be dropped, by verdict."""
        used = {
            DUPLICATE: ("duplicate", self.dedup),
            NEAR_DUPLICATE: ("near_duplicate", self.near_dedup is not None),
            OVER_LIMIT: ("over_limit", self.limit is not None),
        }
        return {verdict: reason for verdict, (reason, is_used) in used.items() if is_used}

    @property
    def is_staged(self) -> bool:
        """Return whether the decision on a document depends on other documents."""
        return bool(self.reasons) or self.is_linked

    def held_out(self, sides: np.ndarray) -> np.ndarray:
        """Return the mask of held-out examples, (n,) bool, by the upper bits of their hashes (`keys.sides`).

        Equal texts are on the same side, and so are examples of one group, whose ids share these bits.
        """
        below = int(self.holdout_fraction * (1 << (ID_BITS - LOWER_BITS)))
        is_held: np.ndarray = sides >> np.uint64(LOWER_BITS) < below
        return is_held


def held_out_share(manifest: Manifest) -> str:
    """Return a line with the size of the held-out part and the requested fraction; "" if there is no held-out part."""
    asked, held = manifest.fingerprint["options"].get("holdout_fraction"), manifest.counts["filtered"].get("held_out")
    if not asked or held is None:
        return ""
    total = held + manifest.counts["kept"]
    return f"held out {held:,} of {total:,} {manifest.kind}: {100 * held / total:.3g} % (asked: {100 * asked:.3g} %)"
