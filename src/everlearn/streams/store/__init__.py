"""The state file of a run: models, events and totals in SQLite."""
