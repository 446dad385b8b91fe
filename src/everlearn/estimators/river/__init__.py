"""The models as river learners: dicts in, features that come and go, river's own names for every question."""
