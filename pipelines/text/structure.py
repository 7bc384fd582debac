"""Pairs from the structure of a text, for records without a title field.

    headings     "# Owls", and the text below it up to the next heading: (heading, section)
                 without headings: (first line, all that follows)
    cloze_pairs  "One. Two. Three." -> ("Two.", "One. Three."): (sentence, its passage without it)

Headings are found by a parser of Markdown, so a # comment in a code block is not a heading. If a text does not look
like Markdown (`_is_markdown`), its headings are the lines that are underlined with a repeated sign, such as =====, as
in reStructuredText. In such a text, # at the start of a line usually begins a comment in code.

A pair of a sentence and its passage without it is an example of the inverse cloze task (Lee et al. 2019, section 4).
Passages are runs of whole sentences. The sentence is drawn by a hash of the passage, so that it is the same in every
run.
"""

import functools
import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearspan.common.words import word_spans
from clearspan.pipelines.text.segmentation import segment

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

UNDERLINE = re.compile(r"([=\-~^*+\"':.#_`])\1{2,}[ \t]*")
LONGEST_FENCE = 4
PASSAGE_WORDS = 128
"""Number of words of a passage. It ends with the sentence in which it reaches this number."""
MIN_WORDS = 4
"""Minimum number of words of a sentence that becomes a query. A shorter sentence is too unspecific."""


def headings(text: str) -> list[tuple[str, str]]:
    """Return (heading, section without the heading) for each section with words, in the order of the text.

    Text before the first heading is in no pair. If the text has no heading, return its first line and the rest as one
    pair, or an empty list if there is no rest.
    """
    lines = text.splitlines()
    marked = _marked(lines)
    if not marked:
        first, _, rest = text.strip().partition("\n")
        return [(first.strip(), rest.strip())] if rest.strip() else []
    ends = [begin for _, begin, _ in marked[1:]] + [len(lines)]
    pairs = [(title, "\n".join(lines[start:end]).strip()) for (title, _, start), end in zip(marked, ends, strict=True)]
    return [(title, section.strip()) for title, section in pairs if title and _words(section)]


Heading = tuple[str, int, int]
"""(text of the heading, index of its first line, index of the first line below it)."""


def _marked(lines: Sequence[str]) -> list[Heading]:
    """Return the headings of a text: Markdown's headings if the text is Markdown, otherwise its underlined lines.

    A heading is (its text, index of its first line, index of the first line below it).
    """
    tokens = _markdown().parse("\n".join(lines))
    marked, titled = list[Heading](), list[Heading]()
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            start, end = token.map
            heading = (" ".join(tokens[number + 1].content.split()), start, end)
            if token.markup.startswith("#"):
                marked.append(heading)
            elif end - start == 2:  # a longer heading is a paragraph, not a title
                titled.append(heading)
    underlined = _underlined(lines)
    if _is_markdown(lines, tokens, len(underlined)):
        return sorted([*marked, *titled], key=lambda heading: heading[1])
    return underlined or titled


def _is_markdown(lines: Sequence[str], tokens: "Sequence[Token]", num_underlined: int) -> bool:
    """Return whether a text is Markdown.

    It is Markdown if it begins with a # heading, has a heading with more than one #, or has code that is fenced by
    three or four backticks; a longer row of backticks underlines a title. It is also Markdown if it has # headings, at
    least as many as underlined titles. Only marks at the start of a line are considered, because indented marks are in
    the code of another markup.

    Args:
        lines: the lines of the text.
        tokens: the tokens of the parser (`_markdown`) for the text.
        num_underlined: number of titles in the text that are underlined as in reStructuredText.
    """
    marks = [(token, token.map[0]) for token in tokens if token.map and lines[token.map[0]].startswith(("#", "`"))]
    if any(token.type == "fence" and len(token.markup) <= LONGEST_FENCE for token, _ in marks):
        return True
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    titles = [(token, at) for token, at in marks if token.type == "heading_open" and lines[at].strip("# \t")]
    is_sure = any(len(token.markup) > 1 or at == first for token, at in titles)
    return is_sure or len(titles) >= max(1, num_underlined)


@functools.cache
def _markdown() -> "MarkdownIt":
    """Return a parser of CommonMark's blocks: headings, and the blocks of code and HTML, which cannot hold headings."""
    from markdown_it import MarkdownIt  # imported late: it takes half the time that a command needs to start

    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _underlined(lines: Sequence[str]) -> list[Heading]:
    """Return the headings of a text that are underlined as in reStructuredText.

    They are returned as (text of the heading, index of its first line, index of the first line below it). A heading is
    a line by itself with a row of a repeated sign below it, such as =====, and perhaps the same row above it. The row
    is at least as long as the line; a row of = or - may be shorter. If a row of ~ belongs to no heading, the rows of ~
    in this text probably enclose code, and an empty list is returned.
    """
    found, last = list[Heading](), -1
    for number, line in enumerate(lines):
        row = line.rstrip()
        if number <= last or not UNDERLINE.fullmatch(row):
            continue
        title = lines[number - 1].strip() if number - 1 > last else ""
        is_overlined = number - 2 > last and lines[number - 2].rstrip() == row
        is_alone = is_overlined or number < 2 or not lines[number - 2].strip()
        fits = row[0] in "=-" or len(row) >= len(title)
        if _words(title) and is_alone and fits and (is_overlined or not lines[number - 1][0].isspace()):
            found.append((title, number - 1 - is_overlined, number + 1))
            last = number
        elif row[0] == "~" and [each.rstrip() for each in lines[number + 2 : number + 3]] != [row]:
            return []
    return found


def _words(text: str) -> int:
    return len(word_spans(text))


def cloze_pairs(text: str, language: str = "en") -> list[tuple[str, str]]:
    """Divide a text into passages, and return (sentence, rest of the passage) for each passage.

    A passage is a run of sentences with about 128 words. One of its sentences of at least four words is drawn. A
    passage without such a sentence, or with only one sentence, gives no pair.

    Args:
        language: the code of the text's language (ISO 639-1).

    Raises:
        RecordError: the segmenter fails on the text.
    """
    pairs, passage, words = [], list[str](), 0
    every = segment(text, language)
    for number, sentence in enumerate(every, 1):
        passage.append(sentence)
        words += _words(sentence)
        if words >= PASSAGE_WORDS or number == len(every):
            candidates = [index for index, each in enumerate(passage) if _words(each) >= MIN_WORDS]
            if candidates and len(passage) > 1:
                digest = hashlib.blake2b(" ".join(passage).encode(), digest_size=8).digest()
                taken = candidates[int.from_bytes(digest) % len(candidates)]
                pairs.append((passage[taken], " ".join(passage[:taken] + passage[taken + 1 :])))
            passage, words = [], 0
    return pairs
