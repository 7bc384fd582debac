"""Models that are trained on top of embeddings by the published protocols: classifiers, regressors, projections."""
