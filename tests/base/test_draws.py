"""Sources of randomness and numbers of draws."""

import numpy as np
import pytest

from everlearn.base.draws import check_draws, generator
from everlearn.errors import InputError


def test_equal_seeds_draw_alike_and_others_do_not():
    first = generator(3).random(5)
    np.testing.assert_array_equal(generator(3).random(5), first)
    np.testing.assert_array_equal(generator(np.random.RandomState(3)).random(5), first)
    assert not np.isin(generator(4).random(5), first).any()
    assert not np.isin(generator(None).random(5), generator(None).random(5)).any()


def test_a_source_goes_on_from_draw_to_draw():
    source = np.random.RandomState(0)
    assert not np.isin(generator(source).random(5), generator(source).random(5)).any()


@pytest.mark.parametrize("n", [0, -3])
def test_no_draws_are_refused(n):
    with pytest.raises(InputError, match=f"n_samples must be at least 1; got {n}"):
        check_draws(n)
    check_draws(1)
