"""The same fit on Spark, in local mode: models equal to the bit, errors in plain words. Needs Java and pyspark."""

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.distributed import fit
from everlearn.errors import InputError
from everlearn.persistence.model_file import dumps

pytest.importorskip("pyspark", reason="needs the extra spark")
if shutil.which("java") is None:
    pytest.skip("needs Java 17", allow_module_level=True)

NAMES = ["rpm", "temp", "load"]


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    if before is None:
        del os.environ["PYSPARK_PYTHON"]
    else:
        os.environ["PYSPARK_PYTHON"] = before


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("days")
    for i in range(3):
        rows = rng.normal(size=(400, 3)) + 5.0 * rng.integers(3, size=(400, 1))
        frame = pd.DataFrame(rows, columns=NAMES).assign(device=[f"pump-{k}" for k in rng.integers(4, size=400)])
        frame.to_parquet(place / f"{i}.parquet")
    return place


def test_files_give_the_model_of_one_process(spark, folder):
    alone, _ = fit(IncrementalGaussianMixture(), folder, engine="threading", workers=1)
    model, report = fit(IncrementalGaussianMixture(), folder, engine=spark)
    assert dumps(model) == dumps(alone)
    assert [record.rows for record in report.partitions] == [400] * 3


def test_a_data_frame_is_learned_on_its_session(spark, folder):
    # One partition a file, in the order of the files: Spark reads the largest first, so the frame is made here.
    frame = spark.createDataFrame(pd.read_parquet(folder / "0.parquet")).coalesce(1)
    model, report = fit(IncrementalGaussianMixture(), frame)
    alone, _ = fit(IncrementalGaussianMixture(), folder / "0.parquet", engine="threading", workers=1)
    assert dumps(model) == dumps(alone)
    assert report.columns == tuple(NAMES)
    assert report.left_out == {"device": "text"}


def test_one_model_a_group(spark, folder):
    alone, _ = fit(IncrementalGaussianMixture(), folder, engine="threading", workers=1, by="device")
    groups, _ = fit(IncrementalGaussianMixture(), folder, engine=spark, by="device")
    assert list(groups) == [f"pump-{k}" for k in range(4)]
    assert all(dumps(groups[name]) == dumps(alone[name]) for name in alone)


def test_errors_of_tasks_in_plain_words(spark, folder, tmp_path):
    for name in ("0.parquet", "1.parquet"):
        shutil.copy(folder / name, tmp_path / name)
    pd.DataFrame(np.full((3, 3), np.inf), columns=NAMES).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(InputError, match="infinite number"):
        fit(IncrementalGaussianMixture(), tmp_path, engine=spark, columns=NAMES)
