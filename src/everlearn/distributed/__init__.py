"""Learn partitions of a data set where they lie, merge the models in a tree: models travel, not tables.

:func:`fit` takes files (Parquet, CSV), Dask collections or Spark data frames, and runs on local processes, any joblib
backend, on a Dask cluster, or on Spark. The partitions come from the data and the tree from their order, so the model
does not depend on the engine, on how many workers there are, which of them was first, or which was lost on the way.
"""

from everlearn.distributed.fitting import Learned, fit
from everlearn.distributed.groups import GroupModels
from everlearn.distributed.report import PartitionRecord, Report

__all__ = ["GroupModels", "Learned", "PartitionRecord", "Report", "fit"]
