"""Texts into sentences, by `sentencex` (Wikimedia, MIT): a text's blank lines first, then windows of each paragraph.

    text -> paragraphs, whitespace made single spaces -> windows of 1,000 characters -> sentences

Chosen because it is kept up, knows abbreviations of some thirty languages, and is fast enough: 34 MB/s. Of the ends of
1,000 English sentences joined to one paragraph it finds 98.0 %, and 99.1 % of what it finds are ends (German 96.9 and
98.6, Chinese 92.6 and 98.0; `benchmarks/segmentation.py`). blingfire is as fast and as exact, but has had no release
since 2021, nor has pysbd (0.3 MB/s); nupunkt (8 MB/s) is made for English and finds no end in Chinese.

Its recall falls in long paragraphs, where it pairs quotation marks and numbered points far apart: hence the windows.
All whitespace is made spaces before it sees a text, because the no-break space after an initial ends in a panic there
(1.0.32), and because a line's end inside a paragraph means nothing.
"""

import itertools
import re

import sentencex

from clearspan.pipelines.tally import RecordError

WINDOW = 1000
_STOP = re.compile(r"""(?<=\w{4})[.!?]["'”’»)\]]*\s|(?P<wide>[。！？]+["'”’」』）]*)""")
_BLANK_LINE = re.compile(r"\n\s*\n")
_ISO_639_1 = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj
kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv
ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
LANGUAGES = frozenset(_ISO_639_1.split())
"""sentencex takes any string for a language, and one that it does not know for English."""


def normalise(text: str) -> str:
    """The text with single spaces for all whitespace within it, and none around it."""
    return " ".join(text.split())


def segment(text: str, language: str) -> list[str]:
    """The sentences of a text, in order, each normalised; a blank line always ends one, a line's end alone never.

    Raises:
        RecordError: sentencex cannot take the text.
    """
    return [sentence.lstrip() for sentence in segment_spaced(text, language)]


def segment_spaced(text: str, language: str) -> list[str]:
    """The same with a space before each sentence that whitespace parts from the one before: joined they are the
    normalised text.
    """
    found: list[str] = []
    for paragraph in _BLANK_LINE.split(text):
        parted = True
        for piece in _pieces(normalise(paragraph), language):
            if sentence := piece.strip():
                parted = parted or piece.startswith(" ")
                found.append(f" {sentence}" if found and parted else sentence)
                parted = piece.endswith(" ")
            else:
                parted = parted or bool(piece)
    return found


def _pieces(text: str, language: str) -> list[str]:
    """The pieces of a normalised paragraph, which joined are the paragraph.

    A window's last piece may go on behind it, and is left to the next. A window that is all one piece holds a quotation
    or a numbered point that sentencex does not cut, or a very long sentence: it is cut at its clear stops, and where it
    has none it is doubled.
    """
    if len(text) <= WINDOW:
        return _sentencex(text, language)
    found: list[str] = []
    start, size = 0, WINDOW
    while start < len(text):
        pieces = _sentencex(text[start : start + size], language)
        if start + size < len(text):
            if len(pieces) == 1:
                ends = _stops(pieces[0])
                if not ends:
                    size *= 2
                    continue
                pieces = [pieces[0][begin:end] for begin, end in itertools.pairwise([0, *ends])]
            else:
                pieces.pop()
        found += pieces
        start += sum(map(len, pieces))
        size = WINDOW
    return found


def _stops(text: str) -> list[int]:
    """Finds where the next sentences begin: all up to the last after a full-width stop, never an abbreviation's.

    Or else the first after a word too long for most abbreviations and before no small letter: from there on sentencex
    may do better.
    """
    ends: list[int] = []
    for match in _STOP.finditer(text):
        if match.end() == len(text) or text[match.end()].islower():
            continue
        if match["wide"] is None:
            return ends or [match.end()]
        ends.append(match.end())
    return ends


def _sentencex(text: str, language: str) -> list[str]:
    try:
        return sentencex.segment(language, text)
    except BaseException as error:
        # A panic of Rust code is no Exception, and its class has no name to import.
        if type(error).__name__ != "PanicException":
            raise
        raise RecordError(f"sentencex cannot segment it: {error}") from None
