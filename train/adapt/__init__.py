"""Adapt a model to the user's own texts: shards, training, and scores before and after."""
