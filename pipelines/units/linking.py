"""Held-out part of examples with several texts each: no text of it occurs in an example to train on.

    unit: rows that share a text joined, groups named -> slice: texts of several units, the smallest name -> unit: ...
    unit: groups with their numbers of rows -> slice: the groups to hold out -> unit: their rows

A group is a connected component of the graph of rows and texts: all rows that share a text, in any column, directly or
through other rows. Texts are compared by their hashes (`keys.texts`). A group's name is the smallest hash of its
texts. It decides whether the group is held out. A group that is large beside the part to hold out is trained on: a
title that many rows share, or a common hypothesis such as "a man is outside", which can join much of a corpus. The
other groups are then held out at a higher rate, which preserves the fraction; at most at the rate MOST, so that some of
them are trained on too.

Units and slices of the hashes exchange names in iterations:

- Iteration 0: a unit joins its rows, and sends the name of the group of each of its texts. A slice replies to all units
  that have a text in common, with the smallest name of the text.
- From iteration 1 on, the items are a unit's groups instead of rows, and names instead of texts. A unit renames its
  groups to the smallest name that it has received, and sends the new names. A slice replies to every unit whose name
  for a text is not the smallest.
- A unit also sends each pair of an old and a new name. All units that still use the old name then receive the new one
  in the same iteration. This is pointer jumping (Shiloach and Vishkin, "An O(log n) parallel connectivity algorithm",
  1982): the number of iterations grows with the logarithm of the length of a chain.

It ends when there is no reply, or after ITERATIONS. A group whose name is still in a reply then is unresolved, and is
trained on. A unit sends each text or pair once in an iteration, however many rows have it.
"""

import numpy as np

from clearspan.common.ragged import starts_run
from clearspan.shards import keyed

ITERATIONS = 8
MEMBER = np.dtype([("text", "<u8"), ("group", "<u8")])
"""A text, and the name of its group. A name is the hash of a text, so `text` can also be an earlier name."""
SIZE = np.dtype([("group", "<u8"), ("rows", "<u4"), ("unresolved", "?")])
"""The number of a unit's rows in a group, and whether the group's name occurs in a last reply."""
DROPPED = np.uint64(np.iinfo(np.uint64).max)
"""The group of a row that is not kept. Hashes have 63 bits."""
SMALL, OF_WANTED = 8, 0.05
"""A group may be held out if it has at most this many rows, or at most this fraction of the rows to hold out."""
MOST = 0.5
"""Largest fraction of the eligible groups that is held out."""


def components(links: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """Return the group of each row, (n,) uint64, from the texts of one unit only.

    Args:
        links: the keys of the unit's texts, in any order, (m,) TEXT.
        is_kept: mask of the kept rows, (n,) bool; a row that is not kept joins nothing.
    """
    links = links[is_kept[links["row"]]]
    links = links[np.argsort(links["text"], kind="stable")]
    is_first = starts_run(links["text"])
    firsts, others = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    group = np.arange(len(is_kept))
    join(group, links["row"][firsts[np.searchsorted(firsts, others) - 1]], links["row"][others])
    names = np.full(len(is_kept), DROPPED)
    np.minimum.at(names, group[links["row"]], links["text"])
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
    """Rename groups, (n,), to the smallest name that the members, (m,) MEMBER, give them; return the new names."""
    if not len(members):
        return groups
    order, firsts = _by_text(members)
    ordered = members[order]
    names = ordered["text"][firsts]
    smallest = np.minimum.reduceat(ordered["group"], firsts)
    places = np.minimum(np.searchsorted(names, groups), len(names) - 1)
    renamed: np.ndarray = np.where(names[places] == groups, smallest[places], groups)
    return renamed


def members(texts: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the members that a unit sends, (m,) MEMBER: each text (n,), and each group's name, with the group."""
    names = np.unique(groups)
    entries = np.empty(len(texts) + len(names), MEMBER)
    entries["text"], entries["group"] = np.append(texts, names), np.append(groups, names)
    order, _ = _by_text(entries)
    once = _without_repeats(entries[order])
    starts = starts_run(once["text"])
    is_alone = starts & np.append(starts[1:], True)[: len(once)]
    several = once[~is_alone]  # few, and not in order of their groups
    several = _without_repeats(several[np.lexsort((several["group"], several["text"]))])
    return np.append(once[is_alone], several)


def replies(members: np.ndarray, to_all: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return which members (n,) to reply to, (m,) int64, and the replies, (m,) MEMBER: `text` is the member's name for
    its group, `group` the smallest name of the member's text.

    Args:
        to_all: reply to all members whose text occurs more than once, not only to those with a larger name.
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
    """Return members' positions by text, (n,) int64, and where each text begins in this order, (texts,) int64."""
    order = np.argsort(members["text"], kind="stable")  # merges sequences that are sorted already
    return order, np.flatnonzero(starts_run(members["text"][order]))


def _without_repeats(members: np.ndarray) -> np.ndarray:
    """Return the members that differ from the previous member."""
    differing: np.ndarray = members[starts_run(members["text"]) | starts_run(members["group"])]
    return differing


def sizes(groups: np.ndarray, replies: np.ndarray) -> np.ndarray:
    """Return the number of a unit's rows in each group, and an unresolved entry for each name in the last replies.

    The result is (n,) SIZE; both the old and the new name of a reply count as unresolved.

    Args:
        groups: the group of each row, (rows,) uint64.
        replies: (m,) MEMBER.
    """
    named, rows = np.unique(groups[groups != DROPPED], return_counts=True)
    unresolved = np.unique(np.append(replies["text"], replies["group"]))
    entries = np.zeros(len(named) + len(unresolved), SIZE)
    entries["group"] = np.append(named, unresolved)
    entries["rows"][: len(named)] = rows
    entries["unresolved"][len(named) :] = True
    return entries


def eligible(sizes: np.ndarray, wanted: float) -> np.ndarray:
    """Return a mask of the groups that may be held out, (n,) bool: all of their links are known, and they are small
    relative to the number of rows to hold out."""
    _, group = np.unique(sizes["group"], return_inverse=True)
    unresolved = np.bincount(group, sizes["unresolved"]) > 0
    rows = np.bincount(group, sizes["rows"])
    chosen: np.ndarray = (~unresolved & (rows <= max(SMALL, OF_WANTED * wanted)))[group]
    return chosen


def held_out(groups: np.ndarray, wanted: float, num_eligible: int) -> np.ndarray:
    """Return the mask of the eligible groups (n,) uint64 to hold out, (n,) bool.

    Args:
        wanted: number of rows to hold out.
        num_eligible: number of rows in all eligible groups.
    """
    chosen: np.ndarray = draws(groups) < min(MOST, wanted / max(1, num_eligible))
    return chosen


def draws(groups: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each group, (n,) float64; the groups with the lowest numbers are held out."""
    drawn: np.ndarray = (mixed(groups) >> np.uint64(11)) / float(1 << 53)
    return drawn


def mixed(names: np.ndarray) -> np.ndarray:
    """Return evenly distributed hashes of names, (n,) uint64: names are minima of hashes, which are not even."""
    spread: np.ndarray = keyed.finalize(names.view(np.int64)).view(np.uint64)
    return spread
