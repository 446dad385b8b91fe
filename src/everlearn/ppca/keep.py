"""What is kept: the natural constraint of NAT-oEM holds the parameters near a reference, in the metric of its Fisher
information.

Pamplona and Manzanera, "Naturally Constrained Online Expectation Maximization". The reference is taken at each step, at
the end of a class, every n rows, or when the stream changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from everlearn.errors import InputError
from everlearn.monitoring import page_hinkley
from everlearn.monitoring.page_hinkley import PageHinkley
from everlearn.ppca.kernels import constraint as kernels
from everlearn.ppca.schedules import PowerSchedule, as_schedule
from everlearn.ppca.state import FactoredPPCA, Fisher, State


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


def check(constraint: NaturalConstraint) -> NaturalConstraint:
    """Verify the values of a constraint."""
    as_schedule(constraint.strength, "constraint.strength")
    for name, accepted in (("fisher", ("appendix", "body")), ("form", ("proximal", "paper"))):
        if getattr(constraint, name) not in accepted:
            raise InputError(
                f"constraint.{name} must be one of {', '.join(map(repr, accepted))}; got {getattr(constraint, name)!r}."
            )
    reference: Any = constraint.reference
    if isinstance(reference, OnChange) and isinstance(reference.detector, PageHinkley):
        page_hinkley.check(reference.detector, "constraint.reference.detector")
        return constraint
    rows: Any = reference.n if isinstance(reference, Every) else None
    is_period = isinstance(rows, Integral) and int(rows) >= 1
    if not is_period and reference not in ("step", "class"):
        raise InputError(
            "constraint.reference must be 'step', 'class', Every(n) with n >= 1 or OnChange(PageHinkley(...)); "
            f"got {reference!r}."
        )
    return constraint


def fisher(model: FactoredPPCA, *, body: bool = False) -> Fisher:
    """Diagonal Fisher information in O(d q^2), by the appendix of NAT-oEM (eq. 28, 29 and 32).

    With A = W M^-1 and c_i = (1 - A_i.W_i)/sigma2: F_mu = c, F_W[i,j] = (1 - sigma2 (M^-1)_jj) c_i + A_ij^2,
    F_sigma2 = ((d - q)/sigma2^2 + |M^-1|_F^2)/2. With `body`, what the body of the paper prints (eq. 19 to 21): the
    diagonal of C^-2, twice F_W, and tr C^-1.
    """
    F = Fisher(np.empty_like(model.mu), np.empty_like(model.W), np.empty(1))
    kernels.fisher(model, body, F, np.empty_like(model.W))
    return F


def take_reference(state: State, *, body: bool = False) -> None:
    """Make the parameters of `state` its reference, in place."""
    kernels.take_reference(state.model, body, state.reference, np.empty_like(state.W))
