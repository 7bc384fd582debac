"""Serve a collection as a page and a JSON API on this machine: hits of the model, of BM25 and of both, side by side."""
