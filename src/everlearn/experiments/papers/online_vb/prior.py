"""What the prior does: means M0 other than zero, and priors that know something.

Section 2.2 reads eq. 5 as a belief that forgetting attenuates while it "partially restores" the prior, and expects of
eq. 6 that the factor is low at changes and high between them *if the prior is noninformative*. The simulations of the
paper have M0 = 0 only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everlearn import VariationalPPCA
from everlearn.experiments.papers.online_vb.figures import CHANGES, DIRECTIONS, PERIOD, T, degrees_off, follow, stream
from everlearn.experiments.papers.online_vb.paper import PAPER
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Findings, Table, measured
from everlearn.typing import Array

NOISE = 1.0
# G0 of section 3.1, and one that counts like some ten rows.
FLAT, SHARP = 1e-3, 10.0
# The axis of the last period, to which forgetting returns there, and one that the stream never has.
LAST, NEVER = np.asarray(DIRECTIONS[2], dtype=np.float64), np.array([3.0, 3.0])
MEANS = {"zero": np.zeros(2), "the last period's axis": LAST, "an axis that never comes": NEVER}
# Rows after a change at which the error is read: so few that the prior still counts.
SOON = 5
# The factor is low at a change when it falls below the first, and high between changes above the second.
LOW, HIGH = 0.7, 0.9


class Followed(NamedTuple):
    """Error in degrees and forgetting factor of every run and row."""

    errors: Array  # (runs, rows)
    factors: Array  # (runs, rows)

    def soon(self) -> Array:
        """Error of each run shortly after the change to the last period."""
        return np.asarray(self.errors[:, CHANGES[1] + SOON - 1])

    def lowest(self) -> float:
        """The mean factor of the runs where it is lowest in the ten rows from a change on, mean of both changes."""
        mean = self.factors.mean(axis=0)
        return float(np.mean([mean[change : change + 10].min() for change in CHANGES]))

    def between(self) -> float:
        """Mean factor in the second halves of the periods."""
        return float(self.factors.reshape(-1, 3, PERIOD)[:, :, PERIOD // 2 :].mean())


@PAPER.item("prior", "Section 2.2: forgetting restores the prior, also one whose mean is not zero")
def prior(context: Context) -> Findings:
    """Errors and factors on the data of section 3.1 by the prior's mean and precision."""
    n_runs = context.pick(3, 20)
    found: dict[tuple[float, str], Followed] = {}
    for precision in (FLAT, SHARP):
        for name in context.track(MEANS, f"means, G0 = {precision:g}"):
            found[precision, name] = _runs(context, n_runs, precision, MEANS[name])
    return Findings(_about(), _claims(found), [_table(found)], [], n_runs)


def _runs(context: Context, n_runs: int, precision: float, mean: Array) -> Followed:
    truth = np.repeat(DIRECTIONS, PERIOD, axis=0)
    errors, factors = np.empty((n_runs, T)), np.empty((n_runs, T))
    for i in range(n_runs):
        model = VariationalPPCA.paper(
            1,
            noise_variance=NOISE**2,
            prior_mean=mean[:, np.newaxis],
            prior_precision=precision,
            forgetting="adaptive",
            trace=T,
            random_state=i,
        )
        axes, factors[i] = follow(model, stream(DIRECTIONS, NOISE, np.random.default_rng([context.seed, i])))
        errors[i] = degrees_off(axes, truth)
    return Followed(errors, factors)


def _table(found: dict[tuple[float, str], Followed]) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{precision:g}",
            name,
            measured(runs.soon()),
            measured(runs.errors.mean(axis=1)),
            f"{runs.lowest():.2f}",
            f"{runs.between():.2f}",
        ]
        for (precision, name), runs in found.items()
    ]
    columns = [
        "G0",
        "M0",
        f"degrees off {SOON} rows after the last change",
        "all rows",
        "lowest factor at a change",
        "factor between changes",
    ]
    return Table("By the prior's precision and mean", columns, rows)


def _claims(found: dict[tuple[float, str], Followed]) -> list[Claim]:
    zero, last, never = MEANS
    soon = {key: float(runs.soon().mean()) for key, runs in found.items()}
    flat = [found[FLAT, name] for name in MEANS]
    low, high = max(runs.lowest() for runs in flat), min(runs.between() for runs in flat)
    between = [found[SHARP, name].between() for name in MEANS]
    return [
        Claim(
            "The forgetting factor attenuates the previous belief and partially restores the prior (eq. 5).",
            f"{SOON} rows after the change to the axis that the prior (G0 = {SHARP:g}) names, the axis is "
            f"{soon[SHARP, last]:.1f} degrees off, with the flat prior of section 3.1 {soon[FLAT, zero]:.1f} "
            f"(threshold: half), and with a prior that names another axis {soon[SHARP, never]:.1f}.",
            soon[SHARP, last] < 0.5 * soon[FLAT, zero] and soon[SHARP, never] > soon[FLAT, zero],
        ),
        Claim(
            "If the prior is noninformative, the factor becomes low when the environment changes and stays high in "
            "stationary periods.",
            f"With G0 = {FLAT:g} and each of the three means: at most {low:.2f} at a change, at least {high:.2f} "
            f"between changes (thresholds: {LOW:g} and {HIGH:g}). With G0 = {SHARP:g} it lies between "
            f"{min(between):.2f} and {max(between):.2f} between changes: the condition is needed.",
            low < LOW and high > HIGH,
        ),
    ]


def _about() -> str:
    return (
        "Data of section 3.1. VariationalPPCA.paper(forgetting='adaptive', prior_mean=M0, prior_precision=G0); M0 is "
        "zero as in the paper, the axis of the last period (-3, 3), or (3, 3), which never comes."
    )
