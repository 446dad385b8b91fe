"""The order in which tests run."""

from pathlib import Path

_TESTS = Path(__file__).parent


def compiled_once(items):
    """The tests in an order in which two workers compile different kernels.

    xdist gives the first half to one worker and the second to another. One begins with PPCA, the other with mixtures,
    and by the time that either needs the kernels of the other, numba's cache holds them.
    """
    one, other = _of(items, "ppca", "variational", "low_rank"), _of(items, "figmn", "mixture")
    first = {*one, *other}
    rest = [item for item in items if item not in first]
    middle = max(len(items) // 2 - len(one), 0)
    return [*one, *rest[:middle], *other, *rest[middle:]]


def _of(items, *folders):
    return [item for item in items if item.path.relative_to(_TESTS).parts[0] in folders]
