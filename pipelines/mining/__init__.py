"""Hard negatives: texts of a dataset of pairs that a model, or BM25, takes for a row's positive."""
