"""The parts of a state hold what their fields say: sizes, and what each is derived from."""

import typing

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture
from mixture_toys import groups

D, M, N = 3, 150, 900
WORDS = {"positive", "nonnegative", "any", "gaps", "int64", "float32", "bool"}


def fitted(**parameters):
    """A model whose components are as the last row left them."""
    X = groups(np.random.default_rng(0), N, D, 3)[0] * [1.0, 50.0, 0.1] + 7.0
    return IncrementalGaussianMixture(**parameters).partial_fit(X), X


@pytest.mark.parametrize("parameters", [{"reservoir": M}, {"reservoir": 0}])
def test_arrays_have_the_shapes_that_are_written_beside_them(parameters):
    state = fitted(**parameters)[0]._state_
    room = len(state.model.components.mass)
    rows_kept = parameters["reservoir"] > 0
    sizes = {"1": 1, "3": 3, "C": room, "D": D, "M": parameters["reservoir"]}
    sizes |= {"A": 0 if rows_kept else D, "Q": 0 if rows_kept else 3}
    for part in (state.frame, state.model.components, state.model.shape, state.model.world.background, state.reservoir):
        for name, hint in typing.get_type_hints(type(part), include_extras=True).items():
            if typing.get_origin(hint) is typing.Annotated:
                wanted = tuple(sizes[word] for word in hint.__metadata__[0].split() if word not in WORDS)
                assert getattr(part, name).shape == wanted, (type(part).__name__, name)


def test_the_frame_is_the_median_and_a_power_of_two_near_the_spread():
    model, X = fitted(reservoir=M)
    frame = model._state_.frame
    np.testing.assert_array_equal(np.log2(frame.inverse), np.round(np.log2(frame.inverse)))
    np.testing.assert_allclose(frame.log_scale, -np.log(frame.inverse))
    scaled = X.std(axis=0) * frame.inverse
    assert ((scaled > 0.5) & (scaled < 2.5)).all()
    assert (np.abs(np.median(X, axis=0) - frame.centre) < X.std(axis=0)).all()


def test_components_hold_all_rows_and_their_frozen_factors():
    c = fitted(reservoir=M)[0]._state_.model.components
    K = c.size[0]
    assert c.total[0] == pytest.approx(N)
    assert c.mass[:K].sum() == pytest.approx(N, rel=0.01)  # the background has the rest
    assert (c.counts[:K] + c.fresh[:K] <= c.mass[:K] + 1e-9).all()
    assert not np.triu(c.factors[:K], 1).any()
    # Heights are those of the last refresh, since when masses have grown by a tenth at most.
    log_dets = 2.0 * np.log(np.diagonal(c.factors[:K], axis1=1, axis2=2)).sum(axis=1)
    wanted = np.log(c.mass[:K]) - 0.5 * (D * np.log(2.0 * np.pi) - log_dets)
    np.testing.assert_allclose(c.heights[:K], wanted, atol=0.15)


def test_the_reservoir_is_a_priority_sample():
    """Each kept priority is above the largest that was turned away, and the sample stands for all rows."""
    sample = fitted(reservoir=M)[0]._state_.reservoir
    assert (sample.size[0], sample.offered[0]) == (M, N)
    assert (sample.keys >= sample.level[0]).all()
    assert np.maximum(np.exp(sample.log_weights), np.exp(sample.level[0])).sum() == pytest.approx(N, rel=0.2)
