"""What the parameters of a mixture come to, once the columns of its stream are known."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.base.scaling import Frame
from everlearn.errors import InputError
from everlearn.figmn import learn as incremental
from everlearn.figmn import serving as answering
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.serving import PairSettings
from everlearn.figmn.state import Settings
from everlearn.monitoring import event_log as monitor
from everlearn.monitoring import page_hinkley as change
from everlearn.monitoring.page_hinkley import PageHinkley

Array = NDArray[np.float64]

# max_components="auto" keeps the precisions within 2^24 numbers (128 MiB).
MAX_COMPONENTS = 200
MAX_NUMBERS = 2**24
# Under forgetting a component fades; below this count it is gone.
FADED = 0.05


class Constants(NamedTuple):
    """What the parameters and the frame of a stream come to."""

    frame: Frame
    inverse_scale: Array
    log_scale: Array
    settings: PairSettings
    alarm: Array
    detector: Any


class MixtureSettings:
    """Checks of a mixture's parameters, and the settings that they give."""

    if TYPE_CHECKING:
        delta: float
        beta: float
        scale: Any
        warmup: Any
        max_components: Any
        merging: bool
        prune: tuple[float, float] | None
        update: str
        forgetting: Any
        covariance: str
        dtype: str
        second_look: bool
        novelty_level: float
        change_detector: PageHinkley | None
        device: str | None

    def _check_compound_parameters(self) -> None:
        """Refuse at the start what would otherwise fail when the warm-up ends."""
        if self.prune is not None:
            _check_prune(self.prune)
        if self.change_detector is not None:
            change.check(self.change_detector, "change_detector")

    def _warmup_rows(self, D: int) -> int:
        return min(max(200, 5 * D), 2000) if self.warmup == "auto" else int(self.warmup)

    def _empty(self, D: int) -> MixtureState:
        return incremental.empty(D, diagonal=self.covariance == "diag")

    def _given_scale(self, D: int) -> Array:
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape not in ((), (D,)) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise InputError(
                f"scale must be 'auto' or a positive standard deviation for each of {D} columns; got {self.scale!r}."
            )
        return np.broadcast_to(scale, (D,)).copy()

    def _constants_for(self, frame: Frame) -> Constants:
        D = len(frame.scale)
        copying = self.merging and not self.second_look and self.forgetting != "adaptive"
        return Constants(
            frame,
            1.0 / frame.scale,
            np.log(frame.scale),
            answering.settings_for(self._settings_for(frame), frame.variance, copying=copying),
            monitor.alarm_thresholds(self.novelty_level, D),
            monitor.detector_settings(self.change_detector or PageHinkley()),
        )

    def _settings_for(self, frame: Frame) -> Settings:
        D = len(frame.scale)
        auto = max(2, min(MAX_COMPONENTS, MAX_NUMBERS // (D if self.covariance == "diag" else D * D)))
        fading = self.forgetting is not None and self.forgetting != 1.0
        min_age, min_count = (0.0, FADED) if fading else (np.inf, 0.0)
        if self.prune is not None:
            min_age, min_count = _check_prune(self.prune)
        return Settings(
            centre=frame.centre,
            initial_variance=self.delta * frame.variance,
            thresholds=incremental.novelty_thresholds(self.beta, D),
            paper=self.update == "paper",
            forgetting=float(self.forgetting) if isinstance(self.forgetting, Real) else 1.0,
            min_age=min_age,
            min_count=min_count,
            max_components=auto if self.max_components == "auto" else int(self.max_components),
            max_merge_cost=incremental.COMPACTION_COST if self.merging else 0.0,
            log_scale=np.zeros(D),
        )


def _check_prune(prune: Any) -> tuple[float, float]:
    if len(prune) != 2 or not all(isinstance(value, Real) and float(value) >= 0 for value in prune):
        raise InputError(f"prune must be None or (min_age, min_count), two numbers from 0 on; got {prune!r}.")
    return float(prune[0]), float(prune[1])
