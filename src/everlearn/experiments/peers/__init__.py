"""everlearn beside its peers: the same rows, one run, one table.

One file a column (`speed`, `classification`, `regression`, `density`, `missing`, `conditional`, `anomaly`, `change`)
says what is measured, and on what rows; one file a package (`everlearn_models`, `scikit_learn`, `river`, `gmr`,
`pomegranate`, `pysad`) says how each of its models is used.
`running` puts them together, `table` finds the winners, `report` writes them down.
"""

from everlearn.experiments.peers.report import Report, made_with, write
from everlearn.experiments.peers.running import compare, context_for, tasks

__all__ = ["Report", "compare", "context_for", "made_with", "tasks", "write"]
