"""The incremental Gaussian mixture, and the classifier and regressor on top of it."""
