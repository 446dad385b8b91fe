"""The natural constraint of NAT-oEM: hold the parameters near a reference, in the metric of its Fisher information.

Pamplona and Manzanera, "Naturally Constrained Online Expectation Maximization". The reference is taken at each step, at
the end of a class, every n rows, or when the stream changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.gaussian.ppca import PPCA, Fisher, Ready, fisher
from everlearn.monitoring import page_hinkley as change
from everlearn.monitoring.page_hinkley import PageHinkley
from everlearn.ppca.kernels import constraint as kernels
from everlearn.ppca.schedules import PowerSchedule, as_schedule

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Every:
    """Take a new reference after every `n` rows.

    Parameters
    ----------
    n : int
        Number of rows.
    """

    n: int


@dataclass(frozen=True)
class OnChange:
    """Take a new reference when the model's predictive log-likelihood drops.

    Parameters
    ----------
    detector : PageHinkley, default=PageHinkley()
        The test for a drop.
    """

    detector: PageHinkley = PageHinkley()  # noqa: RUF009 (it is frozen)


@dataclass(frozen=True)
class NaturalConstraint:
    """How strongly a model is held to what it knew, and when that is taken down.

    Parameters
    ----------
    strength : PowerSchedule or float, default=PowerSchedule(1.0, 0.9)
        The weight beta of the constraint at each row. A constant holds on however long the stream.
    reference : "step", "class", Every(n) or OnChange(detector), default="step"
        When the reference is taken: before each row, when a class ends (a label changes, or `end_class()` is called),
        every n rows, or when a change is detected. Until the first time, nothing is constrained.
    fisher : {"appendix", "body"}, default="appendix"
        The Fisher information of the paper's appendix, which is right, or what the body prints in equations 19 to 21.
    form : {"proximal", "paper"}, default="proximal"
        "proximal" minimises -Q + beta/2 |theta - theta*|^2, which does not depend on the data's unit and cannot
        overshoot; "paper" is the printed theta - beta/F (theta - theta*).
    clip : bool, default=False
        With form="paper", whether the weights beta/F are kept at most at one.

    Examples
    --------
    Whenever the stream changes, what was known so far is held on to, with a constant strength:

    >>> from everlearn import NaturalConstraint, OnChange, OnlinePPCA
    >>> constraint = NaturalConstraint(strength=1.0, reference=OnChange())
    >>> model = OnlinePPCA(n_components=3, learning_rate=0.01, constraint=constraint)
    """

    strength: PowerSchedule | float = PowerSchedule(1.0, 0.9)  # noqa: RUF009 (it is frozen)
    reference: Any = "step"
    fisher: str = "appendix"
    form: str = "proximal"
    clip: bool = False


class Reference(NamedTuple):
    """Parameters to be held to, and their diagonal Fisher information; `scalars` as the kernel lays them out."""

    mu: Array
    W: Array
    F_mu: Array
    F_W: Array
    scalars: Array

    @property
    def is_active(self) -> bool:
        """Whether a reference has been taken."""
        return bool(self.scalars[kernels.ACTIVE])

    @property
    def model(self) -> PPCA:
        """The parameters."""
        return PPCA(self.mu, self.W, float(self.scalars[kernels.REF_SIGMA2]))


def check(constraint: NaturalConstraint) -> NaturalConstraint:
    """Verify the values of a constraint."""
    as_schedule(constraint.strength, "constraint.strength")
    _one_of(constraint.fisher, "constraint.fisher", ("appendix", "body"))
    _one_of(constraint.form, "constraint.form", ("proximal", "paper"))
    reference = constraint.reference
    if isinstance(reference, OnChange) and isinstance(reference.detector, PageHinkley):
        change.check(reference.detector, "constraint.reference.detector")
    elif not (_is_period(reference) or reference in ("step", "class")):
        raise InputError(
            "constraint.reference must be 'step', 'class', Every(n) with n >= 1 or OnChange(PageHinkley(...)); "
            f"got {reference!r}."
        )
    return constraint


def _is_period(reference: Any) -> bool:
    return isinstance(reference, Every) and isinstance(reference.n, Integral) and reference.n >= 1  # type: ignore[unreachable]


def _one_of(value: Any, name: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise InputError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r}.")


def no_reference(d: int, q: int) -> Reference:
    """Room for a reference that has not been taken yet; with d = 0 for none ever."""
    zeros = np.zeros((d, q))
    return Reference(np.zeros(d), zeros, np.zeros(d), zeros.copy(), np.zeros(kernels.REFERENCE_SCALARS))


def take(model: Ready, *, body: bool = False) -> Reference:
    """Reference at the given parameters."""
    F: Fisher = fisher(model, body=body)
    return Reference(model.mu.copy(), model.W.copy(), F.mu, F.W, np.array([1.0, model.sigma2, F.sigma2]))
