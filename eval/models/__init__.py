"""Models to score: folders, word vectors, Python functions, baselines that compare words, and models with BM25."""
