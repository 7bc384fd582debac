"""Options of curation, which drops examples or holds them out after they are made; and marks of examples.

A mark is a number that says what happens to an example, such as KEEP or DUPLICATE. Some decisions depend on all
examples of the run: which examples are duplicates, near-duplicates or over the limit, and which ones are held out if
several rows share texts. `decisions` makes them between the two stages of a run: the first stage makes the examples,
and the second writes those that are not dropped.
"""

import dataclasses
from typing import Any

import numpy as np

from clearspan.pipelines.text import minhash
from clearspan.pipelines.units.keys import ID_BITS
from clearspan.shards import Manifest

KEEP, DUPLICATE, OVER_LIMIT, HELD_OUT, NEAR_DUPLICATE = range(5)
"""Marks of an example. HELD_OUT means that the example is kept in the held-out part."""
VERDICTS = frozenset(range(5))
LOWER_BITS = 32


@dataclasses.dataclass(frozen=True)
class Curation:
    """Options of curation, which drops examples or holds them out after they are made.

    Attributes:
        dedup: whether exact duplicates are dropped.
        limit: the maximum number of examples. Only the first ones, in the order of the inputs in the plan, are kept.
            None for no limit.
        holdout_fraction: the approximate fraction of the examples to hold out, chosen by hashes of their texts.
        shared_texts: whether different examples may share texts. If so, examples that share a text are all held out or
            all trained on (`units.linking`).
        near_dedup: an example is dropped if its Jaccard similarity to an earlier example is at least this; None to drop
            no near-duplicates.
        has_chunks: whether a document may be several consecutive rows, its chunks. If so, the chunks of a document are
            all dropped or all kept.
        group_field: the input field that names the group of a row. Rows of the same group are treated as if they shared
            a text (`kinds.groups`). None if rows have no groups.
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
        """The options that are stored in the dataset's fingerprint, name -> value.

        `shared_texts` and `has_chunks` are left out, because the kind of dataset determines them.
        """
        near = {"near_dedup": self.near_dedup, "sketches": minhash.VERSION} if self.near_dedup is not None else {}
        grouped = {"group_field": self.group_field} if self.group_field is not None else {}
        return {"dedup": self.dedup, "limit": self.limit, "holdout_fraction": self.holdout_fraction, **near, **grouped}

    @property
    def is_linked(self) -> bool:
        """Return whether examples are held out in groups of examples that share texts, instead of one by one."""
        return self.shared_texts and self.holdout_fraction > 0

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons for which these options may drop an example: mark (e.g. DUPLICATE) -> name of the reason."""
        used = {
            DUPLICATE: ("duplicate", self.dedup),
            NEAR_DUPLICATE: ("near_duplicate", self.near_dedup is not None),
            OVER_LIMIT: ("over_limit", self.limit is not None),
        }
        return {mark: reason for mark, (reason, is_used) in used.items() if is_used}

    @property
    def is_staged(self) -> bool:
        """Return whether the mark of an example may depend on other examples, so that the run needs two stages."""
        return bool(self.reasons) or self.is_linked

    def held_out(self, sides: np.ndarray) -> np.ndarray:
        """Return the mask of the examples to hold out, (n,) bool.

        Examples are chosen by the upper bits of their hashes. Examples with equal texts are therefore all held out or
        all trained on, and so are the parts of an audio clip, whose ids have equal upper bits.

        Args:
            sides: a hash of each example's texts, or the example's id if it has no texts (`keys.sides`), (n,) uint64.
        """
        below = int(self.holdout_fraction * (1 << (ID_BITS - LOWER_BITS)))
        is_held: np.ndarray = sides >> np.uint64(LOWER_BITS) < below
        return is_held


def held_out_share(manifest: Manifest) -> str:
    """Return a line with the size of the held-out part and the fraction that was requested; "" if nothing is held out.

    Args:
        manifest: the manifest of the training part.
    """
    asked, held = manifest.fingerprint["options"].get("holdout_fraction"), manifest.counts["filtered"].get("held_out")
    if not asked or held is None:
        return ""
    total = held + manifest.counts["kept"]
    return f"held out {held:,} of {total:,} {manifest.kind}: {100 * held / total:.3g} % (asked: {100 * asked:.3g} %)"
