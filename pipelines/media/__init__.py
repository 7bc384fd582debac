"""Conversion of images and audio clips by pure functions, which get a file's content as bytes and use no Beam.

    pictures   any image -> baseline JPEG whose short side has a maximum length
    clips      any clip -> mono samples at 16 kHz -> log-mel spectrogram, in one or more parts

For content that cannot be read, they raise `pipelines.counter.RecordError`. Its message is written to `_rejected/` as
the reason.
"""

SHOWN = 12
"""Number of first bytes of a file that an error message shows, because they often tell what the file is."""


def unreadable(data: bytes, expected: str, fault: str) -> str:
    """Return the error message for a file that cannot be read as an image or audio clip.

    Args:
        data: the content of the file.
        expected: noun for what the file should be, such as "image".
        fault: the decoder's message.
    """
    beginning = f"begins with {data[:SHOWN]!r}" if data else "no bytes"
    return f"not a readable {expected} ({fault}): {beginning}"
