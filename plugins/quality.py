"""Published heuristics for the quality of the text of a web page, as filters of documents.

    gopher  Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", appendix A.1:
            quality filtering, and repetition removal with the thresholds of table A1
    c4      Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
            section 2.2 (JMLR 21): removal of lines and pages that are not natural text

Each of the two is a filter (`pipelines.text.filters`): a function that decides whether to keep a document. Only c4 also
changes the text of a document: it removes lines and citation marks. Words are separated by whitespace, so that Gopher's
limits on words do not suit Chinese, Japanese or Thai. C4's punctuation marks and phrases, and Gopher's stop words, are
English.

Some of the published rules are not implemented, because they need more than the text of the page. C4 also has a list of
bad words (third-party data), language detection (use --language), and deduplication of three-sentence spans across
pages. Gopher also has a list of safe sites, and deduplication.

Repetition is computed in NumPy over ids of words and n-grams. A repeated n-gram always begins with a repeated
(n - 1)-gram. Therefore only n-grams that begin with a repeated (n - 1)-gram are counted.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clearspan.pipelines.text.filters import Answer, FilteredText
from clearspan.pipelines.text.segmentation import BLANK_LINE, segment

WORDS = 50, 100_000
MEAN_LENGTH = 3, 10
MAX_SYMBOLS = 0.1
"""Maximum number of hash signs per word, and of ellipses per word."""
MAX_BULLETS, MAX_ELLIPSES = 0.9, 0.3
"""Maximum fraction of lines that begin with a bullet, and of lines that end with an ellipsis."""
MIN_ALPHABETIC = 0.8
"""Minimum fraction of words with a letter."""
STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
MIN_STOP_WORDS = 2
DUPLICATE_PARTS, DUPLICATE_CHARACTERS = 0.3, 0.2
"""Maximum fraction of lines (or paragraphs) that repeat an earlier line (or paragraph), and of characters in them."""
TOP_NGRAM = {2: 0.20, 3: 0.18, 4: 0.16}
"""n -> maximum fraction of characters in the most frequent n-gram."""
DUPLICATE_NGRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
"""n -> maximum fraction of characters in n-grams that repeat an earlier n-gram."""
BULLETS = ("•", "‣", "◦", "●", "▪", "-", "*")
ELLIPSES = ("...", "…")

END_MARKS = (".", "!", "?", '"', "”")
LINE_WORDS = 5
SENTENCES = 3
"""Minimum number of words in a line, and minimum number of sentences in a page. (The first preprint has 3 and 5.)"""
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")


def gopher(document: FilteredText) -> Answer:
    """Decide by Gopher's heuristics whether to keep a document (Rae et al. 2021, appendix A.1 and table A1).

    Return (True, "") to keep it, or (False, reason) to drop it. Stop words are required only if the language of the
    text is English or not known.
    """
    reason = _gopher_reason(document.text, document.language in (None, "en"))
    return not reason, reason


def _gopher_reason(text: str, is_english: bool) -> str:
    words = text.split()
    num_words = len(words)
    if not WORDS[0] <= num_words <= WORDS[1]:
        return "words"
    if not MEAN_LENGTH[0] <= sum(map(len, words)) / num_words <= MEAN_LENGTH[1]:
        return "word_length"
    if max(text.count("#"), sum(map(text.count, ELLIPSES))) > MAX_SYMBOLS * num_words:
        return "symbols"
    lines = _parts(text.split("\n"))
    if sum(line.startswith(BULLETS) for line in lines) > MAX_BULLETS * len(lines):
        return "bullets"
    if sum(line.endswith(ELLIPSES) for line in lines) > MAX_ELLIPSES * len(lines):
        return "ellipses"
    if sum(word.isalpha() or any(map(str.isalpha, word)) for word in words) < MIN_ALPHABETIC * num_words:
        return "alphabetic"
    if is_english and len(STOP_WORDS.intersection(words)) < MIN_STOP_WORDS:
        return "stop_words"
    if _has_duplicates(lines):
        return "duplicate_lines"
    if _has_duplicates(_parts(BLANK_LINE.split(text))):
        return "duplicate_paragraphs"
    encoded = pa.array(words).dictionary_encode()
    ids = encoded.indices.to_numpy().astype(np.int64)
    return _repetition(ids, pc.utf8_length(encoded.dictionary).to_numpy()[ids])


def _parts(parts: Sequence[str]) -> list[str]:
    """Return the lines or paragraphs that are not blank, without whitespace around them."""
    return [part for part in map(str.strip, parts) if part]


def _has_duplicates(parts: list[str]) -> bool:
    """Return whether a text repeats too many lines or paragraphs.

    It does if more than 30 % of its lines (or paragraphs) repeat an earlier one, or if these repetitions hold more than
    20 % of the characters of all lines (or paragraphs).

    Args:
        parts: the lines or the paragraphs of the text.
    """
    distinct = set(parts)
    if len(parts) == len(distinct):
        return False
    sizes, size = (sum(map(len, some)) for some in (distinct, parts))
    many = len(parts) - len(distinct) > DUPLICATE_PARTS * len(parts)
    return many or size - sizes > DUPLICATE_CHARACTERS * size


def _repetition(ids: np.ndarray, lengths: np.ndarray) -> str:
    """Return the reason to drop a text that repeats too many n-grams of words; "" if it is not to be dropped.

    The reason is `top_ngram` if the most frequent 2-, 3- or 4-gram covers too large a fraction of the characters, and
    `duplicate_ngrams` if repetitions of 5- to 10-grams do.

    Args:
        ids: the id of each of the text's n words, (n,) int64, from 0 to n - 1; equal words have equal ids.
        lengths: the number of characters of each word, (n,).
    """
    num_words, num_characters = len(ids), lengths.sum()
    ends = np.concatenate([[0], np.cumsum(lengths)])
    places, grams = np.arange(num_words), ids
    for n in range(2, 1 + max(DUPLICATE_NGRAMS)):
        inside = places + n <= num_words
        places = places[inside]
        # Distinct grams have distinct keys: both numbers are below the number of words, at most 100,000.
        keys = grams[inside] * num_words + ids[places + n - 1]
        _, first, grams, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        if not len(counts) or counts.max() == 1:
            return ""
        if n in TOP_NGRAM:
            top = places[first[counts == counts.max()]]
            if counts.max() * (ends[top + n] - ends[top]).max() > TOP_NGRAM[n] * num_characters:
                return "top_ngram"
        most = DUPLICATE_NGRAMS.get(n, np.inf) * num_characters
        if n in DUPLICATE_NGRAMS and _covered(np.delete(places, first), n, lengths) > most:
            return "duplicate_ngrams"
        repeated = counts[grams] > 1
        places, grams = places[repeated], grams[repeated]
        # The words of repeated longer n-grams are among those of the repeated n-grams.
        if n == max(TOP_NGRAM) and _covered(places, n, lengths) <= min(DUPLICATE_NGRAMS.values()) * num_characters:
            return ""
    return ""


def _covered(places: np.ndarray, n: int, lengths: np.ndarray) -> int:
    """Return the number of characters in the n-grams at `places` in a text. Where n-grams overlap, count a word once.

    Args:
        places: the index of the first word of each n-gram.
        n: the number of words of an n-gram.
        lengths: the number of characters of each word of the text.
    """
    size = len(lengths) + 1
    depth = np.cumsum(np.bincount(places, minlength=size) - np.bincount(places + n, minlength=size))
    return int(lengths[depth[:-1] > 0].sum())


def c4(document: FilteredText) -> Answer:
    """Decide by C4's heuristics whether to keep a page, and remove lines from it (Raffel et al. 2020, section 2.2).

    Return True to keep the page, or (False, reason) to drop it. A page is dropped if it contains "lorem ipsum" or a
    "{", or if the lines that are kept have fewer than 3 sentences. A line is kept if it ends with a punctuation mark
    (END_MARKS), has at least 5 words, and mentions neither Javascript nor a policy. The kept lines, without Wikipedia's
    citation marks, replace `document.text`. C4's list of bad words is not applied.

    Raises:
        RecordError: the sentences of a line cannot be counted.
    """
    text, lower = document.text, document.text.lower()
    if "lorem ipsum" in lower:
        return False, "lorem_ipsum"
    if "{" in text:
        return False, "curly_bracket"
    phrases = [("javascript", "javascript"), *(("policy", phrase) for phrase in POLICY)]
    phrases = [(reason, phrase) for reason, phrase in phrases if phrase in lower]
    if "[" in text:
        text = _CITATION.sub("", text)
    lines = []
    for line in text.split("\n"):
        if not (line := line.strip()):
            continue
        if reason := _line_reason(line, phrases):
            document.removed[reason] += 1
        else:
            lines.append(line)
    # Each line holds a sentence at least; few pages need their sentences counted.
    num_sentences = len(lines) if len(lines) >= SENTENCES else sum(len(segment(line, "en")) for line in lines)
    document.text = "\n".join(lines)
    return num_sentences >= SENTENCES or (False, "sentences")


def _line_reason(line: str, phrases: Sequence[tuple[str, str]]) -> str:
    if not line.endswith(END_MARKS):
        return "no_end_mark"
    if len(line.split(None, LINE_WORDS)) < LINE_WORDS:
        return "few_words"
    lower = line.lower() if phrases else ""
    return next((reason for reason, phrase in phrases if phrase in lower), "")


@dataclasses.dataclass(frozen=True)
class Heuristics:
    """A filter of documents by published heuristics, which is called like a function.

    Attributes:
        judge: the function that decides whether to keep a document: `gopher` or `c4`.
        reasons: all reasons for which this function may drop a document.
        version: the version of the filter, which is a part of a dataset's fingerprint.
    """

    judge: Callable[[FilteredText], Answer]
    reasons: tuple[str, ...]
    version: int = 1

    def __call__(self, document: FilteredText) -> Answer:
        return self.judge(document)


GOPHER = Heuristics(
    gopher,
    reasons=(
        "words",
        "word_length",
        "symbols",
        "bullets",
        "ellipses",
        "alphabetic",
        "stop_words",
        "duplicate_lines",
        "duplicate_paragraphs",
        "top_ngram",
        "duplicate_ngrams",
    ),
)
C4 = Heuristics(c4, reasons=("lorem_ipsum", "curly_bracket", "sentences"))
