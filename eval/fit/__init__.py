"""Training by the published protocols: classifiers and regressors on embeddings, and fine-tuning of transformers."""
