"""Web page and JSON API on this machine, which search a collection by its model, by BM25 and by both, side by side."""
