"""Models to score: model folders, word vectors and Python functions, with one interface, `Encoder`."""
