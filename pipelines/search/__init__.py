"""Search in datasets of vectors: exact search, also combined with BM25, and search with an index of another library."""
