"""What is trained on top of embeddings: classifiers, regressors, projections, by the published protocols."""
