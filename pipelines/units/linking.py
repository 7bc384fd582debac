"""Choice of the held-out part if examples have several texts: no held-out text may occur in an example to train on.

    1. groups across units:  units send the names of their groups -> slices reply with the smallest names -> units ...
    2. held-out groups:      units send the sizes of their groups -> slices choose groups to hold out -> units

A group is a connected component of the graph of rows and texts: all rows that share a text, in any column, directly or
through other rows. Texts are compared by their hashes (`keys.texts`). A group's name is the smallest hash of its texts.
A hash of the name decides whether the group is held out.

Groups that are large compared to the part to hold out are always trained on: a title that many rows share, or a common
hypothesis such as "a man is outside", can join much of a corpus. The other groups are then held out at a higher rate,
so that the fraction of held-out rows stays as requested. The rate is at most MOST, so that some of these groups are
trained on too.

A group may have rows in several units, which at first give it different names. Units therefore agree on one name in
iterations, with the help of slices, each of which handles a part of the range of hashes (`exchange`). In an iteration,
a unit sends pairs of a text and the name of the text's group to the slices of the texts, each pair once:

- Iteration 0: a unit joins its rows that share texts, and sends each text with the name of its group in this unit. If
  several units send the same text, a slice replies to all of them with the smallest name for the text.
- Later iterations: a unit renames its groups to the smallest names that it has received, and sends the new names. A
  slice replies to each unit whose name for a text is not the smallest.
- A unit also sends each old name with its new name, as if the old name were a text. All units that still use the old
  name then receive the new name in the same iteration. This is pointer jumping (Shiloach and Vishkin, "An O(log n)
  parallel connectivity algorithm", 1982): the number of iterations grows with the logarithm of the length of a chain.

The exchange ends when there are no replies, or after ITERATIONS iterations. If a group's name is still in a reply of
the last iteration, the group is unresolved: other rows of it may have a different name. Such a group is trained on.
"""

import numpy as np

from clearspan.common.ragged import is_run_start
from clearspan.shards import keyed

ITERATIONS = 8
MEMBER = np.dtype([("text", "<u8"), ("group", "<u8")])
"""The hash of a text, and the name of the text's group. A name is also the hash of a text, so that `text` may be an
earlier name of the group."""
SIZE = np.dtype([("group", "<u8"), ("rows", "<u4"), ("unresolved", "?")])
"""The number of a unit's rows in a group, and whether the group's name occurs in a reply of the last iteration."""
DROPPED = np.uint64(np.iinfo(np.uint64).max)
"""The group of a row that is not kept. No hash has this value, because hashes have 63 bits."""
SMALL, OF_WANTED = 8, 0.05
"""A group may be held out if it has at most this many rows, or at most this fraction of the rows to hold out."""
MOST = 0.5
"""Largest fraction to hold out of the groups that may be held out."""


def components(links: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """Find the groups of rows of a work unit that share texts; return the name of each row's group, (n,) uint64.

    A group's name is the smallest hash of its texts.

    Args:
        links: the texts of the unit, in any order, (m,) TEXT: the hash of a text, and the number of a row that holds
            it.
        is_kept: the mask of the rows that are not exact duplicates, (n,) bool. The other rows get the name DROPPED, and
            their texts join no rows.
    """
    links = links[is_kept[links["row"]]]
    links = links[np.argsort(links["text"], kind="stable")]
    is_first = is_run_start(links["text"])
    firsts, others = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    group = np.arange(len(is_kept))
    join(group, links["row"][firsts[np.searchsorted(firsts, others) - 1]], links["row"][others])
    names = np.full(len(is_kept), DROPPED)
    np.minimum.at(names, group[links["row"]], links["text"])
    named: np.ndarray = names[group]
    return named


def join(group: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Join the groups of the two rows of each pair; the array `group` is changed in place.

    Args:
        group: for each row, the index of the first row of its group, (rows,) int64.
        left, right: for each pair, the indices of its two rows, (pairs,) int64 each.
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
    """Return the new names of n groups, (n,) uint64: the smallest new name that `members` holds for a group.

    If `members` holds none for a group, its name does not change.

    Args:
        groups: the present names of the groups, (n,) uint64.
        members: pairs of a present name (in the field `text`) and a new name (in the field `group`), (m,) MEMBER.
    """
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
    """Return the pairs that a work unit sends to slices, in no particular order and without repetitions, (m,) MEMBER.

    A pair holds the hash of a text, and the name that the unit uses for the text's group. By these pairs, units that
    have the same text agree on one name for its group. The name of a group counts as one of its texts, so there is also
    a pair (name, name) for each group.

    Args:
        texts: the hashes of texts, or old names of groups, (n,) uint64.
        groups: the name of each text's group, (n,) uint64.
    """
    names = np.unique(groups)
    entries = np.empty(len(texts) + len(names), MEMBER)
    entries["text"], entries["group"] = np.append(texts, names), np.append(groups, names)
    order, _ = _by_text(entries)
    once = _without_repeats(entries[order])
    starts = is_run_start(once["text"])
    is_alone = starts & np.append(starts[1:], True)[: len(once)]
    several = once[~is_alone]  # few, and not in order of their groups
    several = _without_repeats(several[np.lexsort((several["group"], several["text"]))])
    return np.append(once[is_alone], several)


def replies(members: np.ndarray, to_all: bool) -> tuple[np.ndarray, np.ndarray]:
    """Choose the pairs that get a reply, among pairs of a text and the name of its group that work units have sent.

    The reply to a pair is the smallest of the names that units have sent with its text. By these replies, units that
    have rows of the same group agree on one name.

    Args:
        members: all pairs that units have sent for some texts, (n,) MEMBER.
        to_all: if true, all pairs whose text occurs in several pairs get a reply; if false, only pairs whose name is
            not the smallest name for their text.

    Returns:
        The indices of the pairs that get a reply, (m,) int64, and the replies, (m,) MEMBER: the sent name (in the field
        `text`) and the smallest name for the same text (in the field `group`).
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
    """Return the indices that sort `members` by text, and the position of each text's first member in that order.

    Args:
        members: pairs of a text and a name of its group, (n,) MEMBER, in any order.

    Returns:
        The indices, (n,) int64, and the positions, (texts,) int64.
    """
    order = np.argsort(members["text"], kind="stable")  # merges sequences that are sorted already
    return order, np.flatnonzero(is_run_start(members["text"][order]))


def _without_repeats(members: np.ndarray) -> np.ndarray:
    """Return the members that differ from the member before them, (m,) MEMBER.

    Args:
        members: pairs of a text and a name of its group, (n,) MEMBER, sorted.
    """
    differing: np.ndarray = members[is_run_start(members["text"]) | is_run_start(members["group"])]
    return differing


def sizes(groups: np.ndarray, replies: np.ndarray) -> np.ndarray:
    """Return the number of rows of each group of a work unit, as elements (group, rows, unresolved), (n,) SIZE.

    A name in a reply of the last iteration is unresolved: the exchange of names ended before all units could use the
    same name for this group, so its rows cannot be counted, and it is not held out. Each such name, old or new, has an
    element of its own, with `rows` 0 and `unresolved` true.

    Args:
        groups: the name of each row's group, (rows,) uint64. Rows with the name DROPPED are not counted.
        replies: the replies to the unit in the last iteration, (m,) MEMBER: the old name of a group in `text`, and its
            new name in `group`.
    """
    named, rows = np.unique(groups[groups != DROPPED], return_counts=True)
    unresolved = np.unique(np.append(replies["text"], replies["group"]))
    entries = np.zeros(len(named) + len(unresolved), SIZE)
    entries["group"] = np.append(named, unresolved)
    entries["rows"][: len(named)] = rows
    entries["unresolved"][len(named) :] = True
    return entries


def eligible(sizes: np.ndarray, wanted: float) -> np.ndarray:
    """Return the mask of the elements of `sizes` whose group may be held out, (n,) bool.

    A group may be held out if all work units use the same name for it, and if it has at most 8 rows (SMALL) or at most
    5 % (OF_WANTED) of the rows to hold out.

    Args:
        sizes: all elements about some groups, (n,) SIZE: for each group, its number of rows in each work unit. Elements
            with `unresolved` true mark a group for which units may use different names.
        wanted: the number of rows to hold out in the whole run.
    """
    _, group = np.unique(sizes["group"], return_inverse=True)
    unresolved = np.bincount(group, sizes["unresolved"]) > 0
    rows = np.bincount(group, sizes["rows"])
    chosen: np.ndarray = (~unresolved & (rows <= max(SMALL, OF_WANTED * wanted)))[group]
    return chosen


def held_out(groups: np.ndarray, wanted: float, num_eligible: int) -> np.ndarray:
    """Return the mask of the groups to hold out, (n,) bool.

    Groups are drawn by hashes of their names, so that about `wanted` rows of the run are held out, but at most about
    half (MOST) of the rows that may be held out.

    Args:
        groups: the names of groups that may be held out, (n,) uint64.
        wanted: the number of rows to hold out in the whole run.
        num_eligible: the number of rows, in the whole run, of all groups that may be held out.
    """
    chosen: np.ndarray = draws(groups) < min(MOST, wanted / max(1, num_eligible))
    return chosen


def draws(groups: np.ndarray) -> np.ndarray:
    """Return a pseudo-random number in [0, 1) for each group, (n,) float64, computed from the group's name.

    Args:
        groups: the names of the groups, (n,) uint64.
    """
    drawn: np.ndarray = (mixed(groups) >> np.uint64(11)) / float(1 << 53)
    return drawn


def mixed(names: np.ndarray) -> np.ndarray:
    """Return a hash of each group's name, (n,) uint64. The hashes are evenly distributed over the numbers of 64 bits.

    The names themselves are not, because a group's name is the smallest of several hashes.

    Args:
        names: the names of the groups, (n,) uint64.
    """
    spread: np.ndarray = keyed.finalize(names.view(np.int64)).view(np.uint64)
    return spread
