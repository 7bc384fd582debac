"""Models to score: model folders, word vectors, Python functions, and baselines that compare words."""
