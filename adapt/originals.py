"""Find the original texts of a verdict's examples: those in the verdict were decoded from tokens.

    examples, decoded: "how do owls hunt ?" ──> letters, without case and accents: "howdoowlshunt" ──┐
    DIR/vectors: titles and texts as in the inputs ──> the same ─────────────────────────────────────┴──> equal?

Decoding may lose upper case, accents and the spaces around punctuation marks. An original that has the same marks too
comes before others. A text of which no original is found, for example because the tokenizer lacks its letters, stays as
it was decoded.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from clearspan.eval.report.outcome import cut
from clearspan.eval.verdict import Example, Verdict
from clearspan.shards import Dataset
from clearspan.shards.manifest import ManifestError
from clearspan.shards.reader import ShardError
from clearspan.shards.schema import FIELD

KEY = 200
"""Fewest letters by which the beginning of a text identifies it: tokens hold only the beginning of a long text."""
SPLIT = 4
"""Letters at the end of such a beginning that may differ: the last token may be a part of a character."""
UNKNOWN = re.compile(r"\[UNK\]|<unk>")
OTHERS = re.compile(r"[\W_]+")
PARTS = ("query", "text", "first", "first_untrained")
"""The texts of an `Example`."""


def find_originals(verdict: Verdict, vectors: Path, title: str | None, known: Mapping[str, str]) -> dict[str, str]:
    """Return the originals of the texts in a verdict's examples: text as it was decoded -> the original, cut to show.

    A text without an original stands for itself, so that it is not searched for again.

    Args:
        verdict: the verdict.
        vectors: the folder of the collection, whose vectors have their texts.
        title: the name of the field of the titles; None if there are none.
        known: originals that an earlier call found. If they are enough, the collection is not read.
    """
    wanted = {getattr(example, part) for example in verdict.examples for part in PARTS}
    found = {text: original for text, original in known.items() if text in wanted}
    if missing := wanted - found.keys():
        try:
            searched = _search(missing, _texts(vectors, title), are_parts=verdict.task == "crops")
            found |= {text: searched.get(text, text) for text in sorted(missing)}
        except (ManifestError, ShardError, OSError):  # the next search says what is wrong
            return found
    return found


def with_originals(verdict: Verdict, originals: Mapping[str, str]) -> Verdict:
    """Return a verdict whose examples show original texts, where they are known."""

    def shown(example: Example) -> Example:
        texts = {part: getattr(example, part) for part in PARTS}
        return replace(example, **{part: originals.get(text, text) for part, text in texts.items()})

    return replace(verdict, examples=tuple(map(shown, verdict.examples)))


def letters(text: str) -> str:
    """Return the letters and digits of a text, in lower case and without accents."""
    return OTHERS.sub("", unicodedata.normalize("NFKD", text).casefold())


def _characters(text: str) -> str:
    """Return a text without spaces and accents, in lower case: C++ is not C, as it is by its letters."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in plain if not (character.isspace() or unicodedata.combining(character)))


def _texts(vectors: Path, title: str | None) -> Iterator[str]:
    dataset = Dataset(vectors)
    for batch in dataset:
        names = [name for name in (f"{FIELD}{title}", "text") if name in batch.schema.names]
        for name in names:
            yield from filter(None, batch.column(name).to_pylist())


def _search(wanted: Iterable[str], texts: Iterable[str], are_parts: bool) -> dict[str, str]:
    """Return the originals of decoded texts: text as it was decoded -> the original, cut to show.

    Args:
        wanted: the texts as they were decoded.
        texts: the original texts.
        are_parts: whether the decoded texts may be parts from the middle of the originals.
    """
    sought = {text: own for text in wanted if (own := letters(UNKNOWN.sub("", text)))}
    every, missing, unequal = set(sought.values()), set(sought.values()), set(map(_characters, sought))
    heads = defaultdict[str, list[str]](list)
    for own in missing:
        if len(own) >= KEY:
            heads[own[:KEY]].append(own)
    found, equal = dict[str, str](), dict[str, str]()
    for original in texts:
        if not unequal:
            break
        whole = letters(original)
        if whole in every and (characters := _characters(original)) in unequal:
            equal[characters] = cut(original)
            unequal.remove(characters)
        begun = [own for own in heads.get(whole[:KEY], ()) if own in missing and whole.startswith(own[:-SPLIT])]
        if owns := [whole] if whole in missing else begun:
            found |= dict.fromkeys(owns, cut(original))
            missing.difference_update(owns)
        elif are_parts:
            for part in [part for part in missing if part in whole]:
                start = whole.index(part)
                found[part] = cut(_part(original, start, start + len(part)))
                missing.remove(part)
    originals = {text: equal.get(_characters(text), found.get(own)) for text, own in sought.items()}
    return {text: original for text, original in originals.items() if original is not None}


def _part(original: str, start: int, end: int) -> str:
    """Return whole words of a text, from one of its letters to another one.

    Args:
        original: the text.
        start, end: the place of the first letter, and of the letter after the last one, in `letters(original)`.
    """
    places = [place for place, character in enumerate(original) for _ in letters(character)]
    last = places[end - 1] + 1
    while last < len(original) and not original[last].isspace():
        last += 1
    return original[places[start] if start else 0 : last]
