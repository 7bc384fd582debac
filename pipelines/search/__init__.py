"""Search a dataset of vectors: exactly, beside BM25, or with an index of another library."""
