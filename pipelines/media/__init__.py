"""Conversion of images and clips: pure functions of a file's bytes, without Beam and without files.

    pictures   any image -> baseline JPEG with a bounded short side
    clips      any clip -> mono samples at 16 kHz -> log-mel spectrogram, in pieces

A file that cannot be read raises `pipelines.tally.RecordError`, whose message is the reason in `_rejected/`.
"""

SHOWN = 12
"""Number of first bytes that a reason shows: they tell what a file is."""


def unreadable(data: bytes, expected: str, fault: str) -> str:
    """Return the reason for a file that is no image or clip: what the decoder said, and the first bytes."""
    beginning = f"begins with {data[:SHOWN]!r}" if data else "no bytes"
    return f"not a readable {expected} ({fault}): {beginning}"
