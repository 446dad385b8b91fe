"""Learn partitions of a data set where they lie, merge the models in a tree: models travel, not tables.

:func:`fit` takes files (Parquet, CSV) or Dask collections, and runs on local processes, on any joblib backend, or on a
Dask cluster. The partitions come from the data and the tree from their order, so the model does not depend on how many
workers there are, which of them was first, or which was lost on the way.
"""

from everlearn.distributed.fitting import Learned, fit
from everlearn.distributed.report import PartitionRecord, Report

__all__ = ["Learned", "PartitionRecord", "Report", "fit"]
