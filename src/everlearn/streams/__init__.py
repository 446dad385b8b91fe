"""Sources of rows for models that learn from a stream."""
