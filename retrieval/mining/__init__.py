"""Mining of hard negatives: texts that a model or BM25 finds near to a row's first text, but that are not its
positives.
"""
