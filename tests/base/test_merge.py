"""Merging many models: a tree of bounded fan-in, in any order, from a stream of models."""

import numpy as np
import pandas as pd
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.base.merge import FAN_IN, Merger, bytes_of
from everlearn.errors import InputError, MergeError
from everlearn.persistence.model_file import dumps


def small(seed, n=40, **parameters):
    rows = np.random.default_rng(seed).normal(size=(n, 2)) + 8 * (seed % 2)
    return IncrementalGaussianMixture(**parameters).partial_fit(pd.DataFrame(rows, columns=["a", "b"]))


@pytest.fixture(scope="module")
def fleet():
    return [small(seed) for seed in range(FAN_IN + 40)]


@pytest.mark.slow
def test_many_models_know_what_all_know_whatever_their_order(fleet):
    merged = everlearn.merge(fleet)
    assert merged.n_samples_seen_ == 40 * len(fleet)
    np.testing.assert_allclose(np.sort(merged.means_[:, 0]), [0, 8], atol=0.05)
    assert dumps(everlearn.merge(fleet[::-1])) == dumps(merged)


def test_models_can_be_summed(fleet):
    summed = sum(fleet[:2])
    assert dumps(summed) == dumps(fleet[0] + fleet[1])
    one = sum(fleet[:1])
    assert one is not fleet[0]
    assert dumps(one) == dumps(fleet[0])
    with pytest.raises(TypeError, match="unsupported operand"):
        sum(fleet[:2], 1)


def test_an_iterator_is_consumed_one_by_one(fleet, monkeypatch):
    alive, most, merger = 0, 0, Merger(fan_in=4)
    original = IncrementalGaussianMixture._merge

    def counted(self, others, **options):
        nonlocal alive, most
        most = max(most, alive)
        alive -= len(others)
        return original(self, others, **options)

    monkeypatch.setattr(IncrementalGaussianMixture, "_merge", counted)
    for model in fleet[:64]:
        merger.add(model)
        alive += 1
    assert merger.merged().n_samples_seen_ == 40 * 64
    # Four of each of the three levels, at most.
    assert most <= 12


def test_large_models_are_merged_in_smaller_groups(fleet, monkeypatch):
    merged, groups = IncrementalGaussianMixture.merge, []

    def counted(self, *others, **options):
        groups.append(len(others))
        return merged(self, *others, **options)

    monkeypatch.setattr(IncrementalGaussianMixture, "merge", counted)
    room = 5.5 * bytes_of(fleet[0])
    assert bytes_of(fleet[0]) >= fleet[0]._state_.pending.rows.nbytes > 0
    merger = Merger(group_bytes=room)
    for model in fleet[:36]:
        merger.add(model)
    assert merger.merged().n_samples_seen_ == 40 * 36
    assert groups[:6] == [6] * 6  # the sixth model fills the room
    assert max(groups) == 6
    # A single model that is larger than the room still finds another one to be merged with.
    merger = Merger(group_bytes=1)
    for model in fleet[:5]:
        merger.add(model)
    assert merger.merged().n_samples_seen_ == 200


def test_components_are_reduced_at_the_root(fleet):
    assert everlearn.merge(iter(fleet), n_components=1).n_components_ == 1


def test_what_does_not_fit_is_refused_when_it_comes(fleet):
    merger = Merger()
    merger.add(fleet[0])
    for other in (OnlinePPCA(1), IncrementalGaussianMixture(covariance_type="diag"), small(0, n=1).to_sklearn()):
        with pytest.raises((MergeError, InputError)):
            merger.add(other)
    nameless = IncrementalGaussianMixture().partial_fit(np.zeros((3, 5)))
    with pytest.raises(MergeError, match="2 and 5 columns"):
        merger.add(nameless)
    with pytest.raises(InputError, match="one or more"):
        everlearn.merge([])
    with pytest.raises(InputError, match="one or more"):
        everlearn.merge(iter([]))


def test_one_word_for_many_models(fleet):
    others = [small(seed, max_components=5) for seed in range(6)]
    with pytest.warns(UserWarning, match="max_components='auto' and max_components=5") as said:
        everlearn.merge([*fleet[:6], *others])
    assert len(said) == 1


def test_models_that_learned_nothing():
    empty = IncrementalGaussianMixture()
    assert not everlearn.merge(iter([empty, empty]))._is_started()
    assert everlearn.merge(iter([empty, small(1)])).n_samples_seen_ == 40
