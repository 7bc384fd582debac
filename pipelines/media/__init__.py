"""Pictures and clips of sound: pure functions of a file's bytes, apart from Beam and from files.

    pictures   any picture -> a baseline JPEG whose short side is bounded
    clips      any clip -> mono samples at 16 kHz -> log-mel frames, in pieces
    content    what bytes are that are neither
    memory     what they free is kept for the next

What cannot be read raises `pipelines.tally.RecordError`, whose message is the reason that is written down.
"""
