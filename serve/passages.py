"""Find the words of a query in a text, and choose the passage of the text to show.

    text -> spans of the words that are also in the query -> the passage of `width` characters with most of these words

Stop words are not marked, unless the query has no other words. They are the stop words of the stemmer's language, or of
English if there is no stemmer.
"""

import functools
from collections import Counter
from collections.abc import Set

from clearspan.common.words import folded, places
from clearspan.retrieval.stemming import PLAIN, TURKIC, WordFunction

Span = tuple[int, int]
"""(start, end) of a part of a text, as indices of characters; `end` is excluded."""
ENGLISH = "en_plus"
"""The name in bm25s of the list of English stop words that includes parts of contractions."""
REACH = 24
"""Maximum number of characters by which an end of a passage moves, so that it does not cut a word."""


def content_words(query: str, words: WordFunction = PLAIN) -> set[str]:
    """Return the words of a query without stop words, in the form in which BM25 compares them.

    If the query has only stop words, return all of its words.

    Args:
        words: function that splits a text into the words that BM25 compares.
    """
    spelled = [query[start:end] for start, end in places(query)]
    language = getattr(words, "stemmer", None) or ENGLISH
    is_turkic, ignored = language in TURKIC, _stop_words(language)
    telling = [word for word in spelled if folded(word, is_turkic) not in ignored] or spelled
    return {compared for word in telling for compared in words(word)}


@functools.cache
def _stop_words(language: str) -> frozenset[str]:
    """Return the folded stop words of a language; English stop words if there is no list."""
    from bm25s import stopwords

    listed = getattr(stopwords, f"STOPWORDS_{language.upper()}", stopwords.STOPWORDS_EN_PLUS)
    return frozenset(folded(word, language in TURKIC) for word in listed)


def marked_spans(text: str, query_words: Set[str], words: WordFunction = PLAIN) -> list[Span]:
    """Return the spans of the words of a text that are also in the query, in order. Adjacent spans are joined.

    A span is (start, end) in characters; `end` is excluded.

    Args:
        query_words: the result of `content_words`.
        words: function that splits a text into the words that BM25 compares.
    """
    spans = places(text)
    same = {word for word in {text[start:end] for start, end in spans} if not query_words.isdisjoint(words(word))}
    marks: list[Span] = []
    for start, end in spans:
        if text[start:end] in same:
            if marks and marks[-1][1] == start:
                start = marks.pop()[0]
            marks.append((start, end))
    return marks


def passage(text: str, marks: list[Span], width: int) -> Span:
    """Return (start, end) of the passage of a text to show: at most `width` characters, with as many distinct marked
    words as possible.

    Of several such passages, the one with the most marks is chosen, and among these the first. If there are no marks,
    the passage is the beginning of the text. Only marks that fit in three quarters of the width count, so that the
    passage also shows text around them. Both ends are moved inward by at most 24 characters (REACH), so that they do
    not cut a word.

    Args:
        marks: (start, end) of each marked word, in order.
        width: the maximum number of characters.
    """
    if len(text) <= width:
        return 0, len(text)
    inner = width - width // 4
    best, start, end = (0, 0), 0, 0
    inside: Counter[str] = Counter()
    last = 0
    for first, (begin, _) in enumerate(marks):
        while last < len(marks) and marks[last][1] - begin <= inner:
            inside[_word(text, marks[last])] += 1
            last += 1
        if (score := (len(inside), inside.total())) > best:
            best, start, end = score, begin, marks[last - 1][1]
        if last > first:
            word = _word(text, marks[first])
            inside[word] -= 1
            if not inside[word]:
                del inside[word]
        else:  # the mark alone is longer than `inner`
            last = first + 1
    if not end:
        return 0, _back_to_space(text, width, 0)
    start = max(0, min(start - (width - (end - start)) // 3, len(text) - width))
    end = min(len(text), start + width)
    return _on_to_word(text, start, end), _back_to_space(text, end, start)


def _word(text: str, mark: Span) -> str:
    return folded(text[slice(*mark)])


def _on_to_word(text: str, start: int, end: int) -> int:
    """Move the start of a passage forward to the next beginning of a word; return its index in the text.

    Return `start` if a word begins there already, or if none begins within the next 24 characters (REACH).

    Args:
        end: the end of the passage, which the start must not pass.
    """
    if start == 0 or text[start - 1].isspace():
        return start
    near = range(start, min(start + REACH, end))
    return next((place + 1 for place in near if text[place].isspace()), start)


def _back_to_space(text: str, end: int, start: int) -> int:
    """Move the end of a passage back to the last space before it; return its index in the text.

    Return `end` if a word ends there already, or if there is no space in the 23 characters before it (REACH - 1).

    Args:
        start: the start of the passage; the end stays after it.
    """
    if end == len(text) or text[end].isspace():
        return end
    near = range(end - 1, max(end - REACH, start), -1)
    return next((place for place in near if text[place].isspace()), end)
