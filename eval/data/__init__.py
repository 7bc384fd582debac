"""Readers for the published files of the tasks, with one-line errors, and a catalog of the data sets."""
