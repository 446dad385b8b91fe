"""Slow, obvious twins of the kernels: NumPy with explicit inverses, one row and one component at a time."""

from naive.gaussians import *  # noqa: F403
from naive.mixtures import *  # noqa: F403
from naive.monitoring import *  # noqa: F403
from naive.ppca import *  # noqa: F403
from naive.tiles import *  # noqa: F403
from naive.value_function import *  # noqa: F403
from naive.variational import *  # noqa: F403
