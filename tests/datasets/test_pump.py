"""The pump stream: its faults are where the labels say, and nowhere else."""

import numpy as np
import pytest

from everlearn.datasets.pump import (
    BEARING,
    COLUMNS,
    CURRENT,
    DISCHARGE,
    FLOW,
    MOTOR,
    SPEED,
    START,
    SUCTION,
    VIBRATION,
    pump_stream,
    write_csv,
)
from everlearn.errors import InputError
from everlearn.streams.sources.opening import open_source
from everlearn.streams.time_gaps import TimeGapDetector


@pytest.fixture(scope="module", params=[0, 1])
def stream(request):
    return pump_stream(seed=request.param)


def during(stream, kind):
    (fault,) = [fault for fault in stream.faults if fault.kind == kind]
    return (stream.times >= fault.begin) & (stream.times < fault.end)


def before(stream, kind, seconds=1800):
    (fault,) = [fault for fault in stream.faults if fault.kind == kind]
    return (stream.times >= fault.begin - seconds) & (stream.times < fault.begin)


def test_a_seed_gives_one_stream():
    one, again, other = pump_stream(seed=3), pump_stream(seed=3), pump_stream(seed=4)
    np.testing.assert_array_equal(one.X, again.X)
    assert not np.allclose(one.X[:100], other.X[:100])
    for seed in (-1, 1.5, "a", True):
        with pytest.raises(InputError, match="seed must be an integer"):
            pump_stream(seed=seed)


def test_one_row_a_second_but_for_three_minutes(stream):
    assert stream.X.shape == (43_020, len(COLUMNS))
    (gap,) = TimeGapDetector().find(stream.times.tolist())
    assert (gap.offset, gap.seconds) == (6 * 3600, 181.0)
    assert during(stream, "rows missing").sum() == 0
    assert stream.times[25_020] == START.timestamp() + 7 * 3600  # where the regime changes


def test_only_the_frozen_sensor_repeats_a_value(stream):
    repeats = np.diff(stream.X, axis=0) == 0
    frozen = during(stream, "frozen sensor")[1:] & during(stream, "frozen sensor")[:-1]
    np.testing.assert_array_equal(repeats[:, DISCHARGE], frozen)
    assert not np.delete(repeats, DISCHARGE, axis=1).any()


def test_only_the_suction_sensor_is_out(stream):
    np.testing.assert_array_equal(np.isnan(stream.X[:, SUCTION]), during(stream, "sensor out"))
    assert np.isfinite(np.delete(stream.X, SUCTION, axis=1)).all()


def test_faults_show_in_the_sensors_that_are_blamed(stream):
    """In standard deviations of the half hour before, at the end of the fault."""
    for kind, columns in (
        ("bearing fault", (BEARING, VIBRATION)),
        ("cavitation", (SUCTION, VIBRATION)),
        ("drift", (MOTOR,)),
        ("regime change", (SPEED, CURRENT, FLOW, DISCHARGE)),
    ):
        usual, odd = stream.X[before(stream, kind)], stream.X[during(stream, kind)][-200:]
        shift = np.abs(odd.mean(axis=0) - usual.mean(axis=0)) / usual.std(axis=0)
        (fault,) = [fault for fault in stream.faults if fault.kind == kind]
        assert set(columns) <= set(fault.columns)
        assert (shift[list(columns)] > 3).all(), (kind, shift)


def test_healthy_rows_are_those_outside_the_labels(stream):
    healthy = stream.is_healthy()
    assert healthy.sum() == 43_020 - (20 + 15 + 20 + 60 + 5 + 120) * 60
    assert healthy[: 2 * 3600].all()
    assert not healthy[-1]


def test_sensors_depend_on_each_other_and_on_their_past(stream):
    X = stream.X[: 2 * 3600]
    correlation = np.corrcoef(X.T)
    assert correlation[FLOW, CURRENT] > 0.8
    assert correlation[FLOW, SUCTION] < -0.5
    for column in (FLOW, MOTOR, BEARING):
        assert np.corrcoef(X[:-1, column], X[1:, column])[0, 1] > 0.9


def test_the_file_is_read_with_its_times_and_units(stream, tmp_path):
    write_csv(stream, tmp_path / "pump.csv")
    with open_source(str(tmp_path / "pump.csv")) as source:
        batches = list(source.batches())
    assert source.columns.names == list(COLUMNS)
    assert source.columns.time == "timestamp"
    np.testing.assert_array_equal(np.concatenate([batch.times for batch in batches]), stream.times)
    np.testing.assert_allclose(np.concatenate([batch.X for batch in batches]), stream.X, atol=5.1e-5)
    assert source.columns.time_format.show(stream.times[0]) == "2026-11-05T00:00:00+00:00"
