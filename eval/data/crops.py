"""Cut two crops that do not overlap from a text. One is a query, and the other is the document to retrieve.

No labels are needed. A crop consists of consecutive whole words. Its position and length are random numbers that depend
only on the text's id, so they are the same in every run and for every model.
"""

from clearspan.common.words import word_spans
from clearspan.eval.data.dataset_texts import SEED
from clearspan.shards import keyed

MIN_WORDS, MAX_WORDS = 4, 64
"""The smallest and the largest number of words in a crop."""


def crops(text: str, number: int) -> tuple[str, str] | None:
    """Return two random crops of a text that do not overlap, in random order; None for a text of fewer than 8 words.

    A crop has at most half of the text's words, and at most 64. Its length is drawn uniformly from half of this maximum
    (but at least 4 words) to the maximum. The remaining words are divided at random into the words before, between and
    after the two crops.

    Args:
        text: the text to cut.
        number: the id of the text. All random numbers are derived from it.
    """
    spans = word_spans(text)
    most = min(MAX_WORDS, len(spans) // 2)
    if most < MIN_WORDS:
        return None
    fewest = max(MIN_WORDS, most // 2)
    key = keyed.mix(SEED, number)
    draws = [keyed.shift(keyed.draw(key, j), 1) for j in range(1, 6)]
    first, second = (fewest + draw % (most - fewest + 1) for draw in draws[:2])
    free = len(spans) - first - second
    before, until = sorted(draw % (free + 1) for draw in draws[2:4])
    one, other = (
        text[spans[start][0] : spans[start + length - 1][1]]
        for start, length in ((before, first), (until + first, second))
    )
    return (one, other) if draws[4] % 2 else (other, one)
