"""Conversion of images and clips: pure functions of a file's bytes, without Beam and without files.

    pictures   any image -> baseline JPEG with a bounded short side
    clips      any clip -> mono samples at 16 kHz -> log-mel spectrogram, in pieces
    identify   name of the content of a file that is neither

A file that cannot be read raises `pipelines.tally.RecordError`, whose message is the reason in `_rejected/`.
"""
