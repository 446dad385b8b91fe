"""The anomaly detector: which rows of a stream are strange, how surely, and which column is to blame."""
