"""Model files name classes by tags; only known classes of the right sort are ever imported."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError, ModelFileError
from everlearn.file_tags import TAGS
from everlearn.persistence import registry
from everlearn.persistence.registry import class_named, is_estimator, is_named_tuple, is_value, register, tag_of


class Pair(NamedTuple):
    a: int
    b: int


@dataclass(frozen=True)
class Frozen:
    a: int


@dataclass
class Loose:
    a: int


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_every_tag_names_a_class_and_every_class_its_tag(tag):
    """Rooms can move: a class that moved without its tag would leave files that nobody can load."""
    cls = class_named(tag, lambda cls: is_estimator(cls) or is_value(cls))
    assert tag_of(cls) == tag


def test_a_class_of_ones_own_is_known_once_it_is_registered():
    with pytest.raises(InputError, match=r"A Pair cannot be saved.*registry\.register"):
        tag_of(Pair)
    assert register(Pair) is Pair
    assert register(Pair) is Pair  # once more is no mistake
    assert register(Frozen, "mine/1") is Frozen
    assert (tag_of(Pair), tag_of(Frozen)) == ("Pair", "mine/1")
    assert class_named("mine/1", is_value) is Frozen


def test_a_tag_that_is_taken_is_refused():
    register(Pair, "mine/1")
    for tag in ("mine/1", next(iter(TAGS))):
        with pytest.raises(InputError, match="already use the tag"):
            register(Frozen, tag)


@pytest.mark.parametrize("cls", [Loose, dict, int, tuple])
def test_what_can_change_after_it_was_made_is_refused(cls):
    with pytest.raises(InputError, match="neither a StreamEstimator, nor a NamedTuple, nor a frozen dataclass"):
        register(cls)


@pytest.mark.parametrize("tag", ["os:system", "builtins:eval", "antigravity", "", "x" * 10_000])
def test_a_file_cannot_name_what_is_no_tag(tag):
    with pytest.raises(ModelFileError, match="does not know") as raised:
        class_named(tag, lambda cls: True)
    assert len(str(raised.value)) < 400
    assert "antigravity" not in sys.modules


def test_a_class_of_another_sort_is_refused():
    """An estimator where a value is wanted would be built without the checks of one."""
    tag = tag_of(IncrementalGaussianMixture)
    assert class_named(tag, is_estimator) is IncrementalGaussianMixture
    with pytest.raises(ModelFileError, match="does not know"):
        class_named(tag, is_value)
    assert is_named_tuple(Pair)
    assert not is_named_tuple(tuple)
    assert not is_value(Loose)
    assert not is_estimator(IncrementalGaussianMixture())
