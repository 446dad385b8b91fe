"""The event log only reads what it is told, and says what an event's value means."""

import numpy as np
from scipy.stats import chi2

from everlearn.monitoring import event_log
from everlearn.monitoring.page_hinkley import ChangeState, PageHinkley, statistics

LEVEL = 1e-3


def scored(seed, n=400, D=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, rng.normal(size=n) - 3.0, rng.chisquare(D, size=n) * 3.0


def watch(state, X, density, distance, first_row=0):
    alarm = event_log.alarm_thresholds(LEVEL, X.shape[1])
    detector = event_log.detector_settings(PageHinkley())
    return event_log.watch(state, X, density, distance, first_row=first_row, alarm=alarm, detector=detector)


def test_a_novelty_has_its_p_value_and_a_change_the_log_density_of_its_row():
    X, density, distance = scored(0)
    density[300:] -= 3.0
    observed = (~np.isnan(X)).sum(axis=1)
    seen = observed > 0
    p = chi2.sf(distance, np.maximum(observed, 1))
    expected = [(int(t), "novelty", p[t]) for t in np.flatnonzero(seen & (p < LEVEL))]
    _, drops = statistics(PageHinkley(), ChangeState(), density[seen])
    rows = np.flatnonzero(seen)
    expected += [(int(rows[i]), "change", density[rows[i]]) for i in np.flatnonzero(drops)]
    found = event_log.events(watch(event_log.init(), X, density, distance))
    assert any(event.kind == "change" for event in found)
    assert [(e.row, e.kind) for e in found] == [(row, kind) for row, kind, _ in sorted(expected, key=lambda e: e[0])]
    np.testing.assert_allclose([e.value for e in found], [e[2] for e in sorted(expected, key=lambda e: e[0])])


def test_what_is_watched_stays_as_it_is():
    arrays = scored(1)
    before = [array.copy() for array in arrays]
    watch(event_log.init(), *arrays)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_any_split_gives_the_same_log():
    X, density, distance = scored(2)
    whole = watch(event_log.init(), X, density, distance)
    parts = event_log.init()
    for start, stop in ((0, 1), (1, 150), (150, 400)):
        parts = watch(parts, X[start:stop], density[start:stop], distance[start:stop], first_row=start)
    assert event_log.events(parts) == event_log.events(whole)
    np.testing.assert_allclose(parts.totals, whole.totals)
    np.testing.assert_array_equal(parts.memory, whole.memory)


def test_the_ring_keeps_the_latest_events():
    X, density, distance = scored(3)
    whole = event_log.events(watch(event_log.init(), X, density, distance))
    kept = event_log.events(watch(event_log.init(max_events=5), X, density, distance))
    assert len(whole) > 5
    assert kept == whole[-5:]


def test_rows_without_a_model_or_a_value_do_not_count():
    X, density, distance = scored(4, n=10)
    X[3], density[5] = np.nan, np.nan
    log = watch(event_log.init(), X, density, distance)
    counted = ~np.isnan(X).all(axis=1) & ~np.isnan(density)
    np.testing.assert_allclose(log.totals, [counted.sum(), density[counted].sum()])
