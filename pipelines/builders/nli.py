"""Triplets from rows of natural language inference, as in SimCSE's NLI file.

A row is a premise, a hypothesis and a label. For each premise of a file, in the order of first occurrence, the first
entailed hypothesis is paired with the first contradicting hypothesis, the second with the second, and so on. The run
counts rows, not triplets. Of the two rows of a triplet, the entailed row counts as kept, and the contradicting row as
filtered ("negative"). A row without a partner is filtered as "unpaired". A file is never cut into pieces, and its
entailed and contradicting rows stay in memory: about 200 MB for the half a million rows of SNLI.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clearspan.pipelines.builders.text_inputs import EMPTY, checked_text
from clearspan.pipelines.counter import RecordCounter, RecordError
from clearspan.pipelines.records import Record

COLUMNS = (("sentence1", "sentence2", "gold_label"), ("premise", "hypothesis", "label"))
ENTAILMENT, NEUTRAL, CONTRADICTION, UNLABELLED = "entailment", "neutral", "contradiction", "unlabelled"
LABELS = {
    **{name: name for name in (ENTAILMENT, NEUTRAL, CONTRADICTION)},
    **dict(zip(("0", "1", "2"), (ENTAILMENT, NEUTRAL, CONTRADICTION), strict=True)),
    **dict.fromkeys(("-", "-1", ""), UNLABELLED),
}
"""Labels of SNLI and MNLI: the published words, and the numbers in Hugging Face's copies."""
Texts = tuple[str, str, str]


def paired(
    rows: Iterable[Record], cells: Callable[[Record], list[Any]], counter: RecordCounter
) -> Iterator[tuple[Texts, str]]:
    """Pair the entailed hypotheses of each premise in a file with its contradicting hypotheses.

    Yield ((premise, entailed hypothesis, contradicting hypothesis), source) for each pair. The source is the file and
    place of the entailed row.

    Args:
        rows: all rows of the file.
        cells: function that returns the values of a row's columns, and raises RecordError if the row is bad.
        counter: counts each row as read. It also counts each row as bad or filtered, except for the entailed row of a
            pair, which the caller counts as kept or filtered.
    """
    counts = counter.counts
    premises: dict[str, tuple[list[tuple[str, str]], list[str]]] = {}
    labelled = counter.made(rows, lambda row: (*_labelled(cells(row)), row.source))
    for premise, hypothesis, label, source in labelled:
        if label in (NEUTRAL, UNLABELLED):
            counts.filtered[label] += 1
        elif not (premise.strip() and hypothesis.strip()):
            counts.filtered[EMPTY] += 1
        else:
            entailed, contradicting = premises.setdefault(premise, ([], []))
            if label == ENTAILMENT:
                entailed.append((hypothesis, source))
            else:
                contradicting.append(hypothesis)
    for premise, (entailed, contradicting) in premises.items():
        pairs = list(zip(entailed, contradicting, strict=False))
        counts.filtered["negative"] += len(pairs)
        counts.filtered["unpaired"] += len(entailed) + len(contradicting) - 2 * len(pairs)
        for (hypothesis, source), negative in pairs:
            yield (premise, hypothesis, negative), source


def _labelled(cells: list[Any]) -> Texts:
    """Return (premise, hypothesis, label). The label is one of ENTAILMENT, NEUTRAL, CONTRADICTION and UNLABELLED.

    Args:
        cells: the values of a row's columns.

    Raises:
        RecordError: there are not three values, a text is bad, or the label is unknown.
    """
    if len(cells) != 3:
        raise RecordError(f"{len(cells)} columns in place of three: premise, hypothesis and label")
    premise, hypothesis = map(checked_text, cells[:2])
    label = "" if cells[2] is None else str(cells[2]).strip().lower()
    if label not in LABELS:
        raise RecordError(f'the label "{label[:40]}" is not one of {", ".join(name for name in LABELS if name)}')
    return premise, hypothesis, LABELS[label]
