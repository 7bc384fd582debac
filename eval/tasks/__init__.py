"""Evaluation tasks, one module per family: read the data, embed its texts, compute the scores."""
