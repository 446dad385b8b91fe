"""scikit-learn shells around the core, and their persistence."""
