"""p-values of far rows, against the predictive law by numerical integration, and on streams of p-values."""

import numpy as np
import pytest

from everlearn.anomaly.kernels.far import CLUMP, FAR_LEVEL, KEPT, LASTING, count_far, far_log_p
from everlearn.anomaly.learn import init_far
from naive import anomaly as naive


def counted(log_p):
    """A memory that has counted rows with these p-values."""
    far = init_far()
    for value in log_p:
        count_far(far, value, 0.0)
    return far


def test_rows_that_are_not_far_keep_their_p_values():
    far = counted(np.log(np.random.default_rng(0).uniform(size=3000)))
    for p in (1.0, 0.3, FAR_LEVEL):
        assert far_log_p(far, np.log(p)) == np.log(p)
    assert np.isnan(far_log_p(far, np.nan))


def test_it_is_the_predictive_law_of_a_poisson_process_with_marks():
    """The twin integrates over both rates, of which the priors are Gamma laws, instead of using their closed forms."""
    log_p = np.log(np.random.default_rng(1).uniform(size=4000))
    far, excess = counted(log_p), np.log(FAR_LEVEL) - log_p[log_p < np.log(FAR_LEVEL)]
    for y in (0.5, 3.0, 12.0):
        expected = naive.predictive_far_p(y, excess, 4000)
        assert far_log_p(far, np.log(FAR_LEVEL) - y) == pytest.approx(np.log(expected), rel=1e-5)


def test_where_far_rows_have_heavy_tails_their_own_share_counts():
    """Excesses of which every tenth is 15 nats: with the exponential law alone, 15 nats would be one in 1,300."""
    log_p = np.log(np.random.default_rng(4).uniform(size=60_000))
    places = np.flatnonzero(log_p < np.log(FAR_LEVEL))[::10]
    log_p[places] = np.log(FAR_LEVEL) - 15.0
    far, excess = counted(log_p), np.log(FAR_LEVEL) - log_p[log_p < np.log(FAR_LEVEL)]
    for y in (5.0, 14.0):
        expected = naive.predictive_far_p(y, excess, 60_000)
        assert expected > 0.05 * FAR_LEVEL
        # Four in a hundred far rows follow another one within 20 rows, and are counted with it.
        assert np.exp(far_log_p(far, np.log(FAR_LEVEL) - y)) == pytest.approx(expected, rel=0.15)
    assert np.exp(far_log_p(far, np.log(FAR_LEVEL) - 15.5)) < 0.02 * FAR_LEVEL


@pytest.mark.parametrize("nats", [12.0, 90.0])
def test_one_fault_does_not_hide_the_next_one_like_it(nats):
    log_p = np.log(np.random.default_rng(5).uniform(size=20_000))
    log_p[10_000:10_050] = np.log(FAR_LEVEL) - nats
    assert far_log_p(counted(log_p), np.log(FAR_LEVEL) - nats) < np.log(1e-3 if nats < 30 else 1e-6)


@pytest.mark.parametrize("scale", [0.8, 1.0, 3.0], ids=["light", "right", "heavy"])
def test_far_rows_become_as_many_as_their_p_values_say(scale):
    """p-values whose tail has another scale are right after 100,000 rows, to four standard errors of the count.

    By the first tail, the heavy ones would be 7 times too many at 1e-4.
    """
    rng = np.random.default_rng(2)
    far, alarms, n = init_far(), 0, 300_000
    for u in rng.uniform(size=n):
        y = np.log(FAR_LEVEL) - np.log(u)
        log_p = np.log(FAR_LEVEL) - scale * y if y > 0.0 else np.log(u)
        alarms += far.rows[0] > 100_000 and far_log_p(far, log_p) < np.log(1e-4)
        count_far(far, log_p, 0.0)
    expected = 1e-4 * (n - 100_000)
    assert abs(alarms - expected) < 4.0 * np.sqrt(expected)


def test_far_rows_that_are_too_many_are_anomalies():
    """1 % of the rows 8 nats out still raise an alarm at one in 10,000; taken for usual, p would be 2e-3."""
    rng = np.random.default_rng(3)
    log_p = np.log(rng.uniform(size=10_000))
    log_p[::100] = np.log(FAR_LEVEL) - 8.0
    assert far_log_p(counted(log_p), np.log(FAR_LEVEL) - 8.0) < np.log(1e-4)


def test_far_rows_most_of_which_lie_far_beyond_a_tail_are_anomalies():
    """15 rows at some 7 nats among 4,000, and two usual ones: by their number not too many, but no tail is so."""
    log_p = np.log(FAR_LEVEL) + np.ones(4000)
    log_p[[1000, 3000]] = np.log(FAR_LEVEL) - np.array([0.2, 0.5])
    log_p[np.arange(500, 4000, 240)] = np.log(FAR_LEVEL) - np.linspace(5.5, 10.0, 15)
    assert far_log_p(counted(log_p), np.log(FAR_LEVEL) - 6.6) < np.log(0.5e-3)
    # Nearer, too: a dozen rows at 6 standard deviations were such a tail.
    nearer = np.where(log_p < np.log(FAR_LEVEL) - 1.0, log_p + 1.0, log_p)
    assert far_log_p(counted(nearer), np.log(FAR_LEVEL) - 5.0) < np.log(0.5e-3)
    # At a third of the distance they may be the tail of heavy tails, and are believed.
    y = np.where(log_p < np.log(FAR_LEVEL), (np.log(FAR_LEVEL) - log_p) / 3.0, -1.0)
    expected = naive.predictive_far_p(2.2, y[y > 0.0], 4000)
    assert far_log_p(counted(np.log(FAR_LEVEL) - y), np.log(FAR_LEVEL) - 2.2) == pytest.approx(np.log(expected))


def test_of_a_lasting_fault_the_first_rows_are_counted():
    far = counted(np.full(500, np.log(1e-9)))
    assert CLUMP <= far.size[0] <= CLUMP + 5
    assert far.rows[0] == 500


def test_a_farther_row_is_never_more_probable():
    """Also where far rows were more than expected, so that their share is above the level."""
    far = counted(np.tile([-0.5] * 340 + [np.log(1e-4)], 40))
    told = np.array([far_log_p(far, log_p) for log_p in np.linspace(-5.0, -300.0, 600)])
    assert (np.diff(told) < 0.0).all()


def test_the_latest_far_rows_are_kept():
    far = counted(np.where(np.arange(150_000) % 500 == 0, np.log(1e-4), -0.5))
    assert far.size[0] == 300 > KEPT
    expected = np.log((10 + KEPT) / (10 / FAR_LEVEL + far.rows[0] - far.numbers[300 % KEPT]))
    y = np.log(FAR_LEVEL / 1e-4)
    expected -= (10 + KEPT) * np.log1p(y / (10 + KEPT * y))
    assert far_log_p(far, np.log(1e-4)) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [20_000, 300_000], ids=["all kept", "oldest gone"])
def test_far_rows_of_a_fault_that_lasts_are_taken_back(rows):
    """Afterwards p-values are as if the rows of the fault had not come; those before the oldest far row never count."""
    log_p = np.log(np.random.default_rng(6).uniform(size=rows))
    log_p[-200:] = np.log(0.5)
    far, clean = counted(log_p), counted(log_p)
    assert (far.size[0] > KEPT) == (rows == 300_000)
    for held in range(200):
        count_far(far, np.log(FAR_LEVEL) - 20.0, float(held))
    assert far.size[0] < KEPT
    for y in (2.0, 8.0, 20.0):
        expected = far_log_p(clean, np.log(FAR_LEVEL) - y)
        # But for its first minute as rows that were counted, and twenty of the oldest far rows, whose places it took.
        assert far_log_p(far, np.log(FAR_LEVEL) - y) == pytest.approx(expected, rel=0.01 if rows == 20_000 else 0.05)
    # Counting goes on.
    before = far.size[0]
    count_far(far, np.log(FAR_LEVEL) - 1.0, LASTING - 1.0)
    assert far.size[0] == before + 1
    assert far.numbers[before] == far.rows[0]
