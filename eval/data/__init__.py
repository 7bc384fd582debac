"""Readers of the tasks' published files, and a catalog of the data sets. A malformed file raises a one-line error."""
