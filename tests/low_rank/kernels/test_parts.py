"""The parts of a low-rank state hold what their fields say: sizes, and how they hang together."""

import typing

import numpy as np
import pytest

from everlearn.low_rank.kernels.parts import Components, Reservoir, Room, Waiting
from everlearn.low_rank.state import Settings, readout_of
from low_rank_toys import dense, learned, several

D, SETTINGS = 16, Settings(4, 8, 50, 200, 16, 0, 64, 1.0, 2**60, 0)
WORDS = {"positive", "nonnegative", "any", "gaps", "int64", "float32"}


@pytest.fixture(scope="module")
def state():
    return learned(several(np.random.default_rng(0), 360, D, K=2), SETTINGS)


def test_arrays_have_the_shapes_that_are_written_beside_them(state):
    model = state.model
    sizes = {"1": 1, "K": len(model.components.n), "D": D, "Q": 4, "W": 8, "M": 200, "H": 16}
    parts = {Components: model.components, Waiting: model.waiting, Room: model.room, Reservoir: model.reservoir}
    for kind, part in parts.items():
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            words = hint.__metadata__[0].split()
            wanted = tuple(sizes[word] for word in words if word not in WORDS)
            values = getattr(part, name)
            assert values.shape == wanted, (kind.__name__, name)
            assert "nonnegative" not in words or (values >= 0).all(), (kind.__name__, name)


def test_sketches_are_orthonormal_and_within_the_whole_scatter(state):
    c = state.model.components
    for j, used in enumerate(c.used):
        U, scatter = c.directions[j, :used], c.scatter[j, :used]
        np.testing.assert_allclose(U @ U.T, np.eye(used), atol=1e-9)
        assert (np.diff(scatter) <= 0.0).all()
        assert c.trace[j] == pytest.approx(c.diagonal[j].sum())
        # What is along the directions is a part of the scatter of each column.
        assert ((scatter[:, None] * U * U).sum(axis=0) <= c.diagonal[j] * (1.0 + 1e-9)).all()


def test_all_rows_are_counted(state):
    """Each is learned by components, or is among the strange ones."""
    model = state.model
    assert state.n == 360
    assert model.components.mass.sum() + model.room.weights[: model.room.size[0]].sum() == pytest.approx(360.0)
    assert model.reservoir.offered[0] == 360


def test_the_read_out_is_loadings_and_noise_of_a_covariance(state):
    c = state.model.components
    out = readout_of(c, state.prior_noise)
    for j in range(len(c.n)):
        C = dense(c, out, j)
        assert out.log_det[j] == pytest.approx(np.linalg.slogdet(C)[1])
        r = out.rank[j]
        assert (out.loading[j, :r] > 0.0).all()
        assert not out.loading[j, r:].any()
        # |B (x - mean)|^2 is what Woodbury's identity takes off the distance by the noise alone.
        e = np.random.default_rng(1).normal(size=D)
        taken = ((out.B[j, 1:] @ e) ** 2).sum()
        assert e @ np.linalg.solve(C, e) == pytest.approx(e @ (out.inverse_psi[j] * e) - taken)
