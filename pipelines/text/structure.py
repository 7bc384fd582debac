"""Pairs that lie in a text's own structure, where no field is a title.

    headings     "# Owls", and the text below it up to the next heading: (heading, section)
                 without headings: (first line, all that follows)
    sentences    "One. Two. Three." -> ("Two.", "One. Three."): (sentence, its passage without it)

Headings are those of Markdown, and lines that a row of equal signs underlines (reStructuredText, setext). The passages
are runs of whole sentences; which sentence is taken out of one is drawn by a hash of the passage, so that it is the
same in every run: the inverse cloze task (Lee et al. 2019, section 4).
"""

import hashlib
import re

from clearspan.common.words import word_spans
from clearspan.pipelines.text.segmentation import segment

MARK = re.compile(r" {0,3}#{1,6}[ \t]+")
UNDERLINE = re.compile(r"([=\-~^*+\"':.#_])\1{2,}[ \t]*")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
PASSAGE_WORDS = 128
"""A passage ends with the sentence in which it reaches this many words."""
FEWEST_WORDS = 4
"""A shorter sentence asks for nothing in particular."""


def headings(text: str) -> list[tuple[str, str]]:
    """Return (heading, section without it) of a text, in order, without empty sections; text before the first heading
    is in no pair. Without any heading, return its first line and the rest; [] if one of them is empty.
    """
    lines = text.splitlines()
    found, fence = [], ""
    for number, line in enumerate(lines):
        mark, rest = parts.groups() if (parts := FENCE.fullmatch(line)) else ("", "")
        if fence:
            fence = "" if mark.startswith(fence) and not rest.strip() else fence
        elif marked := MARK.match(line):
            found.append((_without_closing(line[marked.end() :].strip()), number, number + 1))
        elif UNDERLINE.fullmatch(line) and number and _is_title(lines, number - 1):
            found.append((lines[number - 1].strip(), number - 1, number + 1))
        elif mark and mark[0] not in rest:
            fence = mark
    if not found:
        first, _, rest = text.strip().partition("\n")
        return [(first.strip(), rest.strip())] if rest.strip() else []
    ends = [begin for _, begin, _ in found[1:]] + [len(lines)]
    pairs = [(title, "\n".join(lines[start:end]).strip()) for (title, _, start), end in zip(found, ends, strict=True)]
    return [(title, section.strip()) for title, section in pairs if title and _words(section)]


def _without_closing(title: str) -> str:
    """Return a heading without the row of # that may close it, after a space."""
    kept = title.rstrip("#")
    return kept.rstrip() if kept[-1:] in ("", " ", "\t") else title


def _is_title(lines: list[str], number: int) -> bool:
    """Return whether a line that is underlined stands alone: under a blank line, the start, or a line over it."""
    above = lines[number - 1].strip() if number else ""
    return _words(lines[number]) > 0 and (not above or UNDERLINE.fullmatch(above) is not None)


def _words(text: str) -> int:
    return len(word_spans(text))


def sentences(text: str, language: str = "en") -> list[tuple[str, str]]:
    """Return (sentence, rest of its passage) of each passage of a text that has two sentences.

    Raises:
        RecordError: the segmenter fails on the text.
    """
    pairs, passage, words = [], list[str](), 0
    every = segment(text, language)
    for number, sentence in enumerate(every, 1):
        passage.append(sentence)
        words += _words(sentence)
        if words >= PASSAGE_WORDS or number == len(every):
            candidates = [index for index, each in enumerate(passage) if _words(each) >= FEWEST_WORDS]
            if candidates and len(passage) > 1:
                digest = hashlib.blake2b(" ".join(passage).encode(), digest_size=8).digest()
                taken = candidates[int.from_bytes(digest) % len(candidates)]
                pairs.append((passage[taken], " ".join(passage[:taken] + passage[taken + 1 :])))
            passage, words = [], 0
    return pairs
