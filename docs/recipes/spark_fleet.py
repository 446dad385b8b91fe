"""A model for each device in Spark Structured Streaming, and one of the whole fleet, merged after every micro-batch.

    pip install pyspark everlearn pandas pyarrow        # and Java 17
    spark-submit spark_fleet.py readings/ models/

Parquet files with the columns device, power and temperature are dropped into `readings/`. In `models/` are the models
of the devices, that of the fleet, and Spark's checkpoint: stopped and started again, the query goes on where it was.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import everlearn
from everlearn.estimators.persistence import dumps, loads

COLUMNS = ["power", "temperature"]


def learn(key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Go on with the model of one device. Spark keeps it as bytes in its checkpoint; nothing is pickled."""
    model = loads(state.get[0]) if state.exists else everlearn.IncrementalGaussianMixture(second_look=True)
    for rows in batches:
        model.partial_fit(rows[COLUMNS].to_numpy(dtype=float))
    data = dumps(model)
    state.update((data,))
    yield pd.DataFrame({"device": [key[0]], "rows": [model.n_samples_seen_], "model": [data]})


def merge_partition(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The models of a partition of files as one."""
    models = [loads(data) for frame in frames for data in frame["content"]]
    if models:
        yield pd.DataFrame({"model": [dumps(everlearn.merge(models))]})


def update_fleet(changed: DataFrame, batch: int, folder: Path) -> None:
    """Write the models that a micro-batch changed, and merge all: on the executors first, then here."""
    for row in changed.toLocalIterator():
        everlearn.save(loads(bytes(row.model)), folder / "devices" / f"{row.device}.evl")
    files = changed.sparkSession.read.format("binaryFile").load(str(folder / "devices"))
    parts = files.select("content").mapInPandas(merge_partition, "model binary").collect()
    fleet = everlearn.merge([loads(bytes(part.model)) for part in parts])
    everlearn.save(fleet, folder / "fleet.evl")
    print(f"batch {batch}: {files.count()} devices, {fleet.n_samples_seen_} rows, {fleet.n_components_} components")


def main(readings: str, folder: str, **trigger: Any) -> None:
    """Learn until stopped."""
    place = Path(folder)
    (place / "devices").mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.appName("fleet").getOrCreate()
    stream = spark.readStream.schema("device string, power double, temperature double").parquet(readings)
    models = stream.groupBy("device").applyInPandasWithState(
        learn, "device string, rows long, model binary", "model binary", "update", GroupStateTimeout.NoTimeout
    )
    query = models.writeStream.outputMode("update").option("checkpointLocation", str(place / "checkpoint"))
    query = query.foreachBatch(lambda changed, batch: update_fleet(changed, batch, place))
    query.trigger(**trigger or {"processingTime": "10 seconds"}).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
