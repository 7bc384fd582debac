"""Score a sentence encoder with the published protocols.

    model folder ──> embed.Embedder ──> tasks (sts, retrieval) ──> results.json, report.html

Papers differ in how they aggregate the same task, so every figure here carries the name of its aggregation. A task sees
only arrays: it asks the embedder for them, and knows nothing of the model. What is covered is the list in `registry`.
"""
