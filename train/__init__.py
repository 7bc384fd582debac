"""Shards to a model, on DeepSpeed: objectives over one packed forward of a shared encoder."""
