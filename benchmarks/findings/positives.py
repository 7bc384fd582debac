"""Pairs of a sentence and a changed copy of it, which SimCSE compares with dropout alone (Gao et al. 2021, Table 1).

shards of sentences -> texts -> deleted: without 10 % of the words; cropped: 90 % of them in a row -> csv of pairs
"""

import csv
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from clearspan.common.files import write_text
from clearspan.shards import Dataset
from clearspan.train.model.tokenizer import load_shards_tokenizer

SHARE = 0.1
"""Fraction of the words that are left out."""
FEWEST_WORDS = 5
"""Shorter sentences are left out."""
Words = list[str]


def deleted(words: Words, draws: random.Random) -> Words:
    """Return the words without a random tenth of them, at least one."""
    gone = set(draws.sample(range(len(words)), max(1, round(SHARE * len(words)))))
    return [word for place, word in enumerate(words) if place not in gone]


def cropped(words: Words, draws: random.Random) -> Words:
    """Return nine tenths of the words in a row, from a random place."""
    length = len(words) - max(1, round(SHARE * len(words)))
    start = draws.randint(0, len(words) - length)
    return words[start : start + length]


CHANGES: dict[str, Callable[[Words, random.Random], Words]] = {"deleted": deleted, "cropped": cropped}
"""Dataset -> how its positives are made."""


def write_pairs(sentences: Path, name: str, file: Path) -> None:
    """Write a csv file of each sentence of a folder of shards and its changed copy."""
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(("sent0", "sent1"))
    draws = random.Random(name)
    for words in _texts(sentences):
        if len(words) >= FEWEST_WORDS:
            writer.writerow((" ".join(words), " ".join(CHANGES[name](words, draws))))
    write_text(file, rows.getvalue())


def _texts(sentences: Path) -> Iterator[Words]:
    dataset = Dataset(sentences)
    tokenizer = load_shards_tokenizer(dataset.local_tokenizer())
    for batch in dataset:
        for tokens in batch["tokens"].to_pylist():
            yield tokenizer.decode(tokens).split()
