"""A model for each device in Spark Structured Streaming, and one of the whole fleet, merged after every micro-batch.

    pip install pyspark everlearn pandas pyarrow        # and Java 17
    spark-submit spark_fleet.py readings/ models/          # until it is stopped
    spark-submit spark_fleet.py readings/ models/ --once   # what is there now

Parquet files with the columns device, power and temperature are dropped into `readings/`. In `models/` are the models
of the devices, that of the fleet, and Spark's checkpoint: stopped and started again, the query goes on where it was.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import everlearn

COLUMNS = ["power", "temperature"]
PARTITIONS = 4
"""Spark fixes the number of partitions of the state when a query first starts: some two a core of the cluster."""


def learn(key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Go on with the model of one device. Spark keeps it as bytes in its checkpoint; nothing is pickled."""
    model = everlearn.loads(state.get[0]) if state.exists else everlearn.IncrementalGaussianMixture()
    for rows in batches:
        model.partial_fit(rows[COLUMNS].to_numpy(dtype=float))
    data = everlearn.dumps(model)
    state.update((data,))
    yield pd.DataFrame({"device": [key[0]], "rows": [int(model.n_samples_seen_)], "model": [data]})


def merge_partition(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The models of a partition of files as one."""
    models = [everlearn.loads(data) for frame in frames for data in frame["content"]]
    if models:
        yield pd.DataFrame({"model": [everlearn.dumps(everlearn.merge(models))]})


def update_fleet(changed: DataFrame, batch: int, folder: Path) -> None:
    """Write the models that a micro-batch changed, and merge all: on the executors first, then here."""
    for row in changed.toLocalIterator():
        everlearn.save(everlearn.loads(bytes(row.model)), folder / "devices" / f"{row.device}.evl")
    files = changed.sparkSession.read.format("binaryFile").load(str(folder / "devices"))
    parts = files.select("content").mapInPandas(merge_partition, "model binary").collect()
    fleet = everlearn.merge([everlearn.loads(bytes(part.model)) for part in parts])
    everlearn.save(fleet, folder / "fleet.evl")
    print(f"batch {batch}: {files.count()} devices, {fleet.n_samples_seen_:.0f} rows, {fleet.n_components_} components")


def main(readings: str, folder: str, once: str | None = None) -> None:
    """Learn until stopped, or only the files that are there."""
    place = Path(folder)
    (place / "devices").mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.appName("fleet").config("spark.sql.shuffle.partitions", PARTITIONS).getOrCreate()
    stream = spark.readStream.schema("device string, power double, temperature double").parquet(readings)
    models = stream.groupBy("device").applyInPandasWithState(
        learn, "device string, rows long, model binary", "model binary", "update", GroupStateTimeout.NoTimeout
    )
    query = models.writeStream.outputMode("update").option("checkpointLocation", str(place / "checkpoint"))
    query = query.foreachBatch(lambda changed, batch: update_fleet(changed, batch, place))
    query = query.trigger(availableNow=True) if once == "--once" else query.trigger(processingTime="10 seconds")
    query.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
