"""Evaluation tasks, one module for each family of tasks. A task reads its data, embeds texts and computes scores."""
