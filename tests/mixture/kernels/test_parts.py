"""The parts of a state hold what their fields say: sizes, and what each is derived from."""

import typing

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.by_moments import PARTS
from mixture_toys import components, groups, shape_of

D, M, N = 3, 100, 300
WORDS = {"positive", "nonnegative", "any", "gaps", "int64", "float32", "bool"}


@pytest.fixture(scope="module")
def fitted():
    """The state of a model, whose components are as the last row left them, and its rows."""
    X = groups(np.random.default_rng(0), N, D, 3)[0] * [1.0, 50.0, 0.1] + 7.0
    with np.errstate(over="ignore"):  # of hashed row numbers, where kernels are not compiled
        return IncrementalGaussianMixture(2, reservoir=M).partial_fit(X)._state_, X


def check_shapes(part, sizes):
    for name, hint in typing.get_type_hints(type(part), include_extras=True).items():
        if typing.get_origin(hint) is typing.Annotated:
            wanted = tuple(sizes[word] for word in hint.__metadata__[0].split() if word not in WORDS)
            assert getattr(part, name).shape == wanted, (type(part).__name__, name)


def test_arrays_have_the_shapes_that_are_written_beside_them(fitted):
    state, _ = fitted
    model = state.model
    sizes = {"1": 1, "3": 3, "C": len(model.components.mass), "D": D, "M": M, "A": 0, "Q": 0}
    for part in (state.frame, model.components, model.shape, model.world.background, state.reservoir):
        check_shapes(part, sizes)
    # Where no rows are kept, each component has an axis and Gaussians along it.
    Z, label = groups(np.random.default_rng(1), 60, D, 2)
    looking = components(Z, np.eye(2)[label], shape_of(D), room=5, parts=PARTS)
    check_shapes(looking, sizes | {"C": 5, "A": D, "Q": PARTS})


def test_the_frame_is_the_median_and_a_power_of_two_near_the_spread(fitted):
    (_, frame, *_), X = fitted
    np.testing.assert_array_equal(np.log2(frame.inverse), np.round(np.log2(frame.inverse)))
    np.testing.assert_allclose(frame.log_scale, -np.log(frame.inverse))
    scaled = X.std(axis=0) * frame.inverse
    assert ((scaled > 0.5) & (scaled < 2.5)).all()
    assert (np.abs(np.median(X, axis=0) - frame.centre) < X.std(axis=0)).all()


def test_components_hold_all_rows_and_their_frozen_factors(fitted):
    c = fitted[0].model.components
    K = c.size[0]
    assert c.total[0] == pytest.approx(N)
    assert c.mass[:K].sum() == pytest.approx(N, rel=0.01)  # the background has the rest
    assert (c.counts[:K] + c.fresh[:K] <= c.mass[:K] + 1e-9).all()
    assert not np.triu(c.factors[:K], 1).any()
    # Heights are those of the last refresh, since when masses have grown by a tenth at most.
    log_dets = 2.0 * np.log(np.diagonal(c.factors[:K], axis1=1, axis2=2)).sum(axis=1)
    wanted = np.log(c.mass[:K]) - 0.5 * (D * np.log(2.0 * np.pi) - log_dets)
    np.testing.assert_allclose(c.heights[:K], wanted, atol=0.15)


def test_the_reservoir_is_a_priority_sample(fitted):
    """Each kept priority is above the largest that was turned away, and the sample stands for all rows."""
    sample = fitted[0].reservoir
    assert (sample.size[0], sample.offered[0]) == (M, N)
    assert (sample.keys >= sample.level[0]).all()
    assert np.maximum(np.exp(sample.log_weights), np.exp(sample.level[0])).sum() == pytest.approx(N, rel=0.2)
