"""Encoders from model folders: the evaluator scores them, the trainer trains them, the pipelines embed with them."""
