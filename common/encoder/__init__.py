"""Encoders in model folders, which the evaluator scores, the trainer continues and the pipelines embed with."""
