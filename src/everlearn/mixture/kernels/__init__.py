<<<<<<< HEAD
"""Compiled loops of the incremental Gaussian mixture."""
=======
"""Compiled loops of the mixture: rows, rows with gaps, expectation-maximisation on a sample."""
>>>>>>> ff90356 (Mixture that finds its structure: rows with frozen factors, priority sample, structure search in slices)
