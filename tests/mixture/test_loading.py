"""Model files of mixtures: the same model, no unused room, and damaged states refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everlearn
from everlearn.errors import ModelFileError
from everlearn.mixture import loading
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep import schedule
from examples import examples


def groups(n, D=2, K=3, seed=0):
    rng = np.random.default_rng(seed)
    centres = 6.0 * rng.normal(size=(K, D))
    return centres[rng.integers(K, size=n)] + rng.normal(size=(n, D))


@examples(5)
@given(n=st.integers(1, 1200), gaps=st.booleans())
def test_loaded_model_answers_and_learns_bit_for_bit(n, gaps):
    X = groups(n + 600)
    if gaps:
        X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    model = IncrementalGaussianMixture().partial_fit(X[:n])
    data = everlearn.dumps(model)
    loaded = everlearn.loads(data)
    assert everlearn.dumps(loaded) == data
    np.testing.assert_array_equal(loaded.score_samples(X[:20]), model.score_samples(X[:20]))
    model.partial_fit(X[n:])
    loaded.partial_fit(X[n:])
    assert everlearn.dumps(loaded) == everlearn.dumps(model)


@pytest.mark.parametrize(("n", "limit"), [(100, 11_000), (20_000, 160_000)])
def test_file_holds_no_unused_room(n, limit):
    assert len(everlearn.dumps(IncrementalGaussianMixture().partial_fit(groups(n, D=8, K=5)))) < limit


@pytest.fixture(scope="module")
def model():
    return IncrementalGaussianMixture().partial_fit(groups(1100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s._replace(searched=1), "search"),
        (lambda s: s._replace(n=s.n * 9), "search"),
        (lambda s: s._replace(frame=None), "no frame"),
        (lambda s: s._replace(model=None), "no components"),
        (lambda s: s._replace(reservoir=s.reservoir._replace(size=np.array([10**6]))), "sampled rows"),
        (lambda s: s._replace(reservoir=s.reservoir._replace(level=np.array([np.inf]))), "level"),
        (lambda s: s._replace(pending=s.pending._replace(size=3)), "pending"),
        (lambda s: s._replace(model=s.model._replace(known=99)), "components"),
        (lambda s: with_components(s, size=np.array([40])), "components"),
        (lambda s: with_components(s, mass=-s.model.components.mass), "stands for no row"),
        (lambda s: with_components(s, means=s.model.components.means[:, :1]), "shape"),
        (lambda s: with_components(s, heights=s.model.components.heights * np.nan), "not finite"),
        (lambda s: with_components(s, factors=-s.model.components.factors), "no precision"),
    ],
)
def test_damaged_states_are_refused(model, change, message):
    settings = model._core_.settings
    assert loading.check(model._state_, 2, 2800, settings) is None
    with pytest.raises(ModelFileError, match=message):
        loading.check(change(model._state_), 2, 2800, settings)


def with_components(state, **fields):
    return state._replace(model=state.model._replace(components=state.model.components._replace(**fields)))


def test_a_search_that_was_due_by_another_schedule_is_made_at_its_row(monkeypatch):
    """A file of a version that searched at 1,600 rows, saved while rows were pending for that search."""
    X = np.random.default_rng(0).normal(size=(2100, 2))
    with monkeypatch.context() as earlier:
        earlier.setattr(schedule, "next_search", lambda searched, warmup, *rest: 2 * searched or warmup)
        data = everlearn.dumps(IncrementalGaussianMixture(reservoir=2800).partial_fit(X[:1700]))
    model = everlearn.loads(data)
    assert model._state_.n == 1600
    assert model._state_.pending.size == 100
    model.partial_fit(X[1700:1999])
    assert model._state_.searched == 800
    model.partial_fit(X[1999:])
    assert model._state_.searched == 1600
    assert model._state_.n == 2100
    assert np.isfinite(model.score(X))
