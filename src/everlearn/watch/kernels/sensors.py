"""Runs of equal values and of gaps in each column, against how long such runs usually last."""

import numpy as np

from everlearn.linalg.compile import inner, kernel

AFTER_CHANGE, REPEATS, AFTER_REPEAT, REPEATED_AGAIN = range(4)
# A run counts as unusual only beyond this multiple of the longest usual one: runs of a switch or of a slow display are
# longer-tailed than the geometric law.
LONGEST_FACTOR = 3.0
LEAST_CHANGES = 20.0  # before it is known how a column behaves


@inner
def run_surprise(length, counts):
    """-log probability of a run of `length` repeats, by a Markov chain of the counts of usual rows."""
    # Krichevsky and Trofimov's half a count: a sensor that has never repeated a value may still do so.
    first = -np.log((counts[REPEATS] + 0.5) / (counts[AFTER_CHANGE] + 1.0))
    again = -np.log((counts[REPEATED_AGAIN] + 0.5) / (counts[AFTER_REPEAT] + 1.0))
    return first + (length - 1.0) * again


@inner
def count_run(runs, j):
    """Learn that the run of column j has ended: one change, and the repeats before it, if there were any."""
    runs.counts[j, AFTER_CHANGE] += 1.0
    if runs.length[j] > 0:
        runs.counts[j, REPEATS] += 1.0
        runs.counts[j, AFTER_REPEAT] += runs.length[j]
        runs.counts[j, REPEATED_AGAIN] += runs.length[j] - 1
        runs.longest[j] = max(runs.longest[j], runs.length[j])


@inner
def step_run(runs, j, repeated, row, settings):
    """Take one row of column j, in place; returns whether its run is unusually long."""
    if not repeated:
        # Only a run that has ended says how long runs are, and only one that raised no alarm is usual: a run that
        # taught the counts while it lasts would never be long beside itself.
        if settings.learns and not runs.unusual[j]:
            count_run(runs, j)
        runs.length[j], runs.unusual[j] = 0, False
        return False
    runs.length[j] += 1
    if runs.length[j] == 1:
        runs.begin[j] = row
    # Three times the longest usual run at least, whatever the chain says: runs may be longer than it expects.
    enough = runs.length[j] >= max(settings.least_rows, LONGEST_FACTOR * runs.longest[j])
    if (
        enough
        and runs.counts[j, AFTER_CHANGE] >= LEAST_CHANGES
        and run_surprise(runs.length[j], runs.counts[j]) > settings.surprise
    ):
        runs.unusual[j] = True
    return runs.unusual[j]


@kernel
def check_rows(X, state, row, settings, marks):
    """Take rows in order, in place; marks the values that are frozen and the gaps that are unusual.

    Each row tells at once whether it belongs to an unusual run, and where that began.
    """
    repeats, gaps, last = state
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[t, j]
            missing = np.isnan(x)
            # A column that never had a value is not one that went away.
            marks.gone[t, j] = step_run(gaps, j, missing and not np.isnan(last[j]), row + t, settings)
            # A gap neither ends nor lengthens a run of equal values: a frozen sensor may lose rows, too.
            if missing:
                marks.frozen[t, j] = repeats.unusual[j]
            else:
                marks.frozen[t, j] = step_run(repeats, j, x == last[j], row + t, settings)
                last[j] = x
            marks.begin[t, j] = gaps.begin[j] if marks.gone[t, j] else repeats.begin[j]
