"""Model files: save and load without pickle."""
