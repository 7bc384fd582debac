"""Held-out part of examples with several texts each: no text of it occurs in a training example.

    unit: rows that share a text joined, groups named -> slice: texts of several units, the smallest name -> unit: ...
    unit: groups with their numbers of rows -> slice: the groups to hold out -> unit: their rows

A group is a connected component of the graph of rows and texts: all rows that share a text, in any column, directly or
through other rows. Texts are compared by their tokens. A group's name is the smallest hash of its texts, which decides
whether it is held out, so that a row that shares no text is on the same side in every run. A group with more rows than
the whole held-out part is trained on: a common hypothesis such as "a man is outside" can join much of a corpus. The
other groups are then held out at a higher rate, which preserves the fraction.

A unit names its groups after its own texts, and tells the slices of the hashes of texts the name of each. A slice
answers the units of a text that several have with the smallest name. From then on a unit's groups take the place of
rows, and the names that it was answered that of texts: units rename their groups and tell again, and slices answer
those with a larger name. Units also tell of the new names, which are texts themselves, and of what they renamed: every
group of an old name learns of the new one at once, so that the number of turns grows with the logarithm of a chain of
units, as with pointer jumping (Shiloach and Vishkin, "An O(log n) parallel connectivity algorithm", 1982). A group
about which units still disagree after the last turn is trained on.

A unit tells of each text once: a slice receives at most as many members of a text as there are units.
"""

import numpy as np
import pyarrow as pa

from clearspan.pipelines.units.keys import KEY, token_hashes
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, starts_run
from clearspan.shards.schema import token_columns

TURNS = 8
MEMBER = np.dtype([("text", "<u8"), ("group", "<u8")])
"""A text, and the name of its group. The text may be another name of the group, since names are texts."""
SIZE = np.dtype([("group", "<u8"), ("rows", "<u4"), ("is_open", "?")])
"""The number of a unit's rows in a group, and whether units disagree about its name."""
DROPPED = np.uint64(np.iinfo(np.uint64).max)
"""The group of a row that is not kept. Hashes have 63 bits."""


def links(batch: pa.RecordBatch, first: int) -> np.ndarray:
    """Return the keys of all texts of a batch, (columns * n,) KEY; `first` is the unit's row of its first row."""
    columns = [token_hashes(Ragged.from_arrow(batch.column(name))) for name in token_columns(batch.schema)]
    entries = np.zeros(len(columns) * batch.num_rows, KEY)
    entries["id"] = np.concatenate(columns).view(np.uint64) >> np.uint64(1)
    entries["row"] = np.tile(np.arange(first, first + batch.num_rows), len(columns))
    return entries


def components(links: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """Return the group of each row, (n,) uint64, by the texts of a unit alone.

    Args:
        links: the keys of the unit's texts, in any order, (m,) KEY.
        is_kept: mask of the kept rows, (n,) bool; a row that is not kept joins nothing.
    """
    links = links[is_kept[links["row"]]]
    links = links[np.argsort(links["id"], kind="stable")]
    is_first = starts_run(links["id"])
    firsts, others = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    group = np.arange(len(is_kept))
    join(group, links["row"][firsts[np.searchsorted(firsts, others) - 1]], links["row"][others])
    names = np.full(len(is_kept), DROPPED)
    np.minimum.at(names, group[links["row"]], links["id"])
    named: np.ndarray = names[group]
    return named


def join(group: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Join the groups of each pair of rows, in place.

    Args:
        group: first row of each row's group, (rows,) int64.
        left, right: rows of the pairs, (pairs,) each.
    """
    while True:
        first, second = group[left], group[right]
        apart = first != second
        if not apart.any():
            return
        left, right, first, second = left[apart], right[apart], first[apart], second[apart]
        np.minimum.at(group, np.maximum(first, second), np.minimum(first, second))
        while not np.array_equal(further := group[group], group):
            group[:] = further


def rename(groups: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return groups (n,) with the smallest name that members (m,) MEMBER give them."""
    if not len(members):
        return groups
    order, firsts = _by_text(members)
    ordered = members[order]
    names, smallest = ordered["text"][firsts], np.minimum.reduceat(ordered["group"], firsts)
    places = np.minimum(np.searchsorted(names, groups), len(names) - 1)
    renamed: np.ndarray = np.where(names[places] == groups, smallest[places], groups)
    return renamed


def members(texts: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return what a unit tells of texts (n,) and their groups (n,): of each text, and of the groups' names, as (m,)
    MEMBER.
    """
    names = np.unique(groups)
    entries = np.empty(len(texts) + len(names), MEMBER)
    entries["text"], entries["group"] = np.append(texts, names), np.append(groups, names)
    order, _ = _by_text(entries)
    ordered = entries[order]
    told: np.ndarray = ordered[starts_run(ordered["text"]) | starts_run(ordered["group"])]
    return told


def answers(members: np.ndarray, to_all: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the members (n,) whose text has a smaller name, (m,) int64, and both names, (m,) MEMBER.

    Args:
        to_all: answer every member whose text occurs more than once.
    """
    if not len(members):
        return np.empty(0, np.int64), members
    order, firsts = _by_text(members)
    names = members["group"][order]
    lengths = np.diff(firsts, append=len(names))
    smallest = np.repeat(np.minimum.reduceat(names, firsts), lengths)
    (chosen,) = np.nonzero(np.repeat(lengths > 1, lengths) if to_all else names != smallest)
    named = np.empty(len(chosen), MEMBER)
    named["text"], named["group"] = names[chosen], smallest[chosen]
    return order[chosen], named


def _by_text(members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return members' positions by text, (n,) int64, and where each text begins, (texts,) int64."""
    order = np.argsort(members["text"], kind="stable")  # merges sequences that are sorted already
    return order, np.flatnonzero(starts_run(members["text"][order]))


def sizes(groups: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the groups of a unit's rows (n,), and those of its last answers, which are open, (m,) SIZE."""
    named, rows = np.unique(groups[groups != DROPPED], return_counts=True)
    is_open = np.unique(np.append(answers["text"], answers["group"]))
    entries = np.zeros(len(named) + len(is_open), SIZE)
    entries["group"] = np.append(named, is_open)
    entries["rows"][: len(named)], entries["is_open"][len(named) :] = rows, True
    return entries


def eligible(sizes: np.ndarray, limit: float) -> np.ndarray:
    """Return which entries (n,) SIZE are of a group that may be held out, (n,) bool: not open, and with no more rows
    than the limit.
    """
    _, group = np.unique(sizes["group"], return_inverse=True)
    is_open, rows = np.bincount(group, sizes["is_open"]) > 0, np.bincount(group, sizes["rows"])
    chosen: np.ndarray = (~is_open & (rows <= limit))[group]
    return chosen


def draws(groups: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each group (n,) uint64, (n,) float64; groups with the lowest are held out."""
    drawn: np.ndarray = (keyed.finalize(groups.view(np.int64)).view(np.uint64) >> np.uint64(11)) / float(1 << 53)
    return drawn
