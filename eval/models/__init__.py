"""Models to score: model folders, word vectors and Python functions, all with the interface of `sentence_encoder.Encoder`."""
