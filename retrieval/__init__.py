"""Retrieval: which texts of a collection answer a query, by vectors, by BM25, or by both.

    a dataset of vectors ──> Collection: texts, filters, model, BM25 ──> Hits     the command `search`, `serve`, Python
    a dataset of pairs ────> `mining`: the nearest texts that are not right ────> hard negatives

Datasets are read by `shards`, and models by `common.encoder`. Nothing here runs on Beam.
"""
