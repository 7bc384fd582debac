"""Conversion of images and clips by pure functions of a file's bytes, without Beam and without files.

    pictures   any image -> baseline JPEG with a bounded short side
    clips      any clip -> mono samples at 16 kHz -> log-mel spectrogram, in parts

A file that cannot be read raises `pipelines.tally.RecordError`. The message is written to `_rejected/` as the reason.
"""

SHOWN = 12
"""Number of first bytes of a file that an error message shows, because they often tell what the file is."""


def unreadable(data: bytes, expected: str, fault: str) -> str:
    """Return the error message for a file that is not an image or clip.

    Args:
        data: the content of the file.
        expected: noun for what the file should be, such as "image".
        fault: the decoder's message.
    """
    beginning = f"begins with {data[:SHOWN]!r}" if data else "no bytes"
    return f"not a readable {expected} ({fault}): {beginning}"
