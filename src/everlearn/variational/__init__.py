"""On-line variational Bayes with adaptive forgetting."""
