"""Usual names of the fields of a record: its id, its title, its link; and the comparison of names of fields."""

from collections.abc import Collection, Iterable

from clearspan.common.parsing import normalized_name

TITLES = ("title", "headline", "summary", "question", "query", "subject")
"""Usual names of a field with a title, in the order in which they are tried."""
IDS = ("id", "_id", "doc_id", "docid", "document_id", "key")
LINKS = ("url", "link", "href", "uri")
"""Usual names of a field with an id (IDS), and of a field with a link (LINKS)."""


def id_field(names: Iterable[str]) -> str | None:
    """Return the name of the field that holds a text's id: the first of the usual names in `IDS` that is among `names`,
    in any letter case; None if there is none.

    Args:
        names: the names of a record's fields.
    """
    known = list(names)
    return next(filter(None, (matching_name(known, name) for name in IDS)), None)


def matching_name(names: Collection[str], name: str) -> str | None:
    """Return the name among `names` that is equal to `name`. If there is none, return the name that differs from `name`
    only in letter case or surrounding spaces; None if there is no such name, or more than one.
    """
    if name in names:
        return name
    found = similar(names, name)
    return found[0] if len(found) == 1 else None


def similar(names: Collection[str], name: str) -> list[str]:
    """Return the names among `names` that differ from `name` at most in letter case and surrounding spaces."""
    return [other for other in names if normalized_name(other) == normalized_name(name)]
