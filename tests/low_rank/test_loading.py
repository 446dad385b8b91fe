"""States of low-rank mixtures from files: sound ones pass, each damage is refused by name."""

import numpy as np
import pytest

from everlearn.errors import ModelFileError
from everlearn.low_rank import loading
from everlearn.low_rank.state import Settings
from low_rank_toys import learned, several

D, SETTINGS = 20, Settings(4, 8, 50, 100, 16, 0, 64, 1.0, 2**60, 0)
X = several(np.random.default_rng(0), 180, D, K=2)


@pytest.fixture(scope="module")
def state():
    return learned(X, SETTINGS)


def part(name):
    """A change of some fields of one part of the model."""
    return lambda state, **fields: state._replace(
        model=state.model._replace(**{name: getattr(state.model, name)._replace(**fields)})
    )


components, waiting, room, reservoir = map(part, ("components", "waiting", "room", "reservoir"))

DAMAGES = {
    "no components": lambda s: s._replace(model=None),
    "no scale": lambda s: s._replace(prior_noise=0.0),
    "pending rows but no search": lambda s: s._replace(pending=s.pending._replace(size=3)),
    "search should have been adopted": lambda s: s._replace(n=200, pending=s.pending._replace(size=60)),
    "should have been made": lambda s: s._replace(searched=1),
    "more directions than it has": lambda s: components(s, used=s.model.components.used + 9),
    "stands for no row": lambda s: components(s, n=0.0 * s.model.components.n),
    "more rows wait": lambda s: waiting(s, size=s.model.waiting.size + 8),
    "in the room": lambda s: room(s, size=np.array([16])),
    "counts more sampled rows": lambda s: reservoir(s, size=np.array([101])),
    "offered fewer rows": lambda s: reservoir(s, offered=np.array([1])),
    "no unit vector": lambda s: components(s, directions=1.1 * s.model.components.directions),
    "no scatter along": lambda s: components(s, scatter=0.0 * s.model.components.scatter),
    "shape": lambda s: components(s, mean=s.model.components.mean[:, :3]),
    "finite": lambda s: components(s, mean=np.nan * s.model.components.mean),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_damaged_states_are_refused(state, message):
    with pytest.raises(ModelFileError, match=message):
        loading.check(DAMAGES[message](state), D, SETTINGS)


def test_sound_states_pass(state):
    assert (state.model.components.used > 0).any()
    loading.check(state, D, SETTINGS)
    loading.check(learned(X[:30], SETTINGS), D, SETTINGS)
    searching = learned(np.concatenate([X, X[:30]]), SETTINGS)
    assert (searching.n, searching.pending.size) == (200, 10)
    loading.check(searching, D, SETTINGS)


def test_other_columns_or_settings_are_refused(state):
    with pytest.raises(ModelFileError, match="shape"):
        loading.check(state, D + 1, SETTINGS)
    with pytest.raises(ModelFileError):
        loading.check(state, D, SETTINGS._replace(room=8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s._replace(n=30), "has no components"),
        (lambda s: s._replace(pending=s.pending._replace(size=50)), "warm-up is too long"),
        (lambda s: s._replace(pending=s.pending._replace(weights=-s.pending.weights)), "weight that cannot be"),
    ],
)
def test_damaged_warm_ups_are_refused(change, message):
    with pytest.raises(ModelFileError, match=message):
        loading.check(change(learned(X[:30], SETTINGS)), D, SETTINGS)
