"""Search a dataset of vectors: exactly, combined with BM25, or with an index of another library."""
