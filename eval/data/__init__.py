"""Readers for the published files of the tasks, with one-line errors for malformed files; a catalog of the data sets."""
