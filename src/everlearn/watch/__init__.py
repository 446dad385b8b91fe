"""Watching a machine: episodes with times, blamed sensors and a sentence each, on top of the anomaly detector."""
