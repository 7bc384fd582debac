"""The models that are scored: folders, word vectors, functions; all are texts -> embeddings."""
