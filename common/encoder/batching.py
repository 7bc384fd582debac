"""Batches of texts of similar length, for encoders that pad or that limit the tokens of a forward pass."""

from collections.abc import Iterator


def batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the row numbers, longest row first, in batches of at most `batch_tokens` tokens including padding.

    A row longer than that has a batch of its own. A batch also ends where lengths fall below seven eighths of its
    longest row; otherwise padding would take a quarter of few, large batches.
    """
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        longest = lengths[rows[0]] if rows else 0
        if rows and (longest * (len(rows) + 1) > batch_tokens or lengths[row] < longest * 7 // 8):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
